#!/usr/bin/env python3
"""Programs of an older build beside a newer one's: `older.py --old BUILD --new BUILD [CASE]`.

Each case is a run on loopback of a coordinator, two servers and three workers, of which some are of
the older build; the older build's tool makes its files. In the middle a server, a worker and the
coordinator are killed with -9 and started again. A run is served where it ends with equal replicas
and each unit credited once. What one build does not know is refused, with a word that says so. What
the programs say above INFO is printed. It needs two builds, so ctest does not run it.
"""
import argparse
import collections
import os
import shutil
import sys

from loopback import mark, trained_on
from world import REGIONS, Failure, World, check, held, until

ROOM = {"longhaul-server": "server", "longhaul-worker": "worker"}
WORKERS = {f"{region}-0" for region in REGIONS}
SERVERS = {"shard-0", "shard-1", "standby-0"}
ALL = WORKERS | SERVERS | {"coordinator"}
# case: nodes of the older build
BESIDE = {"none": set(), "worker": {"asia-0"}, "workers": WORKERS, "server": {"shard-1"},
          "servers": SERVERS, "coordinator": {"coordinator"}, "all_but_workers": ALL - WORKERS,
          "all_but_coordinator": ALL - {"coordinator"}, "all": ALL}
# older nodes of a run whose first server is taken over from by its standby
TAKEN_OVER = {"owner": {"shard-0"}, "standby": {"standby-0"},
              "coordinator_of_standby": {"coordinator"}}
# older nodes of a run in which a standby is asked for a shard, by the newer build's tool
MOVED = {"move_from": {"shard-0"}, "move_to": {"standby-0"}, "move_by": {"coordinator"}}
# older nodes of a run in which a server loses its disk
LOST = {"lost_disk_workers": WORKERS, "lost_disk_server": {"shard-1"},
        "lost_disk_coordinator": {"coordinator"}}


class Mixed(World):
    """A run in which the nodes of these names are of the older build."""

    def __init__(self, given, older):
        self.newer, self.old, self.older = given.new, given.old, older
        super().__init__(given.old, units=given.units, keep=given.keep)
        self.build = given.new

    def program(self, name):
        return name if os.path.isabs(name) else super().program(name)

    def of_its_build(self, node):
        name = os.path.basename(node.program)
        build = self.old if node.name in self.older else self.newer
        node.program = os.path.join(build, ROOM[name], name)
        return node

    def start_all(self, standby=False):
        self.the_coordinator = self.of_its_build(self.coordinator()).start().listening()
        more = {"acknowledge": "replicated"} if standby else {}
        self.servers = [self.server(i, self.the_coordinator, **more) for i in (0, 1)]
        if standby:
            self.servers.append(self.server(0, self.the_coordinator, name="standby-0",
                                            role="standby", **more))
        for server in self.servers:
            self.of_its_build(server).start().listening()
        self.workers = [self.worker(region, self.the_coordinator,
                                    **{"trainer.tokens_per_s": 4000}) for region in REGIONS]
        for worker in self.workers:
            self.of_its_build(worker).start()
        until("all workers train", trained_on(self.workers, {}, 8))

    def train_on(self, what):
        since = mark(self.workers)
        until(f"all workers train on after {what}", trained_on(self.workers, since, 5))

    def again(self, node):
        self.of_its_build(node).start()
        if node.kind != "worker":
            node.listening()

    def ends(self, owners):
        for worker in self.workers:
            worker.must_end(120)
        until("the coordinator knows",
              lambda: self.the_coordinator.status().get("phase") == "ended")
        truth = held(owners)
        for worker in self.workers:
            check(worker.last_holdings() == truth, f"{worker.name} and the servers differ")
        status = self.the_coordinator.status()
        check(status["credited"] == status["units"] == len(self.units), "a unit is not credited")
        for node in [self.the_coordinator, *self.servers]:
            node.must_stop()


def beside(world):
    world.start_all()
    for node in (world.servers[1], world.workers[0], world.the_coordinator):
        node.kill()
        world.again(node)
        world.train_on(f"the end of {node.name}")
    world.ends(world.servers)


def change_hands(world, how):
    """Shard 0 goes to its standby, and its former owner stands by."""
    world.start_all(standby=True)
    owner, other, standby = world.servers
    until("the standby is in sync", lambda: any(
        s.get("in_sync", {}).get("state") == "in sync" for s in owner.shards()))
    world.train_on("the standby is there")
    how(owner, standby)
    world.train_on("the shard has changed hands")
    owner.settings["role"] = "standby"
    world.again(owner)
    world.train_on("the former owner stands by")
    world.ends([standby, other])


def take_over(world):
    change_hands(world, lambda owner, standby: owner.kill())


def move(world):
    def ask(owner, standby):
        said = world.tool("move", standby.name, *world.admin(world.the_coordinator))
        check("1 shard to go to" in said, said)
        check(owner.end() != 0, f"{owner.name} ended as if all was well")
    change_hands(world, ask)


def lose_disk(world):
    world.start_all()
    server = world.servers[1]
    until("a point of each shard is stable", lambda: all(
        s["stable"] for s in world.the_coordinator.status().get("shards", [{"stable": 0}])))
    server.kill()
    shutil.rmtree(server.dir)
    world.again(server)
    world.train_on("the loss of a disk")
    world.ends(world.servers)


def epochs(world):
    """A worker that knows one epoch of the data alone, in a run of two."""
    coordinator = world.coordinator(**{"coordinator.epochs": 2})
    world.of_its_build(coordinator).start().listening()
    worker = world.worker("asia", coordinator)
    world.of_its_build(worker).start()
    check(worker.end() != 0, f"{worker.name} ended as if all was well")
    check(worker.says("the run has 2 data epochs", "older version"), worker.tail())
    return "refused"


def exchange(world, older):
    """All of one build, killed with -9 in the middle, go on as programs of the other one."""
    world.start_all()
    nodes = [world.the_coordinator, *world.servers, *world.workers]
    for node in nodes:
        node.kill()
    world.older = older
    for node in nodes:
        world.again(node)
    world.train_on("the exchange")
    world.ends(world.servers)


def orders(world):
    """The newer build's tool asks an older coordinator for what that one does not know."""
    coordinator = world.of_its_build(world.coordinator()).start().listening()
    asks = world.admin(coordinator)
    world.tool("get", "members", *asks)
    code, said, complaint = world.try_tool("balancer", "freeze", *asks)
    coordinator.must_stop()
    check(code and "older version" in complaint, f"{code}: {said}{complaint}")
    return "refused"


def cases():
    found = {name: (older, beside) for name, older in BESIDE.items()}
    for play, more in ((take_over, TAKEN_OVER), (move, MOVED), (lose_disk, LOST)):
        found.update({name: (older, play) for name, older in more.items()})
    found["epochs"] = (WORKERS, epochs)
    found["orders"] = ({"coordinator"}, orders)
    found["to_newer"] = (ALL, lambda world: exchange(world, set()))
    found["to_older"] = (set(), lambda world: exchange(world, ALL))
    return found


def tell(world):
    """Each kind of warning once, with its number."""
    for node in world.nodes:
        seen, first = collections.Counter(), {}
        for line in node.text().splitlines():
            words = [*line.split(maxsplit=5), "", "", "", "", ""]  # time, offset, level, who, event
            if words[2] not in ("WARN", "ERROR"):
                continue
            seen[words[4]] += 1
            first.setdefault(words[4], words[5])
        for event, times in seen.items():
            build = "older" if node.name in world.older else "newer"
            print(f"    {node.name} ({build}) {event} x {times}: {first[event]}")


def run(name, given):
    older, play = cases()[name]
    world = Mixed(given, older)
    try:
        said = play(world) or "served"
    except Failure as failure:
        said = f"failed: {failure}"
    print(f"{name}: {said}", flush=True)
    tell(world)
    world.close()
    return not said.startswith("failed")


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--old", required=True, help="the older build tree")
    flags.add_argument("--new", required=True, help="the newer build tree")
    flags.add_argument("--units", type=int, default=120)
    flags.add_argument("--keep", action="store_true", help="keep the runs' folders")
    flags.add_argument("case", nargs="*", help="only these: " + ", ".join(cases()))
    given = flags.parse_args()
    given.old, given.new = os.path.abspath(given.old), os.path.abspath(given.new)
    served = [run(name, given) for name in given.case or cases()]
    return 0 if all(served) else 1


if __name__ == "__main__":
    sys.exit(main())
