#!/usr/bin/env python3
"""`longhaul rewind` and `refold` on a run that goes on: an earlier version, and without a worker.

Three regions train. One is expelled, the servers are stopped, and their logs folded again without
that worker's pushes: the others take the new state under a new epoch and train on, its units are
free again, and no state has a push of its. Then the servers are stopped once more and go back to an
earlier version, below the stable point. The run ends, and all replicas agree.
"""
import argparse
import json
import os
import sys

from loopback import check_replicas, mark, trained_on
from world import REGIONS, World, check, until

USAGE, MISSING = 2, 3


def shard_of(server):
    shards = server.shards()
    return shards[0] if shards else {}


def log_of(world, server):
    said = world.tool("log", "dump", server.dir, "-o", "json")
    return [json.loads(line) for line in said.splitlines()]


def stop(servers):
    """What they ended with: shard_of() of each."""
    for server in servers:
        server.must_stop()
    return {server: server.last("shards")[0] for server in servers}


def start(servers, was):
    """They serve under a later epoch than before."""
    for server in servers:
        server.start().listening()
    for server in servers:
        until("it serves a later epoch",
              lambda s=server: shard_of(s).get("epoch", 0) > was[s]["epoch"])


def refolded(world, servers, others, lost):
    was = stop(servers)
    code, _, complaint = world.try_tool("refold", "--config", servers[0].write_settings())
    check(code == USAGE and "--without" in complaint, f"{code}: {complaint}")
    for server in servers:
        pushed = {row["worker"] for row in log_of(world, server) if row["kind"] == "admit"}
        check(len(pushed) == 3, f"{pushed}")
        said = world.tool("refold", "--config", server.write_settings(), "--without", lost)
        check(os.path.exists(server.dir + ".before-1") and "goes on" in said, said)
    start(servers, was)
    check(sum(shard_of(s)["credited"] for s in servers) < sum(w["credited"] for w in was.values()),
          "its units are credited still")
    until("the others train on", trained_on(others, mark(others), 8))


def rewound(world, coordinator, servers, others):
    versions = {server: shard_of(server)["version"] for server in servers}
    until("later versions are stable", lambda: all(
        coordinator.status()["shards"][shard_of(s)["shard"]]["stable"] > versions[s]
        for s in servers))
    was = stop(servers)
    for server in servers:
        code, _, complaint = world.try_tool("rewind", "--config", server.write_settings(), "--to",
                                            "999999")
        check(code == MISSING and "999999" in complaint, f"{code}: {complaint}")
        world.tool("rewind", "--config", server.write_settings(), "--to", str(versions[server]))
    start(servers, was)
    for server in servers:
        first = [row for row in log_of(world, server) if row["kind"] == "epoch"][0]
        check(first["version"] == versions[server] + 1, f"{first}, not {versions[server]} + 1")
    until("they train on", trained_on(others, mark(others), 8))


def run(world):
    coordinator = world.coordinator(**{"coordinator.worker_timeout_s": "5 s"})
    coordinator.start().listening()
    whole = {"checkpoint.every_versions": 100000}
    servers = [world.server(i, coordinator, **whole).start().listening() for i in (0, 1)]
    slow = {"trainer.tokens_per_s": 1500, "data.window": 2}
    workers = [world.worker(region, coordinator, **slow).start() for region in REGIONS]
    until("all train", trained_on(workers, {}, 8))
    until("every worker's unit is credited", lambda: all(
        shard_of(s).get("credited", 0) >= 4 for s in servers))
    lost, others = workers[0], workers[1:]
    world.tool("expel", lost.name, *world.admin(coordinator))
    check(lost.end() != 0, "it goes on")
    refolded(world, servers, others, f"{lost.region}/{lost.name}")
    rewound(world, coordinator, servers, others)
    world.tool("drain", "run", "--end", "--wait", *world.admin(coordinator))
    for worker in others:
        worker.must_end()
    check_replicas(servers, others)
    for node in [coordinator, *servers]:
        node.must_stop()


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--build", required=True, help="the build tree")
    flags.add_argument("--keep", action="store_true", help="keep the run's folder")
    given = flags.parse_args()
    with World(given.build, units=900, keep=given.keep) as world:
        run(world)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
