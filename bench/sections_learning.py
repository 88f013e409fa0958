"""Sections of bench/results/README.md that are of bench/learning."""
from section import Bars, Section, Target

LONG_RULE = "ours:p=0.075:eta=1.7:rate=0.0036"
DENSER = "ours:p=0.06:start=0.3:eta=1.4:beta=1"

SECTIONS = (
    Section(
        "learning", "Loss per token: asynchronous and compressed beside synchronous and dense",
        "How it was trained, and what was not run: [bench/learning](../learning). A gap is the "
        "mean of paired seeds, in brackets the ends of its 95 % interval; below 0 is better than "
        "the best synchronous, dense arm. `ours` has eta 2 here, as it was shipped until "
        "2026-11-28; eta 1.4 is below. One size, one length, one schedule, and hardly any "
        "staleness: no gap here is one of asynchrony alone, and the gaps are those of the run's "
        "end ([what these figures are not](../learning/README.md#what-these-figures-are-not)).",
        targets=(
            Target("learning.gap_to_sync_dense_percent", "value", "at most", 1.5),
            Target("learning.gap_to_sync_dense_percent", "max", "at most", 0),
            Target("learning.gap_to_sync_dense_percent.p64", "max", "at most", 0.5),
            Target("learning.curve.worst_percent", "max", "at most", 1, unit="%"),
            Target("learning.seeds", "value", "at least", 5),
        ),
        bars=(Bars("learning-gaps.svg", "gap to the best synchronous, dense arm: held-out loss",
                   "learning.gap_to_sync_dense_percent", "value", "%",
                   lines=((0, "sync dense"),), most=10),),
        drawn=(("learning-tokens.svg", "loss against tokens"),
               ("learning-bytes.svg", "loss against bytes"),
               ("learning-wallclock.svg", "loss against hours of a modelled 7 B run"))),
    Section(
        "learning", "What asynchrony, kappa and stagger are worth", part="attribution",
        command="bench/learning/attribution.py --results bench/results/learning-attribution.jsonl",
        text="The same codec in eight cells: {asynchronous, BSP} x kappa {0, 0.25} x shards cut "
        "{at steps of their own, together}, each with the eta of 1.4, 2 and 3 that ended lowest "
        "for it on seeds 301 to 303. An effect is what asynchrony, kappa 0.25 or cuts of "
        "their own change in the held-out loss at the run's end, beside BSP, kappa 0 or cuts "
        "together, in percent of the seed's mean; below 0 is better. In brackets is the 95 % "
        "interval: paired, over the seeds' own effects, or `.pooled`, by the noise that an "
        "additive model of seeds and cells leaves over. A gap is beside the synchronous, dense "
        "baseline of the same seeds. With `--screen 1` the same lines give eta 2 in all cells "
        "(201 to 205). [attribution.py](../learning/attribution.py)",
        targets=(Target("learning.attribution.seeds", "value", "at least", 8),),
        bars=(Bars("learning-attribution.svg", "effect on the held-out loss; below 0 is better",
                   "learning.attribution.effect", "value", "%"),)),
    Section(
        "learning", "A rule for long runs: screening", part="rule",
        command="bench/learning/rule.py --test 304-316 "
        "--shipped 1600=ours:p=0.075:eta=1.4 --name learning.screening "
        "--results bench/results/learning-rule.jsonl",
        text="Small transformers at several lengths N (rounds): what the shipped rule and others "
        "for density p, decay beta and step eta end at, beside the best synchronous, dense arm of "
        "that length. A gap is the mean of paired seeds, in brackets its 95 % interval; below 0 is "
        "better. `learning.screening.nN` is of the rule of 2026-11-26, `shipped` rows beside it "
        "(`ours` at N = 1,600 is an older one), `curve` rows where "
        "the whole curve is worst, `middle` rows over its middle half. It was made to choose what "
        "is worth testing: three seeds, one small size, and the baseline chosen on the same seeds. "
        "`test` rows are of fresh seeds, for arms that were picked on those three. `rate` is an "
        "arm's own peak of the learning rate. "
        "[rule.py](../learning/rule.py), [what was not run](../learning/README.md"
        "#a-rule-for-long-runs)",
        bars=(Bars("learning-rule.svg", "N = 1,600: gap to the best synchronous, dense arm",
                   "learning.screening.n1600", "value", "%", lines=((0, "sync dense"),)),)),
    Section(
        "learning", "The rule before at N = 1,600: thirteen fresh seeds", part="n1600",
        command="bench/learning/rule.py --seeds 304-316 --shipped 1600=ours:p=0.075:eta=1.4 "
        "--name learning.before --results bench/results/learning-n1600.jsonl",
        text="What was shipped until 2026-11-27 (p 0.075, beta 1, eta 1.4) beside the "
        "dense baseline of the "
        "screening above, on seeds that chose neither. All lines are of one commit and one "
        "machine: on another one the same seeds end 0.4 % elsewhere, for sums round otherwise. "
        "Rows as above. `ours:p=0.075:rate=0.004` is the other candidate of the plan: eta 2, and "
        "two thirds of the learning rate's peak that is best for the baseline. It is within the "
        "target, and was not what was shipped. [rule.py](../learning/rule.py)",
        targets=(Target("learning.before.n1600", "max", "at most", 0.5, unit="%"),
                 Target("learning.before.n1600.ours:p=0.075:rate=0.004", "max", "at most", 0.5,
                        unit="%"),
                 Target("learning.before.curve.n1600.ours:p=0.075:eta=1.4", "value", "at most", 1,
                        unit="%"))),
    Section(
        "learning", "The curve at N = 1,600", part="long",
        command="bench/learning/rule.py --seeds 317-324 --test 325-340 --name learning.long "
        "--results bench/results/learning-long.jsonl",
        text="Density 0.075 with two thirds of the learning rate's peak that is best for the dense "
        "baseline (0.004 beside 0.006), eta 1.4 and 2; small transformers as above, eight seeds "
        "that chose nothing, and sixteen others (`test`, by a plan of its own, because eight do "
        "not tell); 48 points of the curve at 16 KiB a text. `curve` is where the seeds' mean is "
        "worst, from 5 % of the tokens on; `middle` the run's middle half. The baseline is tuned "
        "for its end. [rule.py](../learning/rule.py)",
        targets=tuple(Target(f"learning.long.test.{row}n1600.ours:p=0.075:eta={eta}:rate=0.004",
                             "max", "at most", bound, unit="%")
                      for row, bound in (("", 0.5), ("curve.", 1)) for eta in ("2", "1.4"))),
    Section(
        "learning", "The rule at N = 1,600", part="fresh",
        command="bench/learning/rule.py --seeds 341-372 "
        f"--shipped 1600={LONG_RULE} --results bench/results/learning-fresh.jsonl",
        text="Density 0.075, eta 1.7 and three fifths of the learning rate's peak that the dense "
        "baseline has (0.0036 beside 0.006, which was chosen at N = 400), beside that baseline; "
        "small transformers as above, seeds that chose nothing, 64 KiB a text. The arm "
        "was one of two that were screened on others. [rule.py](../learning/rule.py)",
        targets=(Target("learning.rule.n1600", "max", "at most", 0.5, unit="%"),
                 Target(f"learning.rule.curve.n1600.{LONG_RULE}", "max", "at most", 1, unit="%"))),
    Section(
        "learning", "The whole way at N = 1,600", part="way",
        command="bench/learning/rule.py --seeds 341-348 --name learning.way "
        "--results bench/results/learning-way.jsonl",
        text="The first eight of these runs again, at 42 points with 64 KiB a text. `curve` "
        "is where the seeds' mean is worst, from 5 % of the tokens on, and the interval is of that "
        "place; `middle` the run's middle half. [rule.py](../learning/rule.py)",
        targets=tuple(Target(f"learning.way.curve.n1600.{LONG_RULE}", of, "at most", 1, unit="%")
                      for of in ("value", "max"))),
    Section(
        "learning", "A denser start: small models", part="start",
        command="bench/learning/rule.py --seeds 521-540 --shipped 400=ours:eta=1.4 "
        "--name learning.start --results bench/results/learning-start.jsonl",
        text="Small transformers, N = 400: a density that begins at 0.3 and falls in a line to "
        "0.06 over the first 12 % of the tokens (`codec.density_start`; 2 % fewer bytes in all "
        "than a constant 0.075), with the rule's beta 1 and eta 1.4, at the dense baseline's peak. "
        "`shipped` rows are beside the rule without it. 48 points of the curve at 4 KiB a text, "
        "twenty seeds. [rule.py](../learning/rule.py)",
        targets=(Target(f"learning.start.curve.n400.{DENSER}", "max", "at most", 1, unit="%"),
                 Target(f"learning.start.shipped.n400.{DENSER}", "max", "at most", 0, unit="%"))),
    Section(
        "learning", "The rule at N = 400: eta 1.4", part="eta14",
        command="bench/learning/rule.py --seeds 224-231 --shipped 400=ours:eta=1.4 "
        "--name learning.eta14 --results bench/results/learning-eta14.jsonl",
        text="What is shipped since 2026-11-28 (density 0.075, beta 1, kappa 0.25, eta 1.4) beside "
        "the dense baseline of the first section, with its model, lengths and learning rate; 48 "
        "points of the curve at 64 KiB a text, eight seeds, all lines of one "
        "commit. `ours` is with eta 2, as it was shipped before; `shipped` rows are beside eta "
        "1.4, which is the default because it ended so low here: they chose it, and fresh seeds "
        "are below. Two arms begin "
        "at a density of 0.3 that falls to 0.06, one of them with beta 0.95, by a rounding "
        "of the bench, where a worker has 1. [rule.py](../learning/rule.py)",
        targets=(Target("learning.eta14.n400", "max", "at most", 0, unit="%"),
                 *(Target(f"learning.eta14.curve.n400.{arm}", of, "at most", 1, unit="%")
                   for arm in ("ours:eta=1.4", DENSER) for of in ("value", "max")))),
    Section(
        "learning", "The rule at N = 400: eta 1.4 on fresh seeds", part="fresh14",
        command="bench/learning/rule.py --seeds 232-239 --shipped 400=ours:eta=1.4 "
        "--name learning.fresh14 --results bench/results/learning-fresh14.jsonl",
        text="The same on eight seeds that chose neither eta, and are what README quotes; "
        "`ours:eta=2` is what was shipped until 2026-11-28. "
        "[rule.py](../learning/rule.py)",
        targets=(Target("learning.fresh14.n400", "max", "at most", 0, unit="%"),
                 *(Target("learning.fresh14.curve.n400.ours:eta=1.4", of, "at most", 1, unit="%")
                   for of in ("value", "max")))),
    Section(
        "learning", "The way at N = 400: screening", part="way400",
        command="bench/learning/rule.py --seeds 301-303 --shipped 400=ours:eta=1.4 "
        "--name learning.way400 --results bench/results/learning-way400.jsonl",
        text="What might keep the way nearer to the baseline than eta 1.4 alone: lower etas, "
        "denser starts, kappa 0.5, a density of 0.1, values of 2 bits. None ends within 0.3 % of "
        "it and is nearer over the middle. 48 points, 16 KiB a text, three seeds. "
        "[rule.py](../learning/rule.py)"),
    Section(
        "learning", "A denser start: N = 1,600", part="start16", awaited=True,
        command="bench/learning/rule.py --seeds 381-388 --name learning.start16 "
        "--results bench/results/learning-start16.jsonl",
        text="A density from 0.3 to 0.06 at N = 1,600, with eta 1.7 and 0.6 of the peak. Eight "
        "seeds. [rule.py](../learning/rule.py)",
        targets=(Target("learning.start16.curve.n1600.ours:p=0.06:start=0.3:rate=0.0036", "max",
                        "at most", 1, unit="%"),)),
    Section(
        "learning", "N = 4,000: screening", part="n4000",
        command="bench/learning/rule.py --seeds 301-303 --name learning.n4000 "
        "--results bench/results/learning-n4000.jsonl",
        text="The same models and steps, ten times as long as N = 400: the shipped rule "
        "(density 0.075, eta 1.7) at the peak that is best for the dense baseline at N = 400, and "
        "at 0.6 of it, beside that baseline. Three seeds. [rule.py](../learning/rule.py)"),
    Section(
        "learning", "The other schedule at N = 1,600", part="wsd",
        command="bench/learning/rule.py --seeds 373-377 --name learning.wsd "
        "--results bench/results/learning-wsd.jsonl",
        text="The learning rate at its peak until the last fifth of the tokens: the rule that is "
        "shipped (eta 1.7) at three peaks, beside the dense baseline at the one of four that is "
        "best for it under this schedule. Three of the baseline's were added after the first had "
        "run, the last with the rule's lowest. Five seeds. [rule.py](../learning/rule.py)"),
    Section(
        "learning", "Held-out text of the training text's kind", part="in-domain",
        command="bench/learning/rule.py --seeds 301-305 --name learning.in-domain "
        "--results bench/results/learning-in-domain.jsonl",
        text="Small transformers, N = 400. What is held out elsewhere is the Debian handbook, and "
        "training text are manual pages; here it is the end of each language's pages, which are "
        "not trained on. Five seeds. [in_domain.py](../learning/in_domain.py)"),
    Section(
        "learning", "Muon in the local steps: screening", part="muon",
        command="bench/learning/rule.py --seeds 301-305 --name learning.muon "
        "--base sync-nesterov-0.6-0.5 --results bench/results/learning-muon.jsonl",
        text="Small transformers, N = 400, equal tokens, all beside the dense baseline with AdamW. "
        "`inner=muon`: the matrices of the layers are trained by Muon, so the dense arm with it is "
        "MuLoCo without its 2 bits. Peaks as listed, the outer step is the baseline's. Five seeds. "
        "[muon.c](../learning/muon.c)"),
    Section(
        "learning", "A quarter of the size", part="size011",
        command="bench/learning/rule.py --seeds 301-304 --name learning.size011 "
        "--results bench/results/learning-size011.jsonl",
        text="0.11 M parameters (dim 48), steps of 512 tokens, N = 400: `ours` and the dense "
        "baseline at two peaks, `ours` with eta 1.4. Four seeds. "
        "[rule.py](../learning/rule.py)"),
    Section(
        "learning", "Four times the size", part="size17",
        command="bench/learning/rule.py --seeds 201-203 --shipped 400=ours:eta=1.4 "
        "--name learning.size17 --results bench/results/learning-size17.jsonl",
        text="1.7 M parameters (dim 192), steps of 512 tokens, N = 400; the dense baseline and "
        "`ours` with eta 2 at four peaks of the learning rate, of which 0.0018, the lowest, is the "
        "best of both, and with eta 1.4, which is shipped, at three (an arm without a rate is at "
        "0.003). Gaps are beside the baseline's best. `rate_2x`: what twice an arm's peak costs "
        "it, less what that costs the baseline. Three seeds, on which the peaks were chosen too. "
        "[rule.py](../learning/rule.py)",
        targets=tuple(
            Target(f"learning.size17.rate_2x.n400.{arm}", "max", "at most", 0.5, unit="%")
            for arm in ("ours:eta=1.4:rate=0.0018", "ours:rate=0.0018", "ours"))),
    Section(
        "learning", "Four times the size, twice the tokens", part="size17x2",
        command="bench/learning/rule.py --seeds 201-204 --shipped 400=ours:eta=1.4 "
        "--name learning.size17x2 --results bench/results/learning-size17x2.jsonl",
        text="1.7 M parameters (dim 192), steps of 1,024 tokens, N = 400: half of what is in "
        "proportion to the first section. Both sides at a peak of 0.0018, which was best of four "
        "with half the tokens; nothing is tuned here. Other units, up to 3.8 MB of text a "
        "language. Four seeds. [rule.py](../learning/rule.py)"),
    Section(
        "learning", "Twice the learning rate with eta 1.4", part="rate",
        command="bench/learning/rule.py --seeds 201-208 --shipped 400=ours:eta=1.4 "
        "--name learning.rate --results bench/results/learning-rate.jsonl",
        text="The model and length of the first section: the dense baseline and what is shipped "
        "at its peak of 0.006 and at 0.012. `rate` rows are an arm at 0.012 beside itself at "
        "0.006, `rate_2x` is what that costs ours, less what it costs the baseline. Eight seeds, "
        "of which five were added because three did not tell it; their lines at 0.006 were known. "
        "[rule.py](../learning/rule.py)",
        targets=(Target("learning.rate.rate_2x.n400.ours:eta=1.4", "max", "at most", 0.5,
                        unit="%"),)),
    Section(
        "learning", "Fifteen seeds at 1/64, and twice the learning rate", part="p64",
        command="bench/learning/rule.py --seeds 201-215 --name learning.p64 "
        "--results bench/results/learning-p64.jsonl",
        text="The models and lengths of the first section, 0.43 M parameters and N = 400, all "
        "lines of one commit and machine. `learning.p64.n400.ours-p64` is density 1/64 beside the "
        "dense baseline on fifteen seeds that were fixed beforehand. `ours` and arms with a rate "
        "of their own ran on three: `rate` rows are beside the same arm at a peak of 0.006, "
        "`rate_2x` is what twice the peak costs ours, less what it costs the baseline. "
        "[rule.py](../learning/rule.py)",
        targets=(Target("learning.p64.n400.ours-p64", "max", "at most", 0.5, unit="%"),
                 Target("learning.p64.rate_2x.n400.ours", "value", "at most", 0.5, unit="%"))),
    Section(
        "learning", "A quarter of the size and of the tokens", part="quarter",
        command="bench/learning/rule.py --seeds 211-214 --shipped 400=ours:eta=1.4 "
        "--name learning.quarter --results bench/results/learning-quarter.jsonl",
        text="0.11 M parameters, steps of 128 tokens, N = 400: a quarter of the first section's "
        "tokens, so the same number a parameter. Each side at its best of four to five peaks on "
        "301 and 302, 0.003 for the baseline, 0.006 for `ours`. Four seeds. "
        "[rule.py](../learning/rule.py)"),
    Section(
        "learning", "Four times the local steps: screening", part="h32-screening",
        command="bench/learning/rule.py --seeds 301-303 --name learning.h32-screening "
        "--results bench/results/learning-h32-screening.jsonl",
        text="What might bring 1/64 nearer where H is 32, 16 and 8: a lower peak, a lower eta, "
        "beta 1, kappa 0.5, values of 2 bits. None is 1 % nearer. Three seeds. "
        "[rule.py](../learning/rule.py)"),
    Section(
        "learning", "Four times the local steps", part="h32",
        command="bench/learning/rule.py --seeds 301-305 --name learning.h32 "
        "--results bench/results/learning-h32.jsonl",
        text="The small transformers of the screening above at H = 32, 16 and 8, N = 400: `ours` "
        "(density 0.075) and `ours-p64` beside the dense baseline. Three pushes are made "
        "of 56 steps, so 1/64 costs 0.0073 bit a mean step and parameter, as Covenant-72B, where a "
        "push has 0.137 bit a parameter; in this model's short chunks it has 0.217. "
        "Five seeds. [rule.py](../learning/rule.py)",
        targets=(Target("learning.h32.n400.ours-p64", "max", "at most", 0.5, unit="%"),)),
    Section(
        "learning", "Distant and slow regions", part="stale",
        command="bench/learning/rule.py --stale --seeds 301-305 --test 311-320 "
        "--results bench/results/learning-stale.jsonl",
        text="The small transformers of the screening above, at equal tokens, N = 400. Round trips "
        "times 5, 10 and 20 (`rtt`: at 20 3.0 to 4.0 s, where a round takes 1 s), rounds that "
        "scatter (`jitter`: sigma of the logarithm), a region at a third of its speed (`slow`), "
        "one that reaches nobody in the middle tenth (`cut`). `learning.stale.nN.ARM` is beside "
        "the synchronous, dense arm without any of this, which waits and so loses time, not loss; "
        "`plain` beside the same arm without; `versions` is the mean staleness of its pushes, "
        "`seconds` how long the virtual run lasts. `times_longer`: how many times as long as "
        "`ours` under the same conditions BSP with the same codec takes to a loss that both reach "
        "(equal wall-clock). `undamped`: an arm without the damping of stale pushes beside the "
        "same arm with it. Five seeds; `test` rows are of ten others. "
        "[rule.py](../learning/rule.py), [settings](../learning/README.md#settings-of-an-arm)",
        targets=(Target("learning.stale.times_longer.n400.bsp-topk:rtt=20", "min", "at least", 1),
                 Target("learning.stale.seeds.n400", "value", "at least", 5))),
    Section(
        "learning", "Others' rules, and more workers: screening", part="peers",
        command="bench/learning/rule.py --seeds 301-305 --name learning.peers "
        "--base sync-nesterov-0.6-0.5 --results bench/results/learning-peers.jsonl",
        text="The small transformers of the screening above, N = 400, equal tokens, all beside the "
        "dense baseline. SparseLoCo's rule: `bsp-topk` with values of 2 bits, no kappa, beta 0.95, "
        "1/64, eta 1, 2 and 3. Streaming DiLoCo at 4 bits: `dense-q4`, shards in turn. `single`: "
        "AdamW each step on all data, `batch` times the tokens a step. `copies`: so many workers "
        "in each region, which share its languages, with as many rounds fewer. `ours-p64` with "
        "other values, peaks and kappa. Five seeds, no arm tuned beyond what is listed. "
        "[rule.py](../learning/rule.py), [settings](../learning/README.md#settings-of-an-arm)"),
    Section(
        "learning", "Another schedule: screening", part="schedule",
        command="bench/learning/rule.py --name learning.schedule "
        "--results bench/results/learning-schedule.jsonl",
        text="The same with the learning rate at its peak until the last fifth of the tokens, in "
        "which it falls by half a cosine (`--decay 0.2`: warm-up, stable, decay) in place of a "
        "cosine over the whole run; N = 400. `learning.schedule.nN` is the shipped rule's gap to "
        "the synchronous, dense arm under the same schedule: Nesterov 0.6 at 0.5, the best one "
        "under the cosine; no other was tried. Three seeds, in brackets the 95 % interval. "
        "[rule.py](../learning/rule.py), [beside the cosine](../learning/README.md"
        "#a-rule-for-long-runs)"),
    Section(
        "learning", "A slow region far away", part="far",
        command="bench/learning/far.py --results bench/results/learning-far.jsonl",
        text="Three regions of 8, 4 and 2 steps a second; the slowest one's round trips are 216 "
        "and 180 ms. `times_longer`: how many times as long as ours an arm takes to a held-out "
        "loss that both reach, on the virtual clock. BSP waits for all in each round: with "
        "`h=equal` every region takes 8 local steps, else 8, 4 and 2. `loss`: ours beside it "
        "after the same tokens, in percent; below 0 ours is better. Means of paired seeds, in "
        "brackets the 95 % interval. Rates of links are not modelled. "
        "[far.py](../learning/far.py), [how](../learning/README.md#a-slow-region-far-away)",
        targets=tuple(Target(f"learning.far.times_longer.{arm}:rtt=1.2:h=equal", "value",
                             "at least", 2) for arm in ("bsp-topk", "sync-nesterov-0.6-0.5"))),
)
