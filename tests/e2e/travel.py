#!/usr/bin/env python3
"""A region without data trains units of others, which travel to it over loopback.

The worker of africa has an empty folder, europe's worker has all files. Servers of asia and europe
send their regions' units; no server sends america's. Half of europe's units may not leave. The
server that sends asia's is killed with -9 while units are on their way, and restarted after africa
has given its units back. At the end every unit is credited once, and no unit that may not leave
ever left.
"""
import json
import os
import re
import sys

from loopback import check_credit, check_replicas, end_all, end_workers, play, trained_on
from world import check, until

SPEED = 2500  # tokens/s


def stay(world, home="europe"):
    """Marks every other unit of that home as not allowed to leave. Gives their numbers."""
    path = world.path("data", "units.json")
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    for unit in manifest["units"]:
        unit["may_leave"] = unit["home"] != home or unit["id"] % 2 == 0
    with open(path, "w", encoding="utf-8") as file:
        json.dump(manifest, file)
    world.read_units()
    return {u["id"] for u in world.units if not u["may_leave"]}


def given(server):
    """The units that this server sent, from its log."""
    return [int(n) for n in re.findall(r"unit\.given unit (\d+),", server.text())]


def homes(world, units):
    return {world.units[u]["home"] for u in units}


def travel(worker):
    return worker.status().get("travel", {})


def is_closed(worker, home):
    return any(a["home"] == home and a["closed"] for a in travel(worker).get("away", []))


def kill_the_giver(world, giver, africa, workers):
    """The server dies while units are on their way; they are given back, and it is asked later."""
    before = len(given(giver))
    until("more of asia's units travel", lambda: len(given(giver)) > before + 2)
    giver.kill()
    until("africa gives asia's units back", lambda: is_closed(africa, "asia"))
    check(africa.says("units.closed", "region asia", "are given back"), "it does not say so")
    at = len(given(giver))
    giver.start().listening()
    until("asia's units travel again", lambda: len(given(giver)) > at)
    check(africa.says("units.open", "region asia"), "it does not say so")
    until("all train on", trained_on(workers, {}, 5))


def run(world):
    staying = stay(world)
    check(len(staying) > 10, "too few units stay")
    coordinator = world.coordinator(2).start().listening()
    gives = {"data.dir": world.path("data"), "log.level": "debug"}
    servers = [world.server(0, coordinator, region="europe", **gives).start().listening(),
               world.server(1, coordinator, region="asia", **gives).start().listening()]
    os.makedirs(world.path("empty"))
    speed = {"trainer.tokens_per_s": SPEED}
    europe = world.worker("europe", coordinator, **speed).start()
    africa = world.worker("africa", coordinator, **speed,
                          **{"data.dir": world.path("empty")})
    africa.start()
    workers = [europe, africa]
    until("america's are given back", lambda: is_closed(africa, "america"))
    check(africa.says("no server of that region gives units"), "it does not say why")
    until("africa trains", trained_on([africa], {}, 8))
    kill_the_giver(world, servers[1], africa, workers)
    check(coordinator.status().get("phase", "running") == "running",
          "the run ended before the giver was back: the drill proves nothing")
    until("units of europe arrived too", lambda: given(servers[0]))
    end_workers(coordinator, workers)
    check_replicas(servers, workers)
    check_credit(world, coordinator, servers)
    for server, home in zip(servers, ("europe", "asia")):
        check(homes(world, given(server)) == {home}, f"{server.name} gave others' units")
        check(not staying & set(given(server)), f"{server.name} gave what may not leave")
        check(not server.says("unit.refused"), f"{server.name} was asked for what it may not give")
    check(africa.last("travel")["units"] > 20, f"{africa.last('travel')} arrived")
    check(africa.last("travel")["held_bytes"] == 0, "it holds units after the end")
    check(africa.last("tokens") >= 20 * world.unit_tokens, "africa trained too little")
    check(not europe.says("units.away"), "europe has all files")
    end_all([coordinator, *servers])


if __name__ == "__main__":
    sys.exit(play(__doc__, run, 240))
