#!/usr/bin/env python3
"""Runs every seed that ever failed: `seeds.py --sim build/.../sim` reads seeds.txt beside it.

A line has the flags of `sim`, the seed, and after two spaces and a # the bug that it found. Exit
status 1 if one violates an invariant.
"""
import argparse
from concurrent import futures
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def read(path):
    """Yields (flags, seed, the bug that it found) of each line."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            flags, _, words = line.partition("#")
            given = flags.split()
            if not given:
                continue
            if not given[-1].isdigit() or not words.strip():
                raise SystemExit(f"{path}:{number}: not `flags seed  # what it found`: {line}")
            yield given[:-1], given[-1], words.strip()


def run(sim, flags, seed):
    """Returns what `sim` printed about a violation, or ""."""
    done = subprocess.run([sim, *flags, "--from", seed, "--seeds", "1"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    return "" if "\n1 seeds," in f"\n{done.stdout}" and not said else "\n".join(
        said or [f"ended with {done.returncode}: {done.stdout}"])


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--sim", required=True, help="the program")
    flags.add_argument("--file", default=os.path.join(HERE, "seeds.txt"))
    flags.add_argument("--jobs", type=int, default=2)
    flags.add_argument("--every", type=int, default=1, help="every n-th line alone")
    given = flags.parse_args()
    lines = list(read(given.file))[::given.every]
    bad = 0
    with futures.ThreadPoolExecutor(given.jobs) as pool:
        for (words, seed, found), said in zip(
                lines, pool.map(lambda one: run(given.sim, one[0], one[1]), lines)):
            if said:
                bad += 1
                print(" ".join(words), seed, f"({found}):", said)
    print(f"{len(lines)} seeds, {bad} violations")
    return 1 if bad or not lines else 0


if __name__ == "__main__":
    sys.exit(main())
