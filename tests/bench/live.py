#!/usr/bin/env python3
"""The benches over whole runs, with a tiny model: `tests/bench/live.py BUILD NAME`."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import pause  # noqa: E402
import report  # noqa: E402

ROUND = "round.tiny.90ms-1gbit."
ROWS = {  # rows that must exist, and their lower bounds
    "round": {ROUND + "seconds": 0.09, ROUND + "bytes_per_region": 1000, ROUND + "cpu_s": 0,
              ROUND + "stall_s": -1, ROUND + "peak_bytes": 1e6,
              ROUND + "stage.encode_s": -1, ROUND + "stage.to_server_s": 0.045,
              ROUND + "stage.to_follower_s": 0.045, ROUND + "stage.whole_s": 0.09,
              "round.tiny.kill-worker.others_stall_s": -1, "round.tiny.kill-worker.back_s": 0.1,
              "round.tiny.kill-worker.others_longest_round_s": 0.29,
              "round.tiny.kill-server.stall_s": -1, "round.tiny.kill-server.back_s": 0.1,
              "round.tiny.kill-server.longest_round_s": 0.29},
    "push": {"push.durable.mtls.xchacha20": 0, "push.durable.mtls.aes256gcm": 0,
             "push.alone.mtls.xchacha20": 0, "push.alone.stage.log": 0, "push.disk.write_sync": 0,
             "push.alone.mtls.xchacha20.of_transport": 0,
             "push.durable.mtls.aes256gcm.of_disk": 0, "push.snapshot.mtls.first": 0,
             "push.snapshot.mtls.large.join": 0,
             "push.snapshot.mtls.sealed.connect": 0, "push.snapshot.mtls.aes256gcm": 0,
             "push.many.mtls.1worker": 0, "push.many.mtls.8workers": 0,
             "push.ack.p50_ms": 0, "push.ack.p99_ms": 0,
             "push.server.alone.peak_bytes": 1e6},
    "durable": {"durable.small.pushes_per_s": 0, "durable.small.ack_p99_ms": 0,
                "durable.small.commit_p50_ms": 0, "durable.small.disk_p99_ms": 0,
                "durable.small.disk_idle_p99_ms": 0, "durable.small.processors_busy": 0,
                "durable.small.server_busy": -1, "durable.small.log_busy": 0,
                "durable.small.askers_p99_ms": 0, "durable.small.added_p99_ms": -1e6,
                "durable.small.added_beside_askers_p99_ms": -1e6,
                "durable.small.added_p99_by_turn_ms": -1e6},
    "pause": {"pause.checkpoints": 0, "pause.none.longest_ms": 0, "pause.checkpoint.longest_ms": 0,
              "pause.added_ms": -1},
    "recovery": {"recovery.server.seconds": 0.2, "recovery.server.stage.start": 0.1,
                 "recovery.server.stage.replay": 0, "recovery.coordinator.longest_gap_s": 0},
}
FLAGS = {
    "round": ["--size", "tiny", "--rounds", "3", "--kills", "1"],
    "push": ["--shape", "tiny", "--pushes", "3", "--rounds", "2", "--snapshot-runs", "1",
             "--parts", "alone,snapshot,held,many,acks"],
    "durable": ["--size", "small", "--rounds", "20", "--turns", "1"],
    "pause": ["--shape", "tiny", "--checkpoints", "3", "--every", "20"],
    "recovery": ["--shape", "tiny", "--kills", "1"],
}


def counts(folder):
    """Calls of a campaign add up their counts, each call once."""
    path = os.path.join(folder, "counts.json")
    for seed, number in ((1, 40), (2, 2)):
        out = report.Report("counts", path, join=True)
        out.call(f"--seed {seed}")
        out.count("n", number)
        out.row("violations", "1", [0])
        out.finish()
    with open(path, encoding="utf-8") as file:
        said = json.load(file)
    if {r["name"]: r["value"] for r in said["rows"]} != {"n": 42, "violations": 0}:
        raise SystemExit(f"not added up: {said}")
    if said["conditions"]["calls"] != "--seed 1; --seed 2":
        raise SystemExit(f"it does not name its calls: {said}")
    try:
        out.call("--seed 1")
    except SystemExit as refused:
        if "give another seed" in str(refused):
            return
    raise SystemExit("the same call was counted twice")


def join(folder):
    """report.Report with `join`: rows of one commit are joined, those of another are not."""
    path = os.path.join(folder, "joined.json")
    for value, name in ((1, "a"), (2, "b"), (3, "a")):
        out = report.Report("join", path, join=True)
        out.row(name, "s", [value])
        out.finish()
    with open(path, encoding="utf-8") as file:
        said = file.read()
    if [(r["name"], r["value"]) for r in json.loads(said)["rows"]] != [("b", 2), ("a", 3)]:
        raise SystemExit(f"not joined: {said}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(said.replace('"commit": "', '"commit": "0'))
    try:
        out.finish()
    except SystemExit as refused:
        if "do not go with them" in str(refused):
            return
    raise SystemExit("rows of two commits were joined")


def too_short():
    """bench/pause.py: a run without a second to compare is refused, without a division by 0."""
    looking = pause.Looking()
    looking.seen = {100: 5.0, 101: 7.0, 104: 2.0, 110: 3.0}
    if looking.both([(99, 100), (110, 111)]) != ([5.0, 7.0, 3.0], [2.0]):
        raise SystemExit("seconds beside a checkpoint and others are mixed up")
    for spans in [], [(99, 112)]:
        try:
            looking.both(spans)
        except SystemExit as refused:
            if "nothing to compare" in str(refused):
                continue
        raise SystemExit(f"{spans}: a run that is too short was not refused")


def main():
    build, name = sys.argv[1:]
    if name == "pause":
        too_short()
    with tempfile.TemporaryDirectory() as folder:
        join(folder)
        counts(folder)
        path = os.path.join(folder, "out.json")
        subprocess.run([sys.executable, os.path.join(ROOT, "bench", name + ".py"), "--build", build,
                        "--json", path, *FLAGS[name]], check=True)
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "contracts", "validate.py"),
                        "bench", path], check=True)
        with open(path, encoding="utf-8") as file:
            rows = {row["name"]: row for row in json.load(file)["rows"]}
    for row, least in ROWS[name].items():  # no exchange over 90 ms is faster
        if not rows[row]["min"] > least:
            raise SystemExit(f"{rows[row]}: more than {least} wanted")


main()
