#!/usr/bin/env python3
"""`longhaul drain` on a run that trains: parts of it are drained and resumed, then it ends early.

A worker, a region and the whole run are drained and resumed; the orders survive a kill of the
coordinator and a restart of the worker. `--end` then ends the run long before its budget: every
worker exits with 0, all replicas agree, and no unit is credited twice.
"""
import json
import os
import signal
import time

from loopback import check_replicas, mark, steps, trained_on
from world import REGIONS, Failure, check, main, until

USAGE, MISSING, UNREACHABLE, DENIED, STOPPED = 2, 3, 4, 7, 8


def drain(world, coordinator, *words):
    return json.loads(world.tool("drain", *words, *world.admin(coordinator), "-o", "json"))


def leases(world, coordinator, *filters):
    return json.loads(world.tool("get", "leases", *filters, *world.admin(coordinator), "-o",
                                 "json"))


def units_of(rows):
    return [row["unit"] for row in rows]


def check_leases(world, coordinator):
    """On a drained run: every unit is listed once, over several pages, and the totals add up."""
    answer = leases(world, coordinator)
    rows, totals = answer["leases"], answer["totals"]
    check(units_of(rows) == list(range(len(world.units))), "a unit is missing")
    for state in ("free", "leased", "credited"):
        some = leases(world, coordinator, "--state", state)["leases"]
        check(units_of(some) == [row["unit"] for row in rows if row["state"] == state],
              f"--state {state} shows others")
        check(len(some) == totals[state], f"{len(some)} {state} units, {totals}")
    check(sum(row["credited_tokens"] for row in rows) == totals["credited_tokens"], f"{totals}")
    ours = leases(world, coordinator, "--home", "asia", "--language", "l0")["leases"]
    check(ours and units_of(ours) == [row["unit"] for row in rows if row["home"] == "asia"],
          "--home asia shows others")
    check(not leases(world, coordinator, "--language", "l1", "--home", "asia")["leases"],
          "--language l1 shows units of l0")
    try:
        leases(world, coordinator, "--home", "atlantis")
    except Failure as failure:
        check("no home atlantis" in str(failure) and "there are:" in str(failure)
              and "asia" in str(failure), str(failure))
    else:
        raise Failure("--home atlantis was answered")


def written(worker):
    return os.stat(os.path.join(worker.dir, "status.json")).st_mtime_ns


def fresh_steps(workers):
    """Steps from statuses written after this call; a status comes about once a second."""
    now = {w: written(w) for w in workers}
    until("they write their status", lambda: all(written(w) > now[w] for w in workers))
    check(all(w.status()["state"] == "draining" for w in workers), "it does not say so")
    return [steps(w) for w in workers]


def stands_still(workers, others):
    """Checks that `workers` take no step while the others train on, or over some statuses."""
    reached = fresh_steps(workers)
    until("the others train on", trained_on(others, mark(others), 8))
    check(fresh_steps(workers) == reached, "a drained worker trains on")


def one_worker(world, coordinator, workers):
    asia, others = workers[0], workers[1:]
    answer = drain(world, coordinator, "worker", "asia-0", "--wait")
    check(answer["complete"] and [w["name"] for w in answer["workers"]] == ["asia-0"], f"{answer}")
    stands_still([asia], others)
    status = coordinator.status()
    check(not status["draining"] and status["phase"] == "running", f"the run drains, too: {status}")

    coordinator.kill()
    coordinator.start().listening()
    until("the coordinator still holds to it", lambda: any(
        w["name"] == "asia-0" and w["draining"] and w["drained"]
        for w in coordinator.status().get("workers", [])))
    asia.must_stop()
    asia.start()
    until("it is back and drained", lambda: asia.status().get("state") == "draining")
    exits = [node.status().get("last_exit") for node in (asia, coordinator, others[0])]
    check(exits == ["signal", "killed", "none"], f"how their lives before ended: {exits}")
    stands_still([asia], others)

    drain(world, coordinator, "worker", "asia/asia-0", "--undo")
    until("it trains on", lambda: steps(asia) > 5)


def one_region(world, coordinator, workers):
    europe = next(w for w in workers if w.region == "europe")
    others = [w for w in workers if w is not europe]
    drain(world, coordinator, "region", "europe", "--wait")
    stands_still([europe], others)
    until("it is in the status", lambda: coordinator.status()["drained_regions"] == ["europe"])
    until("its units are free for others", lambda: not leases(
        world, coordinator, "--worker", europe.name, "--state", "leased")["leases"])
    code, _, complaint = world.try_tool("drain", "worker", europe.name, "--undo",
                                        *world.admin(coordinator))
    check(code == USAGE and "with its region europe" in complaint, f"{code}: {complaint}")
    drain(world, coordinator, "region", "europe", "--undo")
    until("it trains on", trained_on([europe], mark([europe]), 5))


def whole_run(world, coordinator, workers):
    answer = drain(world, coordinator, "run", "--wait")
    check(answer["complete"] and answer["drained"] == 3, f"{answer}")
    check(answer["phase"] == "running", f"the run stands still, it does not end: {answer}")
    stands_still(workers, [])
    sent = [w.status()["wire_up_bytes"] for w in workers]
    fresh_steps(workers)
    sent = [w.status()["wire_up_bytes"] - before for w, before in zip(workers, sent)]
    # One report a second goes to the coordinator; requests in a loop once took 270 kB.
    check(max(sent) < 50000, f"drained workers sent {sent} bytes between two statuses")
    check_leases(world, coordinator)
    again = drain(world, coordinator, "run", "--wait")  # asking twice changes nothing
    check(again["complete"], f"{again}")
    drain(world, coordinator, "run", "--undo")
    until("all train on", trained_on(workers, mark(workers), 5))


def refusals(world, coordinator, workers):
    boss = world.admin(coordinator)
    for words, code, says in (
            (("worker", "nobody"), MISSING, "no worker nobody in this run"),
            (("region", "atlantis"), MISSING, "no worker of a region atlantis"),
            (("worker", "europe/asia-0"), MISSING, "no worker asia-0 of europe"),
            (("everything",), USAGE, "no everything (one of: run region worker)"),
            (("region", "asia", "--end"), USAGE, "--end is for a whole run"),
            (("run", "--timeout", "soon"), USAGE, "--timeout soon: want a number")):
        got, _, complaint = world.try_tool("drain", *words, *boss)
        check(got == code and says in complaint, f"{words}: {got}: {complaint}")
    asia = world.admin(coordinator, "asia-0", "worker")
    got, _, complaint = world.try_tool("drain", "run", *asia)
    check(got == DENIED and "a worker may not call" in complaint, f"{got}: {complaint}")
    # a worker that cannot drain: the command times out, the order remains
    workers[2].process.send_signal(signal.SIGSTOP)
    got, said, _ = world.try_tool("drain", "worker", workers[2].name, "--wait", "--timeout", "1",
                                  *boss)
    workers[2].process.send_signal(signal.SIGCONT)
    check(got == STOPPED and "0 of 1 live worker has drained" in said, f"{got}: {said}")
    check(drain(world, coordinator, "worker", workers[2].name, "--wait")["complete"],
          "what was asked for is forgotten")
    drain(world, coordinator, "worker", workers[2].name, "--undo")


def ended(world, coordinator, servers, workers):
    answer = drain(world, coordinator, "run", "--end", "--wait")
    check(answer["complete"] and answer["phase"] == "ended", f"{answer}")
    for worker in workers:
        worker.must_end(120)
        check(os.path.exists(os.path.join(worker.dir, "final.weights")), "no final weights")
    check_replicas(servers, workers)
    until("the coordinator knows", lambda: coordinator.status().get("phase") == "ended")
    status = coordinator.status()
    logged = sum(s["credited"] for n in servers for s in n.status()["shards"])
    check(0 < status["credited"] == logged < status["units"],
          f"{status['credited']} of {status['units']} units are credited, {logged} in the logs")
    code, _, complaint = world.try_tool("drain", "run", "--undo", *world.admin(coordinator))
    check(code == USAGE and "too late: the run is ended" in complaint, f"{code}: {complaint}")
    for node in [coordinator, *servers]:
        node.must_stop()
    code, _, complaint = world.try_tool("drain", "run", *world.admin(coordinator))
    check(code == UNREACHABLE and "no coordinator answers" in complaint, f"{code}: {complaint}")
    told_as_hung(world, coordinator)


def told_as_hung(world, coordinator):
    """The doctor on a run's folder whose coordinator is alive but writes nothing."""
    flags = world.admin(coordinator)
    os.makedirs(world.path("folder", "coordinator"))
    with open(world.path("folder", "coordinator", "status.json"), "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "time_s": int(time.time()) - 60, "phase": "running",
                   "address": coordinator.address}, file)
    code, _, complaint = world.try_tool("drain", "run", "--dir", world.path("folder"), *flags[2:])
    check(code == UNREACHABLE and f"its process {os.getpid()} runs, but has written no status "
          in complaint, f"{code}: {complaint}")


def run(world):
    # Long enough that no stopped worker is taken for dead.
    coordinator = world.coordinator(**{"coordinator.worker_timeout_s": "120 s"})
    coordinator.start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in (0, 1)]
    # A narrow window: some units are to be finished while all of this happens.
    slow = {"trainer.tokens_per_s": 1000, "data.window": 2}
    workers = [world.worker(region, coordinator, **slow).start() for region in REGIONS]
    until("all workers train", trained_on(workers, {}, 4))
    one_worker(world, coordinator, workers)
    one_region(world, coordinator, workers)
    whole_run(world, coordinator, workers)
    refusals(world, coordinator, workers)
    ended(world, coordinator, servers, workers)


if __name__ == "__main__":
    main(__doc__, run, units=900)  # five minutes of training
