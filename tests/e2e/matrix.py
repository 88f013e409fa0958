#!/usr/bin/env python3
"""Role x RPC x named subject, over TLS: every cell of the authority rules.

The role table (common/net/transport.h) says which role may call an RPC. The rows of `which_one`
check that a peer of the right role may speak only for itself: a worker for its own row, a server
for its own shards (server/docs/0004-authority.md). Afterwards the run is as it was.
"""
import json
import pathlib
import re
import subprocess
import sys

from cases import main, run
from world import check, until

OTHER = str(2 ** 64 - 1)  # an id, or a standby's name, that nobody has here
MEMBER = {  # on the coordinator: the answer to each role that speaks for itself
    "Member/Join": {"worker": "LH_ERR_CONFIG"},  # the request names no data
    "Member/Lease": {"worker": "LH_OK"},
    "Member/Report": {"server": "LH_ERR_DENIED", "coordinator": "LH_ERR_DENIED"},
    "Member/Epoch": {"server": "LH_ERR_DENIED", "coordinator": "LH_ERR_DENIED"},
    "Member/InSync": {"server": "LH_ERR_DENIED", "coordinator": "LH_ERR_DENIED"},
    "Member/Status": dict.fromkeys(("worker", "server", "coordinator", "admin"), "LH_OK"),
    "Member/Drain": {"admin": "LH_ERR_NOT_FOUND"},
    "Member/Pause": {"admin": "LH_OK"},  # resumes a run that is not paused
    "Member/Move": {"admin": "LH_ERR_NOT_FOUND"},
    "Member/Expel": {"admin": "LH_ERR_INVALID"},  # names nobody
    "Member/Adopt": {"admin": "LH_ERR_INVALID"},
    "Member/Refold": {"admin": "LH_ERR_INVALID"},
}
SHARD = {  # on shard 0's server
    "Shard/Hello": {"worker": "LH_OK"},
    "Shard/Push": {"worker": "LH_ERR_NEED_HELLO"},
    "Shard/Follow": {"worker": "LH_OK", "server": "LH_OK", "admin": "LH_OK"},
    "Shard/Snapshot": {"worker": "LH_OK", "server": "LH_OK", "admin": "LH_OK"},
    "Shard/Offer": {"worker": "LH_OK"},
    "Shard/Restore": {"worker": "LH_ERR_CONFLICT"},
    "Shard/Confirm": {"server": "LH_ERR_BUSY", "coordinator": "LH_ERR_BUSY"},
    "Shard/Status": dict.fromkeys(("worker", "server", "coordinator", "admin"), "LH_OK"),
    "Data/Unit": {"worker": "LH_ERR_UNSUPPORTED"},  # this server sends no units
}
HEALTH = "Health/Check"
TABLE = pathlib.Path(__file__).resolve().parents[2] / "common/net/transport.h"
ROLES = ("worker", "server", "coordinator", "admin")
NOT_HERE = "LH_ERR_UNSUPPORTED"


class Peers:
    def __init__(self, world, coordinator, servers):
        self.world = world
        self.door = {"coordinator": coordinator, "server": servers[0], "second": servers[1]}
        for role in ROLES:
            world.certificate(role, "asia", "m-" + role)

    def say(self, certificate, cells):
        """The result of each cell (program, RPC, worker or standby named, shard)."""
        world, words = self.world, []
        for door, rpc, named, shard in cells:
            role = "coordinator" if door == "coordinator" else "server"
            words += [role, self.door[door].address, rpc, named, str(shard)]
        done = subprocess.run(
            [world.program("e2e_say"), world.path("ca", "ca.pem"),
             world.path("certs", certificate + ".pem"), world.path("certs", certificate + ".key"),
             "e2e.test", world.run, world.path("model.json"), *words],
            capture_output=True, text=True, check=False, timeout=300)
        check(done.returncode == 0, f"e2e_say of {certificate}: {done.stderr}")
        return done.stdout.split()


def compare(peers, certificate, rows):
    """rows: (cell, expected result)."""
    said = peers.say(certificate, [cell for cell, _ in rows])
    wrong = [f"{cell}: {got}, not {want}" for (cell, want), got in zip(rows, said) if got != want]
    check(len(said) == len(rows) and not wrong, f"{certificate}: " + "; ".join(wrong))


REJECTS = ("ROLE", "LH_ERR_CONFIG", "LH_ERR_DENIED", "LH_ERR_NOT_FOUND", "LH_ERR_INVALID",
           NOT_HERE)
OPERATORS = {"Member/Drain": "audit.drain", "Member/Pause": "audit.resume",
             "Member/Move": "audit.move", "Member/Expel": "audit.expel",
             "Member/Adopt": "audit.adopt", "Member/Refold": "audit.refold",
             "Shard/Follow": "audit.read", "Shard/Snapshot": "audit.read"}
READ_ONLY = ("Member/Status", "Shard/Status")


def audited(world, peers, refused):
    """Each refused cell is in its program's audit log or counted there; so is an admin's
    command."""
    def lines(door):
        return json.loads(world.tool("events", "--audit", "--dir", peers.door[door].dir,
                                     "-o", "json"))

    def count(door):
        texts = [line["text"] for line in lines(door) if line["event"] == "audit.refused"]
        left_out = [re.match(r"(\d+) more lines", text) for text in texts]
        return sum(int(some.group(1)) if some else 1 for some in left_out)

    for door in ("coordinator", "server"):
        until(f"{refused[door]} refusals are in the audit of {door}",
              lambda door=door: count(door) >= refused[door])
    of_all = lines("coordinator") + lines("server")
    for table in (MEMBER, SHARD):
        for rpc in [rpc for rpc, heard in table.items() if "admin" in heard]:
            if rpc in READ_ONLY:
                continue
            check(any(line["event"] == OPERATORS[rpc] and "/admin/asia/m-admin" in line["text"]
                      for line in of_all), f"{rpc} of an operator is not in the audit")


def roles(world):
    """Every RPC on both programs, by a peer of each role that speaks for itself."""
    rpcs = re.findall(r'"(?:longhaul|grpc\.health)\.v1\.(\w+/\w+)"', TABLE.read_text("utf-8"))
    missing = {*rpcs} ^ {*MEMBER, *SHARD, HEALTH}
    check(not missing, f"only here or only in {TABLE}: {missing}")
    coordinator, servers = run(world)
    peers = Peers(world, coordinator, servers)
    refused = {"coordinator": 0, "server": 0}
    for role in ROLES:
        rows = []
        for table, here in ((MEMBER, "coordinator"), (SHARD, "server")):
            there = "server" if here == "coordinator" else "coordinator"
            for rpc, heard in table.items():
                rows.append(((here, rpc, "0", 0), heard.get(role, "ROLE")))
                rows.append(((there, rpc, "0", 0), NOT_HERE if role in heard else "ROLE"))
        rows += [((door, HEALTH, "0", 0), "LH_OK") for door in ("coordinator", "server")]
        compare(peers, "m-" + role, rows)
        for (door, *_), came_to in rows:
            refused[door] += came_to in REJECTS
    untouched(peers)
    audited(world, peers, refused)


def which_one(world):
    """Peers of the right role that name somebody else."""
    coordinator, servers = run(world)
    peers = Peers(world, coordinator, servers)
    compare(peers, "m-worker", [
        (("coordinator", "Member/Lease", OTHER, 0), "LH_ERR_DENIED"),
        (("server", "Shard/Hello", OTHER, 0), "LH_ERR_DENIED"),
        (("server", "Shard/Push", OTHER, 0), "LH_ERR_DENIED"),
        (("server", "Shard/Offer", OTHER, 0), "LH_ERR_DENIED"),
        (("server", "Shard/Restore", OTHER, 0), "LH_ERR_DENIED"),
        (("server", "Shard/Hello", "0", 1), "LH_ERR_NOT_OWNER"),
        (("second", "Shard/Hello", "0", 0), "LH_ERR_NOT_OWNER"),
        (("server", "Shard/Offer", "0", 1), "LH_ERR_NOT_OWNER"),
    ])
    for certificate, shard in (("m-server", 0), ("m-server", 1), ("shard-0", 1), ("shard-1", 0),
                               ("m-coordinator", 0), ("m-coordinator", 1)):
        compare(peers, certificate, [
            (("coordinator", "Member/Report", "0", shard), "LH_ERR_DENIED"),
            (("coordinator", "Member/Epoch", "0", shard), "LH_ERR_DENIED"),
            (("coordinator", "Member/InSync", "0", shard), "LH_ERR_DENIED"),
        ])
    for certificate in ("m-server", "shard-1"):
        compare(peers, certificate, [
            (("server", "Shard/Confirm", "0", 0), "LH_ERR_BUSY"),
            (("server", "Shard/Follow", OTHER, 0), "LH_ERR_BUSY"),
            (("server", "Shard/Snapshot", OTHER, 0), "LH_ERR_BUSY"),
        ])
    untouched(peers)


def untouched(peers):
    """The servers are alive and still have their shards."""
    coordinator = peers.door["coordinator"]
    shards = until("the coordinator has heard both servers", lambda: [
        s for s in [coordinator.status().get("shards", [])]
        if len(s) == 2 and all(shard["address"] for shard in s)])[0]
    for shard, door in zip(shards, ("server", "second")):
        server = peers.door[door]
        check(server.alive(), f"{server.name} has ended:\n{server.tail()}")
        check(shard["address"] == server.address, f"{shard}, not {server.address}")
        check(shard["epoch"] == 1, f"{shard}")
    until("refusals are counted", lambda: coordinator.status().get("refused_servers"))


if __name__ == "__main__":
    sys.exit(main((roles, which_one), __doc__))
