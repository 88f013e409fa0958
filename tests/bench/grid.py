#!/usr/bin/env python3
"""bench/grid.py, shortened: `tests/bench/grid.py BUILD PYTHON`.

First the bench's figures from known windows; then longhaul's arm and plain DiLoCo on loopback, a
tiny model in two regions, with the real programs: each row exists, and a measured cell is not
measured again. No time is judged, no peer is installed, no link is shaped.
"""
import json
import os
import subprocess
import sys
import tempfile
import types

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import grid  # noqa: E402
import report  # noqa: E402

ROWS = {"gloo.busy", *(f"longhaul.{what}" for what in (
    "busy", "density", "pushes_per_window", "push_windows", "cut_ms", "renew_ms",
    "sent_bytes"))}


def check(holds, text):
    if not holds:
        raise SystemExit(f"FAILED: {text}")


def line(system, seconds, **more):
    """A cell of 10 steps of 100 ms in a window."""
    return {"system": system, "h": 10, "mbit": 50, "step_ms": 100, "seconds": seconds,
            "sent": [5, 7], **more}


def figures():
    """Busy is over all regions and windows; ours is compared with the busiest peer."""
    value, half, count = grid.busy(line("gloo", [[2, 2], [2, 2]]))
    check((value, half, count) == (50, 0, 2), (value, half, count))
    value, half, count = grid.busy(line("gloo", [[1, 3], [1, 3]]))
    check(value == 50 and half > 100, f"{value} {half}: one window of two was three times as long")
    check(grid.busy(line("gloo", [[4], [4]]))[1] is None, "one window has no interval")
    out = report.Report("grid", None)
    worker = {"rounds": 4, "push_seconds": {"count": [3, 1], "sum": 2.0}}
    ours = line("longhaul", [[1, 1]], density=0.5, workers=[worker], windows=[2],
                cut_s=[[0.1, 0.1]], renew_s=[[0.2, 0.2]])
    cells = {grid.key(of): of for of in (
        ours, line("gloo", [[4, 4]]), line("torchft", [[2, 2]]),
        {"system": "hivemind", "h": 10, "mbit": 50, "why": "it is not there"})}
    grid.tell(out, cells)
    rows = {row["name"].removeprefix("grid.h10.50mbit."): row for row in out.rows}
    check((rows["longhaul.busy"]["value"], rows["longhaul.busy"]["ratio"]) == (100, 2), rows)
    check("ratio" not in rows["gloo.busy"], "a peer stands beside itself")
    check(rows["longhaul.pushes_per_window"]["value"] == 2, rows)
    check(rows["longhaul.push_windows"]["value"] == 0.5, rows)
    check(rows["torchft.sent_bytes"]["value"] == 6, rows)
    check("it is not there" in out.conditions["h10.50mbit.hivemind"], out.conditions)


def distances():
    """A small run that learns has a link on which a push takes the grid's longest share."""
    def cell(p, *took):
        return line("longhaul", [[4, 4]], density=p, workers=[
            {"push_seconds": {"count": [2], "sum": 2 * seconds}} for seconds in took])
    cells = {("longhaul", 10, 50): cell(0.5, 0.5, 0.25), ("longhaul", 10, 200): cell(0.25, 1, 2)}
    flags = types.SimpleNamespace(step_ms=100)
    found = [grid.loss_rtt_ms(cells, flags, h, p)
             for h, p in ((10, 0.25), (10, 0.5), (10, 1), (20, 0.5))]
    check(found == [500, 125, 0, 0], found)


def densities():
    """The shipped density, except where a window is too short for the link."""
    check([grid.density(h, mbit) for h, mbit in ((32, 50), (32, 200), (128, 50), (128, 5000))] ==
          [0.015625, 0.075, 0.075, 0.075], "densities of the grid")


def smoke(build, python):
    """The real bench, small, twice."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        words = [sys.executable, os.path.join(ROOT, "bench", "grid.py"), "--build", build, "--json",
                 path, "--python", python, "--size", "tiny", "--h", "4", "--mbit", "50",
                 "--systems", "longhaul,gloo", "--step-ms", "30", "--windows", "3", "--loopback",
                 "--regions", "2", "--keep", os.path.join(folder, "logs")]
        subprocess.run(words, check=True)
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "contracts", "validate.py"),
                        "bench", path], check=True)
        with open(path, encoding="utf-8") as file:
            rows = {row["name"]: row for row in json.load(file)["rows"]}
        check(set(rows) == {f"grid.h4.50mbit.{name}" for name in ROWS}, f"rows {sorted(rows)}")
        check(all(0 < rows[f"grid.h4.50mbit.{system}.busy"]["value"] <= 100
                  for system in ("longhaul", "gloo")), rows)
        with open(f"{path}.runs", encoding="utf-8") as file:
            runs = file.read()
        subprocess.run(words, check=True)
        with open(f"{path}.runs", encoding="utf-8") as file:
            check(file.read() == runs, "cells were measured again")


def main():
    figures()
    distances()
    densities()
    smoke(*sys.argv[1:])


main()
