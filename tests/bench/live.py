#!/usr/bin/env python3
"""The benches over whole runs, with a tiny model: `tests/bench/live.py BUILD NAME`."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
ROUND = "round.tiny.90ms-1gbit."
ROWS = {  # what must be there, and above what
    "round": {ROUND + "seconds": 0.09, ROUND + "bytes_per_region": 1000, ROUND + "cpu_s": 0,
              ROUND + "stall_s": -1, ROUND + "peak_bytes": 1e6},
    "push": {"push.durable.mtls.xchacha20": 0, "push.durable.mtls.aes256gcm": 0,
             "push.snapshot.mtls": 0, "push.durable.mtls.8workers": 0, "push.ack.p50_ms": 0,
             "push.ack.p99_ms": 0, "push.server.peak_bytes_per_parameter": 4},
    "recovery": {"recovery.server.seconds": 0.2, "recovery.coordinator.longest_gap_s": 0},
}
FLAGS = {"round": ["--size", "tiny", "--rounds", "3"], "push": ["--shape", "tiny", "--pushes", "3"],
         "recovery": ["--shape", "tiny", "--kills", "1"]}


def main():
    build, name = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", name + ".py"), "--build", build,
                        "--json", path, *FLAGS[name]], check=True)
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "contracts", "validate.py"),
                        "bench", path], check=True)
        with open(path, encoding="utf-8") as file:
            rows = {row["name"]: row for row in json.load(file)["rows"]}
    for row, least in ROWS[name].items():  # no exchange over 90 ms is faster than that
        if not rows[row]["min"] > least:
            raise SystemExit(f"{rows[row]}: more than {least} wanted")


main()
