#!/usr/bin/env python3
"""bench/frontdoor.py, shortened: `tests/bench/frontdoor.py BUILD PYTHON`.

The loop alone and longhaul's arm with a tiny model on loopback: the real programs, two regions,
equal parameters in the end (the bench checks that itself). Every row is there and the document
keeps its contract; no time is judged. Before that, what the bench makes of windows.
"""
import json
import os
import subprocess
import sys
import tempfile
import types

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import frontdoor  # noqa: E402
import report  # noqa: E402

ROWS = {"frontdoor.alone.window_s", "frontdoor.longhaul.lost_s",
        "frontdoor.longhaul.share_percent", "frontdoor.longhaul.sent_bytes",
        "frontdoor.longhaul.received_bytes"}


def check(holds, text):
    if not holds:
        raise SystemExit(f"FAILED: {text}")


def loop(seconds, moved):
    """A loop that said these windows."""
    windows = [{"seconds": s, "late": 0} for s in seconds]
    return types.SimpleNamespace(windows=windows, moved=moved, parameters=7)


def figures():
    """The first window is left out; lost is what is above the loop alone, beside plain DiLoCo."""
    out = report.Report("frontdoor", None)
    made = frontdoor.Figures(out, types.SimpleNamespace(windows=2))
    made.take("alone", [loop((9, 4, 4, 90), [None] * 4)])
    made.take("gloo", [loop((9, 6, 6), [(0, 0), (50, 1), (100, 2)])] * 2)
    made.take("longhaul", [loop((9, 5, 5), [(0, 0), (5, 3), (10, 6)])] * 2)
    rows = {row["name"]: row for row in out.rows}
    check(rows["frontdoor.alone.window_s"]["value"] == 4, rows)
    check("ratio" not in rows["frontdoor.gloo.lost_s"], "the peer stands beside itself")
    lost = rows["frontdoor.longhaul.lost_s"]
    check((lost["value"], lost["n"], lost["ratio"]) == (1, 4, 0.5), lost)
    check(rows["frontdoor.longhaul.share_percent"]["value"] == 25, rows)
    check(rows["frontdoor.longhaul.sent_bytes"]["ratio"] == 0.1, rows)
    check(rows["frontdoor.longhaul.received_bytes"]["value"] == 3, rows)


def smoke(build, python, folder):
    """The real thing, small."""
    path = os.path.join(folder, "out.json")
    subprocess.run([sys.executable, os.path.join(ROOT, "bench", "frontdoor.py"), "--build", build,
                    "--json", path, "--python", python, "--arms", "alone,longhaul", "--size",
                    "tiny", "--h", "4", "--step-ms", "30", "--windows", "3", "--loopback", "--keep",
                    os.path.join(folder, "logs")], check=True)
    subprocess.run([sys.executable, os.path.join(ROOT, "tests", "contracts", "validate.py"),
                    "bench", path], check=True)
    with open(path, encoding="utf-8") as file:
        rows = {row["name"]: row for row in json.load(file)["rows"]}
    check(set(rows) == ROWS, f"rows {sorted(rows)}")
    check(rows["frontdoor.longhaul.sent_bytes"]["min"] > 0, "nothing was sent")


def main():
    figures()
    with tempfile.TemporaryDirectory() as folder:
        smoke(*sys.argv[1:], folder)


main()
