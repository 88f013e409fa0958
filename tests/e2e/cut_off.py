#!/usr/bin/env python3
"""Regions whose paths are cut for ever do not delay the end: `cut_off.py --build BUILD`.

Each program has a network namespace of longhaul-wanem (deploy/wan). In the middle of the run asia's
path to one of two servers is cut, and all of america's paths. The run ends without both: the
coordinator and `longhaul get plan` list them as left out, the others exit with 0 and the servers'
digests, and asia, which hears of the end but can't fetch the last state, exits with an error that
explains it. Then america's paths are healed: no log admits a push any more, america learns which
pushes are lost, and it ends with the same parameters as the others.
"""
import ctypes
import os
import signal
import subprocess
import sys

from loopback import check_credit, check_replicas, check_weights, steps
from world import World, check, flags_of, until

HOSTS = ("hub", "north", "south", "asia", "europe", "america", "africa")
TRAINED = 2  # steps of each worker before the cuts
UNREACHABLE = 4  # common/base/exit.h
FLOOR = {"coordinator.stall_floor_s": "3 s"}
SPEED = {"trainer.tokens_per_s": 4000}  # so that the run outlasts the cuts on any machine


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Apart(World):
    """A World whose programs live in namespaces of their own."""

    links = None

    def link_up(self):
        with open(self.path("world"), "w", encoding="utf-8") as out:
            out.writelines(f"region {name}\n" for name in HOSTS)
            out.write("link all all rtt=2ms rate=100mbit\n")
        self.wanem = [os.path.join(self.build, "deploy", "longhaul-wanem"), "-n",
                      f"c{os.getpid()}"]
        self.links = subprocess.Popen([*self.wanem, "up", "-f", self.path("world")],
                                      preexec_fn=die_with_parent)
        until("the links are up", lambda: self.links.poll() is not None or subprocess.run(
            [*self.wanem, "show"], capture_output=True, check=False).returncode == 0)
        check(self.links.poll() is None, "longhaul-wanem ended; LH_NO_WAN=1 leaves this test out")

    def at(self, host, node):
        node.before = [*self.wanem, "exec", host, "--"]
        if node.kind != "worker":
            node.address = f"10.77.{HOSTS.index(host) + 1}.1:7700"
        return node

    def wide(self, *words):
        subprocess.run([*self.wanem, *words], check=True)

    def ask_from_hub(self, coordinator, *words):
        line = [*self.wanem, "exec", "hub", "--", self.program("longhaul"), *words,
                *self.admin(coordinator)]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout

    def close(self, failed=False):
        super().close(failed)
        if self.links:
            self.links.terminate()
            self.links.wait(20)


def row_of(coordinator, worker):
    return next(w for w in coordinator.status()["workers"] if w["name"] == worker.name)


def start(world):
    coordinator = world.at("hub", world.coordinator(workers=4, **FLOOR)).start().listening()
    servers = [world.at(host, world.server(i, coordinator)).start().listening()
               for i, host in enumerate(("north", "south"))]
    workers = [world.at(region, world.worker(region, coordinator, **SPEED)).start()
               for region in ("asia", "america", "europe", "africa")]
    until("all train", lambda: all(steps(w) >= TRAINED for w in workers))
    return coordinator, servers, workers


def comes_back(world, coordinator, late, others):
    """A region whose outbox is never admitted any more follows the logs to their end."""
    check(late.alive(), f"{late.name} ended while it was cut off")
    world.wide("heal", late.region)
    late.must_end()
    check(late.says("run.left_out", "are in no model"), "it was not told")
    check_weights(world, [late, *others])
    until("what it lost is told", lambda: row_of(coordinator, late)["left_out"]["lost_tokens"])


def play(world):
    world.link_up()
    coordinator, servers, workers = start(world)
    asia, america, *others = workers
    world.wide("cut", "asia", "south")
    world.wide("cut", "america")
    until("the run has ended", lambda: coordinator.status()["phase"] == "ended")
    for worker in others:
        worker.must_end()
    for worker in (asia, america):
        check("left_out" in row_of(coordinator, worker), f"{worker.name} is not left out")
        check(coordinator.says("run.left_out", worker.name), f"no event names {worker.name}")
    check(not any("left_out" in row_of(coordinator, w) for w in others), "it left out another one")
    plan = world.ask_from_hub(coordinator, "get", "plan")
    for worker in (asia, america):
        check(f"{worker.name} of {worker.region} is left out" in plan, f"get plan says\n{plan}")
    check_replicas(servers, others)
    check_weights(world, others)
    check_credit(world, coordinator, servers)
    ends = {s["shard"]: s["version"] for server in servers for s in server.shards()}
    comes_back(world, coordinator, america, others)
    check(asia.end() == UNREACHABLE, f"asia-0 ended with {asia.process.returncode}")
    check(asia.says("ERROR", "its last state can't be fetched"), asia.tail())
    check(not coordinator.says("worker.moves", asia.name), "it was told to make progress again")
    check(ends == {s["shard"]: s["version"] for server in servers for s in server.shards()},
          "a log took a push after its end")


def main():
    given = flags_of(__doc__).parse_args()
    with Apart(given.build, units=150, keep=given.keep) as world:
        play(world)
    return 0


if __name__ == "__main__":
    sys.exit(main())
