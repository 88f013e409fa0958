#!/usr/bin/env python3
"""bench/round.py with a tiny model on emulated links: `tests/bench/round.py BUILD`."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
ROWS = ("seconds", "bytes_per_region", "cpu_s", "stall_s", "peak_bytes")


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "round.json")
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", "round.py"), "--build",
                        sys.argv[1], "--size", "tiny", "--rounds", "3", "--json", path],
                       check=True)
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "contracts", "validate.py"),
                        "bench", path], check=True)
        with open(path, encoding="utf-8") as file:
            rows = {row["name"]: row for row in json.load(file)["rows"]}
    for name in ROWS:
        row = rows["round.tiny.90ms-1gbit." + name]
        if not row["value"] > (-1 if name == "stall_s" else 0):
            raise SystemExit(f"{row}: nothing was measured")
    least = rows["round.tiny.90ms-1gbit.seconds"]["min"]
    if least < 0.09:  # no exchange over 90 ms is faster than light
        raise SystemExit(f"an exchange of {least} s over links of 90 ms")


main()
