#!/usr/bin/env python3
"""The effects of asynchrony, kappa and stagger: main effects and interactions of eight cells.

    bench/learning/attribution.py --results FILE.jsonl [--json FILE]

FILE.jsonl has the lines of bench_learning. A cell is one of {async, BSP} x kappa {0, 0.25} x
stagger {on, off}; an effect is the change of the held-out loss on a factor's higher side, in
percent of the mean of the seed's eight cells: below 0 is better. Only seeds that have all eight
cells count.

Each effect has two 95 % intervals. The paired one is Student's t over the seeds' own effects. The
pooled one (`.pooled`) takes the noise from the residual of an additive model of seeds and cells,
with 7 (n - 1) degrees of freedom: narrower on few seeds, and right only if all cells are equally
noisy and an effect does not depend on the seed. One seed has no interval.

Each cell runs with the eta that was best for it on the screening seeds, if all candidates ran
there; else with 2, and the conditions say so.
"""
import argparse
import itertools
import json
import math
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import report  # noqa: E402

FACTORS = ("async", "kappa", "stagger")
CELLS = tuple(itertools.product((False, True), repeat=3))  # async, kappa 0.25, stagger
KAPPAS = {0.0: False, 0.25: True}
ETAS, ETA = (1.4, 2.0, 3.0), 2.0
SAME = ("commit", "tokens", "parameters", "density", "beta", "rate", "floor", "warmup")
BASELINE = "sync-nesterov-0.6-0.5"

# Two-sided 95 % quantiles of Student's t by degrees of freedom; between two, the larger quantile.
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262,
       10: 2.228, 11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 18: 2.101,
       20: 2.086, 21: 2.080, 24: 2.064, 28: 2.048, 35: 2.030, 42: 2.018, 49: 2.010}


class BadResults(Exception):
    """Lines from which no attribution can be made; the text names them and the remedy."""


def t95(freedom):
    return T95[max(known for known in T95 if known <= freedom)]


def name_of(cell):
    return ".".join((("bsp", "async")[cell[0]], ("k0", "k0.25")[cell[1]],
                     ("together", "staggered")[cell[2]]))


# ---------------------------------------------------------------- lines

def lines_of(path):
    with open(path, encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            try:
                yield number, json.loads(text)
            except ValueError:
                raise BadResults(f"{path}, line {number} is no JSON: was its arm cut off? "
                                 f"remove the line and run the arm again") from None


def same(name, one, other):
    """Whether two settings are equal. git abbreviates a commit to more digits as a repository
    grows."""
    if name != "commit" or "-" in f"{one}{other}":
        return one == other
    return one.startswith(other) or other.startswith(one)


def cell_of(line):
    """The line's cell, or None for another codec or kappa."""
    if line["density"] == 1 or line["kappa"] not in KAPPAS or "mode" not in line:
        return None
    return line["mode"] == "async", KAPPAS[line["kappa"]], line["stagger"]


def read(path):
    """Losses by cell, eta and seed; the baseline's by seed; the values that all lines share."""
    losses, baseline, shared = {}, {}, {}
    for number, line in lines_of(path):
        try:
            loss, cell = statistics.fmean(line["language"].values()), cell_of(line)
        except (AttributeError, KeyError, TypeError):
            raise BadResults(f"{path}, line {number} is no arm of bench_learning") from None
        if cell:
            for key in SAME:
                if not same(key, shared.setdefault(key, line[key]), line[key]):
                    raise BadResults(f"{path}, line {number}: {key} is {line[key]}, others have "
                                     f"{shared[key]}; compare arms of one commit and setting")
            to, key = losses, (cell, round(line["eta"], 4), line["seed"])
        elif line["arm"] == BASELINE:
            to, key = baseline, line["seed"]
        else:
            continue
        if key in to:
            raise BadResults(f"{path}, line {number}: {line['arm']}, seed {line['seed']} is there "
                             f"twice; remove one")
        to[key] = loss
        commit = line["commit"]
        if to is baseline and not same("commit", shared.setdefault("commit", commit), commit):
            raise BadResults(f"{path}, line {number}: the baseline is of {line['commit']}, others "
                             f"of {shared['commit']}; run it again on one commit")
    if not losses:
        raise BadResults(f"{path} has no arm of the eight cells")
    return losses, baseline, shared


def choose_eta(losses, cell, seeds):
    """The best of ETAS by the mean over the screening seeds, and whether all of them ran there."""
    means = {}
    for eta in ETAS:
        found = [losses.get((cell, eta, seed)) for seed in seeds]
        if None in found:
            return ETA, False
        means[eta] = statistics.fmean(found)
    return min(means, key=means.get), True


# ---------------------------------------------------------------- effects

def sign(cell, factors):
    """+1 or -1: the side of these factors' contrast on which the cell is."""
    return math.prod(1 if cell[FACTORS.index(factor)] else -1 for factor in factors)


def effect_of(seed, factors):
    """Percent; `seed`: loss by cell. For two factors half the difference of their differences."""
    mean = statistics.fmean(seed.values())
    return 100 * sum(sign(cell, factors) * loss for cell, loss in seed.items()) / 4 / mean


def paired(differences):
    """Mean and half of its 95 % interval; None with one difference."""
    n = len(differences)
    mean = statistics.fmean(differences)
    return mean, t95(n - 1) * statistics.stdev(differences) / math.sqrt(n) if n > 1 else None


def pooled_half(seeds):
    """Half of an effect's 95 % interval by the residual of loss = seed + cell, in percent."""
    n = len(seeds)
    if n < 2:
        return None
    part = [{cell: 100 * loss / statistics.fmean(seed.values()) for cell, loss in seed.items()}
            for seed in seeds]
    cell_mean = {cell: statistics.fmean(seed[cell] for seed in part) for cell in CELLS}
    left = sum((seed[cell] - cell_mean[cell]) ** 2 for seed in part for cell in CELLS)
    return t95(7 * (n - 1)) * math.sqrt(left / (7 * (n - 1))) * 2 / math.sqrt(8 * n)


def contrasts():
    for count in (1, 2, 3):
        yield from itertools.combinations(FACTORS, count)


# ---------------------------------------------------------------- the report

def all_rows(out, seeds, baseline):
    """`seeds`: for each complete seed, the losses by cell."""
    n = len(seeds)
    half_pooled = pooled_half(list(seeds.values()))
    for factors in contrasts():
        name = f"learning.attribution.effect.{'-'.join(factors)}"
        mean, half = paired([effect_of(seed, factors) for seed in seeds.values()])
        out.estimate(name, "%", mean, half, n)
        if half_pooled is not None:
            out.estimate(f"{name}.pooled", "%", mean, half_pooled, n)
    beside = {number: seed for number, seed in seeds.items() if number in baseline}
    for cell in CELLS if beside else ():
        gaps = [100 * (seed[cell] / baseline[number] - 1) for number, seed in beside.items()]
        out.estimate(f"learning.attribution.gap.{name_of(cell)}", "%", *paired(gaps), len(gaps))
    for cell in CELLS:
        out.row(f"learning.attribution.loss.{name_of(cell)}", "nats/byte",
                [seed[cell] for seed in seeds.values()])
    out.row("learning.attribution.seeds", "seeds", [n])


def make(path, json_path, test, screen):
    losses, baseline, shared = read(path)
    chosen = {cell: choose_eta(losses, cell, screen) for cell in CELLS}
    seeds = {}
    for number in test:
        seed = {cell: losses.get((cell, chosen[cell][0], number)) for cell in CELLS}
        if None not in seed.values():
            seeds[number] = seed
    if not seeds:
        raise BadResults(f"{path}: no seed from {test[0]} to {test[-1]} has all eight cells")
    out = report.Report("learning", json_path)
    out.condition("trained at", shared["commit"])
    out.condition("model", f"{shared['parameters']} parameters")
    out.condition("tokens", shared["tokens"])
    out.condition("density", f"{shared['density']:.4f}, beta {shared['beta']:g}")
    out.condition("seeds", " ".join(map(str, seeds)))
    screened = [f"{name_of(cell)} {eta:g}" for cell, (eta, found) in chosen.items() if found]
    out.condition("eta", "; ".join(screened) if len(screened) == len(CELLS) else
                  "; ".join(screened + ["2 where not screened"]) if screened else
                  "2 in all cells, not screened")
    out.condition("baseline", f"{BASELINE}, seeds "
                  f"{' '.join(str(number) for number in seeds if number in baseline) or 'none'}")
    all_rows(out, seeds, baseline)
    out.finish()


def seeds_of(text):
    first, _, last = text.partition("-")
    try:
        seeds = range(int(first), int(last or first) + 1)
    except ValueError:
        seeds = ()
    if not seeds:
        raise argparse.ArgumentTypeError(f"'{text}' names no seeds; give 201-208, say")
    return seeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", required=True)
    parser.add_argument("--json")
    parser.add_argument("--seeds", type=seeds_of, default="201-208", help="the test's (201-208)")
    parser.add_argument("--screen", type=seeds_of, default="301-303",
                        help="those that eta is chosen on (301-303)")
    flags = parser.parse_args()
    try:
        make(flags.results, flags.json, flags.seeds, flags.screen)
    except (BadResults, OSError) as error:
        print(f"attribution.py: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
