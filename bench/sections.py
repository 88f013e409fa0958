"""Sections of bench/results/README.md: what each says, its targets and pictures (page.py)."""
from section import Bars, Section, Target
from sections_learning import SECTIONS as LEARNING


def cycles(campaign, least):
    """Targets of a campaign: so many cycles, and no violation in them."""
    return (Target(f"{campaign}.cycles", "value", "at least", least),
            Target(f"{campaign}.violations", "value", "at most", 0))


ROUND_10M, ROUND_100M = "round.10m.90ms-1gbit", "round.100m.150ms-100mbit"
PUSH_TARGETS = (
    Target("push.durable.mtls.xchacha20", "ratio", "at least", 0.40),
    Target("push.durable.mtls.aes256gcm", "ratio", "at least", 0.55, 0.65),
    Target("push.server.durable.4shards.peak_bytes", "ratio", "at most", 1),
)
FRONTDOOR_ARMS = ("longhaul", "gloo", "torchft", "torchft-streaming", "hivemind")
PLACES = ("five-continents", "geostationary", "two-hops", "deep", "moon", "mobile")
DRILL_TARGETS = (
    *(Target(f"drill.{place}.{fault}", "ratio", "at most", 1) for place in PLACES
      for fault in ("cut-5", "cut-8", "cut-20", "storm-10")),
    *(Target(f"drill.{place}.{fault}.stall", "max", "at most", 3, unit="s") for place in PLACES
      for fault in ("kill-server", "hub-cut-20", "away-45")),
    Target("drill.violations", "value", "at most", 0),
)
SECTIONS = (
    *LEARNING,
    Section(
        "codec", "Codecs: bits, encoding, folding",
        "64 of 4096 values carried where a name says so; `fold` is decode and fold together.",
        targets=(
            Target("codec.bits.topk-sign.64of4096", "value", "at most", 0.140, unit="bit"),
            Target("codec.encode.topk-sign.64of4096", "ratio", "at least", 0.20, 0.35),
            Target("codec.encode.topk-sign.64of4096.torch", "ratio", "at least", 5),
            Target("codec.fold.topk-sign.64of4096", "ratio", "at least", 0.70, 0.9),
        ),
        bars=(Bars("codec-encode.svg", "encode, as a share of e = beta*e + d at 12 bytes a value",
                   "codec.encode.", "ratio", "", most=1,
                   lines=((0.2, "target"), (0.35, "stretch"))),
              Bars("codec-fold.svg", "decode and fold, as a share of a loop over ready values",
                   "codec.fold.", "ratio", "", lines=((0.7, "target"), (0.9, "stretch"))),
              Bars("codec-bits.svg", "bits a parameter", "codec.bits.", "value", "bit",
                   log=True))),
    Section(
        "push", "Durable pushes beside TLS alone",
        "From the sealed frame in the outbox to durable acknowledgement and fold, 64 MiB a push; "
        "[push.py](../push.py). The host is shared and its pace changes within minutes, so each "
        "ratio is of a ceiling measured by turns with its figures, the median of the turns (least "
        "to most in brackets); `.of_disk` and `.of_transport` say what the disk and gRPC alone "
        "allow. Its snapshots are of an older program, four joins each: a section below has those "
        "of today's. Where the time goes: [notes](../notes/2026-11-23-push.md).",
        targets=(
            *PUSH_TARGETS,
            Target("push.server.alone.peak_bytes", "ratio", "at most", 1),
            Target("push.server.many.peak_bytes", "ratio", "at most", 1),
            Target("push.server.link.peak_bytes", "ratio", "at most", 1),
            Target("push.many.mtls.8workers", "ratio", "at least", 1),
            Target("push.link.150ms-1gbit", "ratio", "at least", 0.9),
        ),
        bars=(Bars("push-tls.svg", "as a share of one stream of TLS 1.3", "push.", "ratio", "",
                   only=("durable.mtls.xchacha20", "durable.mtls.aes256gcm",
                         "alone.mtls.xchacha20"),
                   lines=((0.4, "XChaCha20"), (0.55, "AES-256-GCM"))),)),
    Section(
        "push", "Durable pushes on a slower host", part="held", flags="--rounds 14",
        text="The same four shards at once, more turns of them, on another day of the shared host: "
        "its disk and its memory were slower ([notes](../notes/2026-11-23-results.md)). Where "
        "the time goes: [notes](../notes/2026-11-23-push.md#pushes-and-a-lone-one).",
        targets=PUSH_TARGETS),
    Section(
        "push", "A snapshot beside TLS alone", part="snapshot", flags="--snapshot-runs 9",
        text="A worker without a replica has a server's dense state, unsealed and sealed with the "
        "job's key, over mutual TLS on one host of two processors, the rows by turns; "
        "[push.py](../push.py). `.large` is a state of 268 MB, the others are of 67; `.join` has "
        "the new connection in it; `.of_transport` is beside gRPC moving the same bytes over one "
        "connection without work. Why it is no more: "
        "[notes](../notes/2026-11-23-push.md#a-snapshot).",
        targets=(
            Target("push.snapshot.mtls.large", "ratio", "at least", 0.85),
            Target("push.snapshot.mtls", "ratio", "at least", 0.85),
            Target("push.snapshot.mtls.sealed", "ratio", "at least", 0.5),
            Target("push.snapshot.mtls.aes256gcm", "ratio", "at least", 0.5),
        ),
        bars=(Bars("push-snapshot-tls.svg", "as a share of one stream of TLS 1.3", "push.snapshot.",
                   "ratio", "", only=("mtls", "mtls.large", "mtls.sealed", "mtls.aes256gcm"),
                   lines=((0.5, "sealed"), (0.85, "unsealed"))),)),
    Section(
        "durable", "What a durable acknowledgement costs",
        "Eight workers push to one shard, small and medium frames; by turns the server's log is "
        "synced and is not (a preloaded library, no setting); [durable.py](../durable.py). A "
        "commit is the wait from the opened seal to the durable record. Of what the sync adds to "
        "its 99th percentile either is wanted: 10 ms, or twice the disk's own; while the disk "
        "stands still one asker of it meets one slow sync and eight meet eight, so both stand "
        "there. What was tried: [notes](../notes/2026-11-22-durable.md).",
        targets=tuple(target for size in ("small", "medium") for target in (
            Target(f"durable.{size}.pushes_per_s", "ratio", "at least", 0.8),
            Target(f"durable.{size}.added_p99_ms", "value", "at most", 10, unit="ms"),
            Target(f"durable.{size}.added_p99_ms", "ratio", "at most", 1),
            Target(f"durable.{size}.added_p99_by_turn_ms", "ratio", "at most", 1),
            Target(f"durable.{size}.added_beside_askers_p99_ms", "ratio", "at most", 1),
        ))),
    Section(
        "round", "One exchange between three regions over long links",
        "All three cut at once, each push is durably answered and folded by all; "
        "[round.py](../round.py). Bytes are both ways, stalls are of an asynchronous run.",
        targets=(
            Target(f"{ROUND_10M}.seconds", "value", "at most", 0.6, unit="s"),
            Target(f"{ROUND_10M}.bytes_per_region", "value", "at most", 0.7e6, unit="B"),
            Target(f"{ROUND_10M}.stall_s", "value", "at most", 0, unit="s"),
            Target(f"{ROUND_100M}.seconds", "value", "at most", 1.2, unit="s"),
            Target(f"{ROUND_100M}.bytes_per_region", "value", "at most", 6e6, unit="B"),
            Target(f"{ROUND_100M}.stall_s", "value", "at most", 0, unit="s"),
            Target(f"{ROUND_100M}.between_s", "value", "at most", 0.15, unit="s"),
            Target("round.10m.kill-worker.others_stall_s", "value", "at most", 0, unit="s"),
            Target("round.10m.kill-server.stall_s", "value", "at most", 0, unit="s"),
        ),
        bars=(Bars("round-10m.svg", "seconds of one exchange, 10 M parameters, 90 ms x 1 Gbit/s",
                   f"{ROUND_10M}.", "value", "s", only=("seconds",), lines=((0.6, "target"),),
                   peers="10m.90ms-1gbit", log=True),
              Bars("round-100m.svg", "seconds of one exchange, 100 M, 150 ms x 100 Mbit/s",
                   f"{ROUND_100M}.", "value", "s", only=("seconds",), lines=((1.2, "target"),),
                   peers="100m.150ms-100mbit", log=True)),
        peers=True),
    Section(
        "drill", "Cuts, storms and kills on long and bad links",
        "README's settings, a small model, six places harder than three-regions.world: what "
        "each is stands in the conditions, and as settings in [drill](../drill). Each figure is "
        "of the region that took longest of what it may take: seconds from the fault's end "
        "until it heard a decision and folded a record of every shard again, beside 3 s and "
        "four round trips after a cut or a storm (eight where a server or the coordinator is "
        "new, fourteen where a worker is). `.stall`: how long the others, or all where it "
        "befell all, went without a decision, less what is usual there. `given_up`: how often "
        "the coordinator held a worker for gone; all replicas agreed and every push and unit was "
        "counted once wherever `violations` is 0. [drill.py](../drill.py)",
        targets=DRILL_TARGETS),
    Section(
        "drill", "The same on a busy machine, and schedules that nobody had seen", part="busy",
        command="./bench/run.sh drill --held-out 8",
        text="Compilers and tests took both processors meanwhile (load 6 to 13). `held-out`: "
        "places, faults and moments that a seed drew.",
        targets=DRILL_TARGETS),
    Section(
        "balancer", "The balancer's policy beside a clairvoyant optimum",
        "Simulated: the policy alone under a virtual clock, six regions, links and units drawn "
        "from seeds, estimates that are noisy and late; no process, no network. A figure is the "
        "makespan by that of an oracle that knows every speed and fall beforehand and may cut "
        "units as it likes (a linear programme with residency in it). `ratio`: the time that a "
        "mean unit needs over a mean link by that of its training; at 4 links differ tenfold. "
        "`alike`: the same policy with every link taken for the mean one; `blind`: as if units "
        "arrived at once; `weighted`: 0.6 utilisation + 0.4 network; `static`: shares by speed at "
        "the start. Ends in brackets: the least and the most of the seeds. "
        "[balancer.py](../balancer.py), [its instances](../balancer)",
        targets=(
            Target("balancer.ratio-0.2.finish.mean", "value", "at most", 1.02),
            Target("balancer.ratio-0.2.finish.p95", "value", "at most", 1.03),
            Target("balancer.ratio-1.finish.mean", "value", "at most", 1.15),
            Target("balancer.ratio-4.finish.mean", "value", "at most", 1.30),
            Target("balancer.ratio-4.finish_by_blind", "value", "at most", 0.90),
            Target("balancer.violations", "value", "at most", 0),
        )),
    Section(
        "sim", "Many regions, and the rules of leasing, simulated",
        "The real cores under a virtual clock, a modelled trainer, modelled links: no process, no "
        "network, no learning ([what is modelled](../sim)). `scale`: equal speeds; a pair's bytes "
        "times regions x (regions - 1) is what servers send while each region pushes once: it "
        "grows with the square. `rules`: makespan by the time in which all speeds together would "
        "train the run, mean of the seeds. `goodput`: makespan without failures by that with a "
        "region of four killed so often. [sim.py](../sim.py)",
        targets=(
            Target("sim.goodput.60s.level", "value", "at least", 0.95),
            Target("sim.goodput.15s.level", "value", "at least", 0.80),
            *(Target(f"sim.rules.{scene}.finish_by_level", "value", "at most", 1) for scene in (
                "equal", "equal-slowed", "4-2-1", "4-2-1-slowed", "16-4-1", "far", "lossy",
                "32-regions", "short"))),
        bars=(Bars("sim-scale.svg", "tokens/s of all regions, as a share of the sum of speeds",
                   "sim.scale.", "ratio", ""),)),
    Section(
        "sim", "The same with a budget of a tenth of the data; shards at steps of their own",
        part="budget", command="./bench/run.sh sim --parts budget,stagger",
        text="Six regions of 200 units each, speeds 4, 2 and 1. `tenth`: makespan by the bound, "
        "mean of the seeds, with two units in work at once; `wide`: with the programs' own window, "
        "8 units here. `own`: the part of the units that their home's region trained. `stagger`: "
        "the most bytes of pushes that a region of 2, 4 or 8 shards sends in half a second, beside "
        "all shards at one step. [sim.py](../sim.py)",
        targets=(
            *(Target(f"sim.budget.{scene}.finish.own", "value", "at least", 0.95)
              for scene in ("tenth", "tenth.wide")),
            *(Target(f"sim.stagger.{shards}.peak_bytes", "ratio", "at most", 1.5 / shards)
              for shards in (2, 4, 8)),
        )),
    Section(
        "slowed", "A region slowed to a quarter in the middle of a run, beside the simulation",
        "Real processes on emulated links: four regions of one speed, 100 ms and 100 Mbit/s "
        "apart, synthetic trainers. After two fifths of the time one worker is started again at "
        "a quarter of its speed. Seconds from the phase `run` until all units are credited, "
        "by rule of leasing, beside the median of bench_sim on the same scene. "
        "[slowed.py](../slowed.py)",
        targets=(Target("slowed.finish", "ratio", "at most", 1.05),
                 Target("slowed.finish", "ratio", "at least", 0.95))),
    Section(
        "many", "Workers as processes beside one server",
        "1.08 M parameters in one shard, synthetic trainers that take no processor, loopback with "
        "mutual TLS. `server_cpu_a_push_ms`: the server's processor time by pushes decided; "
        "`a_delivery`: by records sent to followers. The parabola through the sizes parts it "
        "into what is spent anyway, `each_push_ms`, and `each_follower_ms` that one more "
        "follower adds to a push. Memory is PSS. "
        "[many.py](../many.py)"),
    Section(
        "frontdoor", "What a synchronisation costs a PyTorch loop, beside its peers",
        "The same loop in two regions, once for each way to synchronise them every 30 steps: the "
        "Python package with real workers and servers, DiLoCo in a dozen lines over gloo, torchft "
        "and hivemind. `lost_s` are the seconds that a window of 30 steps takes longer than one "
        "that synchronises nothing, `share_percent` the same of that window; `sent_bytes` leave a "
        "region in a window, headers included. Ends in brackets: the least and the most window. "
        "What is exchanged differs: longhaul sends 64 of 4096 values as signs, with error "
        "feedback, the others every value in fp32, as they do by default; what that does to the "
        "loss is another question ([learning](../learning)). Steps are modelled as far as they "
        "last 0.4 s, as if a GPU computed ([frontdoor](../frontdoor)). "
        "[frontdoor.py](../frontdoor.py)",
        targets=(Target("frontdoor.longhaul.share_percent", "value", "at most", 2, unit="%"),),
        bars=(Bars("frontdoor-lost.svg", "seconds of training lost a synchronisation",
                   "frontdoor.", "value", "s",
                   only=tuple(f"{arm}.lost_s" for arm in FRONTDOOR_ARMS)),
              Bars("frontdoor-sent.svg", "bytes that a region sends a synchronisation",
                   "frontdoor.", "value", "B",
                   only=tuple(f"{arm}.sent_bytes" for arm in FRONTDOOR_ARMS), log=True))),
    Section(
        "frontdoor", "The same with 100 M parameters in three regions, and 300 M in one",
        part="large", command="./bench/run.sh frontdoor --size 100m,300m",
        text="Nothing is computed: each step moves a thirtieth of the tensors by noise, so that "
        "the loops' processors have as little to do as beside a GPU; what is cut, pushed, folded "
        "and renewed is as much as ever. All regions, workers and servers share the processors of "
        "one host. `cut_ms` and `renew_ms` are what all cuts, and all renewals, of a window took, "
        "beside a memcpy of the parameters in the same windows, by turns, on one thread too. "
        "[frontdoor](../frontdoor)",
        targets=tuple(target for size in ("100m", "300m") for target in (
            Target(f"frontdoor.{size}.longhaul.share_percent", "value", "at most", 2, unit="%"),
            Target(f"frontdoor.{size}.longhaul.cut_ms", "ratio", "at most", 1.5),
            Target(f"frontdoor.{size}.longhaul.renew_ms", "ratio", "at most", 2)))),
    Section(
        "frontdoor_client", "A boundary, a cut and a renewal of somebody else's loop",
        "What the calls of liblonghaul.so cost the loop, beside a memcpy of the same parameters on "
        "the same threads, by turns; `boundary.us` is one where nothing is due. A renewal adds a "
        "value to every parameter, a sparse one to one of each 64, anywhere among them. "
        "[frontdoor_client.c](../frontdoor_client.c)",
        targets=(Target("frontdoor.boundary.us", "value", "at most", 50, unit="us"),
                 *(Target(f"frontdoor.{name}.{size}.ms", "ratio", "at most", limit)
                   for size in ("10m", "100m")
                   for name, limit in (("cut", 1.5), ("renew", 2), ("sparse", 2)))),
        ),
    Section(
        "showcase", "A model is fine-tuned by three regions together",
        "A model of Hugging Face's learns English, then three regions fine-tune it on their own "
        "small parts of texts in German, French and Spanish: each alone (`alone`), and in one run "
        "over emulated links (`run`), with all parameters (`full`) and with adapters (`lora`). "
        "Steps, batches and rates are the same either way. With `--alone-also` each region alone "
        "is trained a second time, for another number of steps, and the better of both models "
        "counts (`alone_steps`). `tokens` are what all three trained in the run, beside what the "
        "three models alone that are compared were trained on: fewer, where a region alone is "
        "better after fewer steps. A row of a region and a "
        "language is the run's loss on text that nobody trained, beside that of the region alone; "
        "below 1 the run is better. One seed, one size. `seconds` are of loops that share the "
        "processors of one host. [showcase](../showcase)",
        targets=tuple(Target(f"showcase.{arm}.{region}.{language}", "ratio", "at most", 1)
                      for arm in ("full", "lora") for region in ("asia", "europe", "america")
                      for language in ("de", "fr", "es")),
        counted="losses of a region and a language are lower in the run.",
        bars=(Bars("showcase-loss.svg", "held-out loss: the base, regions alone, and the run",
                   "showcase.mean.", "value", "nat"),)),
    Section(
        "recovery", "A server with a shard of 1 GB is killed",
        "From kill -9 to the next acknowledged push, the launcher's 0.2 s before it starts another "
        "process included; [recovery.py](../recovery.py).",
        targets=(
            Target("recovery.server.worst_s", "value", "at most", 5, unit="s"),
        )),
    Section(
        "boundary", "A cut and a renewal of the built-in trainer",
        "What training waits for, beside a memcpy of the parameters on the same processors, by "
        "turns; `in_place` is both as they were while worker and trainer shared one array. View "
        "and delta are made beside training.",
        targets=tuple(Target(f"boundary.{name}.{size}.ms", "ratio", "at most", limit)
                      for size in ("10m", "100m")
                      for name, limit in (("cut", 1.5), ("renew", 2), ("sparse", 2)))),
    Section(
        "ranks", "A step of a region's ranks",
        "Sums of gradients beside the backward pass, in one bucket after it, and a sharded "
        "optimizer, by turns, on one host; beside one rank's part with nobody to wait for. "
        "[ranks.c](../ranks.c)",
        targets=(Target("ranks.beside.ms", "ratio", "at most", 1),
                 Target("ranks.sharded.ms", "ratio", "at most", 1.1))),
    Section(
        "pause", "A checkpoint of 1 GB beside the folding",
        "The longest that any one function kept the server's loop, in seconds in which a "
        "checkpoint was made and in those between them, where it is the fold of a push; beside a "
        "checkpoint a fold also goes into the copy. [pause.py](../pause.py)",
        targets=(
            Target("pause.added_ms", "value", "at most", 50, unit="ms"),
        )),
    Section(
        "campaign-kill", "Real processes are killed, stopped and run out of disk, judged offline",
        "Coordinator, two servers of two shards each, three workers; kill -9, SIGSTOP for 0.2 to "
        "20 s and a full disk for 0.2 to 8 s, each of every role; "
        "[kill.py](../../tests/crash/kill.py).",
        targets=cycles("kill", 1000)),
    Section(
        "campaign-kill-finish", "kill -9 alone, with leases by estimated finish",
        "[kill.py](../../tests/crash/kill.py) `--faults kill --balance finish`: every unit is "
        "credited once.",
        targets=cycles("kill", 200)),
    Section(
        "campaign-kill-one-server", "The same with both shards on one server",
        "[kill.py](../../tests/crash/kill.py) `--servers 1`",
        targets=cycles("kill", 1000)),
    Section(
        "campaign-kill-standbys", "The same with a standby of each server",
        "Pushes are acknowledged by both, and whoever takes over is the owner; "
        "[kill.py](../../tests/crash/kill.py) `--standbys`",
        targets=cycles("kill", 1000)),
    Section(
        "campaign-python", "Training loops of Python, their workers and servers are killed",
        "kill -9, and SIGSTOP for 0.2 to 20 s, of loops of the Python package, workers and "
        "servers; judged as above, and the mass of what was trained is found again bit for bit: "
        "`wrong` are parameters of which that is not so; "
        "[trainers.py](../../tests/crash/trainers.py).",
        targets=(*cycles("python", 1000), Target("python.kills", "value", "at least", 500),
                 Target("python.wrong", "value", "at most", 0))),
    Section(
        "campaign-power", "Power cuts under real processes, judged offline",
        "ext4 images, shut down without a flush; [power.py](../../tests/crash/power.py).",
        targets=cycles("power", 300)),
    Section(
        "campaign-exact", "Mass in fixed point, across kill -9 and power cuts of workers",
        "What workers put in is what the log and their residuals hold, bit for bit. `wrong`: "
        "parameters of which that is not so; `missing`: those of which a power cut took just what "
        "[rule 11](../../server/docs/0000-protocol.md#rule-11) gives up, and the worker said so; "
        "[exact.py](../../tests/crash/exact.py).",
        targets=(
            Target("exact.wrong", "value", "at most", 0),
            Target("exact.violations", "value", "at most", 0),
        )),
    Section(
        "campaign-standby", "Owners that die or are held up, and standbys that take over",
        "Seconds from the kill, or the stop, to the next push that the shard acknowledges; "
        "[standby.py](../../tests/crash/standby.py).",
        targets=(
            Target("standby.seconds_to_next_push", "max", "at most", 2, unit="s"),
            Target("standby.violations", "value", "at most", 0),
        )),
    Section(
        "campaign-sim", "Seeds of the simulator, all faults on",
        "[campaign.py](../../tests/sim/campaign.py)",
        targets=(
            Target("sim.seeds", "value", "at least", 100000),
            Target("sim.violations", "value", "at most", 0),
            Target("sim.seeds_per_core_minute", "value", "at least", 1000, unit="1/min"),
        )),
    Section(
        "campaign-sim", "Seeds with more lost and damaged disks",
        "Among all faults a disk is only lost where the promises cover its loss; here more are. "
        "With the campaign above, at least the 75,136 lost and 75,044 damaged ones of the first "
        "campaign of this kind.",
        part="disks",
        command="tests/sim/campaign.py --sim build/release/tests/sim/sim --jobs 2 "
        "--faults all,disks",
        targets=(
            Target("sim.violations", "value", "at most", 0),
            Target("sim.disks_lost", "value", "at least", 75136 - 42034),
            Target("sim.disks_damaged", "value", "at least", 75044 - 41670),
        ), awaited=True),
    Section(
        "campaign-sim", "Seeds since encoding has a lane of its own",
        "Pushes are encoded beside the disk's work since then, so all seeds mean other runs.",
        part="encode",
        command="tests/sim/campaign.py --sim build/release/tests/sim/sim --jobs 2 "
        "--faults all,disks --from 8400000 --minutes 11",
        targets=(
            Target("sim.seeds", "value", "at least", 10000),
            Target("sim.violations", "value", "at most", 0),
        )),
    Section(
        "campaign-sim", "Seeds with kills, partitions, recalls and stealing",
        "Leases by the balancer's policy, over one to four epochs of data: units are recalled, go "
        "to other regions and travel there, run twice, are pinned and moved by hand. Each is "
        "credited once. [campaign.py](../../tests/sim/campaign.py)",
        part="balance",
        command="tests/sim/campaign.py --sim build/release/tests/sim/sim --jobs 2 --seeds 10000 "
        "--faults balance,travel,ahead,epochs,kill,power,worker_kill,worker_power,crash,"
        "coordinator,partition,network",
        targets=(
            Target("sim.seeds", "value", "at least", 10000),
            Target("sim.violations", "value", "at most", 0),
            Target("sim.units.stolen", "value", "at least", 10000),
            Target("sim.units.ran_twice", "value", "at least", 100),
            Target("sim.units.begun_back", "value", "at least", 100),
        )),
    Section(
        "campaign-region", "Seeds of a region of ranks",
        "The state machine that keeps a region's ranks together, under a virtual clock: processes "
        "that are killed or stand still at any point, cut connections, communicators that are "
        "never made, fail or hang, lost devices. It must end with equal, right parameters, or "
        "with a clear word. [campaign.py](../../tests/region/campaign.py)",
        command="tests/region/campaign.py --region build/release/tests/region/region",
        targets=(
            Target("region.seeds", "value", "at least", 100000),
            Target("region.failed", "value", "at most", 0),
        ), awaited=True),
    Section(
        "mutants", "Mutants of the protocol's code",
        "Small mistakes, made by rule; a test has to see each. Judged are the 40 of each class "
        "with the lowest ids that build; `made` counts all. [tests/mutants](../../tests/mutants)",
        targets=(
            Target("mutants.tried", "value", "at least", 300),
            Target("mutants.least_of_a_class", "value", "at least", 20),
            Target("mutants.survived", "value", "at most", 0),
            Target("mutants.untried", "value", "at most", 0),
        )),
    Section("loader", "The loader over a cold, slow source", "[loader.c](../loader.c)",
            bars=(Bars("loader-cold.svg", "as a share of what stands beside it", "loader.", "ratio",
                       "", only=("cold.mib_s", "cold.one.mib_s", "cached.mib_s")),)),
)
