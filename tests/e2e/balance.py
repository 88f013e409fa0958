#!/usr/bin/env python3
"""Units go by estimated finish: three regions over loopback, one eight times slower.

The balancer takes units from the slow region and logs why; links are measured. A fourth region,
which no setting and no unit names, joins in the middle with a certificate issued then: it gets
units, is in the plan, and has its own number of local steps. An operator freezes the balancer over
a kill of the coordinator, and thaws it. At the end every unit is credited once.
"""
import json
import os
import re
import sys

from loopback import check_credit, check_replicas, end_all, end_workers, kill_and_see, play
from world import REGIONS, check, until

SLOW, FAST = 400, 3000  # tokens/s


def of_balancer(coordinator):
    return coordinator.status().get("balancer", {})


def decided(coordinator, *reasons):
    return [d for d in of_balancer(coordinator).get("decisions", []) if d["reason"] in reasons]


def measured(world, coordinator, count):
    rows = json.loads(world.tool("get", "links", *world.admin(coordinator), "-o", "json"))
    return len(rows) == count and all(r.get("rtt_ms") is not None and r.get("push_ms") is not None
                                  for r in rows)


def last_reserved(world, coordinator, region):
    """The region's unit that is last in line to be trained: it can still be recalled."""
    rows = json.loads(world.tool("get", "leases", *world.admin(coordinator), "-o",
                                 "json"))["leases"]
    return max(r["unit"] for r in rows if r["home"] == region and r["state"] != "credited")


def by_hand(world, coordinator, workers):
    flags = world.admin(coordinator)
    code, _, complaint = world.try_tool("balancer", "move", "9999", "europe-0", *flags)
    check(code == 3 and "9999" in complaint, f"no such unit: {code}, {complaint}")
    unit = last_reserved(world, coordinator, "asia")
    code, _, complaint = world.try_tool("balancer", "move", str(unit), "mars-0", *flags)
    check(code == 3 and "mars-0" in complaint, f"no such worker: {code}, {complaint}")
    world.tool("balancer", "freeze", *flags)
    kill_and_see(coordinator, workers)
    until("what was ordered holds over the kill", lambda: of_balancer(coordinator).get("frozen"))
    wide = world.tool("get", "plan", "-o", "wide", *world.admin(coordinator))
    check("rule finish, frozen" in wide, wide)
    world.tool("balancer", "thaw", *world.admin(coordinator))
    until("it decides again", lambda: not of_balancer(coordinator).get("frozen", True))


def in_plan(world, coordinator, region):
    rows = json.loads(world.tool("get", "plan", *world.admin(coordinator), "-o", "json"))
    return any(r["region"] == region and r["live"] and r["ends_s"] and r["trains_tokens"]
               for r in rows)


def join_late(world, coordinator, region):
    """Starts a worker of a region that is in no setting."""
    with open(world.path("coordinator.yaml"), encoding="utf-8") as settings:
        check(region not in settings.read(), f"{region} is in the settings")
    check(not os.path.exists(world.path("certs", f"{region}-0.pem")), "it has a certificate")
    check(all(u["home"] != region for u in world.units), f"{region} has units")
    before = coordinator.status()
    check(before["phase"] == "running" and len(before["workers"]) == 3, f"{before['phase']}")
    worker = world.worker(region, coordinator, **{"trainer.tokens_per_s": FAST}).start()
    until("it gets units of another's", lambda: any(
        d["region"] == region for d in decided(coordinator, "stolen", "planned", "twice")))
    until("it is in the plan", lambda: in_plan(world, coordinator, region))
    until("its steps a round are told", lambda: re.search(
        rf"cadence\.changed {region}-0 of {region}: 0 -> \d+ local steps", coordinator.text()))
    until("what it trained is credited", lambda: any(
        w["region"] == region and w["tokens"] > 0 for w in coordinator.status()["workers"]))
    check(coordinator.status()["phase"] == "running", "it came too late")
    return worker


def run(world):
    coordinator = world.coordinator(**{
        "coordinator.balance": "finish", "coordinator.cadence": "speed"}).start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in (0, 1)]
    workers = [world.worker(region, coordinator, **{
        "trainer.tokens_per_s": SLOW if region == "asia" else FAST}).start() for region in REGIONS]
    until("a unit of the slow region goes to another", lambda: re.search(
        r"balance\.\w+ (unit \d+|\d+ units) of asia\b.* go(es)? to (europe|america)-0",
        coordinator.text()))
    until("its status tells of decisions",  # a row of several units names the first one's home
          lambda: decided(coordinator, "stolen", "planned", "twice"))
    until("links are measured", lambda: measured(world, coordinator, 6))
    workers.append(join_late(world, coordinator, "africa"))
    until("its links are measured", lambda: measured(world, coordinator, 8))
    by_hand(world, coordinator, workers)
    end_workers(coordinator, workers)
    check_replicas(servers, workers)
    check_credit(world, coordinator, servers)
    end_all([coordinator, *servers])


if __name__ == "__main__":
    sys.exit(play(__doc__, run, 300))
