#!/usr/bin/env python3
"""Are long and bad links lived with? `bench/run.sh drill [--json FILE] [--only NAME,...]`.

The real programs with README's settings ("Across machines") on the emulated links of
bench/drill/*.world, whose first lines describe each place and give the source of its figures: six
places harder than three-regions.world. On each a schedule of faults is played
(bench/drill/faults.py): its far region is cut off for 5, 8 and 20 s, loses 30 % of all packets for
10 s, its worker is killed; a server is killed; the coordinator is cut off for 20 s, then killed and
away for 45 s. Measured after each fault: the seconds until the affected workers have received a
decision and folded a record of every shard again, beside the allowed time; the longest time that
the other workers (or all, if all were affected) went without a decision, less the usual time there;
the regions that the coordinator gave up. At the end all replicas have one digest, every process
exits with 0, and the offline checker of tests/crash finds every push and every unit counted once.

With --held-out N also N schedules drawn from --seed: place, faults, regions, lengths, moments.
Needs root and /dev/net/tun; 20 minutes, two places side by side, mostly waiting.
"""
import argparse
import concurrent.futures
import json
import os
import random
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "drill")]
import faults  # noqa: E402
import fleet  # noqa: E402
import links  # noqa: E402
import report  # noqa: E402

WORLDS = ("five-continents", "geostationary", "two-hops", "deep", "moon", "mobile")
WEATHER = ("mobile",)  # losses there also come in bursts
DATA_S = 150  # of training for each fault: the run is ended before they are used up


def world_path(name):
    return os.path.join(HERE, "drill", name + ".world")


def what_it_is(name):
    """The comment at the head of its file."""
    with open(world_path(name), encoding="utf-8") as file:
        lines = [line[2:].strip() for line in file if line.startswith("# ")]
    return " ".join(lines)


def play(build, name, only, seed, keep):
    """Plays one world. `seed`: of a held-out schedule; None: the fixed one."""
    world = links.Links(build, world_path(name), f"drill-{os.getpid()}")
    far = world.regions[-1]
    try:
        draw = random.Random(f"{seed}/{name}")
        plan = faults.schedule(far) if seed is None else faults.held_out(world.regions[1:], draw)
        plan = [fault for fault in plan if not only or fault.name in only]
        it = fleet.Fleet(build, world, DATA_S * len(plan), keep)
        with it.world:
            drill = faults.Drill(it.start(), lambda text: print(f"{name}: {text}", flush=True))
            drill.warm_up()
            if name in WEATHER:
                world.weather(far, seed)
            for fault in plan:
                drill.play(fault)
            found, violations = it.end(faults.PATIENCE_S)
    finally:
        world.close()
    print(f"{name}: {len(violations)} violations; {found}", flush=True)
    return {"world": name, "seed": seed, "rows": drill.rows, "violations": violations,
            "figures": found}


def apart(flags, job, folder):
    """Runs play() in a process of its own; gives its result."""
    number, (name, seed) = job
    path = os.path.join(folder, f"{number}.json")
    line = [sys.executable, os.path.abspath(__file__), "--build", flags.build, "--one", name,
            "--result", path, "--faults", flags.faults]
    line += [] if seed is None else ["--seed", str(seed)]
    line += ["--keep"] if flags.keep else []
    with subprocess.Popen(line) as child:
        code = child.wait()
    if code:
        raise SystemExit(f"{name} ended with {code}")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def jobs_of(flags):
    names = flags.only.split(",") if flags.only else WORLDS
    jobs = [(name, None) for name in names] * flags.turns
    draw = random.Random(flags.seed)
    return jobs + [(draw.choice(names), flags.seed * 1000 + i) for i in range(flags.held_out)]


def rows(out, results):
    """Rows of all results, joined by name; a worker that never recovered counts with the drill's
    patience."""
    named, given_up = {}, 0
    for result in results:
        place = result["world"]
        if result["seed"] is not None:
            place = f"held-out.{result['seed']}.{place}"
        for row in result["rows"]:
            named.setdefault((place, row["fault"]), []).append(row)
            given_up += len(row["given_up"])
    for (place, fault), each in named.items():
        worst = max(each, key=lambda row: row["bound"])
        seconds = [row["seconds"] or faults.PATIENCE_S for row in each]
        out.row(f"drill.{place}.{fault}", "s", seconds,
                f"3 s and {worst['trips']} trips of {worst['rtt']:.2f} s", worst["bound"])
        out.row(f"drill.{place}.{fault}.stall", "s",
                [stall for row in each for stall in row["stalls"].values()])
    out.row("drill.given_up", "1", [given_up])
    out.row("drill.violations", "1", [sum(len(result["violations"]) for result in results)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json")
    parser.add_argument("--only", default="", help="these worlds, with commas")
    parser.add_argument("--faults", default="", help="these faults, with commas")
    parser.add_argument("--side-by-side", type=int, default=2)
    parser.add_argument("--held-out", type=int, default=0, help="so many drawn schedules, too")
    parser.add_argument("--turns", type=int, default=1, help="of the fixed schedule; 0: none")
    parser.add_argument("--seed", type=int, help="of the drawn schedules")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the runs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if flags.one:
        only = flags.faults.split(",") if flags.faults else []
        found = play(flags.build, flags.one, only, flags.seed, flags.keep)
        with open(flags.result, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)
        return
    flags.seed = 1 if flags.seed is None else flags.seed
    out = report.Report("drill", flags.json)
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(flags.side_by_side) as pool:
        results = list(pool.map(lambda job: apart(flags, job, folder),
                                enumerate(jobs_of(flags))))
    rows(out, results)
    for name in sorted({result["world"] for result in results}):
        out.condition(name, what_it_is(name))
    out.finish()
    violations = [text for result in results for text in result["violations"]]
    if violations:
        raise SystemExit(f"{len(violations)} violations, the first: {violations[:5]}")


if __name__ == "__main__":
    main()
