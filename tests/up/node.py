#!/usr/bin/env python3
"""A made-up node: reads its settings, writes status.json, ends on SIGTERM.

Its environment sets its behaviour: NODE_SPEED, tokens a second of a worker; NODE_CRASH, a node that
exits with 6 at once; NODE_FULL, a node whose disk is full; NODE_LEAVE, a worker that exits when it
is done; NODE_LATE, the seconds until the coordinator has heard from the servers: for half of them
it reports nothing, then that nothing is credited; NODE_EXPELS, a worker that it expels after some
training; NODE_STALLS, a worker that it reports as stalled; NODE_LEAVES_OUT, a worker without which
the run ends.
Credited tokens are summed from the workers' status files, so the made-up coordinator needs no
network: a worker goes on from the tokens in its file.
"""
import fcntl
import glob
import json
import os
import re
import signal
import sys
import time

settings = {}
with open(sys.argv[2], encoding="utf-8") as file:
    for line in file:
        match = re.match(r'([a-z_0-9.]+): "(.*)"$', line)
        if match:
            settings[match.group(1)] = match.group(2)
folder = settings["dir"]
name = os.path.basename(settings["tls.cert"])[:-len(".pem")]
if os.environ.get("NODE_CRASH") == name:
    print(f"{name}: out of luck", flush=True)
    sys.exit(6)
run = os.path.dirname(folder)
worker = os.path.basename(sys.argv[0]) == "longhaul-worker"
budget = 100000
begun, late = time.monotonic(), float(os.environ.get("NODE_LATE", 0))
expels = os.environ.get("NODE_EXPELS", "")
stopping = False


def stop(_signal, _frame):
    global stopping
    stopping = True


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def trainer():
    # Counts each new process of the loop beside it, found in command.json.
    found = load(os.path.join(folder, "command.json"))
    if found.get("words") != ["lost"] and found.get("pid", seen["pid"]) != seen["pid"]:
        seen.update(pid=found["pid"], lives=seen["lives"] + 1)
        seen["cuts"] += found.get("words") != ["break"]
    return {"lives": seen["lives"], "cuts": seen["cuts"], "life": str(seen["pid"])}


left_out = [{"name": os.environ["NODE_LEAVES_OUT"], "left_out": {}}] \
    if "NODE_LEAVES_OUT" in os.environ else []
leader = {}
pair = os.open(os.path.join(run, "etcd"), os.O_RDWR | os.O_CREAT, 0o600) \
    if settings.get("coordinator.store") else None
seen = {"pid": load(os.path.join(folder, "command.json")).get("pid", 0), "lives": 0, "cuts": 0}


def write(status):
    tmp = os.path.join(folder, "status.tmp")
    with open(tmp, "w", encoding="utf-8") as file:
        json.dump(status | {"pid": os.getpid(), "name": name,
                            "disk_full": os.environ.get("NODE_FULL") == name}, file)
    os.replace(tmp, os.path.join(folder, "status.json"))


def credited():
    found = [load(path) for path in glob.glob(os.path.join(run, "*", "status.json"))]
    return min(budget, sum(s.get("tokens", 0) for s in found if s.get("role") == "worker"))


def coordinate(phase):
    heard = time.monotonic() - begun >= late
    if pair and not lead():
        write({"role": "coordinator", "phase": "standby", "leads": False})
        return
    write({"role": "coordinator", "phase": phase, **leader,
           "credited_tokens": credited() if heard else 0,
           "budget_tokens": budget, "units": 9, "credited": 4 if heard else 0,
           "workers": [{"name": expels, "expelled": is_expelled()},
                       {"name": os.environ.get("NODE_STALLS", ""), "member_state": "stalled",
                        "why": "no step for 31 s"}, *left_out]})


def lead():
    """A lock replaces the etcd of a pair: the holder leads, under a number of its own."""
    try:
        fcntl.flock(pair, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    if not leader:
        os.pwrite(pair, b"x", os.fstat(pair).st_size)
        leader.update(leads=True, leader={"number": os.fstat(pair).st_size})
    return True


def is_expelled():
    return bool(expels and load(os.path.join(run, expels, "status.json")).get("tokens"))


signal.signal(signal.SIGTERM, stop)
tokens = load(os.path.join(folder, "status.json")).get("tokens", 0)
while not stopping:
    done = credited() >= budget
    if worker and name == expels and is_expelled():
        sys.exit(1)
    if worker:
        tokens += 0 if done else int(os.environ["NODE_SPEED"]) // 20
        write({"role": "worker", "region": name.rsplit("-", 1)[0], "trainer": trainer(),
               "state": "done" if done else "training", "step": tokens // 16, "loss": 3.0,
               "tokens": tokens, "shards": [{"shard": 0, "version": 1, "digest": "d"}]})
        if done and os.environ.get("NODE_LEAVE") == name:
            sys.exit(0)
    elif settings["role"] == "coordinator" and time.monotonic() - begun >= late / 2:
        coordinate("ended" if done else "running")
    elif settings["role"] != "coordinator":
        write({"role": "server", "shards": [{"shard": 0, "version": 1, "digest": "d",
                                             "credited": 4, "parameters": 1}]})
    time.sleep(0.05)
if settings.get("role") == "coordinator":
    coordinate("ended" if credited() >= budget else "running")
