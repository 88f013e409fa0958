#!/usr/bin/env python3
"""Simulated: 4 to 1,000 regions, and the rules of leasing. `bench/run.sh sim [--json FILE]`.

The real cores (coordinator, servers, workers) under the virtual clock, each region one worker whose
trainer is modelled: a step lasts as long as its tokens take at the region's speed, 10 % more or
less. Links have round trips, rates and lost packets (bench/sim/links.h). No figure here is from a
real network or a real training; only wall_s depends on this machine.

 scale    regions with equal speeds, until each has trained the same mean share
 rules    level, finish and weighted over the same scenes and seeds
 goodput  a region is killed every 60 s, every 15 s, and comes back after its restart
 budget   a tenth of the data is trained: the time, and the part trained by its home region
 stagger  the most that a region sends of pushes in half a second, with its shards at different
          steps and all at one step

The whole takes about 40 minutes of CPU time, most of it for 512 and 1,000 regions.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import report  # noqa: E402

SIZES = {4: 24, 8: 24, 16: 24, 32: 24, 64: 24, 128: 24, 256: 12, 512: 6, 1000: 4}  # units each
PORT_MBIT = 100000  # of the server's port
RULES = ("level", "finish", "weighted")
SCENES = {  # 6 regions with 40 units each, 50 to 300 ms, 100 Mbit/s to 10 Gbit/s, but where said
    "equal": ("--speeds", "1"),
    "4-2-1": ("--speeds", "4,2,1"),
    "4-2-1-slowed": ("--speeds", "4,2,1", "--slow", "0.1,0.4,0.25"),
    "equal-slowed": ("--speeds", "1", "--slow", "0.1,0.4,0.25"),
    "16-4-1": ("--speeds", "16,4,1"),
    "far": ("--speeds", "4,2,1", "--rtt-ms", "300,300", "--mbit", "100,100"),
    "32-regions": ("--workers", "32", "--speeds", "4,2,1", "--slow", "0.1,0.4,0.25"),
    "short": ("--speeds", "4,2,1", "--slow", "0.1,0.4,0.25", "--units", "8"),
    "lossy": ("--speeds", "4,2,1", "--slow", "0.1,0.4,0.25", "--loss", "0.001"),
}
RULE_WORKERS, RULE_UNITS = 6, 40
STAGGERED, STAGGER_UNITS = (2, 4, 8), 48  # shards; enough units that no region runs dry early
FAILURES = {"60s": 60, "15s": 15}  # seconds between two kills
FAIL_WORKERS, FAIL_UNITS = 4, 160
RESTART = ("round.json", "round.10m.kill-worker.back_s")  # measured with real processes


def play(program, **flags):
    """One run of bench_sim; gives its figures."""
    words = [program]
    for name, value in flags.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return one(words)


def one(words):
    said = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True,
                          check=False)
    if said.returncode:
        sys.exit(f"bench/sim.py: {' '.join(map(str, words))} failed")
    case = json.loads(said.stdout)
    if case["credited"] < case["units"]:
        sys.exit(f"bench/sim.py: {case['credited']} of {case['units']} units are credited")
    return case


def tell_scale(out, workers, cases):
    name = f"sim.scale.{workers}"
    speeds = [case["tokens"] / case["bound_s"] for case in cases]
    out.row(f"{name}.tokens_per_s", "1/s", [case["tokens"] / case["makespan_s"] for case in cases],
            "the sum of all speeds", speeds)
    out.row(f"{name}.ready_s", "s", [case["ready_s"] for case in cases])
    out.row(f"{name}.utilisation", "1", [case["busy_s"] / case["makespan_s"] / workers
                                         for case in cases])
    out.row(f"{name}.staleness", "pushes a region", [case["staleness"] for case in cases])
    out.row(f"{name}.staleness_p95", "pushes a region", [case["staleness_p95"] for case in cases])
    out.row(f"{name}.refused", "1", [case["refused"] / max(case["admitted"], 1) for case in cases])
    pushes = [case["admitted"] / workers for case in cases]
    out.row(f"{name}.up_bytes_a_push", "B", [case["up"] / case["admitted"] for case in cases])
    followed = [case["down"] - case["snapshots"] for case in cases]
    out.row(f"{name}.down_bytes_a_push", "B", [
        down / workers / n for down, n in zip(followed, pushes, strict=True)])
    # Servers' traffic grows with regions x (regions - 1): bytes of one push to one region.
    out.row(f"{name}.bytes_a_pair", "B", [
        down / n / workers / (workers - 1) for down, n in zip(followed, pushes, strict=True)])
    out.row(f"{name}.wall_s", "s", [case["wall_s"] for case in cases])
    out.row(f"{name}.events", "1", [case["events"] for case in cases])
    out.row(f"{name}.memory_bytes", "B", [case["memory"] for case in cases])


def scale(out, program, sizes, seeds, units):
    for workers in sizes:
        # the largest ones have one seed: each takes minutes
        count = seeds if workers < 256 else 1
        tell_scale(out, workers, [
            play(program, workers=workers, units=units or SIZES[workers], seed=seed,
                 port_mbit=PORT_MBIT) for seed in range(1, count + 1)])


def rules(out, program, seeds, units):
    for scene, words in SCENES.items():
        cases = {rule: [one([program, "--workers", RULE_WORKERS, "--units", units, "--rule", rule,
                             "--seed", seed, *words]) for seed in range(1, seeds + 1)]
                 for rule in RULES}
        for rule in RULES:
            beyond = [case["makespan_s"] / case["bound_s"] for case in cases[rule]]
            name = f"sim.rules.{scene}.{rule}"
            out.row(name, "of the bound", [statistics.mean(beyond)])
            out.rows[-1].update(min=min(beyond), max=max(beyond), n=len(beyond))
        shorter = [a["makespan_s"] / b["makespan_s"]
                   for a, b in zip(cases["finish"], cases["level"], strict=True)]
        out.row(f"sim.rules.{scene}.finish_by_level", "1", [statistics.mean(shorter)])
        out.rows[-1].update(min=min(shorter), max=max(shorter), n=len(shorter))


def budget(out, program, seeds):
    """A tenth of the data is trained, with a window of two units and with the programs' own."""
    for window, kind in ((2, ""), (0, ".wide")):
        for rule in RULES:
            cases = [one([program, "--workers", RULE_WORKERS, "--units", 200, "--speeds", "4,2,1",
                          "--budget", 0.1, "--rule", rule, "--window", window, "--seed", seed])
                     for seed in range(1, seeds + 1)]
            beyond = [case["makespan_s"] / case["bound_s"] for case in cases]
            name = f"sim.budget.tenth{kind}.{rule}"
            out.row(name, "of the bound", [statistics.mean(beyond)])
            out.rows[-1].update(min=min(beyond), max=max(beyond), n=len(beyond))
            own = [case["own"] for case in cases]
            out.row(f"{name}.own", "of the units", [statistics.mean(own)])
            out.rows[-1].update(min=min(own), max=max(own), n=len(own))


def stagger(out, program):
    for shards in STAGGERED:
        same = {"shards": shards, "values": 32768, "stands_for": 312, "units": STAGGER_UNITS}
        peaks = {how: [play(program, stagger=how, seed=seed, **same)["peak_up"]
                       for seed in range(1, 4)] for how in ("on", "off")}
        out.row(f"sim.stagger.{shards}.peak_bytes", "B", peaks["on"], "all at one step",
                peaks["off"])


def restart_s():
    """How long a killed worker was away on a real machine."""
    file, name = RESTART
    with open(os.path.join(HERE, "results", file), encoding="utf-8") as result:
        return next(row["value"] for row in json.load(result)["rows"] if row["name"] == name)


def goodput(out, program, seeds, units, down_s):
    out.condition("restart", f"{down_s:.2f} s, {RESTART[1]} of {RESTART[0]}; then it joins again")
    for name, every in FAILURES.items():
        for rule in ("level", "finish"):
            pairs = []
            for seed in range(1, seeds + 1):
                same = {"workers": FAIL_WORKERS, "units": units, "rule": rule, "seed": seed}
                calm = play(program, **same)
                pairs.append((calm, play(program, fail=f"{every},{down_s}", **same)))
            out.row(f"sim.goodput.{name}.{rule}", "1",
                    [calm["makespan_s"] / bad["makespan_s"] for calm, bad in pairs])
            out.row(f"sim.goodput.{name}.{rule}.trained_again", "1",
                    [bad["trained"] / bad["tokens"] - 1 for _, bad in pairs])
            out.row(f"sim.goodput.{name}.{rule}.failures", "1",
                    [bad["failures"] for _, bad in pairs])


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", default="build/release")
    flags.add_argument("--json")
    flags.add_argument("--join", action="store_true", help="keeps what FILE has of this commit")
    flags.add_argument("--parts", default="scale,rules,goodput,budget,stagger")
    flags.add_argument("--sizes", default=",".join(map(str, SIZES)), help="regions of `scale`")
    flags.add_argument("--seeds", type=int, default=5, help="of `scale`, below 256 regions")
    flags.add_argument("--rule-seeds", type=int, default=20, help="of `rules` and `goodput`")
    flags.add_argument("--units", type=int, help="of each region, in every part")
    flags = flags.parse_args()
    out = report.Report("sim", flags.json, flags.join)
    out.condition("simulated", "virtual clock, modelled trainer and links; a region is one worker")
    out.condition("model", "4,096 parameters that stand for 10 M, one shard; 64 of 4,096 values "
                  "a push, signs; H 8, 8 s a round; a server's port of 100 Gbit/s in scale alone")
    out.condition("links", "50 to 300 ms, 100 Mbit/s to 10 Gbit/s, drawn for each region")
    program = os.path.join(flags.build, "bench", "bench_sim")
    parts = flags.parts.split(",")
    if "scale" in parts:
        scale(out, program, [int(size) for size in flags.sizes.split(",")], flags.seeds,
              flags.units)
    if "rules" in parts:
        rules(out, program, flags.rule_seeds, flags.units or RULE_UNITS)
    if "goodput" in parts:
        goodput(out, program, flags.rule_seeds, flags.units or FAIL_UNITS, restart_s())
    if "budget" in parts:
        budget(out, program, flags.rule_seeds)
    if "stagger" in parts:
        stagger(out, program)
    out.finish()


if __name__ == "__main__":
    main()
