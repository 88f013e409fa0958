#!/usr/bin/env python3
"""How far from the best possible does the balancer end? `bench/run.sh balancer [--json FILE]`.

The real policy (server/coordinator/balance/balance.c) hands out units under a virtual clock, by
noisy and late estimates (bench/balancer/sim.c describes the instances). It is compared with an
oracle that knows every speed, every link and every future slowdown: the least T for which a linear
programme has a solution. In it units can be divided arbitrarily, a region trains at most as much as
its speed allows until T, and receives one unit at a time; residency holds too. So no policy can end
before the oracle, and with whole units not even at the same time.

Each instance is one seed. Beside the policy: the policy with every link taken for the mean one
(alike), the policy as if units arrived at once (blind), the weighted rule and a static split.
Needs scipy (bench/balancer/requirements.txt); about 5 minutes.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import report  # noqa: E402

KINDS = ("finish", "alike", "blind", "weighted", "static")
RATIOS = ((0.2, 4), (1, 4), (4, 10))  # transfer / training time; fastest / slowest link
PRECISION = 1e-4  # of the oracle's T
PIECE = 10  # seeds per call


def trained_within(speed, end):
    """Tokens that a region trains until `end`."""
    rate, drop, share = speed
    if drop < 0 or end <= drop:
        return rate * end
    return rate * (drop + (end - drop) * share)


def programme(case):
    """The matrices of: x[pool, region] >= 0, every unit trained, both limits of each region
    kept."""
    import numpy
    regions, pools = len(case["speed"]), len(case["pools"])
    train = numpy.zeros((regions, pools * regions))
    path = numpy.zeros((regions, pools * regions))
    whole = numpy.zeros((pools, pools * regions))
    bounds = []
    for p, (home, allowed, tokens) in enumerate(case["pools"]):
        for r in range(regions):
            at = p * regions + r
            train[r, at] = whole[p, at] = 1
            path[r, at] = case["seconds_per_token"][home * regions + r]
            bounds.append((0, tokens if allowed >> r & 1 else 0))
    return train, path, whole, bounds


def oracle(case):
    """The least end that a clairvoyant policy could reach."""
    import numpy
    from scipy.optimize import linprog
    train, path, whole, bounds = programme(case)
    tokens = [pool[2] for pool in case["pools"]]
    scale = sum(tokens)

    def possible(end):
        limits = [trained_within(speed, end) for speed in case["speed"]]
        upper = numpy.concatenate([numpy.array(limits) / scale, numpy.full(len(limits), 1.0)])
        said = linprog(numpy.zeros(train.shape[1]), A_ub=numpy.vstack([train, path * scale / end]),
                       b_ub=upper, A_eq=whole, b_eq=numpy.array(tokens) / scale,
                       bounds=[(low, high / scale) for low, high in bounds], method="highs")
        return said.status == 0

    low, high = 0.0, max(case[kind]["makespan"] for kind in KINDS)
    if not possible(high):
        raise SystemExit(f"seed {case['seed']}: the oracle finds no way to what the policy did")
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    return high


def piece(job):
    """`count` seeds from `first` on: a list of cases, each with its oracle's end."""
    program, ratio, spread, first, count = job
    said = subprocess.run([program, str(count), str(first), str(ratio), str(spread)], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    cases = [json.loads(line) for line in said.splitlines()]
    for case in cases:
        case["oracle"] = oracle(case)
    return cases


def measure(program, ratio, spread, seeds, jobs):
    work = [(program, ratio, spread, first, min(PIECE, seeds - first))
            for first in range(0, seeds, PIECE)]
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        return [case for cases in pool.map(piece, work) for case in cases]


def mean(samples):
    return sum(samples) / len(samples)


def percentile(samples, share):
    return sorted(samples)[min(len(samples) - 1, int(share * len(samples)))]


def figure(out, name, value, samples):
    """A row for one figure over many instances, with the lowest and the highest of them."""
    out.row(name, "1", [value])
    out.rows[-1].update(min=min(samples), max=max(samples), n=len(samples))


def tell(out, ratio, cases):
    name = f"balancer.ratio-{ratio:g}"
    beyond = {kind: [case[kind]["makespan"] / case["oracle"] for case in cases] for kind in KINDS}
    for kind in KINDS:
        figure(out, f"{name}.{kind}.mean", mean(beyond[kind]), beyond[kind])
        figure(out, f"{name}.{kind}.p95", percentile(beyond[kind], 0.95), beyond[kind])
    for kind in ("alike", "blind"):
        shorter = [case["finish"]["makespan"] / case[kind]["makespan"] for case in cases]
        figure(out, f"{name}.finish_by_{kind}", mean(shorter), shorter)
    for what in ("moved", "twice", "recalled"):
        counts = [case["finish"][what] for case in cases]
        figure(out, f"{name}.{what}", mean(counts), counts)
    return sum(case[kind]["violations"] for case in cases for kind in KINDS)


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", default="build/release")
    flags.add_argument("--json")
    flags.add_argument("--seeds", type=int, default=200)
    flags.add_argument("--ratio", type=float, help="this one alone")
    flags.add_argument("--jobs", type=int, default=os.cpu_count())
    flags = flags.parse_args()
    try:
        import scipy
    except ImportError:
        sys.exit("bench/balancer.py: no scipy here; python3 -m venv .venv && .venv/bin/pip install "
                 "-r bench/balancer/requirements.txt, then LH_BENCH_PYTHON=.venv/bin/python")
    out = report.Report("balancer", flags.json)
    out.condition("oracle", f"scipy {scipy.__version__}, HiGHS")
    out.condition("seeds", f"0 to {flags.seeds - 1}")
    out.condition("instances", "6 regions, 1,200 units; bench/balancer/sim.c")
    program = os.path.join(flags.build, "bench", "bench_balancer_sim")
    violations = 0
    for ratio, spread in RATIOS:
        if flags.ratio in (None, ratio):
            cases = measure(program, ratio, spread, flags.seeds, flags.jobs)
            violations += tell(out, ratio, cases)
    out.row("balancer.violations", "1", [violations])
    out.finish()
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
