#!/usr/bin/env python3
"""A region at a quarter of the fastest one's speed, 200 ms away: how much sooner is a loss reached?

    bench/learning/far.py --results FILE.jsonl [--json FILE] [--seeds 401-405]

FILE.jsonl has the lines of bench_learning, of the arms in ARMS: ours, and BSP (all wait for all)
with our codec and with the tuned, dense baseline, each with local steps by speed (H 8, 4, 2, as
DyLU gives them) and with equal ones (8 in all regions). Times are the virtual clock's, from the
start of the run; only the throttle of each region takes time, not a step's arithmetic.

    learning.far.times_longer.ARM  the arm's time to a held-out loss, divided by ours; the loss is
                                   one that both reach: the worse of their two at the end
    learning.far.loss.ARM          ours compared with the arm's held-out loss after the same tokens,
                                   in percent; below 0 ours is better
    learning.far.seconds.ARM       the duration of the whole run

The first two are means over the seeds that both sides ran, with a paired 95 % interval (Student's
t). One seed has no interval.
"""
import argparse
import os
import statistics
import sys

from attribution import BadResults, lines_of, paired, same, seeds_of

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import report  # noqa: E402

OURS = "ours:rtt=1.2"
ARMS = tuple(f"{arm}:rtt=1.2{equal}" for arm in ("bsp-topk", "sync-nesterov-0.6-0.5")
             for equal in ("", ":h=equal"))
SAME = ("commit", "tokens", "parameters", "dim", "step_tokens", "h", "base_rate", "curve_bytes",
        "eval_bytes")


class Run:
    """One arm and seed."""

    def __init__(self, line):
        self.loss = statistics.fmean(line["language"].values())
        self.curve = [(point[4], point[3]) for point in line["curve"]]
        self.seconds, self.tokens = line["virtual_s"], line["trained"]
        if len(self.curve) < 2:
            raise KeyError("curve")

    def reaches(self, loss):
        """The second at which the curve, linear between its points, first is that low."""
        for (t0, a), (t1, b) in zip(self.curve, self.curve[1:]):
            if b <= loss:
                return t1 if b >= a else t0 + (t1 - t0) * max(a - loss, 0) / (a - b)
        raise ValueError(f"a curve never falls to {loss}")


def read(path, seeds):
    """Runs by arm and seed, and the values that all lines share."""
    runs, shared = {}, {}
    for number, line in lines_of(path):
        try:
            arm, seed = line["arm"], line["seed"]
            run, settings = Run(line), {name: line[name] for name in SAME}
        except (AttributeError, KeyError, TypeError, IndexError):
            raise BadResults(f"{path}, line {number} is no arm of bench_learning: "
                             "run it again") from None
        if seed not in seeds or arm not in (OURS, *ARMS):
            continue
        for name, value in settings.items():
            if not same(name, shared.setdefault(name, value), value):
                raise BadResults(f"{path}, line {number}: {name} is {value}, others have "
                                 f"{shared[name]}; compare arms of one commit and setting")
        if settings["commit"].endswith("-dirty"):
            raise BadResults(f"{path}, line {number}: the tree was not clean; commit, and run the "
                             f"arm again")
        if seed in runs.setdefault(arm, {}):
            raise BadResults(f"{path}, line {number}: {arm}, seed {seed} is there twice; remove "
                             f"one")
        runs[arm][seed] = run
    missing = [arm for arm in (OURS, *ARMS) if arm not in runs]
    if missing:
        raise BadResults(f"{path} has no line of {', '.join(missing)} with these seeds")
    return runs, shared


def times_longer(ours, theirs):
    loss = max(ours.curve[-1][1], theirs.curve[-1][1])
    return theirs.reaches(loss) / ours.reaches(loss)


def make(path, json_path, seeds):
    runs, shared = read(path, seeds)
    out = report.Report("learning", json_path)
    out.condition("trained at", shared["commit"])
    out.condition("model", f"{shared['parameters'] / 1e6:.2f} M parameters: dim {shared['dim']}")
    out.condition("tokens", shared["tokens"])
    out.condition("regions", "8, 4 and 2 steps a second; round trips 240, 216 and 180 ms, the "
                  "last two are the slowest region's; rates of links are not modelled")
    out.condition("seeds", " ".join(map(str, sorted(runs[OURS]))))
    for arm in ARMS:
        both = sorted(set(runs[OURS]) & set(runs[arm]))
        if not both:
            raise BadResults(f"{path}: {OURS} and {arm} have no seed in common")
        pairs = [(runs[OURS][seed], runs[arm][seed]) for seed in both]
        out.estimate(f"learning.far.times_longer.{arm}", "1",
                     *paired([times_longer(a, b) for a, b in pairs]), len(pairs))
        out.estimate(f"learning.far.loss.{arm}", "%",
                     *paired([100 * (a.loss / b.loss - 1) for a, b in pairs]), len(pairs))
    for arm in (OURS, *ARMS):
        out.row(f"learning.far.seconds.{arm}", "s",
                [run.seconds for _, run in sorted(runs[arm].items())])
    out.row("learning.far.seeds", "seeds", [min(len(runs[arm]) for arm in (OURS, *ARMS))])
    out.finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", required=True)
    parser.add_argument("--json")
    parser.add_argument("--seeds", type=seeds_of, default="401-405",
                        help="those that count (401-405)")
    flags = parser.parse_args()
    try:
        make(flags.results, flags.json, flags.seeds)
    except (BadResults, OSError) as error:
        print(f"far.py: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
