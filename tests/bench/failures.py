#!/usr/bin/env python3
"""bench/failures.py, shortened: `tests/bench/failures.py BUILD PYTHON`.

First the bench's figures from known samples and kills; then longhaul and the checkpoints with the
real programs, each with a loop's kill (seed 7): they train on, and finished measurements are not
repeated. No time is judged, no peer is installed. Exit status 77 where namespaces can't be made.
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "tests", "crash")]
import failures  # noqa: E402
import power  # noqa: E402
import report  # noqa: E402


def check(holds, text):
    if not holds:
        raise SystemExit(f"FAILED: {text}")


def line(every_s, samples, kills=()):
    """A system at one rate of failures, for 200 s."""
    return {"arm": "longhaul", "every_s": every_s, "seconds": 200, "commit": "c", "failed": 2,
            "load": [1, 2], "samples": samples, "kills": list(kills)}


def figures():
    """20 steps a second undisturbed; a loop's kill at 80 s costs 50 steps, 2.5 s of all four."""
    whole = [[t, 20 * t] for t in range(201)]
    hurt = [[t, 20 * t - 50 * (t > 80)] for t in range(201)]
    lines = {0: line(0, whole), 100: line(100, hurt, [[80, "asia-loop"]])}
    out = report.Report("failures", None)
    failures.describe(out, list(lines.values()))
    failures.tell(out, "longhaul", lines)
    rows = {row["name"].removeprefix("failures.longhaul."): row for row in out.rows}
    check(rows["undisturbed.steps_per_s"]["value"] == 20, rows)
    check(rows["every100s.goodput"]["value"] == 98.75, rows)
    check(rows["every100s.seconds_to_half"]["value"] == 103, rows)
    check(rows["kill.loop.region_s"]["value"] == 10, rows)
    said = out.conditions["longhaul.every100s"]
    check(said == "1 of a loop, 2 ended by themselves", said)
    check([failures.role(name) for name in ("asia-0", "shard-1", "lighthouse", "asia-loop")] ==
          ["worker", "server", "lighthouse", "loop"], "roles")


def smoke(build, python):
    """The real bench, small, twice."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        words = [sys.executable, os.path.join(ROOT, "bench", "failures.py"), "--build", build,
                 "--json", path, "--python", python, "--arms", "longhaul,checkpoint", "--every",
                 "30", "--seconds", "30", "--seed", "7"]
        subprocess.run(words, check=True)
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "contracts", "validate.py"),
                        "bench", path], check=True)
        with open(f"{path}.runs", encoding="utf-8") as file:
            runs = file.read()
        lines = {line["arm"]: line for line in map(json.loads, runs.splitlines())}
        for arm in ("longhaul", "checkpoint"):
            check("samples" in lines[arm], lines[arm])
            (killed, name), = lines[arm]["kills"]
            check(killed < 4 and name.endswith("-loop"), lines[arm]["kills"])
            after = [steps for t, steps in lines[arm]["samples"] if t > killed]
            check(after[-1] > after[0], f"{arm} did no step after the kill: {lines[arm]}")
        check("bad_end" not in lines["longhaul"], lines["longhaul"].get("bad_end"))
        subprocess.run(words, check=True)
        with open(f"{path}.runs", encoding="utf-8") as file:
            check(file.read() == runs, "what was measured was measured again")


def main():
    figures()
    if not power.can_isolate():
        power.not_run("it needs root, for namespaces of networks and processes")
    smoke(*sys.argv[1:])


main()
