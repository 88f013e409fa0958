#!/usr/bin/env python3
"""Runs many seeds of the simulator in chunks, and reports: `campaign.py --sim build/.../sim`.

A chunk is one run of `sim`, --jobs of them at a time; the figures of its summary are added up. Ends
after --seeds or --minutes, or on SIGTERM once the running chunks are done, and says how many seeds
ran. Exit status 1 if a seed violates an invariant.
"""
import argparse
import collections
from concurrent import futures
import os
import re
import shlex
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
from report import Report  # pylint: disable=wrong-import-position

SUMMARY = re.compile(r"^(\d+) seeds, (\d+) events, pushes (\d+) admitted \((\d+) clipped\) (\d+) "
                     r"refused, (\d+) outer steps; (\d+) violations", re.M)
DISKS = re.compile(r"^(\d+) disks lost, (\d+) damaged; (\d+) shards came back", re.M)
FAULTS = re.compile(r"^faults:((?: \w+ \d+)*)$", re.M)
JUDGED = re.compile(r"^(\d+) pushes were acknowledged, \d+ of them exempt:((?: \d+ \w+,?)*)$", re.M)
BALANCED = re.compile(r"^(\d+) worker-shards balanced, (\d+) losses of workers measured; (\d+) "
                      r"answers of the coordinator", re.M)
# Figures of the balancer, travelling units and pairs of coordinators, if the faults include them.
TOLD = (
    (re.compile(r"^(\d+) answers recalled leases, (\d+) took some back$", re.M),
     ("units.recalls", "units.returns")),
    (re.compile(r"^(\d+) units went to another region by the plan, (\d+) were recalled for one "
                r"that ended them earlier, (\d+) ran twice$", re.M),
     ("units.planned", "units.stolen", "units.ran_twice")),
    (re.compile(r"^(\d+) units travelled, (\d+) were refused to a worker alone, (\d+) that were "
                r"begun were given back$", re.M),
     ("units.travelled", "units.refused", "units.begun_back")),
    (re.compile(r"^(\d+) bytes crossed links with a cap, (\d+) of them had no room", re.M),
     ("units.crossed_bytes", "units.full_links")),
    (re.compile(r"^(\d+) runs ended before all was trained", re.M), ("units.short_runs",)),
    (re.compile(r"^(\d+) pairs of coordinators had (\d+) leaders; their store refused (\d+) "
                r"changes", re.M), ("pairs", "pairs.leaders", "pairs.refused_changes")),
)
NAMES = ("seeds", "events", "admitted", "clipped", "refused", "outer_steps", "violations",
         "disks_lost", "disks_damaged", "shards_rebuilt")


def chunk(given, first, count):
    """Runs `count` seeds. Returns the summary's figures, how often each fault occurred, the other
    figures, the lines about violations, and seeds a CPU minute."""
    with subprocess.Popen(
            [*shlex.split(given.before), given.sim, "--from", str(first), "--seeds", str(count),
             "--faults", given.faults, *(["--pair"] if given.pair else [])],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        out = run.stdout.read()
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    found = SUMMARY.search(out)
    if not found:
        raise RuntimeError(f"sim --from {first} ended with {run.returncode}: {out}")
    disks = DISKS.search(out)  # only if disks are lost or damaged
    sums = found.groups() + (disks.groups() if disks else (0, 0, 0))
    said = [line for line in out.splitlines() if line.startswith("seed ")]
    words = FAULTS.search(out).group(1).split()
    faults = dict(zip(words[::2], map(int, words[1::2])))
    return ([int(g) for g in sums], faults, judged(out) | told(out), said,
            count / (used.ru_utime + used.ru_stime) * 60)


def told(out):
    """Returns the figures of units and pairs, by name."""
    sums = {}
    for pattern, names in TOLD:
        found = pattern.search(out)
        if found:
            sums |= {name: int(n) for name, n in zip(names, found.groups())}
    return sums


def judged(out):
    """Returns what the judge checked, and the exempted pushes by the kind of loss."""
    pushes, balanced = JUDGED.search(out), BALANCED.search(out)
    exempt = pushes.group(2).replace(",", "").split()
    sums = {f"judge.exempt.{name}": int(n) for n, name in zip(exempt[::2], exempt[1::2])}
    sums["judge.acknowledged"] = int(pushes.group(1))
    names = ("balanced", "losses_measured", "coordinator_answers")
    return sums | {f"judge.{name}": int(n) for name, n in zip(names, balanced.groups())}


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--sim", required=True, help="the program")
    flags.add_argument("--before", default="", help="words before it, such as nice")
    flags.add_argument("--from", dest="first", type=int, default=1)
    flags.add_argument("--seeds", type=int, default=100000)
    flags.add_argument("--chunk", type=int, default=1000)
    flags.add_argument("--jobs", type=int, default=1, help="chunks at a time")
    flags.add_argument("--minutes", type=float, default=1e9)
    flags.add_argument("--faults", default="all")
    flags.add_argument("--pair", action="store_true", help="two coordinators, in every run")
    flags.add_argument("--json")
    given = flags.parse_args()
    report, sums, bad, speeds = Report("campaign-sim", given.json), [0] * len(NAMES), [], []
    happened, looked_at = collections.Counter(), collections.Counter()
    end, at = time.monotonic() + given.minutes * 60, given.first
    enough = []
    signal.signal(signal.SIGTERM, lambda number, frame: enough.append(number))
    last, running = given.first + given.seeds, set()
    with futures.ThreadPoolExecutor(given.jobs) as pool:
        while True:
            while (len(running) < given.jobs and at < last and time.monotonic() < end
                   and not enough):
                count = min(given.chunk, last - at)
                running.add(pool.submit(chunk, given, at, count))
                at += count
            if not running:
                break
            done, running = futures.wait(running, return_when=futures.FIRST_COMPLETED)
            for one in done:
                figures, faults, of_judge, said, speed = one.result()
                happened.update(faults)
                looked_at.update(of_judge)
                sums = [a + b for a, b in zip(sums, figures)]
                bad += said
                speeds.append(speed)
                print(f"{sums[0]} seeds, {sums[6]} violations", *said, sep="\n", flush=True)
    report.condition("faults", given.faults + (", a pair in every run" if given.pair else ""))
    report.condition("seeds", f"{given.first} to {at - 1}")
    for name, value in zip(NAMES, sums):
        report.row(f"sim.{name}", "1", [value])
    for name, value in sorted(looked_at.items()):
        report.row(f"sim.{name}", "1", [value])
    for name, value in sorted(happened.items()):
        report.row(f"sim.faults.{name}", "1", [value])
    report.row("sim.seeds_per_core_minute", "1/min", speeds, "wanted", 1000)
    report.finish()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
