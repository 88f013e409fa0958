#!/usr/bin/env python3
"""Instances of the balancer's bench: they follow from their seed, every policy ends each of them,
no region trains a unit that may not go there, and the policy by finish takes no longer than the
rules beside it. Without scipy, so without the oracle: tests/bench/balancer.py PROGRAM."""
import json
import subprocess
import sys

KINDS = ("finish", "alike", "blind", "weighted", "static")
SEEDS = 8


def play(program, ratio, spread):
    said = subprocess.run([program, str(SEEDS), "0", str(ratio), str(spread)], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in said.splitlines()]


def main():
    program = sys.argv[1]
    assert play(program, 1, 4) == play(program, 1, 4), "the same seeds, other figures"
    for ratio, spread in ((0.2, 4), (4, 10)):
        cases = play(program, ratio, spread)
        assert len(cases) == SEEDS
        sums = {kind: sum(case[kind]["makespan"] for case in cases) for kind in KINDS}
        print(ratio, sums)
        assert not sum(case[kind]["violations"] for case in cases for kind in KINDS)
        assert sums["finish"] < sums["weighted"] < sums["static"], "no better than the plain rules"
        assert sums["finish"] <= 1.01 * sums["alike"], "links that are known make it worse"
        if ratio == 4:
            assert sums["finish"] < 0.95 * sums["blind"], "links that are known save nothing"


if __name__ == "__main__":
    main()
