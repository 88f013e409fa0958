#!/usr/bin/env python3
"""How a rule for p, beta and eta holds as runs get longer: gaps of every arm at every length.

    bench/learning/rule.py --results FILE.jsonl [--json FILE] [--seeds 301-303]

FILE.jsonl has the lines of bench_learning: one model, one size of step, several lengths N (rounds).
Of each length the baseline is the synchronous, dense arm of the lowest mean among those that have
run the most seeds; it is chosen on the same seeds, as the arms beside it are. Each figure is in
percent, the mean over the seeds that both sides have run, with a paired 95 % interval (Student's
t); below 0 is better. One seed has no interval.

    learning.rule.nN[.ARM]           the arm's loss at the end beside the baseline's; no ARM: `ours`
    learning.rule.shipped.nN.ARM     beside `ours`, the shipped rule
    learning.rule.curve.nN.ARM       beside the baseline where the curve is worst, from 5 % of the
                                     tokens on; the interval is of that place alone
    learning.rule.loss.nN.ARM        nats per byte, least to most of the seeds

Lines of two commits, of another model or step, or of a tree that was not clean are refused.
"""
import argparse
import os
import statistics
import sys

from attribution import BadResults, lines_of, paired, seeds_of

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import report  # noqa: E402

SAME = ("commit", "parameters", "dim", "step_tokens", "h", "base_rate", "floor", "curve_bytes",
        "eval_bytes")
SHIPPED, DENSE = "ours", "sync-"
CURVE_FROM = 0.05


class Run:
    """One arm, seed and length."""

    def __init__(self, line):
        self.loss = statistics.fmean(line["language"].values())
        self.tokens, self.curve = line["tokens"], [(p[0], p[3]) for p in line["curve"]]
        if len(self.curve) < 2:
            raise KeyError("curve")
        self.settings = {key: line[key] for key in ("density", "kappa", "beta", "eta", "rate")}

    def after(self, tokens):
        """The curve's loss there, on the line between its points."""
        for (t0, a), (t1, b) in zip(self.curve, self.curve[1:]):
            if t0 <= tokens <= t1:
                return a + (b - a) * (tokens - t0) / (t1 - t0)
        return self.curve[-1][1]


def read(path, seeds):
    """Runs by length, arm and seed; what all lines share; lines of other seeds do not count."""
    runs, shared = {}, {}
    for number, line in lines_of(path):
        try:
            key, seed, arm = int(line["rounds"]), line["seed"], line["arm"]
            run = Run(line)
            same = {name: line[name] for name in SAME}
        except (AttributeError, KeyError, TypeError, IndexError):
            raise BadResults(f"{path}, line {number} is no arm of bench_learning, or an older "
                             f"one: run it again") from None
        if seed not in seeds:
            continue
        for name, value in same.items():
            if shared.setdefault(name, value) != value:
                raise BadResults(f"{path}, line {number}: {name} is {value}, others have "
                                 f"{shared[name]}; compare arms of one commit and setting")
        if str(same["commit"]).endswith("-dirty"):
            raise BadResults(f"{path}, line {number}: the tree was not clean; commit, and run the "
                             f"arm again")
        arms = runs.setdefault(key, {}).setdefault(arm, {})
        if seed in arms:
            raise BadResults(f"{path}, line {number}: {arm}, seed {seed}, {key} rounds is there "
                             f"twice; remove one")
        arms[seed] = run
    if not runs:
        raise BadResults(f"{path} has no arm of seeds {seeds[0]} to {seeds[-1]}")
    return runs, shared


def best_dense(arms):
    """Of the synchronous, dense arms with the most seeds the one of the lowest mean; or None."""
    dense = {arm: by for arm, by in arms.items() if arm.startswith(DENSE)}
    most = max(map(len, dense.values()), default=0)
    full = {arm: by for arm, by in dense.items() if len(by) == most}
    common = set.intersection(*(set(by) for by in full.values())) if full else set()
    if not common:
        return None
    return min(full, key=lambda arm: statistics.fmean(full[arm][seed].loss for seed in common))


def gaps(ours, theirs, of=lambda run: run.loss):
    return [100 * (of(ours[seed]) / of(theirs[seed]) - 1) for seed in sorted(ours)
            if seed in theirs]


def worst(ours, theirs):
    """The largest mean of the curves' gaps, and how many percent of the tokens it is at."""
    places = min(len(run.curve) for run in ours.values()) - 1
    tokens = next(iter(ours.values())).tokens
    found = []
    for place in range(1, places + 1):
        if place / places >= CURVE_FROM:
            at = gaps(ours, theirs, lambda run, t=tokens * place / places: run.after(t))
            found.append((statistics.fmean(at), 100 * place / places, at))
    return max(found) if found else None


def length_rows(out, rounds, arms):
    """Rows of one length; returns what the conditions say of it."""
    base, n = best_dense(arms), f"n{rounds}"
    for arm, ours in arms.items():
        if base and arm != base and set(ours) & set(arms[base]):
            found = gaps(ours, arms[base])
            out.estimate(f"learning.rule.{n}" + ("" if arm == SHIPPED else f".{arm}"), "%",
                         *paired(found), len(found))
            _, _, at = worst(ours, arms[base])
            out.estimate(f"learning.rule.curve.{n}.{arm}", "%", *paired(at), len(at))
        if arm != SHIPPED and set(ours) & set(arms.get(SHIPPED, ())):
            found = gaps(ours, arms[SHIPPED])
            out.estimate(f"learning.rule.shipped.{n}.{arm}", "%", *paired(found), len(found))
        out.row(f"learning.rule.loss.{n}.{arm}", "nats/byte",
                [ours[seed].loss for seed in sorted(ours)])
    out.row(f"learning.rule.seeds.{n}", "seeds", [max(map(len, arms.values()))])
    tried = [f"{arm} ({len(by)})" for arm, by in arms.items() if arm.startswith(DENSE)]
    return f"{base or 'no baseline'}; tried, with their seeds: {', '.join(tried) or 'none'}"


def make(path, json_path, seeds):
    runs, shared = read(path, seeds)
    out = report.Report("learning", json_path)
    out.condition("trained at", shared["commit"])
    out.condition("model", f"{shared['parameters'] / 1e6:.2f} M parameters: dim {shared['dim']}")
    out.condition("step", f"{shared['step_tokens']} tokens; H {shared['h']} and less; peak "
                  f"{shared['base_rate']:.4g}")
    counted = sorted({seed for arms in runs.values() for by in arms.values() for seed in by})
    out.condition("seeds", " ".join(map(str, counted)))
    for rounds, arms in sorted(runs.items()):
        out.condition(f"baseline, N {rounds}", length_rows(out, rounds, arms))
        for arm, by in arms.items():
            if not arm.startswith(DENSE):
                said = ", ".join(f"{key} {value:.4g}"
                                 for key, value in next(iter(by.values())).settings.items())
                out.condition(f"{arm}, N {rounds}", said)
    out.finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", required=True)
    parser.add_argument("--json")
    parser.add_argument("--seeds", type=seeds_of, default="301-303",
                        help="those that count (301-303)")
    flags = parser.parse_args()
    try:
        make(flags.results, flags.json, flags.seeds)
    except (BadResults, OSError) as error:
        print(f"rule.py: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
