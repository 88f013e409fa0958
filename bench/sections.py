"""Sections of bench/results/README.md: their texts, targets and pictures (page.py)."""
from section import Bars, Section, Target
from sections_grid import SECTION as GRID
from sections_learning import SECTIONS as LEARNING


ROUND_10M, ROUND_100M = "round.10m.90ms-1gbit", "round.100m.150ms-100mbit"
PUSH_TARGETS = (
    Target("push.durable.mtls.xchacha20", "ratio", "at least", 0.40),
    Target("push.durable.mtls.aes256gcm", "ratio", "at least", 0.55, 0.65),
    Target("push.server.durable.4shards.peak_bytes", "ratio", "at most", 1),
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
        )),
    Section(
        "push", "Durable pushes beside TLS alone",
        "From the sealed frame in the outbox to durable acknowledgement and fold, 64 MiB a push; "
        "[push.py](../push.py). The host is shared and its pace changes within minutes, so each "
        "ratio is of a ceiling measured by turns with its figures, the median of the turns (least "
        "to most in brackets); `.of_disk` and `.of_transport` say what the disk and gRPC alone "
        "allow.",
        targets=(
            *PUSH_TARGETS,
            Target("push.server.alone.peak_bytes", "ratio", "at most", 1),
            Target("push.server.many.peak_bytes", "ratio", "at most", 1),
            Target("push.server.link.peak_bytes", "ratio", "at most", 1),
            Target("push.many.mtls.8workers", "ratio", "at least", 1),
            Target("push.link.150ms-1gbit", "ratio", "at least", 0.9),
        )),
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
                   peers="10m.90ms-1gbit", log=True),),
        peers=True),
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
        targets=(Target("frontdoor.longhaul.share_percent", "value", "at most", 2, unit="%"),)),
    GRID,
    Section(
        "recovery", "A server with a shard of 1 GB is killed",
        "From kill -9 to the next acknowledged push, the launcher's 0.2 s before it starts another "
        "process included; [recovery.py](../recovery.py).",
        targets=(
            Target("recovery.server.worst_s", "value", "at most", 5, unit="s"),
        )),
)
