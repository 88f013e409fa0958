#!/usr/bin/env python3
"""The accountants against dp-accounting and Opacus, the sampler against exact values of MPFR.

    privacy.py --tool build/release/tests/oracle/oracle_privacy [--settings 200] [--draws 1e8]

RDP is within 5e-5 of dp-accounting. Opacus computes orders between the integers, where
dp-accounting and we interpolate from above: RDP is at least Opacus' value and at most its value of
the integer orders, to 5e-5. PLD, in every fourth setting, is never below dp-accounting's optimistic
estimate and at most 0.5 % above its pessimistic one, at the same grid; an epsilon below 200 grid
distances may be off by one distance. The exact curve is within 1e-9.
"""
import argparse
import logging
import math
import random
import subprocess
import sys

import dp_accounting as dp
import gmpy2
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from opacus.accountants.analysis import rdp as opacus

GRID = 1e-4
PLD_EVERY = 4  # settings whose PLD is compared: dp-accounting takes 0.4 s for one
ORDERS = [1 + x / 10.0 for x in range(1, 100)] + list(range(11, 64)) + [128, 256, 512, 1024]
INTEGERS = [order for order in ORDERS if order == int(order)]


class Tool:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()


def settings(count, seed):
    """sigma in [0.5, 20], q in [1e-4, 1], steps up to 20,000, delta in [1e-9, 1e-4]; every fifth
    without sampling. Epsilons too large to be of use are skipped."""
    dice = random.Random(seed)
    found = 0
    while found < count:
        sigma = math.exp(dice.uniform(math.log(0.5), math.log(20)))
        q = 1.0 if found % 5 == 0 else math.exp(dice.uniform(math.log(1e-4), math.log(0.5)))
        steps = int(math.exp(dice.uniform(0, math.log(20000))))
        delta = math.exp(dice.uniform(math.log(1e-9), math.log(1e-4)))
        if q * math.sqrt(steps) / sigma < 8:
            found += 1
            yield sigma, q, steps, delta


def google_rdp(sigma, q, steps, delta):
    accountant = RdpAccountant(ORDERS)
    event = dp.GaussianDpEvent(sigma)
    if q < 1:
        event = dp.PoissonSampledDpEvent(q, event)
    accountant.compose(event, steps)
    return accountant.get_epsilon(delta)


def opacus_rdp(sigma, q, steps, delta, orders):
    divergence = opacus.compute_rdp(q=q, noise_multiplier=sigma, steps=steps, orders=orders)
    return max(0, opacus.get_privacy_spent(orders=orders, rdp=divergence, delta=delta)[0])


def google_pld(sigma, q, steps, delta, pessimistic):
    loss = pld.from_gaussian_mechanism(
        sigma, sampling_prob=q, value_discretization_interval=GRID,
        pessimistic_estimate=pessimistic, use_connect_dots=pessimistic)
    return loss.self_compose(steps).get_epsilon_for_delta(delta)


def exact(sigma, steps, delta):
    """Epsilon of the Gaussian mechanism, in 200 bits."""
    with gmpy2.context(gmpy2.get_context(), precision=200):
        mu = gmpy2.sqrt(gmpy2.mpfr(steps)) / gmpy2.mpfr(sigma)
        phi = lambda x: gmpy2.erfc(-x / gmpy2.sqrt(gmpy2.mpfr(2))) / 2
        curve = lambda e: phi(mu / 2 - e / mu) - gmpy2.exp(e) * phi(-mu / 2 - e / mu)
        low, high = gmpy2.mpfr(0), gmpy2.mpfr(1)
        if curve(low) <= delta:
            return 0.0
        while curve(high) > delta:
            high *= 2
        for _ in range(120):
            middle = (low + high) / 2
            low, high = (middle, high) if curve(middle) > delta else (low, middle)
        return float(high)


def accountants(tool, count, seed):
    worst = {"rdp, dp-accounting": 0, "rdp, opacus": 0, "pld above": -1, "exact": 0, "seconds": 0}
    failed = []
    for i, case in enumerate(settings(count, seed)):
        rdp, mine, analytic, took = map(float, tool.ask("account", *map(repr, case)))
        low, high = ((google_pld(*case, pessimistic=p) for p in (False, True))
                     if i % PLD_EVERY == 0 else (0, math.inf))
        off = {"rdp, dp-accounting": abs(rdp / google_rdp(*case) - 1) if rdp else 0,
               "rdp, opacus": max(opacus_rdp(*case, ORDERS) / rdp - 1,
                                  1 - opacus_rdp(*case, INTEGERS) / rdp) if rdp else 0,
               "pld above": (mine - high) / max(high, 200 * GRID) if high < math.inf else -1,
               "exact": 0, "seconds": took}
        if case[1] == 1:
            off["exact"] = abs(analytic / exact(case[0], *case[2:]) - 1)
        worst = {key: max(worst[key], off[key]) for key in worst}
        bad = [key for key, most in (("rdp, dp-accounting", 5e-5), ("rdp, opacus", 5e-5),
                                     ("pld above", 5e-3), ("exact", 1e-9), ("seconds", 1))
               if off[key] > most]
        if mine < low:
            bad.append(f"pld {mine} is below {low}")
        if bad:
            failed.append((case, bad, rdp, mine, low, high))
    print("accountants, worst of", count, worst)
    return failed


def exponentials(tool, count, seed):
    """The sampler's e^-t is within 2^-120 of MPFR's."""
    dice, one, worst = random.Random(seed), 1 << 127, 0
    with gmpy2.context(gmpy2.get_context(), precision=400):
        for i in range(count):
            t = dice.getrandbits(126 - i % 60)
            high, low = map(int, tool.ask("exp", t >> 64, t & (1 << 64) - 1))
            want = gmpy2.exp(-gmpy2.mpfr(t) / one) * one
            worst = max(worst, abs((high << 64 | low) - want))
    print("e^-t: worst error 2^-%.1f" % (127 - math.log2(max(float(worst), 1))))
    return [] if worst <= 1 << 7 else [("exp", float(worst))]


def share(low, high, s):
    """The probability of the integers low to high - 1, in 200 bits."""
    with gmpy2.context(gmpy2.get_context(), precision=200):
        root = gmpy2.sqrt(gmpy2.mpfr(2)) * s
        below = lambda n: gmpy2.erfc(-(gmpy2.mpfr(n) - 0.5) / root) / 2
        return float(below(high) - below(low))


def draws(tool, count, bins=200):
    failed = []
    for width in (1, 1000, 3000000):
        n, step, low, *rest = tool.ask("draw", width, count, bins)
        n, step, low, s = int(n), int(step), int(low), 50 * width
        counts, tails, distance = list(map(int, rest[:bins])), rest[bins:-1], float(rest[-1])
        inner = [(counts[b], n * share(low + b * step, low + (b + 1) * step, s))
                 for b in range(1, bins - 1)]
        chi = sum((got - want) ** 2 / want for got, want in inner)
        limit = bins + 5.5 * math.sqrt(2 * bins)
        ks = distance * math.sqrt(n)
        print(f"draws, width {width}: chi-square {chi:.1f} of {len(inner)}, KS {ks:.3f}")
        if chi > limit or ks > 2.7:
            failed.append((width, chi, ks))
        for t, got in zip((3, 4, 5, 6), map(int, tails)):
            want = 2 * n * share(t * s + 1, 10 ** 6 * s, s)
            print(f"  beyond {t} deviations: {got}, exactly {want:.2f}")
            if abs(got - want) > 5.5 * math.sqrt(want) + 5:
                failed.append((width, t, got, want))
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("--settings", type=int, default=100)
    parser.add_argument("--draws", type=float, default=1e8)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    tool = Tool(given.tool)
    failed = exponentials(tool, 2000, given.seed)
    failed += accountants(tool, given.settings, given.seed)
    failed += draws(tool, int(given.draws))
    for what in failed:
        print("FAIL", *what)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
