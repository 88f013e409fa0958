#!/usr/bin/env python3
"""How much training is left when processes are killed? `bench/run.sh failures --json FILE`.

Four regions train with modelled steps; a process of the run is killed with -9 every 15, 60 or 300
seconds, or never, and restarted as `longhaul up` does it. Three systems under one schedule:
longhaul, torchft's DiLoCo, and plain DiLoCo that restarts from its last checkpoint
(bench/failures/README.md). All cells of a call are measured side by side.

    goodput = surviving steps a second, divided by those of the same system undisturbed

A system at one rate is a line of FILE.runs and is not measured again; FILE has the rows of all
lines. Needs root, for namespaces.
"""
import argparse
import concurrent.futures
import json
import os
import signal
import statistics
import subprocess

import frontdoor
import report

HERE = os.path.dirname(os.path.abspath(__file__))
ARMS = ("longhaul", "torchft", "checkpoint")
H, STEP_S, START_S, REGIONS = 5, 0.2, 3.0, 4
IDEAL = REGIONS / STEP_S  # steps a second
ALONE_S = 30  # a kill's cost is measured at rates at which no other kill follows sooner


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json")
    parser.add_argument("--arms", default=",".join(ARMS), help="these, with commas")
    parser.add_argument("--every", default="0,15,60,300",
                        help="seconds between failures; 0: none")
    parser.add_argument("--seconds", type=float, default=1200, help="of each system and rate")
    parser.add_argument("--seed", type=int, default=1, help="chooses victims and moments")
    parser.add_argument("--python", help="in place of .venv-peers; nothing is installed then")
    return parser.parse_args()


def measure(flags, python, arm, every_s):
    """The line of one system at one rate."""
    given = {"arm": arm, "every_s": every_s, "seconds": flags.seconds, "seed": flags.seed, "h": H,
             "step_s": STEP_S, "start_s": START_S, "build": os.path.abspath(flags.build)}
    done = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", python,
         os.path.join(HERE, "failures", "cell.py"), json.dumps(given)],
        capture_output=True, text=True, check=False, preexec_fn=frontdoor.die_with_parent)
    line = {"arm": arm, "every_s": every_s, "seconds": flags.seconds, "commit": report.commit()}
    if done.returncode:
        return line | {"why": " ".join(done.stderr.split())[-600:]}
    return line | json.loads(done.stdout.splitlines()[-1])


def kept(path):
    """The lines of FILE.runs; the last one of a system and rate counts."""
    if not path or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return {(line["arm"], line["every_s"]): line for line in map(json.loads, file)}


# ---------------------------------------------------------------- figures

def level(line, second):
    """Surviving steps by then: the mean over two seconds, because a region's come in windows."""
    return statistics.fmean(n for t, n in line["samples"] if second <= t < second + 2)


def rate(line, start=0.0, end=1e9):
    """Steps a second between two times."""
    part = [sample for sample in line["samples"] if start <= sample[0] <= end]
    return (part[-1][1] - part[0][1]) / (part[-1][0] - part[0][0])


def role(name):
    """The kind of process that has this name."""
    kinds = {"loop": "loop", "shard": "server", "0": "worker"}
    return next((kinds[part] for part in name.split("-") if part in kinds), name)


def costs(lines, undisturbed):
    """role -> region-seconds of training that each of its kills cost."""
    found = {}
    for line in lines:
        ends = [t for t, _ in line["kills"][1:]] + [line["samples"][-1][0]]
        for (t, name), end in zip(line["kills"], ends):
            if t >= 2 and end - t >= ALONE_S + 2:
                lost = (ALONE_S + 2) * undisturbed - level(line, t + ALONE_S) + level(line, t - 2)
                found.setdefault(role(name), []).append(lost * REGIONS / undisturbed)
    return found


def estimate(out, name, unit, value, samples):
    """A value, and two standard errors of the mean of `samples` on either side."""
    n = len(samples)
    half = 2 * statistics.stdev(samples) / n ** 0.5 if n > 1 else None
    out.estimate(name, unit, value, half, n)


def tell(out, arm, lines):
    """Every row of a system. `lines`: by the rate; without an undisturbed one only the plain
    figures are reported."""
    for every_s, line in sorted(lines.items()):
        name = f"failures.{arm}.every{every_s:g}s" if every_s else f"failures.{arm}.undisturbed"
        out.row(f"{name}.steps_per_s", "1/s", [rate(line)], "four loops that wait for nothing",
                IDEAL)
        if not every_s or 0 not in lines:
            continue
        alone = rate(lines[0])
        estimate(out, f"{name}.goodput", "%", 100 * rate(line) / alone, [
            100 * rate(line, k * every_s, (k + 1) * every_s) / alone
            for k in range(int(line["seconds"] / every_s))])
        half = line["seconds"] / 2  # up to the steps that loops without waits make in half the time
        took = next((t for t, steps in line["samples"]
                     if steps - line["samples"][0][1] >= IDEAL * half), None)
        if took:
            out.row(f"{name}.seconds_to_half", "s", [took], "four loops that wait for nothing",
                    half)
        else:
            out.condition(f"{name}.seconds_to_half", "not reached")
    hurt = [line for every_s, line in lines.items() if every_s and 0 in lines]
    for what, values in costs(hurt, rate(lines[0]) if hurt else IDEAL).items():
        estimate(out, f"failures.{arm}.kill.{what}.region_s", "s", statistics.fmean(values),
                 values)


def describe(out, lines):
    """Conditions of all lines."""
    loads = [load for line in lines for load in line.get("load", [])]
    out.condition("regions", f"{REGIONS}, one loop each; steps of {STEP_S:g} s, a window of {H}; "
                  "0.66 million parameters; loopback")
    out.condition("restart", f"0.2 s after the end; a loop then needs {START_S:g} s, modelled, "
                  "for what Python and PyTorch take to start")
    out.condition("seconds", ", ".join(sorted({f"{line['seconds']:g}" for line in lines})))
    out.condition("load", f"{min(loads, default=0):.1f} to {max(loads, default=0):.1f}")
    out.condition("commits", ", ".join(sorted({line["commit"] for line in lines})))
    for line in lines:
        name, killed = f"{line['arm']}.every{line['every_s']:g}s", {}
        for _, victim in line.get("kills", ()):
            killed[role(victim)] = killed.get(role(victim), 0) + 1
        said = [line[what] for what in ("why", "bad_end") if what in line]
        said += [f"{count} of a {what}" for what, count in sorted(killed.items())]
        said += [f"{line['failed']} ended by themselves"] if line.get("failed") else []
        out.condition(name, ", ".join(said) or "no kill")


def main():
    flags = parse()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(1))  # the rest is killed with it
    path = flags.json and f"{flags.json}.runs"
    lines, arms = kept(path), flags.arms.split(",")
    missing = [(arm, every_s) for every_s in map(float, flags.every.split(",")) for arm in arms
               if (arm, every_s) not in lines]
    bench = frontdoor.Bench(flags, frontdoor.SIZES["tiny"], frontdoor.Loopback(), "")
    try:
        lacks = frontdoor.install(bench, flags) if missing else {}
    except frontdoor.Failure as failure:
        raise SystemExit(f"failures: {failure}") from None
    with concurrent.futures.ThreadPoolExecutor(max(1, len(missing))) as pool:
        for done in concurrent.futures.as_completed(
                pool.submit(measure, flags, bench.python, *of) for of in missing
                if of[0] not in lacks):
            line = done.result()
            lines[line["arm"], line["every_s"]] = line
            print(f"{line['arm']}, every {line['every_s']:g} s: "
                  f"{line.get('why') or f'{rate(line):.2f} steps/s'}", flush=True)
            if path:
                with open(path, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
    out = report.Report("failures", flags.json)
    describe(out, list(lines.values()))
    for arm in ARMS:
        if arm in lacks and arm in arms:
            out.condition(arm, f"not measured: {lacks[arm]}")
        tell(out, arm, {every_s: line for (of, every_s), line in lines.items()
                        if of == arm and "samples" in line})
    out.finish()


if __name__ == "__main__":
    main()
