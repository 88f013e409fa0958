#!/usr/bin/env python3
"""`longhaul pause` and `resume` on a run that trains.

All workers stand still, over a kill of the coordinator, of a worker and of a server. No worker is
reported as stalled, although the pause outlasts the bounds of a stall. Every place where an
operator looks shows who paused the run and why. A worker drains meanwhile. After `resume` the run
goes on, and every unit is credited once.
"""
import json

from loopback import check_replicas, mark, steps, trained_on
from world import REGIONS, check, main, until

USAGE, DENIED = 2, 7
WHY = "the loss of asia <rises>"


def paused(workers):
    return lambda: all(w.status().get("state") == "paused" for w in workers)


def standing(workers):
    """The steps of each; a step that was under way at the pause is finished."""
    seen = {w.name: w.status()["up_s"] for w in workers}
    until("all have said so again a while later",
          lambda: all(w.status().get("up_s", 0) > seen[w.name] + 1.5 for w in workers))
    return [steps(w) for w in workers]


def stands(world, coordinator, workers, reached):
    """All workers report the pause in a status, and took no step after `reached`."""
    until("all stand still", paused(workers))
    check([steps(w) for w in workers] == reached, "a paused worker trains")
    members = json.loads(world.tool("get", "members", *world.admin(coordinator), "-o", "json"))
    states = {m["state"] for m in members if m["role"] == "worker"}
    check(states == {"live"}, f"states of workers: {states}")


def told(world, coordinator):
    boss = world.admin(coordinator)
    line = f"paused by boss: {WHY}"
    check(line in world.tool("top", "--once", *boss), "top does not say it")
    check(line in world.tool("get", "plan", *boss), "get plan does not say it")
    is_so = coordinator.status()["paused"]
    check(is_so["by"] == "boss" and is_so["why"] == WHY and is_so["since_s"] > 0, f"{is_so}")
    check(coordinator.says("run.pause", WHY), "no event says it")


def run(world):
    coordinator = world.coordinator(**{"coordinator.stall_floor_s": "1 s"})
    coordinator.start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in (0, 1)]
    workers = [world.worker(region, coordinator, **{"trainer.tokens_per_s": 4000}).start()
               for region in REGIONS]
    boss = world.admin(coordinator)
    until("all workers train", trained_on(workers, {}, 4))

    said = world.tool("pause", "--why", WHY, *boss)
    check("the run is paused: 3 live workers" in said, said)
    until("all stand still", paused(workers))
    reached = standing(workers)
    told(world, coordinator)
    check("was paused already" in world.tool("pause", "--why", "another", *boss), "twice")
    code, _, complaint = world.try_tool("pause", *world.admin(coordinator, "asia-0", "worker"))
    check(code == DENIED and "a worker may not call" in complaint, f"{code}: {complaint}")
    code, _, complaint = world.try_tool("pause", "--why", "x" * 300, *boss)
    check(code == USAGE and "a reason of 300 bytes" in complaint, f"{code}: {complaint}")

    coordinator.kill()
    coordinator.start().listening()
    servers[0].kill()
    servers[0].start().listening()
    until("the coordinator hears everybody", lambda: not coordinator.status().get("hears", True))
    told(world, coordinator)
    stands(world, coordinator, workers, reached)
    workers[1].kill()
    workers[1].start()
    stands(world, coordinator, workers, [reached[0], 0, reached[2]])

    answer = json.loads(world.tool("drain", "worker", workers[2].name, "--wait", *boss,
                                   "-o", "json"))
    check(answer["complete"], f"{answer}")
    world.tool("drain", "worker", workers[2].name, "--undo", *boss)
    until("it is paused again", paused(workers))

    check("the run goes on: 3 live workers" in world.tool("resume", *boss), "resume")
    check("was not paused" in world.tool("resume", *boss), "twice")
    until("all train on", trained_on(workers, mark(workers), 3))
    check("paused" not in coordinator.status(), "it is paused still")
    audit = [line["event"] for line in json.loads(
        world.tool("events", "--audit", "--dir", coordinator.dir, "-o", "json"))]
    check(audit.count("audit.pause") == 3 and audit.count("audit.resume") == 2, f"{audit}")

    world.tool("pause", *boss)
    until("all stand still", paused(workers))
    world.tool("drain", "run", "--end", "--wait", *boss)
    for worker in workers:
        worker.must_end(120)
    check_replicas(servers, workers)
    until("the coordinator knows", lambda: coordinator.status().get("phase") == "ended")
    status = coordinator.status()
    logged = sum(s["credited"] for n in servers for s in n.status()["shards"])
    check(status["credited"] == logged, f"{status['credited']} credited, {logged} in the logs")
    check(not coordinator.says("worker.stalled"), "somebody was called stalled")
    code, _, complaint = world.try_tool("pause", *boss)
    check(code == USAGE and "too late: the run is ended" in complaint, f"{code}: {complaint}")
    for node in [coordinator, *servers]:
        node.must_stop()


if __name__ == "__main__":
    main(__doc__, run, units=900)
