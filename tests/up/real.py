#!/usr/bin/env python3
"""`longhaul up` with the real programs: stopped and resumed, drilled, operated from outside, with
several processes per worker, or with a region that has only its own files.

    tests/up/real.py --build DIR resume|legs|drill|operator|ranks|peers|hosts|travel [--wan]

A tiny model on made-up text. No run leaves a process; runs that are not stopped must exit with 0
and write a valid summary.json. --wan needs root and /dev/net/tun.
"""
import argparse
import fcntl
import hashlib
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
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
regions: {{asia: {asia}, europe: {{speed: 2}}, america: {{speed: 1}}}}
link: {{rtt_ms: 100, mbit: 100}}
server: {{coordinator.h_base: 4, checkpoint.every_versions: 40}}
worker:
  trainer: {{learning_rate: {rate}, norms_every_rounds: 3, {trainer}}}
  eval: {{every_tokens: 8192}}
  data: {{cache_bytes: 64MiB}}
  ranks: {{reduce: {reduce}}}
"""
PATIENCE_S = 280
RATE, HOLD = 0.01, 0.1  # learning rate, and the factor on it while the gradient is noisy


class World:
    def __init__(self, build, run, budget, speed, asia, trainer="", asias_words=60000):
        self.dir = tempfile.mkdtemp(prefix="longhaul-real-")
        self.ups = []
        self.tool = os.path.join(build, "deploy", "longhaul")
        self.build = os.path.abspath(build)
        self.write("t.yaml", TOPOLOGY.format(run=run, budget=budget, speed=speed,
                                               asia=asia.replace("DIR", self.dir), rate=RATE,
                                               trainer=trainer,
                                               reduce="tcp" if run == "peers" else "shm"))
        words = random.Random(7)
        for place in ("asia/ja", "europe/de", "america/en"):
            language = place[-2:]
            lexicon = ["".join(words.choices("abcdefghij", k=5)) for _ in range(40)]
            count = asias_words if place == "asia/ja" else 60000
            self.write(f"text/{place}/a.txt", " ".join(words.choices(lexicon, k=count)))
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
        self.ups.append(subprocess.Popen(
            [self.tool, "up", self.path("t.yaml"), "--dir", self.path("run"), "--data",
             self.path("tokens"), "--json", self.path("summary.json"), *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return self.ups[-1]

    def close(self, failed):
        """Ends the processes of a failed test and keeps its folder for inspection."""
        for up in self.ups:
            if up.poll() is None:
                up.terminate()  # in order, so that its links are removed, too
                up.communicate(timeout=PATIENCE_S)
        if failed:
            print(f"kept: {self.dir}")
        else:
            shutil.rmtree(self.dir)

    def status(self, node="coordinator"):
        try:
            with open(self.path("run", node, "status.json"), encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError):
            return {}

    def credited(self):
        return self.status().get("credited_tokens", 0)

    def ask(self, *line):
        """(exit code, output, stderr) of a command about this run."""
        done = subprocess.run([self.tool, *line, "--dir", self.path("run")], capture_output=True,
                              text=True, errors="replace", check=False,
                              timeout=PATIENCE_S)  # a little model writes half characters
        return done.returncode, done.stdout, done.stderr

    def answer(self, *line):
        code, said, complaint = self.ask(*line, "-o", "json")
        check(code == 0, f"longhaul {' '.join(line)} ended with {code}: {complaint}")
        return json.loads(said)

    def left(self):
        """Processes that name this folder, except the launcher."""
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


def until(what, up, condition):
    """Polls until the condition holds; fails if the run ends before."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        check(up.poll() is None, f"the run ended before {what}")
        check(time.monotonic() < end, f"waited in vain until {what}")
        time.sleep(0.05)


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
    first, again = (world.ask("generate", "--prompt", "ab", "--tokens", "40") for _ in range(2))
    check(first == again and first[0] == 0 and first[1].startswith("ab") and len(first[1]) >= 40,
          f"the model goes on from a prompt: {first}, {again}")
    check(world.ask("generate", "--prompt", "ab", "--tokens", "40", "--seed", "2") != first,
          "another seed is another text")
    return summary


def resume(world, _wan):
    up = world.up("--no-wan")
    until("150000 tokens are credited", up, lambda: world.credited() >= 150000)
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
    again = ended_well(world, world.up("--no-wan"))  # nothing is left to do, and the output says so
    check(again["data"] == summary["data"], f"the same units are credited: {again['data']}")
    check(again["replicas"] == summary["replicas"], "and the parameters are those")
    for name, region in again["regions"].items():
        for key in ("accepted", "damped", "returned"):
            check(region[key] == summary["regions"][name][key],
                  f"{name} pushed nothing, and counts {key}: {region[key]}")
    code, _, complaint = world.ask("top", "--once")
    check(code == 4 and "the run has ended" in complaint and "longhaul events" in complaint,
          f"an ended run has nobody to ask: {code}: {complaint}")


def edit(world, *changes):
    with open(world.path("t.yaml"), encoding="utf-8") as file:
        text = file.read()
    for was, now in changes:
        check(was in text, f"no {was} in the topology")
        text = text.replace(was, now)
    world.write("t.yaml", text)


def legs(world, _wan):
    """Settings change while a run is stopped, and a run that has ended goes on."""
    up = world.up("--no-wan")
    until("40000 tokens are credited", up, lambda: world.credited() >= 40000)
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=PATIENCE_S)
    edit(world, ("h_base: 4", "h_base: 6"), ("america: {speed: 1}", "america: {}, africa: {}"),
         ("learning_rate: 0.01", "learning_rate: 0.009"), ("run: legs", "run: legs # mine"))
    said, _ = world.up("--no-wan").communicate(timeout=PATIENCE_S)
    for line in ("server: coordinator.h_base: 4 -> 6", "regions.africa: none -> 1 workers",
                 "worker: trainer.learning_rate: 0.01 -> 0.009"):
        check(f"\n{line}\n" in said, f"{line} was not told:\n{said}")
    check(world.status()["phase"] == "ended" and world.credited() >= 200000, f"{said}")
    check(world.status("africa-0").get("tokens", 0) > 0, f"the new region trained:\n{said}")
    first = world.credited()

    edit(world, ("budget_tokens: 200000", "budget_tokens: 300000"))
    refused = world.up("--no-wan")
    said, _ = refused.communicate(timeout=PATIENCE_S)
    check(refused.returncode == 6 and "longhaul up --continue" in said, said)
    versions = [s["version"] for s in world.status()["shards"]]
    again = world.up("--no-wan", "--continue")
    said, _ = again.communicate(timeout=PATIENCE_S)
    check(again.returncode == 0 and "so the learning rate" in said, f"{again.returncode}: {said}")
    check(world.credited() >= 300000, f"{first} and {world.credited()} tokens")
    check(all(is_now["version"] > was for is_now, was in zip(world.status()["shards"], versions)),
          "the logs go on")
    changed = [e["text"] for e in world.answer("events", "--who", "coordinator/")
               if "300000 tokens, of which" in e["text"]]
    check(len(changed) == 1 and f"of which {first} are credited" in changed[0], f"{changed}")
    refused = world.up("--no-wan", "--continue")
    said, _ = refused.communicate(timeout=PATIENCE_S)
    check(refused.returncode == 6 and "nothing is left to train" in said, said)


def drill(world, wan):
    summary = ended_well(world, world.up("--with-faults", *([] if wan else ["--no-wan"])))
    faults = summary["faults"]
    check([f["what"][:7] for f in faults] == ["kill -9"] * 3 + ["20 s cu" if wan else "20 s pa"],
          f"all four faults came: {faults}")
    check(all(f["recovered_s"] is not None for f in faults), f"and healed: {faults}")
    check(summary["emulated_links"] == wan, "on the links that were asked for")
    killed = [e["who"].split("/")[0] for e in world.answer("events", "--kind", "kill")]
    check(sorted(set(killed)) == ["coordinator", "server", "worker"], f"the logs show {killed}")
    joined = [e["text"] for e in world.answer("events", "--kind", "join", "--who", "coordinator/")]
    check(all(any(name in text for text in joined) for name in ("asia-0", "europe-0", "america-0")),
          f"the logs show {joined}")
    print(json.dumps(faults))


def look_closer(world, up):
    """`top` and `describe` combine the coordinator's, the servers' and the status files'
    figures."""
    top = world.answer("top", "--once")
    check([s["answers"] and s["server"] for s in top["shards"]] == ["s0", "s1"], f"{top['shards']}")
    check(top["run"]["live"] == 3 and top["run"]["phase"] == "running"
          and top["run"]["budget_tokens"] == 1800000, f"{top['run']}")
    check(sorted(r["region"] for r in top["regions"]) == ["america", "asia", "europe"]
          and all(r["loss"] > 0 and r["sent_bytes"] > 0 for r in top["regions"]),
          f"{top['regions']}")
    code, said, complaint = world.ask("top", "--once")
    check(code == 0 and "\033" not in said and "1800000 tokens" in said
          and len(said.splitlines()) == 11, f"{code}: {said}{complaint}")
    until("all regions have measured", up, lambda: all(
        r.get("push_ms", 0) > 0 and r.get("rtt_ms", 0) > 0 and 0 < r.get("utilisation", 0) <= 1
        for r in world.answer("top", "--once")["regions"]))
    code, said, complaint = world.ask("top", "--once", "--workers")
    check(code == 0 and len(said.splitlines()) == 16 and "BUSY" in said
          and re.search(r"^asia-0 +asia +live .* \d+% +[\d.]+ +[\d.]+ ", said, re.M),
          f"{code}: {said}{complaint}")
    worker = world.answer("describe", "worker", "asia/asia-0")
    check(worker["state"] == "training" and worker["units"]["leased"] > 0
          and len(worker["leased_units"]) > 0, f"{worker}")
    region = world.answer("describe", "region", "europe")
    check(region["workers"] == ["europe-0"] and sum(region["units"].values()) > 0, f"{region}")
    shard = world.answer("describe", "shard", "1")
    check(shard["server"] == "s1" and shard["answers"] and shard["parameters"] > 0
          and shard["optimizer"] == {"name": "sgd"}, f"{shard}")
    run = world.answer("describe", "run")
    check(run["shards"] == [0, 1] and run["draining"] is False, f"{run}")
    code, _, complaint = world.ask("describe", "region", "atlantis")
    check(code == 3 and "there are:" in complaint and "asia" in complaint, f"{code}: {complaint}")


def watch(world, columns=60, lines=6):
    """`top` at a terminal of that size never draws more than fits."""
    clear = "\033[H\033[J"
    pid, terminal = pty.fork()
    if not pid:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.execve(world.tool, [world.tool, "top", "--dir", world.path("run")],
                  {**os.environ, "TERM": "xterm"})
    said, end = "", time.monotonic() + PATIENCE_S
    while said.count(clear) < 3:
        check(select.select([terminal], [], [], max(0, end - time.monotonic()))[0],
              f"top drew too few pictures: {said!r}")
        said += os.read(terminal, 4096).decode()
    os.kill(pid, signal.SIGINT)
    os.waitpid(pid, 0)
    os.close(terminal)
    pictures = [picture.split("\r\n") for picture in said.split(clear)[1:3]]
    check(all(len(p) == lines and max(map(len, p)) == columns for p in pictures), f"{pictures}")


def operator(world, wan):
    """An operator's commands, from outside the run's regions, are answered."""
    up = world.up(*([] if wan else ["--no-wan"]))
    until("all train", up, lambda: world.credited() > 0 and all(
        world.status(name).get("step", 0) > 4 for name in ("asia-0", "europe-0", "america-0")))
    check(world.status()["address"].startswith("10.77." if wan else "127.0.0.1:"),
          f"the coordinator is at {world.status()['address']}")
    workers = world.answer("get", "workers")
    check(sorted(w["name"] for w in workers) == ["america-0", "asia-0", "europe-0"]
          and all(w["live"] for w in workers), f"{workers}")
    check([s["shard"] for s in world.answer("get", "shards")] == [0, 1], "two shards")
    check(len(world.answer("get", "regions")) == 3, "three regions")
    leases = world.answer("get", "leases", "--state", "leased", "--home", "asia")["leases"]
    check(leases and all(row["state"] == "leased" and row["home"] == "asia" and row["language"]
                         == "ja" and row["holder"].endswith("-0") and row["token"] == 1
                         and row["expires_s"] > 0 and row["age_s"] >= 0 for row in leases),
          f"{leases}")

    look_closer(world, up)
    watch(world)
    check(world.answer("drain", "run", "--wait")["complete"], "the run drains")
    credited = world.answer("get", "leases", "--totals")["totals"]["credited_tokens"]
    check(world.answer("drain", "run", "--undo")["live"] == 3, "three go on")
    until("it trains on", up, lambda: world.credited() > credited)

    up.send_signal(signal.SIGINT)
    said, _ = up.communicate(timeout=PATIENCE_S)
    check(up.returncode == 8, f"a stopped run ends with 8, not {up.returncode}:\n{said}")
    check(not world.left(), f"processes are left: {world.left()}")
    code, _, complaint = world.ask("get", "workers")
    check(code == 4 and "the run has ended or was stopped" in complaint,
          f"nobody is there any more: {code}: {complaint}")


def shared_memory(world):
    """The segment of asia's ranks, named after its worker and the coordinator (worker/join.c)."""
    with open(world.path("run", "asia-0.yaml"), encoding="utf-8") as file:
        at = re.search(r'^coordinator: "(.*)"$', file.read(), re.M).group(1)
    with open(world.path("t.yaml"), encoding="utf-8") as file:
        run = re.match(r"run: (\S+)", file.read()).group(1)
    place = f"spiffe://longhaul.local/longhaul/{run}/worker/asia/asia-0 {at}".encode()
    name = hashlib.blake2b(place, digest_size=32, key=b"longhaul ranks 1").hexdigest()[:32]
    return f"/dev/shm/longhaul-{name}"


def norms(world, node):
    """The lines of event tensor.norms in the node's log."""
    with open(world.path("run", f"{node}.log"), encoding="utf-8") as log:
        lines = [line.partition(" tensor.norms ")[2] for line in log if line.endswith("\n")]
    return [json.loads(line) for line in lines if line]


def tensors(world):
    with open(world.path("run", "model.json"), encoding="utf-8") as file:
        return {tensor["name"] for tensor in json.load(file)["tensors"]}


def ranks(world, _wan):
    """A rank is killed, then its leader: both come back, and the region trains on in between."""
    up = world.up("--no-wan")
    third = lambda: world.status("asia-0.1").get("step", 0)
    together = lambda: world.status("asia-0").get("ranks") == 3
    until("three ranks share asia's steps", up, together)
    check(os.path.exists(shared_memory(world)), "they meet in shared memory")
    until("rank 2 computes", up, lambda: world.status("asia-0.2").get("step", 0) > 0)
    first = world.status("asia-0.1")["pid"]
    for node in ("asia-0.2", "asia-0"):
        pid, steps = world.status(node)["pid"], third()
        os.kill(pid, signal.SIGKILL)
        until("the worker noticed", up, lambda: node == "asia-0" or "rank.lost" in (
            e["event"] for e in world.answer("events", "--kind", "lost")))
        until(f"{node} is back", up, lambda: world.status(node).get("pid", pid) != pid)
        until("the three are together", up, together)
        until("and go on", up, lambda: third() > steps)
    check(world.status("asia-0.1")["pid"] == first, "the third lived through all of it")
    killed = [e["who"] for e in world.answer("events", "--kind", "kill")]
    check(killed == ["worker/asia/asia-0.2", "worker/asia/asia-0"], f"events say who: {killed}")
    until("asia evaluates", up, lambda: "eval" in world.status("asia-0"))
    loss = world.status("asia-0")["eval"]
    check(sorted(loss["by_language"]) == ["de", "en", "ja"] and 0 < loss["loss"] < 6,
          f"held-out losses of all languages: {loss}")
    with open(world.path("tokens", "units.json"), encoding="utf-8") as file:
        asias = sum(unit["home"] == "asia" for unit in json.load(file)["units"])
    tenth = lambda: world.status("asia-0").get("loader", {}).get("warmed", 0) >= asias // 10 > 0
    until("the first 10 % of asia's units were warmed", up, tenth)
    loader = world.status("asia-0")["loader"]
    check(loader["cached"] + loader["fetched"] > 0, f"its units were fetched: {loader}")
    kept = os.listdir(world.path("run", "asia-0", "cache"))
    check(any(name.endswith(".unit") for name in kept), f"and kept: {kept}")
    until("a residual is seen", up, lambda: any(n["residual"] > 0 for n in norms(world, "asia-0")))
    check({n["tensor"] for n in norms(world, "asia-0")} == tensors(world), "norms of every tensor")
    until("its noise is seen", up, lambda: world.status("asia-0").get("gradient_noise", 0) > 0)
    rate = world.status("asia-0")["learning_rate"]
    check(HOLD * RATE * 0.9 < rate <= HOLD * RATE, f"which holds the learning rate back: {rate}")
    up.send_signal(signal.SIGINT)
    said, _ = up.communicate(timeout=PATIENCE_S)
    check(up.returncode == 8, f"a stopped run ends with 8, not {up.returncode}:\n{said}")
    check(not world.left(), f"processes are left: {world.left()}")
    check(not os.path.exists(shared_memory(world)), "and no shared memory")


def hosts(world, wan):
    """The same on two hosts: rank 2 is on another one than the others."""
    peers(world, wan)
    for rank, at in enumerate(("asia-0", "asia-0.1", "asia-0.2")):
        with open(world.path("run", at + ".yaml"), encoding="utf-8") as file:
            text = file.read()
        check(f"127.77.0.{1 + rank // 2}" in text, f"{at} has its host's address:\n{text}")


def peers(world, wan):
    """Ranks that are peers: one is killed, then the worker; both are restarted, and nothing is
    left."""
    up = world.up(*([] if wan else ["--no-wan"]))
    members = lambda: world.status("asia-0").get("region_ranks", {}).get("members")
    third = lambda: world.status("asia-0.1").get("step", 0)
    until("three peers share asia's steps", up, lambda: members() == 3)
    check(world.status("asia-0")["region_ranks"]["reduce"] == "tcp", "over TCP")
    until("some gradients are summed while the rest is computed", up,
          lambda: world.status("asia-0")["region_ranks"]["buckets_early"] > 0)
    for node in ("asia-0.2", "asia-0"):
        pid, steps = world.status(node)["pid"], third()
        os.kill(pid, signal.SIGKILL)
        until(f"{node} is back", up, lambda: world.status(node).get("pid", pid) != pid)
        until("the three are together", up, lambda: members() == 3)
        until("and go on", up, lambda: third() > steps)
    up.send_signal(signal.SIGINT)
    said, _ = up.communicate(timeout=PATIENCE_S)
    check(up.returncode == 8, f"a stopped run ends with 8, not {up.returncode}:\n{said}")
    check(not world.left(), f"processes are left: {world.left()}")


def own_files(world):
    """A folder with the files of asia's units, and with the held-out texts."""
    with open(world.path("tokens", "units.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    names = {u["file"] for u in manifest["units"] if u["home"] == "asia"}
    others = {u["file"] for u in manifest["units"]} - names
    check(names and others, f"files of asia: {names}, of others: {others}")
    os.makedirs(world.path("asia"))
    for name in names | {h["file"] for h in manifest["heldout"]}:
        os.link(world.path("tokens", name), world.path("asia", name))


def travel(world, _wan):
    """Asia has only its own files, and few: it trains the others' units when those are done."""
    own_files(world)
    up = world.up("--no-wan")
    until("units of others travel to asia", up,
          lambda: world.status("asia-0").get("travel", {}).get("units", 0) > 3)
    summary = ended_well(world, up)
    check(summary["data"]["credited_once"], f"{summary['data']}")
    gave = {name: world.status(name)["gives"]["units"] for name in ("s0", "s1")}
    came = world.status("asia-0")["travel"]
    check(sum(gave.values()) >= came["units"] > 3, f"{gave} gave, {came} came")
    check("travel" not in world.status("europe-0"), "europe has all files")


# play, tokens of its budget, tokens a second of its fastest region
PLAYS = {"resume": (resume, 600000, 40000), "drill": (drill, 1200000, 30000),
         "legs": (legs, 200000, 20000),
         # ten minutes, unless ended before
         "operator": (operator, 1800000, 3000), "ranks": (ranks, 1800000, 3000),
         "peers": (peers, 1800000, 3000), "hosts": (hosts, 1800000, 3000),
         "travel": (travel, 700000, 40000)}
ASIA = {"travel": "{speed: 4, data: DIR/asia}",
        "ranks": "{speed: 4, ranks: 3}", "peers": "{speed: 4, ranks: 3}",
        "hosts": "{speed: 4, ranks: 3, hosts: 2}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--wan", action="store_true")
    parser.add_argument("what", choices=PLAYS)
    flags = parser.parse_args()
    play, budget, speed = PLAYS[flags.what]
    noisy = f"warmup: 0, noise_threshold: 1e-9"  # always noisy
    world = World(flags.build, flags.what, budget, speed,
                  ASIA.get(flags.what, "{speed: 4}"),
                  noisy if flags.what == "ranks" else "noise_threshold: off",
                  12000 if flags.what == "travel" else 60000)
    failed = True
    try:
        play(world, flags.wan)
        failed = False
    finally:
        world.close(failed)
    print("ok")


if __name__ == "__main__":
    main()
