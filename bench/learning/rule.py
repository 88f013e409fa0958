#!/usr/bin/env python3
"""How a rule for p, beta and eta holds as runs get longer: gaps of every arm at every length.

    bench/learning/rule.py --results FILE.jsonl [--json FILE] [--seeds 301-303] [--test 304-308]
                           [--name learning.rule] [--stale] [--shipped N=ARM]... [--base ARM]

FILE.jsonl has the lines of bench_learning: one model, one size of step, several lengths N (rounds).
For each length the baseline is the synchronous, dense arm with the lowest mean among those that
have run the most seeds; it is chosen on the same seeds as the arms beside it; --base names another.
Each figure is in percent, the mean over the seeds that both sides have run, with a paired 95 %
interval (Student's t); below 0 is better. One seed has no interval.

    learning.rule.nN[.ARM]           the arm's loss at the end beside the baseline's; no ARM: the
                                     shipped rule
    learning.rule.shipped.nN.ARM     beside the shipped rule
    learning.rule.curve.nN.ARM       beside the baseline where the curve is worst, from 5 % of the
                                     tokens on; the interval is of that place alone
    learning.rule.middle.nN.ARM      the same in the mean over the curve from 25 to 75 % of the
                                     tokens, which scatters much less than its end
    learning.rule.loss.nN.ARM        nats per byte, least to most of the seeds
    learning.rule.rate.nN.ARM        an arm with a `rate` of its own beside the same arm without it
    learning.rule.rate_2x.nN.ARM     what twice the arm's rate costs it, less what it costs the
                                     baseline from the same rate: seeds that have all four lines
    learning.rule.test.nN[.ARM]      as the first, on the seeds of --test, beside the baseline that
                                     was chosen on the others; test.shipped.nN.ARM, test.curve
                                     and test.middle likewise

The shipped rule is `ours`, except at lengths N for which --shipped names the arm of the present
rule: `ours` is the rule of the program that wrote the lines.

An arm that was chosen for its gap on some seeds is judged by others: those of --test.

Arms with slow or distant regions (rtt, jitter, slow, cut) do not count, except with --stale. Then
only they do, compared with the dense arm without these settings, which cost BSP time and no loss;
and

    learning.stale.plain.nN.ARM      beside the same arm without them
    learning.stale.versions.nN.ARM   mean versions between a push's base and its fold
    learning.stale.seconds.nN.ARM    virtual seconds of the run
    learning.stale.times_longer.nN.ARM   the arm's time to a held-out loss that both reach, divided
                                     by that of `ours` with the same settings (as in far.py)
    learning.stale.undamped.nN.ARM   an arm with `damping=0` beside the same arm as it is shipped;
                                     undamped.middle over the middle of the curve

On the seeds of --test, stale rows have names that begin with learning.stale.test likewise.

Lines of two commits, of another model or step, or of a tree that was not clean are refused.
"""
import argparse
import os
import statistics
import sys

import far
from attribution import BadResults, lines_of, paired, same, seeds_of

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import report  # noqa: E402

SAME = ("commit", "parameters", "dim", "step_tokens", "h", "base_rate", "floor", "curve_bytes",
        "eval_bytes", "decay")
OURS, DENSE = "ours", "sync-"
STALE = ("rtt", "jitter", "slow", "cut")
UNDAMPED = ":damping=0"
CURVE_FROM = 0.05
MIDDLE = tuple(i / 20 for i in range(5, 16))  # 25 to 75 %


class Run:
    """One arm, seed and length."""

    def __init__(self, line):
        self.loss = statistics.fmean(line["language"].values())
        self.tokens, self.curve = line["tokens"], [(p[0], p[3]) for p in line["curve"]]
        if len(self.curve) < 2:
            raise KeyError("curve")
        self.staleness, self.seconds = line.get("staleness", 0), line.get("virtual_s", 0)
        self.clock = far.Run(line) if "trained" in line else None
        self.settings = {key: line[key] for key in ("density", "kappa", "beta", "eta", "rate")}

    def after(self, tokens):
        """The curve's loss there, linear between its points."""
        for (t0, a), (t1, b) in zip(self.curve, self.curve[1:]):
            if t0 <= tokens <= t1:
                return a + (b - a) * (tokens - t0) / (t1 - t0)
        return self.curve[-1][1]


def plain(arm):
    """The arm's name without the settings of slow and distant regions."""
    return ":".join(word for word in arm.split(":") if word.split("=")[0] not in STALE)


def read(path, seeds):
    """Runs by length, arm and seed; the values that all lines share; other seeds are skipped."""
    runs, shared = {}, {}
    for number, line in lines_of(path):
        try:
            key, seed, arm = int(line["rounds"]), line["seed"], line["arm"]
            run = Run(line)
            settings = {name: line[name] for name in SAME}
        except (AttributeError, KeyError, TypeError, IndexError):
            raise BadResults(f"{path}, line {number} is no arm of bench_learning: "
                             "run it again") from None
        if seed not in seeds:
            continue
        for name, value in settings.items():
            if not same(name, shared.setdefault(name, value), value):
                raise BadResults(f"{path}, line {number}: {name} is {value}, others have "
                                 f"{shared[name]}; compare arms of one commit and setting")
        if settings["commit"].endswith("-dirty"):
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
    """The synchronous, dense arm with the lowest mean among those with the most seeds; or None."""
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
    """The largest mean of the curves' gaps, and its place in percent of the tokens."""
    places = min(len(run.curve) for run in ours.values()) - 1
    tokens = next(iter(ours.values())).tokens
    found = []
    for place in range(1, places + 1):
        if place / places >= CURVE_FROM:
            at = gaps(ours, theirs, lambda run, t=tokens * place / places: run.after(t))
            found.append((statistics.fmean(at), 100 * place / places, at))
    return max(found) if found else None


def middle(ours, theirs):
    """For each seed the mean gap of the curves over the run's middle."""
    tokens = next(iter(ours.values())).tokens
    places = [gaps(ours, theirs, lambda run, t=tokens * part: run.after(t)) for part in MIDDLE]
    return [statistics.fmean(seed) for seed in zip(*places, strict=True)]


def gap_rows(out, prefix, n, arms, base, shipped):
    """Rows of every arm's end, compared with `base` and with the shipped rule."""
    for arm, ours in arms.items():
        found = gaps(ours, arms[base]) if base in arms and arm != base else []
        if found:
            out.estimate(f"{prefix}.{n}" + ("" if arm == shipped else f".{arm}"), "%",
                         *paired(found), len(found))
        found = gaps(ours, arms[shipped]) if shipped in arms and arm != shipped else []
        if found:
            out.estimate(f"{prefix}.shipped.{n}.{arm}", "%", *paired(found), len(found))


def curve_rows(out, name, n, arms, base):
    for arm, ours in arms.items():
        if base in arms and arm != base and set(ours) & set(arms[base]):
            _, _, at = worst(ours, arms[base])
            out.estimate(f"{name}.curve.{n}.{arm}", "%", *paired(at), len(at))
            at = middle(ours, arms[base])
            out.estimate(f"{name}.middle.{n}.{arm}", "%", *paired(at), len(at))


def unrated(arm):
    """The arm's name without a rate of its own."""
    return ":".join(word for word in arm.split(":") if not word.startswith("rate="))


def rate_of(arm, rate):
    """The peak of the arm's learning rate: its own, or that of all."""
    return float(next((word[5:] for word in arm.split(":") if word.startswith("rate=")), rate))


def rate_rows(out, name, n, arms, base, rate):
    """Rows of arms with a rate of their own, compared with the same arms at `rate`."""
    for arm, by in arms.items():
        found = gaps(by, arms.get(unrated(arm), {})) if unrated(arm) != arm else []
        if found:
            out.estimate(f"{name}.rate.{n}.{arm}", "%", *paired(found), len(found))
    at = {arm: rate_of(arm, rate) for arm in arms}
    rated = {(unrated(arm), f"{at[arm]:.6g}"): by for arm, by in arms.items()}
    for arm, by in arms.items() if base else ():
        now, twice = f"{at[arm]:.6g}", f"{2 * at[arm]:.6g}"
        if unrated(arm) == unrated(base):
            continue
        dear, plain_base, dear_base = (rated.get(key, {}) for key in
                                       ((unrated(arm), twice), (unrated(base), now),
                                        (unrated(base), twice)))
        seeds = sorted(set(by) & set(dear) & set(plain_base) & set(dear_base))
        found = [100 * (dear[s].loss / by[s].loss - dear_base[s].loss / plain_base[s].loss)
                 for s in seeds]
        if found:
            out.estimate(f"{name}.rate_2x.{n}.{arm}", "%", *paired(found), len(found))


def loss_rows(out, name, n, arms):
    for arm, ours in arms.items():
        out.row(f"{name}.loss.{n}.{arm}", "nats/byte",
                [ours[seed].loss for seed in sorted(ours)])


def as_ours(arm):
    """The name of `ours` with the arm's settings of slow and distant regions."""
    return ":".join([OURS, *(word for word in arm.split(":") if word.split("=")[0] in STALE)])


def longer(arm, ours):
    """The arm's time divided by ours, for each seed that both ran."""
    return [far.times_longer(ours[seed].clock, arm[seed].clock) for seed in sorted(arm)
            if seed in ours and ours[seed].clock and arm[seed].clock]


def stale_rows(out, name, n, arms, all_arms):
    for arm, by in arms.items():
        found = gaps(by, all_arms.get(plain(arm), {})) if plain(arm) != arm else []
        if found:
            out.estimate(f"{name}.plain.{n}.{arm}", "%", *paired(found), len(found))
        damped = all_arms.get(arm.removesuffix(UNDAMPED), {}) if arm.endswith(UNDAMPED) else {}
        if set(by) & set(damped):
            found = gaps(by, damped)
            out.estimate(f"{name}.undamped.{n}.{arm}", "%", *paired(found), len(found))
            out.estimate(f"{name}.undamped.middle.{n}.{arm}", "%", *paired(middle(by, damped)),
                         len(found))
        found = longer(by, all_arms.get(as_ours(arm), {})) if not arm.startswith(OURS) else []
        if found:
            out.estimate(f"{name}.times_longer.{n}.{arm}", "1", *paired(found), len(found))
        out.row(f"{name}.versions.{n}.{arm}", "1", [run.staleness for run in by.values()])
        out.row(f"{name}.seconds.{n}.{arm}", "s", [run.seconds for run in by.values()])


def length_rows(out, name, rounds, arms, base, shipped, rate):
    """Rows of one length; gives its conditions."""
    n = f"n{rounds}"
    gap_rows(out, name, n, arms, base, shipped)
    curve_rows(out, name, n, arms, base)
    rate_rows(out, name, n, arms, base, rate)
    loss_rows(out, name, n, arms)
    out.row(f"{name}.seeds.{n}", "seeds", [max(map(len, arms.values()))])
    tried = [f"{arm} ({len(by)})" for arm, by in arms.items() if arm.startswith(DENSE)]
    return f"{base or 'no baseline'}; tried, with their seeds: {', '.join(tried) or 'none'}"


def test_rows(out, name, runs, bases, shipped, stale):
    """Rows of the test's seeds; `bases`: the baseline of each length, chosen elsewhere."""
    for rounds, arms in sorted(that_count(runs, stale).items()):
        base, n = bases.get(rounds), f"n{rounds}"
        beside = arms | ({base: runs[rounds][base]} if base in runs[rounds] else {})
        gap_rows(out, f"{name}.test", n, beside, base, shipped.get(rounds, OURS))
        curve_rows(out, f"{name}.test", n, beside, base)
        if stale:
            stale_rows(out, f"{name}.test", n, arms, runs[rounds])
        out.row(f"{name}.test.seeds.{n}", "seeds", [max(map(len, arms.values()))])


def counted(runs):
    return " ".join(map(str, sorted({seed for arms in runs.values() for by in arms.values()
                                     for seed in by})))


def that_count(runs, stale):
    """Only the arms that `stale` selects; a length without any is left out."""
    kept = {rounds: {arm: by for arm, by in arms.items() if (plain(arm) != arm) == stale}
            for rounds, arms in runs.items()}
    return {rounds: arms for rounds, arms in kept.items() if arms}


def base_of(arms, base):
    """The baseline of one length, from its arms that are neither distant nor slow."""
    if not base:
        return best_dense(arms)
    return base if base in arms else None


def make(path, json_path, seeds, test, name, stale, shipped, base_arm):
    if set(seeds) & set(test):
        raise BadResults("--seeds and --test have seeds in common: an arm would be judged by what "
                         "it was picked on")
    runs, shared = read(path, seeds)
    tested, again = read(path, test) if test else ({}, shared)
    if not all(same(key, again[key], shared[key]) for key in shared):
        raise BadResults(f"{path}: the test's lines are of {again}, the others of {shared}; run "
                         f"them on one commit and setting")
    counting = that_count(runs, stale)
    if not counting:
        raise BadResults(f"{path} has no arm that counts {'with' if stale else 'without'} --stale")
    out = report.Report("learning", json_path)
    out.condition("trained at", shared["commit"])
    out.condition("model", f"{shared['parameters'] / 1e6:.2f} M parameters: dim {shared['dim']}")
    fall = f"; the rate falls in the last {shared['decay']:.0%}" if shared["decay"] else ""
    out.condition("step", f"{shared['step_tokens']} tokens; H {shared['h']} and less; peak "
                  f"{shared['base_rate']:.4g}{fall}")
    out.condition("seeds", counted(counting))
    for rounds, arm in shipped.items():
        if arm not in runs.get(rounds, {}) | tested.get(rounds, {}):
            raise BadResults(f"--shipped {rounds}={arm}: {path} has no such arm of that length")
        out.condition(f"shipped, N {rounds}", arm)
    if base_arm and not any(base_arm in arms for arms in runs.values()):
        raise BadResults(f"--base {base_arm}: {path} has no such arm")
    near = that_count(runs, False)
    bases = {rounds: base_of(near.get(rounds, {}), base_arm) for rounds in runs}
    for rounds, arms in sorted(counting.items()):
        base = bases[rounds]
        beside = arms | ({base: runs[rounds][base]} if base else {})
        out.condition(f"baseline, N {rounds}", length_rows(out, name, rounds, beside, base,
                                                           shipped.get(rounds, OURS),
                                                           shared["base_rate"]))
        if stale:
            stale_rows(out, name, f"n{rounds}", arms, runs[rounds])
        for arm, by in arms.items():
            if not arm.startswith(DENSE):
                said = ", ".join(f"{key} {value:.4g}"
                                 for key, value in next(iter(by.values())).settings.items())
                out.condition(f"{arm}, N {rounds}", said)
    if test:
        test_rows(out, name, tested, bases, shipped, stale)
        out.condition("test", counted(that_count(tested, stale)))
    out.finish()


def length_and_arm(word):
    rounds, found, arm = word.partition("=")
    if not found or not rounds.isdigit() or not arm:
        raise argparse.ArgumentTypeError(f"{word} is not N=ARM, such as 1600=ours:p=0.075")
    return int(rounds), arm


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", required=True)
    parser.add_argument("--json")
    parser.add_argument("--seeds", type=seeds_of, default="301-303",
                        help="those that count (301-303)")
    parser.add_argument("--test", type=seeds_of, default=(),
                        help="others, for arms that were picked on those")
    parser.add_argument("--name", help="what rows' names begin with (learning.rule, or with "
                        "--stale learning.stale)")
    parser.add_argument("--stale", action="store_true",
                        help="arms with slow or distant regions, and only these")
    parser.add_argument("--shipped", type=length_and_arm, action="append", default=[],
                        metavar="N=ARM", help="the arm that is today's rule at N rounds (ours)")
    parser.add_argument("--base", help="the arm that others are beside (the best dense one)")
    flags = parser.parse_args()
    try:
        name = flags.name or ("learning.stale" if flags.stale else "learning.rule")
        make(flags.results, flags.json, flags.seeds, flags.test, name, flags.stale,
             dict(flags.shipped), flags.base)
    except (BadResults, OSError) as error:
        print(f"rule.py: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
