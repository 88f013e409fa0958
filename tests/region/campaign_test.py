#!/usr/bin/env python3
"""Checks that campaign.py adds up the summaries of `region` and writes a document that satisfies
tests/contracts/bench.schema.json, and that a run without a summary is an error."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "contracts"))
from validate import problems  # pylint: disable=wrong-import-position

SEEDS, CHUNK = 12, 5  # three runs, of which the last is shorter


def campaign(region, path):
    return subprocess.run([sys.executable, os.path.join(HERE, "campaign.py"), "--region", region,
                           "--seeds", str(SEEDS), "--chunk", str(CHUNK), "--json", path],
                          capture_output=True, text=True, check=False)


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--region", required=True, help="the program")
    given = flags.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "campaign.json")
        done = campaign(given.region, path)
        assert done.returncode == 0, done.stdout + done.stderr
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        assert campaign("/bin/true", os.path.join(folder, "none.json")).returncode != 0
    with open(os.path.join(os.path.dirname(HERE), "contracts", "bench.schema.json"),
              encoding="utf-8") as file:
        wrong = list(problems(document, json.load(file), "document"))
    assert not wrong, wrong
    rows = {row["name"]: row["value"] for row in document["rows"]}
    assert document["bench"] == "campaign-region", document
    assert rows["region.seeds"] == SEEDS and rows["region.failed"] == 0, rows
    assert rows["region.steps"] > 0 and rows["region.faults.kill"] > 0, rows
    assert {"region.early", "region.ended"} <= set(rows), rows
    assert document["conditions"]["seeds"] == f"1 to {SEEDS}", document["conditions"]
    return 0


if __name__ == "__main__":
    sys.exit(main())
