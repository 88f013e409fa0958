#!/usr/bin/env python3
"""Runs many seeds of a region of ranks, with a report: `campaign.py --region build/.../region`.

Adds up the summaries of several runs of `region`. Exit status 1 if a seed failed.
"""
import argparse
import collections
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
from report import Report  # pylint: disable=wrong-import-position

SUMMARY = re.compile(
    r"^(?P<seeds>\d+) seeds, (?P<failed>\d+) failed; (?P<steps>\d+) steps, (?P<shared>\d+) states "
    r"shared, (?P<ended>\d+) processes ended with a word; (?P<early>\d+) buckets .*; "
    r"faults:(?P<faults>(?: \w+ \d+)+)$", re.M)
COUNTED = ("seeds", "failed", "steps", "shared", "ended", "early")


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--region", required=True, help="the program")
    flags.add_argument("--from", dest="first", type=int, default=1)
    flags.add_argument("--seeds", type=int, default=100000)
    flags.add_argument("--chunk", type=int, default=10000)
    flags.add_argument("--json")
    given = flags.parse_args()
    report, sums = Report("campaign-region", given.json), collections.Counter()
    last = given.first + given.seeds
    for at in range(given.first, last, given.chunk):
        count = min(given.chunk, last - at)
        done = subprocess.run([given.region, "--from", str(at), "--seeds", str(count)],
                              capture_output=True, text=True, check=False)
        found = SUMMARY.search(done.stdout)
        if not found:
            raise RuntimeError(f"region --from {at} ended with {done.returncode}: {done.stderr}")
        words = found["faults"].split()
        sums.update({name: int(found[name]) for name in COUNTED})
        sums.update({f"faults.{name}": int(n) for name, n in zip(words[::2], words[1::2])})
        print(f"{sums['seeds']} seeds, {sums['failed']} failed", flush=True)
        if done.returncode:
            print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
    report.condition("seeds", f"{given.first} to {last - 1}")
    for name, value in sums.items():
        report.row(f"region.{name}", "1", [value])
    report.finish()
    return 1 if sums["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
