#!/usr/bin/env python3
"""How long is a server gone? `bench/run.sh recovery [--json FILE] [--shape full|tiny] [--kills N]`.

Real programs on loopback under mutual TLS: one shard of 257 million parameters (1 GB), pushed as 64
of 4096 signs by one worker of a synthetic trainer (`trainer.kind`). The server is killed with -9
repeatedly, at random moments; each time the figure is the time from the kill to the next
acknowledged push, including the launcher's wait of 0.2 s before a restart, and its parts by the
events of both logs (STAGES). Then the coordinator, a process of its own, is killed: the figure is
the longest time between two acknowledged pushes around it, beside the longest one before.
With --join the kills are added to those in FILE, of the same commit: 6 take 4 minutes.
Needs 12 GB of memory and 8 GB of disk.
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import live  # noqa: E402
import report  # noqa: E402

EACH, GAPS = "seconds of each kill", "longest gaps around the coordinator's kill and before"
STAGES = (  # of a recovery: the event that ends it, and the log that has it
    ("start", "s0", "program.begin"),  # launcher and process
    ("load", "s0", "recover.loaded"),  # a checkpoint is read and opened, and its digest verified
    ("replay", "s0", "recover.durable"),  # the log above it, read, folded and synced
    ("serve", "s0", "server.serving"),
    ("find", "here-0", "hello.answer"),  # the worker has a session again
    ("wait", "here-0", "push.sent"),  # for a cut, if there was none
    ("push", "here-0", "push.decided"),
)
NAMES = [name for name, _, _ in STAGES]
SHARES = f"of it {' '.join(NAMES)}"
STEADY_S = 20.5  # seconds of life after which the launcher forgets a crash


class Kills:
    """Kills while the run goes on: see `during` of live.Run."""

    def __init__(self, tool, shape, kills, seed):
        self.tool, self.pause = tool, live.LONE[shape][1]
        self.kills, self.chance = kills, random.Random(seed)
        self.seconds, self.coordinator_gap, self.usual_gap = [], 0.0, 0.0
        self.stages = []  # for each kill, seconds by stage

    def __call__(self, run):
        log = live.Tail(run, "here-0")
        log.wait("push.decided", 3)
        for k in range(self.kills):
            time.sleep((STEADY_S if k else 0) + self.chance.random() * 2 * self.pause)
            killed = run.kill("s0")
            decided = log.next("push.decided", killed)
            self.seconds.append(decided - killed)
            self.stages.append(stages(run, killed, decided))
            print(f"kill {k + 1}: {decided - killed:.2f} s: " + told(self.stages[-1]) +
                  under_way(run, killed, decided), flush=True)
        log.wait("push.decided", 3)
        start = time.monotonic()
        time.sleep(5 * self.pause)
        killed = run.kill("coordinator")
        time.sleep(5 * self.pause)
        end = time.monotonic()
        log.next("push.decided", end)
        self.usual_gap = log.longest_gap("push.decided", start, killed)
        self.coordinator_gap = log.longest_gap("push.decided", killed - self.pause, end)
        subprocess.run([self.tool, "drain", "run", "--end", "--dir", run.dir], check=True,
                       stdout=subprocess.DEVNULL)


def between(run, node, start, end):
    """A log's events between two times: (seconds, event, text), ascending."""
    told_of = ((e["mono_us"] / 1e6, e["event"], e.get("text", "")) for e in run.log(node))
    return [e for e in told_of if start < e[0] <= end]


def stages(run, killed, decided):
    """Seconds by stage; of repeated events the last counts."""
    logs = {node: between(run, node, killed, decided) for _, node, _ in STAGES}
    before, out = killed, {}
    for name, node, event in STAGES:
        at = max((t for t, what, _ in logs[node] if what == event), default=before)
        out[name] = max(at - before, 0.0)
        before = max(at, before)
    return out


def told(seconds):
    return ", ".join(f"{name} {s:.2f}" for name, s in seconds.items())


def under_way(run, killed, decided):
    """Explains a kill's time besides its stages: replayed records, and an interrupted
    checkpoint."""
    replayed = [text for _, what, text in between(run, "s0", killed, decided)
                if what == "recover.durable"]
    kept = [(what, text) for _, what, text in between(run, "s0", 0, killed)
            if what in ("checkpoint.begun", "checkpoint.written")]
    inside = f"; into a checkpoint: {kept[-1][1]}" if kept and kept[-1][0].endswith("begun") else ""
    return "".join(f"; {text}" for text in replayed) + inside


def earlier(path):
    """From the kills in the file: seconds, stages; the coordinator's gaps, (gap, usual)."""
    with open(path, encoding="utf-8") as file:
        said = json.load(file)["conditions"]
    gaps = [float(x) for x in said[GAPS].split()]
    each = [dict(zip(NAMES, map(float, kill.split()))) for kill in said[SHARES].split(",")]
    return [float(x) for x in said[EACH].split()], each, list(zip(gaps[::2], gaps[1::2]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json")
    parser.add_argument("--shape", choices=sorted(live.LONE), default="full")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--join", action="store_true", help="with FILE's kills, of another seed")
    flags = parser.parse_args()
    tool = os.path.join(flags.build, "deploy", "longhaul")
    folder = tempfile.mkdtemp(prefix="longhaul-recovery-")
    out = report.Report("recovery", flags.json, flags.join)
    seconds_before, shares, gaps = earlier(flags.json) if flags.join else ([], [], [])
    pause = live.LONE[flags.shape][1]
    seconds = flags.kills * (STEADY_S + 30) + 300  # more than needed: the run is ended then
    text = live.lone("recovery", flags.shape, seconds / pause)
    kills = Kills(tool, flags.shape, flags.kills, flags.seed)
    try:
        live.prepare(tool, folder, ("here/en",))
        run = live.Run(tool, folder, "run", text, ["here-0"], "--no-wan", during=kills)
    finally:
        shutil.rmtree(folder)
    out.condition("parameters", run.summary["model"]["parameters"])
    out.condition("seed", flags.seed)
    out.condition("seconds between two cuts", pause)
    every = seconds_before + kills.seconds
    shares += kills.stages
    gaps.append((kills.coordinator_gap, kills.usual_gap))
    out.row("recovery.server.seconds", "s", every)
    out.row("recovery.server.worst_s", "s", [max(every)])
    for name in NAMES:
        out.row(f"recovery.server.stage.{name}", "s", [kill[name] for kill in shares])
    out.row("recovery.coordinator.longest_gap_s", "s", [gap for gap, _ in gaps],
            "the longest gap before the kill", max(usual for _, usual in gaps))
    out.finish()
    if flags.json:  # the base of a later --join
        with open(flags.json, "r+", encoding="utf-8") as file:
            document = json.load(file)
            document["conditions"][EACH] = " ".join(f"{s:.2f}" for s in every)
            document["conditions"][SHARES] = ", ".join(
                " ".join(f"{kill[name]:.2f}" for name in NAMES) for kill in shares)
            document["conditions"][GAPS] = " ".join(f"{x:.2f}" for pair in gaps for x in pair)
            file.seek(0)
            json.dump(document, file, indent=2)
            file.write("\n")
            file.truncate()


if __name__ == "__main__":
    main()
