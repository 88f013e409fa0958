"""Sections of bench/results/README.md on bench/learning."""
from section import Section, Target

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
        )),
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
        targets=(Target("learning.attribution.seeds", "value", "at least", 8),)),
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
        "learning", "Four times the size, twice the tokens", part="size17x2",
        command="bench/learning/rule.py --seeds 201-204 --shipped 400=ours:eta=1.4 "
        "--name learning.size17x2 --results bench/results/learning-size17x2.jsonl",
        text="1.7 M parameters (dim 192), steps of 1,024 tokens, N = 400: half of what is in "
        "proportion to the first section. Both sides at a peak of 0.0018, which was best of four "
        "with half the tokens; nothing is tuned here. Other units, up to 3.8 MB of text a "
        "language. Four seeds. [rule.py](../learning/rule.py)"),
    Section(
        "learning", "Fifteen seeds at 1/64", part="p64",
        command="bench/learning/rule.py --seeds 201-215 --name learning.p64 "
        "--results bench/results/learning-p64.jsonl",
        text="The models and lengths of the first section, 0.43 M parameters and N = 400, all "
        "lines of one commit and machine. `learning.p64.n400.ours-p64` is density 1/64 beside the "
        "dense baseline on fifteen seeds that were fixed beforehand; `longhaul up --plan` quotes "
        "it. [rule.py](../learning/rule.py)",
        targets=(Target("learning.p64.n400.ours-p64", "max", "at most", 0.5, unit="%"),)),
)
