#!/usr/bin/env python3
"""`longhaul refold` and `rewind` on a running run: fold without a worker, go back to a version.

Three regions train; one shard has a standby. A refused command changes no shard. One worker is
expelled, and its pushes are taken out: a server killed in the middle of this finishes it, the
others take the new states under new epochs and train on. Then the run goes back to earlier
versions, below the stable point, while the coordinator is killed. The run ends, and all replicas
agree.
"""
import json
import os
import subprocess

from loopback import check_replicas, mark, trained_on
from world import REGIONS, check, main, until

USAGE, MISSING, DENIED = 2, 3, 7


def shard_of(server):
    shards = server.shards()
    return shards[0] if shards else {}


def in_sync(owner):
    return lambda: shard_of(owner).get("in_sync", {}).get("state") == "in sync"


def log_of(world, server):
    said = world.tool("log", "dump", server.dir, "-o", "json")
    return [json.loads(line) for line in said.splitlines()]


def epochs(servers):
    return [shard_of(server).get("epoch", 0) for server in servers]


def order_of(server):
    """The directories of former histories that the server has kept."""
    return [name for name in os.listdir(server.dir) if name.startswith("before-")]


def begin(world, *line):
    return subprocess.Popen([world.program("longhaul"), *line], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def finished(world, command, line):
    """A command whose coordinator was killed reports that; run again, it waits for the end."""
    said, _ = command.communicate(timeout=120)
    if command.returncode:
        said = world.tool(*line)
    check("2 of 2 shards go on from there" in said, said)
    return said


def refused(world, coordinator, servers, lost):
    admin, was = world.admin(coordinator), epochs(servers)
    for code, words, *line in (
            (MISSING, "999999", "rewind", "--to", "999999"),
            (USAGE, "shard 7", "rewind", "--to", "7:1", "--to", "1"),
            (USAGE, "shard 1", "rewind", "--to", "0:1"),
            (MISSING, "no worker nobody", "refold", "--without", "nobody"),
            (MISSING, "no push of asia/nobody", "refold", "--without", "asia/nobody"),
            (MISSING, "no push of", "refold", "--without", lost, "--from", "999999"),
            (USAGE, "--without", "refold")):
        came, _, complaint = world.try_tool(*line, *(admin if len(line) > 1 else ()))
        check(came == code and words in complaint, f"{line}: {came}: {complaint}")
    worker = world.admin(coordinator, name="w", role="worker")
    came, _, complaint = world.try_tool("rewind", "--to", "1", *worker)
    check(came == DENIED, f"a worker rewinds: {came}: {complaint}")
    check(epochs(servers) == was and not any(map(order_of, servers)), "a refusal changed a shard")


def later_epochs(servers, was):
    for server, before in zip(servers, was):
        until(f"{server.name} serves a later epoch",
              lambda s=server, e=before: s.alive() and shard_of(s).get("epoch", 0) > e)


def refolded(world, coordinator, servers, others, lost):
    was = epochs(servers)
    for server in servers:
        pushed = {row["worker"] for row in log_of(world, server) if row["kind"] == "admit"}
        check(len(pushed) == 3, f"{pushed}")
    line = ("refold", "--without", lost, *world.admin(coordinator))
    command = begin(world, *line)
    until("the order goes", lambda: servers[1].says("refold.taken") or command.poll() is not None)
    servers[1].kill()
    servers[1].start().listening()
    said = finished(world, command, line)
    check("pushes are left out" in said and " 0 pushes" not in said, said)
    later_epochs(servers, was)
    for server in servers:
        kept = order_of(server)
        check(len(kept) == 1 and os.listdir(os.path.join(server.dir, kept[0], "log")), f"{kept}")
    until("the others train on", trained_on(others, mark(others), 8))


def rewound(world, coordinator, servers, others):
    versions = {server: shard_of(server)["version"] for server in servers}
    until("later versions are stable", lambda: all(
        coordinator.status()["shards"][shard_of(s)["shard"]]["stable"] > versions[s]
        for s in servers))
    was = epochs(servers)
    to = [f"--to={shard_of(s)['shard']}:{versions[s]}" for s in servers]
    line = ("rewind", *to, *world.admin(coordinator))
    command = begin(world, *line)
    until("the order goes", lambda: coordinator.says("refold.goes", "rewind") or
          command.poll() is not None)
    coordinator.kill()
    coordinator.start().listening()
    finished(world, command, line)
    later_epochs(servers, was)
    for server in servers:
        first = [row for row in log_of(world, server) if row["kind"] == "epoch"][0]
        check(first["version"] == versions[server] + 1, f"{first}, not {versions[server]} + 1")
    until("they train on", trained_on(others, mark(others), 8))


def run(world):
    coordinator = world.coordinator(**{"coordinator.worker_timeout_s": "5 s"})
    coordinator.start().listening()
    whole = {"checkpoint.every_versions": 100000}
    whole["acknowledge"] = "replicated"
    servers = [world.server(i, coordinator, **whole).start().listening() for i in (0, 1)]
    standby = world.server(0, coordinator, name="standby-0", role="standby", **whole).start()
    slow = {"trainer.tokens_per_s": 1500, "data.window": 2}
    workers = [world.worker(region, coordinator, **slow).start() for region in REGIONS]
    until("all train", trained_on(workers, {}, 8))
    until("every worker's unit is credited", lambda: all(
        shard_of(s).get("credited", 0) >= 4 for s in servers))
    lost, others = workers[0], workers[1:]
    world.tool("expel", lost.name, *world.admin(coordinator))
    check(lost.end() != 0, "it goes on")
    until("the standby is in sync", in_sync(servers[0]))
    refused(world, coordinator, servers, f"{lost.region}/{lost.name}")
    refolded(world, coordinator, servers, others, f"{lost.region}/{lost.name}")
    rewound(world, coordinator, servers, others)
    until("the standby is in sync again", in_sync(servers[0]))
    said = world.tool("events", "--audit", "--dir", coordinator.dir, "-o", "json")
    check(sum(row["event"] == "audit.refold" and ": taken" in row["text"]
              for row in json.loads(said)) >= 2, "the orders are not in the audit")
    world.tool("drain", "run", "--end", "--wait", *world.admin(coordinator))
    for worker in others:
        worker.must_end()
    check_replicas(servers, others)
    for node in [standby, coordinator, *servers]:
        node.must_stop()


if __name__ == "__main__":
    main(__doc__, run, units=900)
