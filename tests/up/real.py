#!/usr/bin/env python3
"""`longhaul up` with the real programs: stopped and resumed, or drilled on emulated links.

    tests/up/real.py --build DIR resume|drill [--wan]

A tiny model on invented text. Every run must end with 0, leave a summary.json that holds its
contract, and no process. --wan needs root and /dev/net/tun.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOPOLOGY = """run: {run}
budget_tokens: {budget}
tokens_per_s: {speed}
model: {{dim: 32, layers: 2, heads: 2, kv_heads: 1, ffn: 64, context: 64}}
coordinator: {{region: europe}}
servers:
  - {{name: s0, region: europe, shards: [0]}}
  - {{name: s1, region: america, shards: [1]}}
regions: {{asia: {{speed: 4}}, europe: {{speed: 2}}, america: {{speed: 1}}}}
link: {{rtt_ms: 100, mbit: 100}}
server: {{coordinator.h_base: 4, checkpoint.every_versions: 40}}
worker: {{trainer: {{learning_rate: 0.01}}}}
"""
PATIENCE_S = 280


class World:
    def __init__(self, build, run, budget, speed):
        self.dir = tempfile.mkdtemp(prefix="longhaul-real-")
        self.tool = os.path.join(build, "deploy", "longhaul")
        self.build = os.path.abspath(build)
        self.write("t.yaml", TOPOLOGY.format(run=run, budget=budget, speed=speed))
        words = random.Random(7)
        for place in ("asia/ja", "europe/de", "america/en"):
            language = place[-2:]
            lexicon = ["".join(words.choices("abcdefghij", k=5)) for _ in range(40)]
            self.write(f"text/{place}/a.txt", " ".join(words.choices(lexicon, k=60000)))
            self.write(f"text/heldout/{language}.txt", " ".join(words.choices(lexicon, k=3000)))
        subprocess.run([self.tool, "data", "prepare", "--text", self.path("text"), "--out",
                        self.path("tokens"), "--unit-tokens", "2048", "--sequence", "64"],
                       check=True, stdout=subprocess.DEVNULL)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def up(self, *flags):
        return subprocess.Popen(
            [self.tool, "up", self.path("t.yaml"), "--dir", self.path("run"), "--data",
             self.path("tokens"), "--json", self.path("summary.json"), *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def credited(self):
        try:
            with open(self.path("run", "coordinator", "status.json"), encoding="utf-8") as file:
                return json.load(file).get("credited_tokens", 0)
        except (OSError, ValueError):
            return 0

    def left(self):
        """Processes that name our folder, the launcher apart."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                    line = file.read().replace("\0", " ")
            except OSError:
                continue
            if self.path("run") in line and int(pid) != os.getpid():
                found.append(line)
        return found


def check(holds, text):
    if not holds:
        raise SystemExit(f"FAILED: {text}")


def ended_well(world, up):
    said, _ = up.communicate(timeout=PATIENCE_S)
    check(up.returncode == 0, f"up ended with {up.returncode}:\n{said}")
    validate = os.path.join(HERE, "..", "contracts", "validate.py")
    subprocess.run([sys.executable, validate, "summary", world.path("summary.json")], check=True)
    with open(world.path("summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    check(summary["ok"] and summary["replicas"]["compared"] == 4, "four holders agree")
    for language, loss in summary["heldout"].items():
        check(loss["after"] < loss["before"] - 1, f"{language} was learned: {loss}")
    check(not world.left(), f"processes are left: {world.left()}")
    check(os.path.getsize(world.path("run", "final.bin")) == 4 * summary["model"]["parameters"],
          "the final parameters are there")
    return summary


def resume(build):
    world = World(build, "stopped", 600000, 40000)
    up = world.up("--no-wan")
    end = time.monotonic() + PATIENCE_S
    while world.credited() < 150000 and up.poll() is None and time.monotonic() < end:
        time.sleep(0.05)  # polls; the count decides
    up.send_signal(signal.SIGINT)
    said, _ = up.communicate(timeout=PATIENCE_S)
    check(up.returncode == 8, f"a stopped run ends with 8, not {up.returncode}:\n{said}")
    check(not world.left(), f"processes are left: {world.left()}")
    before = world.credited()
    check(150000 <= before < 600000, f"{before} tokens were credited when it was stopped")
    summary = ended_well(world, world.up("--no-wan"))
    tokens = sum(region["tokens"] for region in summary["regions"].values())
    check(tokens >= 600000, f"the counts are of both halves: {tokens} tokens")
    check(summary["elapsed_s"] > 10, "and so is the time")
    return world


def drill(build, wan):
    world = World(build, "drilled", 1200000, 30000)
    summary = ended_well(world, world.up("--with-faults", *([] if wan else ["--no-wan"])))
    faults = summary["faults"]
    check([f["what"][:7] for f in faults] == ["kill -9"] * 3 + ["20 s cu" if wan else "20 s pa"],
          f"all four faults came: {faults}")
    check(all(f["recovered_s"] is not None and f["recovered_s"] < 30 for f in faults),
          f"and healed: {faults}")
    check(summary["emulated_links"] == wan, "on the links that were asked for")
    print(json.dumps(faults))
    return world


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--wan", action="store_true")
    parser.add_argument("what", choices=("resume", "drill"))
    flags = parser.parse_args()
    world = resume(flags.build) if flags.what == "resume" else drill(flags.build, flags.wan)
    shutil.rmtree(world.dir)  # kept when something failed
    print("ok")


if __name__ == "__main__":
    main()
