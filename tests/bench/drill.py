#!/usr/bin/env python3
"""bench/drill.py, shortened: `tests/bench/drill.py BUILD`. On a geostationary link.

A cut of its far region and a killed server: the affected processes push and fold again, no peer is
given up, every process exits with 0 and the offline checker finds nothing. The times are not
judged. Before that, the drill's reading of logs is checked on a log with known answers.
"""
import json
import os
import random
import sys
import tempfile
import types

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "bench", "drill")]
import drill  # noqa: E402
import faults  # noqa: E402

SAID = (  # seconds, event, text
    (1, "push.decided", "shard 0: 1/1 admitted"), (2, "push.decided", "shard 1: 1/1 admitted"),
    (9, "record.folded", "shard 0: version 2 kind 1"),
    (9.5, "push.decided", "shard 0: 1/2 refused"),
    (11, "record.folded", "shard 1: version 2 kind 1"),
    (12, "push.decided", "shard 1: 1/2 admitted"))


def check(holds, text):
    if not holds:
        raise SystemExit(f"FAILED: {text}")


def reads(folder):
    """Checks an Ear on a log that grows, with a torn line in it."""
    path = os.path.join(folder, "log")
    ear = faults.Ear(types.SimpleNamespace(log=path))
    for part in (SAID[:4], SAID[4:]):
        check(ear.well(3, 2) is None, "one shard of two is well: the region is not")
        with open(path, "a", encoding="utf-8") as log:
            for at, event, text in part:
                log.write(json.dumps({"mono_us": at * 1e6, "event": event, "text": text}) + "\n")
            log.write('{"mono_us": 1' + "\n")
        ear.listen()
    check(ear.well(3, 2) == 12, f"well again at {ear.well(3, 2)}, not with the last decision")
    check(ear.gap(3, 8) == 7.5, f"a gap of {ear.gap(3, 8)} s: from 2 to 9.5")
    check(ear.gap(12.5, 20) == 8, f"a gap of {ear.gap(12.5, 20)} s: from 12 to the end")


def drawn():
    """The same seed gives the same schedule, another one does not; every fault has a bound."""
    plans = [faults.held_out(["a", "b"], random.Random(seed)) for seed in (1, 1, 2)]
    check(plans[0] == plans[1] != plans[2], f"{plans}")
    for fault in [*plans[0], *faults.schedule("a")]:
        check(faults.TRIPS[fault.kind] >= 4, f"{fault}")
    for name in drill.WORLDS:
        check(len(drill.what_it_is(name)) > 40, f"{name} does not say what it is")


def main():
    with tempfile.TemporaryDirectory() as folder:
        reads(folder)
    drawn()
    found = drill.play(sys.argv[1], "geostationary", ["cut-5", "kill-server"], None, False)
    check([row["fault"] for row in found["rows"]] == ["cut-5", "kill-server"], f"{found['rows']}")
    for row in found["rows"]:
        check(row["seconds"] is not None, f"not well again after {row['fault']}: {row['well']}")
        check(not row["given_up"], f"given up after {row['fault']}: {row['given_up']}")
    check(not found["violations"], f"{found['violations']}")
    check(found["figures"]["admitted"] > 0 and found["figures"]["credited"] > 0, f"{found}")
    print("ok")


main()
