#!/usr/bin/env python3
"""`longhaul expel` and `admit` on a run that trains, their audit log, and a partner's enrolment.

A worker is expelled: it ends with that message, its units go to others, and it is refused when it
is restarted, also by a coordinator that was killed meanwhile. It is admitted again and trains. Its
certificate was issued from a request, so its key never left its folder. Then its certificate is
revoked in the running servers. The run ends with the others; the audit lists every command with its
operator, and every refusal.
"""
import json
import os

from loopback import check_replicas, mark, trained_on
from world import REGIONS, check, main, until

USAGE, MISSING, DENIED = 2, 3, 7


def workers_of(world, coordinator):
    said = json.loads(world.tool("get", "workers", *world.admin(coordinator), "-o", "json"))
    return {row["name"]: row for row in said}


def enrol(world, region, name):
    """Enrols a worker whose key stays in the partner's folder."""
    theirs = world.path("partner")
    who = ["--run", world.run, "--role", "worker", "--region", region, "--name", name]
    world.tool("certs", "request", *who, "--domain", "e2e.test", "--out", theirs)
    request = os.path.join(theirs, name + ".csr")
    other = [*who[:-1], "somebody"]
    code, _, complaint = world.try_tool("certs", "sign", request, *other, "--dir",
                                        world.path("ca"), "--out", world.path("signed"))
    check(code == DENIED and name in complaint, f"{code}: {complaint}")
    world.tool("certs", "sign", request, *who, "--dir", world.path("ca"), "--out",
               world.path("signed"))
    check(os.listdir(world.path("signed")) == [name + ".pem"], "more than a certificate came")
    return {"tls.cert": world.path("signed", name + ".pem"),
            "tls.key": os.path.join(theirs, name + ".key")}


def expelled(world, coordinator, partner, others):
    boss = world.admin(coordinator)
    check("is expelled" in world.tool("expel", partner.name, *boss), "it is not said")
    check(partner.end() != 0 and partner.says("expelled from this run"), partner.tail())
    until("the coordinator shows it",
          lambda: workers_of(world, coordinator)[partner.name]["expelled"])
    row = workers_of(world, coordinator)[partner.name]
    check(row["member_state"] == "expelled" and not row["live"], f"{row}")
    coordinator.kill()
    coordinator.start().listening()
    check(partner.start().end() != 0, "it was let in")
    until("the others train on", trained_on(others, mark(others), 4))
    check("was expelled before" in world.tool("expel", partner.name, *boss), "it is forgotten")
    check("is let back" in world.tool("admit", partner.name, *boss), "it is not said")
    partner.start()
    until("it trains again", trained_on([partner], {}, 4))


def refusals(world, coordinator, partner):
    boss = world.admin(coordinator)
    code, _, complaint = world.try_tool("expel", "nobody", *boss)
    check(code == MISSING and "name its region" in complaint, f"{code}: {complaint}")
    code, _, complaint = world.try_tool("expel", *boss)
    check(code == USAGE, f"{code}: {complaint}")
    code, _, complaint = world.try_tool("expel", partner.name, *world.admin(
        coordinator, name=REGIONS[1] + "-0", role="worker"))
    check(code == DENIED, f"{code}: {complaint}")
    check("neither expelled" in world.tool("admit", "far/nobody", *boss), "it is taken")


def revoked(world, nodes, partner, lists):
    rows = json.loads(world.tool("certs", "ls", "--dir", world.path("signed"), "-o", "json"))
    with open(lists, "a", encoding="utf-8") as file:
        file.write(rows[0]["serial"] + " # the partner's\n")
    until("all have read it", lambda: all(n.says("net.revoked") for n in nodes))
    until("it is refused", lambda: partner.says("revoked"))
    partner.kill()


def retired(world, coordinator, partner):
    """Once the worker is no longer heard of, its name is free for another one."""
    name = f"{REGIONS[0]}/{partner.name}"
    until("it is gone, and its name is retired",
          lambda: world.try_tool("retire", name, *world.admin(coordinator))[0] == 0)


def audit(world, coordinator, servers):
    def lines(*dirs):
        said = []
        for folder in dirs:
            said += json.loads(world.tool("events", "--audit", "--dir", folder, "-o", "json"))
        return said
    of_all = lines(coordinator.dir)
    by = {event: [row["text"] for row in of_all if row["event"] == event]
          for event in ("audit.join", "audit.refused", "audit.expel", "audit.admit",
                        "audit.retire")}
    check(any("/worker/asia/" in text for text in by["audit.join"]), f"{by}")
    check(any("/worker/asia/" in text and "expelled" in text for text in by["audit.refused"]),
          f"{by}")
    check(any("/admin/" in text and "asia-0: taken" in text for text in by["audit.expel"]), f"{by}")
    check(any("/admin/" in text and "asia-0: taken" in text for text in by["audit.admit"]), f"{by}")
    check(any("/admin/" in text and "asia-0: taken" in text for text in by["audit.retire"]),
          f"{by}")
    greeted = [row for row in lines(*[s.dir for s in servers]) if row["event"] == "audit.hello"]
    check(greeted, "the servers kept nothing")


def run(world):
    lists = world.path("revoked")
    with open(lists, "w", encoding="utf-8") as file:
        file.write("# nobody yet\n")
    coordinator = world.coordinator(**{"tls.revoked": lists, "coordinator.worker_timeout_s": "3 s"})
    coordinator.start().listening()
    servers = [world.server(i, coordinator, **{"tls.revoked": lists}).start().listening()
               for i in (0, 1)]
    slow = {"trainer.tokens_per_s": 1500, "data.window": 2}
    theirs = enrol(world, REGIONS[0], REGIONS[0] + "-0")
    partner = world.worker(REGIONS[0], coordinator, **slow, **theirs).start()
    others = [world.worker(region, coordinator, **slow).start() for region in REGIONS[1:]]
    until("all workers train", trained_on([partner, *others], {}, 4))
    refusals(world, coordinator, partner)
    expelled(world, coordinator, partner, others)
    revoked(world, [coordinator, *servers], partner, lists)
    retired(world, coordinator, partner)
    world.tool("drain", "run", "--end", "--wait", *world.admin(coordinator))
    for worker in others:
        worker.must_end()
    check_replicas(servers, others)
    for node in [coordinator, *servers]:
        node.must_stop()
    audit(world, coordinator, servers)


if __name__ == "__main__":
    main(__doc__, run, units=900)
