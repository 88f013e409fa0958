#!/usr/bin/env python3
"""Three regions, two shard servers and a coordinator as processes on loopback, with kills.

Before the kills, and in a run without kills whose roles start in the wrong order, nothing warns. In
the middle of the run a server, a worker and the coordinator are killed with -9, another worker is
stopped in order, and all are restarted. At the end every worker exits with 0, all replicas have the
servers' digests, every unit is credited once, the model learned, and no process is left.
"""
import array
import json
import os
import socket
import sys
import threading
import time

from world import REGIONS, World, check, flags_of, held, until


def steps(node):
    return node.status().get("step", 0)


def trained_on(workers, since, more):
    """Every worker has trained `more` steps since `since`; a restarted one counts from 0."""
    def one(worker):
        pid, before = since.get(worker.name, (0, 0))
        return steps(worker) >= (before if worker.process.pid == pid else 0) + more
    return lambda: all(one(worker) for worker in workers)


def mark(workers):
    return {w.name: (w.process.pid, steps(w)) for w in workers}


def kill_and_see(node, workers, orderly=False):
    """Ends a node, restarts it, and waits until all workers go on. Prints how long that took."""
    if orderly:
        node.must_stop()
    else:
        node.kill()
    begun = time.monotonic()
    node.start()
    if node.kind != "worker":
        node.listening()
    serving = time.monotonic()
    since = mark(workers)
    until(f"all workers train on after the end of {node.name}", trained_on(workers, since, 5))
    how = "SIGTERM to" if orderly else "kill -9 of"
    print(f"{how} {node.name}: started in {serving - begun:.2f} s, "
          f"all train on after {time.monotonic() - begun:.2f} s")


class Statuses(threading.Thread):
    """Notes the time of each status of these nodes; a status comes once a second."""

    def __init__(self, nodes):
        super().__init__(daemon=True)
        self.made, self.over = {node: [] for node in nodes}, threading.Event()

    def run(self):
        while not self.over.wait(0.01):
            for node, made in self.made.items():
                at = node.status().get("up_s", 0)
                if at not in made:
                    made.append(at)

    def check(self):
        """The run's end was reported at once: a status came between two regular ones."""
        until("a status comes out of turn", lambda: any(
            0 < b - a < 0.9 for made in self.made.values() for a, b in zip(made, made[1:])), 5)
        self.over.set()
        self.join()


# Warnings that an ordinary run gives only on a machine that is too busy: a process was silent for
# longer than its peers wait, or a call took too long.
BUSY = ("worker.lost", "follow.silent", "snapshot.silent", "push.silent")
# Events that become warnings after about ten seconds.
MISSING = ("member.unreachable", "server.unreachable", "shard.unserved", "start.waiting")


def check_nobody_warns(world, excused=BUSY):
    for node in world.nodes:
        for line in node.text().splitlines():
            words = [*line.split(maxsplit=5), "", "", "", "", ""]  # time, offset, level, who, event
            level, event = words[2], words[4]
            fine = event in excused or "deadline" in line.lower()
            check(level not in ("WARN", "ERROR") or fine, f"{node.name} warns: {line}")


def check_replicas(servers, workers, shards=2):
    truth = held(servers)
    check(len(truth) == shards, f"the servers report {len(truth)} shards")
    for worker in workers:
        mine = worker.last_holdings()
        check(mine == truth, f"{worker.name} ends with {mine}, the servers have {truth}")
        check(not worker.says("replica.differs"), f"{worker.name}: a digest record differed")


def check_credit(world, coordinator, servers, epochs=1):
    """Every unit of every epoch of the data is credited once."""
    status, units = coordinator.status(), epochs * len(world.units)
    check(status["phase"] == "ended", f"the run's phase is {status['phase']}")
    check(status["credited"] == status["units"] == units,
          f"{status['credited']} of {units} units are credited")
    logged = sum(s["credited"] for n in servers for s in n.status()["shards"])
    check(logged == units, f"the logs credit {logged} of {units} units")
    tokens = epochs * sum(u["tokens"] for u in world.units)
    check(status["credited_tokens"] == tokens, f"{status['credited_tokens']} of {tokens} tokens")


def check_weights(world, workers):
    finals = []
    for worker in workers:
        with open(os.path.join(worker.dir, "final.weights"), "rb") as file:
            finals.append(file.read())
    check(all(f == finals[0] for f in finals), "final.weights differ between workers")
    with open(world.path("weights.bin"), "rb") as file:
        initial = file.read()
    check(len(initial) == len(finals[0]), "final.weights has another size than the model")
    moved = sum(a != b for a, b in zip(array.array("f", initial), array.array("f", finals[0])))
    check(moved > len(initial) // 8, f"only {moved} parameters moved")


def losses(world, weights):
    table = world.tool("eval", "--manifest", world.path("model.json"), "--weights", weights,
                       "--data", world.path("data"), "-o", "json")
    return {k: v["nats"] for k, v in json.loads(table).items()}


def check_learned(world, worker):
    before = losses(world, world.path("weights.bin"))
    after = losses(world, os.path.join(worker.dir, "final.weights"))
    for language in before:
        print(f"{language}: {before[language]:.3f} -> {after[language]:.3f} nats per byte")
        check(after[language] < before[language] - 0.5, f"{language} was not learned")


def end_all(nodes):
    """Stops every node in order."""
    for node in nodes:
        node.must_stop()


def end_workers(coordinator, workers):
    """Waits until every worker has ended, and the coordinator knows."""
    for worker in workers:
        worker.must_end(120)
    until("the coordinator knows", lambda: coordinator.status().get("phase") == "ended")


def play(doc, run_it, units):
    """A test's main(): runs run_it(world) in a world of its own and removes everything."""
    given = flags_of(doc).parse_args()
    with World(given.build, units=units, keep=given.keep) as world:
        run_it(world)
        nothing_left(world)
    print("ok")
    return 0


def nothing_left(world):
    left = [node.name for node in world.nodes if node.alive()]
    check(not left, f"still running: {left}")


def run(world, kills):
    coordinator = world.coordinator().start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in (0, 1)]
    workers = [world.worker(region, coordinator, **{"trainer.tokens_per_s": 4000}).start()
               for region in REGIONS]
    begun = time.monotonic()
    until("all workers train", trained_on(workers, {}, 8))
    check(coordinator.says("worker.joined") and not coordinator.says("worker.back"),
          "a first join is told as if the worker came back")
    check_nobody_warns(world)
    if kills:
        kill_and_see(servers[1], workers)
        kill_and_see(workers[0], workers)
        kill_and_see(coordinator, workers)
        kill_and_see(workers[1], workers, orderly=True)
        check(coordinator.status().get("phase", "running") == "running",
              "the run ended before the last kill: the drill proves nothing")
    statuses = Statuses([coordinator, *servers])
    statuses.start()
    for worker in workers:
        worker.must_end(120)
    took = time.monotonic() - begun
    until("the coordinator knows", lambda: coordinator.status().get("phase") == "ended")
    check_replicas(servers, workers)
    statuses.check()
    check_credit(world, coordinator, servers)
    check_weights(world, workers)
    check_learned(world, workers[0])
    end_all([coordinator, *servers])
    tokens = sum(u["tokens"] for u in world.units)
    print(f"{tokens} tokens in {took:.1f} s")


def run_both(world):
    """The smallest run: one process that is coordinator and server, and one worker; killed once."""
    server = world.both().start().listening()
    worker = world.worker("asia", server, **{"trainer.tokens_per_s": 2000}).start()
    until("the worker trains", trained_on([worker], {}, 8))
    kill_and_see(server, [worker])
    worker.must_end(120)
    until("the coordinator knows",
          lambda: server.status().get("coordinator", {}).get("phase") == "ended")
    check(worker.last_holdings() == held([server]), "worker and server differ in the end")
    status = server.status()
    check(status["role"] == "both" and status["peak_bytes"] > 0, "its status is another")
    check(status["coordinator"]["credited"] == len(world.units), "a unit is not credited")
    server.must_stop()


def run_in_any_order(world):
    """A server and a worker start before the coordinator, the other server after the worker."""
    begun = time.monotonic()
    coordinator = world.coordinator(workers=1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator.address = f"127.0.0.1:{free.getsockname()[1]}"
        servers = [world.server(i, coordinator) for i in (0, 1)]
        servers[0].start().listening()
        worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 8000}).start()
        until("the server waits", lambda: servers[0].says("start.waiting", coordinator.address))
        until("the worker waits", lambda: worker.says("member.unreachable", coordinator.address))
    coordinator.start().listening()
    until("the worker misses a server", lambda: worker.says("shard.unserved", "shard 1"))
    servers[1].start().listening()
    until("the worker trains", trained_on([worker], {}, 8))
    slow = time.monotonic() - begun > 8
    end_workers(coordinator, [worker])
    check(worker.last_holdings() == held(servers), "worker and servers differ in the end")
    end_all([coordinator, *servers])
    check_nobody_warns(world, BUSY + MISSING if slow else BUSY)


def main():
    flags = flags_of(__doc__)
    flags.add_argument("--no-kills", action="store_true")
    given = flags.parse_args()
    for run_it, units in ((lambda world: run(world, not given.no_kills), 220), (run_both, 24),
                          (run_in_any_order, 24)):
        with World(given.build, units=units, keep=given.keep) as world:
            run_it(world)
            nothing_left(world)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
