#!/usr/bin/env python3
"""Users' mistakes: each case starts real programs and checks their messages and exit codes.

A program either refuses to start, with an exit code of `longhaul help exit-codes` and a text that
names the place and the remedy, or goes on and logs what it waits for.
"""
import json
import os
import socket
import struct
import subprocess
import sys

from cases import CONFIG, DENIED, FAILED, MISSING, UNREACHABLE, USAGE, main, refused, run, train
from world import Failure, check, held, until

# ---------------------------------------------------------------- settings

def unknown_key(world):
    coordinator = world.coordinator(**{"coordinator.worker": 3})
    refused(coordinator.start(), CONFIG, "coordinator.yaml:", "coordinator.worker",
            "coordinator.workers")
    coordinator.address = "127.0.0.1:1"
    worker = world.worker("asia", coordinator, **{"trainer.learning_rat": 1})
    refused(worker.start(), CONFIG, "trainer.learning_rat", "trainer.learning_rate")


def wrong_line(world):
    for program in ("longhaul-server", "longhaul-worker"):
        for line, code in ((["--confg", "x"], USAGE), (["--config", world.path("none")], MISSING),
                           ([], USAGE)):
            done = subprocess.run([world.program(program), *line], capture_output=True, text=True,
                                  check=False)
            check(done.returncode == code and done.stderr.count("\n") == 1,
                  f"{program} {line}: {done.returncode}: {done.stderr}")


def a_dir_of_somebody_else(world):
    """Refused as `dir`: the folder of the data, and the directory of another role."""
    coordinator = world.coordinator(workers=1)
    own, coordinator.settings["dir"] = coordinator.dir, world.path("data")
    refused(coordinator.start(), CONFIG, "dir: ", "holds a run's data (units.json)")
    check(not os.path.exists(world.path("data", "store")), "it left its files there")
    coordinator.settings["dir"] = own
    coordinator.start().listening()
    server = world.server(0, coordinator).start().listening()
    until("the server has a checkpoint", lambda: os.path.exists(os.path.join(server.dir,
                                                                             "checkpoints")))
    worker = world.worker("asia", coordinator)
    worker.settings["dir"] = server.dir
    refused(worker.start(), CONFIG, "holds a server's state (checkpoints)")
    worker.settings["dir"] = own
    refused(worker.start(), CONFIG, "holds a coordinator's state (store)")
    worker.settings["dir"] = worker.dir
    worker.start()
    until("the worker has state", lambda: os.path.exists(os.path.join(worker.dir, "outbox")))
    other = world.server(1, coordinator)
    for folder, says in ((worker.dir, "holds a worker's state (outbox)"),
                         (own, "holds a coordinator's state (store)")):
        other.settings["dir"] = folder
        refused(other.start(), CONFIG, says)


def other_weights(world):
    coordinator = world.coordinator().start().listening()
    short = world.path("short.bin")
    with open(short, "wb") as out:
        out.write(b"\0" * 4096)
    server = world.server(0, coordinator, **{"model.weights": short})
    refused(server.start(), CONFIG, "model.weights", "short.bin", "4096 bytes")


def weights_that_are_not_finite(world):
    """The server names the parameter and its file."""
    coordinator = world.coordinator().start().listening()
    with open(world.path("weights.bin"), "rb") as file:
        weights = bytearray(file.read())
    with open(world.path("model.json"), encoding="utf-8") as file:
        first = json.load(file)["tensors"][0]["name"]
    weights[8:12] = struct.pack("<f", float("nan"))
    with open(world.path("spoiled.bin"), "wb") as out:
        out.write(weights)
    server = world.server(0, coordinator, **{"model.weights": world.path("spoiled.bin")})
    refused(server.start(), CONFIG, "model.weights", "spoiled.bin", f"value 2 of {first} is not")


def nothing_held_out(world):
    """An evaluation without text is an error, not a mean of 0."""
    with open(world.path("data", "units.json"), encoding="utf-8") as file:
        units = json.load(file)
    os.makedirs(world.path("none"))
    with open(world.path("none", "units.json"), "w", encoding="utf-8") as file:
        json.dump({**units, "heldout": []}, file)
    done = subprocess.run([world.program("longhaul"), "eval", "--manifest",
                           world.path("model.json"), "--weights", world.path("weights.bin"),
                           "--data", world.path("none")], capture_output=True, text=True,
                          check=False)
    check(done.returncode == CONFIG and not done.stdout and "no text is held out" in done.stderr,
          f"{done.returncode}: {done.stdout} {done.stderr}")


def no_such_shard(world):
    coordinator = world.coordinator().start().listening()
    refused(world.server(5, coordinator).start(), CONFIG, "no shard 5", "has 2")


def address_for_nobody(world):
    coordinator = world.coordinator().start().listening()
    server = world.server(0, coordinator)
    refused(server.start("listen=0.0.0.0:0"), CONFIG, "advertise is missing")


def no_data(world):
    coordinator = world.coordinator().start().listening()
    worker = world.worker("asia", coordinator, **{"data.dir": world.path("nowhere")})
    refused(worker.start(), CONFIG, "data.dir", "nowhere")


# ---------------------------------------------------------------- identity

def wrong_ca(world):
    coordinator, _ = run(world)
    world.tool("certs", "init", "--dir", world.path("ca2"), "--domain", "e2e.test")
    worker = world.worker("asia", coordinator)
    ours = dict(worker.settings)
    world.tool("certs", "issue", "--dir", world.path("ca2"), "--run", world.run, "--role", "worker",
               "--region", "asia", "--name", "asia-0", "--out", world.path("certs2"))
    # a certificate that its own CA file did not sign
    worker.settings["tls.cert"] = world.path("certs2", "asia-0.pem")
    worker.settings["tls.key"] = world.path("certs2", "asia-0.key")
    refused(worker.start(), DENIED, "asia-0.pem", "ca.pem")
    # a consistent pair of another CA: each side refuses the other
    worker.settings["tls.ca"] = world.path("ca2", "ca.pem")
    worker.start()
    until("the worker says what is wrong", lambda: worker.says("ERROR", "member.refused", "CA"))
    check(worker.alive(), "the worker gave up: the certificate may still be replaced")
    check(not coordinator.status().get("workers"), "the coordinator took the worker in")
    # with the right pair the worker is served
    worker.kill()
    worker.settings = ours
    train(worker.start())


def expired(world):
    coordinator = world.coordinator().start().listening()
    worker = world.worker("asia", coordinator)
    subprocess.run([world.program("e2e_issue"), world.path("ca"), world.path("certs"), "e2e.test",
                    world.run, "worker", "asia", "asia-0"], check=True)
    refused(worker.start(), DENIED, "asia-0.pem", "expired")


def wrong_role(world):
    coordinator, servers = run(world)
    worker = world.worker("asia", coordinator)
    worker.settings["tls.cert"] = world.path("certs", "shard-0.pem")
    worker.settings["tls.key"] = world.path("certs", "shard-0.key")
    refused(worker.start(), DENIED, "shard-0.pem", "certificate of a server", "worker")
    # a server where a coordinator is expected
    worker = world.worker("europe", servers[0])
    worker.start()
    until("the worker says whom it met", lambda: worker.says("member.refused", "server",
                                                      "coordinator"))


def wrong_question(world):
    """RPCs that a role may not call: a worker may not drain the run, a server may not join it."""
    coordinator, servers = run(world)
    world.certificate("admin", "europe", "boss")
    world.certificate("worker", "asia", "asia-0")
    code, answer, _ = world.ask("boss", coordinator, "status")
    check(code == 0 and json.loads(answer)["role"] == "coordinator", f"{code}: {answer}")
    code, answer, _ = world.ask("boss", servers[1], "shards")
    check(code == 0 and json.loads(answer)["shards"][0]["shard"] == 1, f"{code}: {answer}")
    for node in (coordinator, *servers):
        code, answer, _ = world.ask("asia-0", node, "health")
        check(code == 0 and answer == "1\n", f"{node.name} is not healthy: {code} {answer}")
    code, _, complaint = world.ask("asia-0", coordinator, "drain")
    check(code == DENIED and "a worker may not call" in complaint, f"{code}: {complaint}")
    code, _, complaint = world.ask("shard-0", coordinator, "old-join")
    check(code == DENIED and "a server may not call" in complaint, f"{code}: {complaint}")
    check(world.ask("boss", coordinator, "drain")[0] == 0, "the operator may not drain")
    until("the run drains", lambda: coordinator.status().get("draining"))


def operator(world):
    """`longhaul get` as an operator uses it: from another host, and in the run's folder."""
    coordinator, _ = run(world)
    whole = world.admin(coordinator)
    who = whole[2:]
    shards = json.loads(world.tool("get", "shards", *whole, "-o", "json"))
    check([s["shard"] for s in shards] == [0, 1], f"{shards}")
    until("the coordinator writes where it is", lambda: coordinator.status().get("address"))
    leases = world.tool("get", "leases", "--dir", world.dir, *who)
    check(leases.splitlines()[1].split()[:2] == [str(len(world.units))] * 2, leases)
    coordinator.kill()
    try:
        world.tool("get", "workers", "--dir", world.dir, *who)
    except Failure as failure:
        check(f": {UNREACHABLE}: " in str(failure) and coordinator.address in str(failure),
              str(failure))
    else:
        raise Failure("a dead coordinator answered")


def old_wire(world):
    coordinator, _ = run(world)
    world.certificate("worker", "asia", "asia-0")
    code, _, complaint = world.ask("asia-0", coordinator, "old-join")
    check(code == FAILED and "LH_ERR_VERSION" in complaint and "upgrade the older side" in
          complaint, f"{code}: {complaint}")
    check(not coordinator.status().get("workers"), "it was taken in")


def other_run(world):
    """A worker with a valid certificate of another run under the same CA."""
    coordinator, _ = run(world)
    worker = world.worker("asia", coordinator)
    world.tool("certs", "issue", "--dir", world.path("ca"), "--run", "other", "--role", "worker",
               "--region", "asia", "--name", "asia-0", "--out", world.path("certs"), "--replace")
    worker.start()
    until("the worker says whose run it met",
          lambda: worker.says("member.refused", world.run, "other"))
    check(not coordinator.status().get("workers"), "the coordinator took the worker in")


def other_key(world):
    coordinator = world.coordinator(workers=1).start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in (0, 1)]
    world.tool("certs", "key", "--out", world.path("other.keys"))
    other = {"seal.keys": world.path("other.keys")}
    worker = world.worker("asia", coordinator, **other).start()
    until("the worker says that the state does not open",
          lambda: worker.says("snapshot.refused", "does not open", "seal.keys"))
    check(worker.alive(), f"it ended:\n{worker.tail()}")
    for server in servers:
        for shard in server.status().get("shards", []):
            check(shard["admitted"] == 0, "a frame under another key was admitted")
    check(all(server.alive() for server in servers), "a server died of it")


def open_key(world):
    os.chmod(world.path("job.keys"), 0o644)
    coordinator = world.coordinator()
    refused(coordinator.start(), DENIED, "job.keys", "seal.keys", "chmod 600")
    os.chmod(world.path("job.keys"), 0o600)
    os.chmod(coordinator.settings["tls.key"], 0o640)
    refused(coordinator.start(), DENIED, "coordinator.key", "tls.key", "chmod 600")


def other_model(world):
    coordinator, _ = run(world)
    shape = dict(json.loads(open(world.path("model.json"), encoding="utf-8").read())["model"],
                 dim=16)
    world.tool("model", "init", "--shape", json.dumps(shape), "--shards", "2", "--out",
               world.path("model2"))
    worker = world.worker("asia", coordinator,
                          **{"model.manifest": world.path("model2", "model.json")})
    refused(worker.start(), CONFIG, "another model's manifest", "model.manifest")


def other_units(world):
    coordinator, _ = run(world)
    with open(world.path("data", "units.json"), encoding="utf-8") as file:
        units = json.load(file)
    units["units"][0]["may_leave"] = False
    with open(world.path("data", "mine.json"), "w", encoding="utf-8") as out:
        json.dump(units, out)
    worker = world.worker("asia", coordinator, **{"data.units": world.path("data", "mine.json")})
    refused(worker.start(), CONFIG, "another manifest of data units")


# ---------------------------------------------------------------- the environment

def port_taken(world):
    coordinator = world.coordinator().start().listening()
    server = world.server(0, coordinator)
    refused(server.start("listen=" + coordinator.address), FAILED, coordinator.address,
            "another process has this port", "settings listen and advertise")


def dir_taken(world):
    coordinator, servers = run(world)
    second = world.server(0, coordinator)
    second.log += ".2"
    refused(second.start(), FAILED, second.dir, "used by another process")
    worker = world.worker("asia", coordinator).start()
    train(worker)
    second = world.worker("asia", coordinator)
    second.log += ".2"
    refused(second.start(), FAILED, second.dir, "used by another process")
    check(servers[0].alive() and worker.alive(), "the first ones suffered")


def nobody_there(world):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        coordinator = world.coordinator(workers=1)
        coordinator.address = address
        worker = world.worker("asia", coordinator).start()
        until("the worker says that nobody answers",
              lambda: worker.says("INFO", "member.unreachable", address))
        check(not worker.says("WARN"), "it warns of a coordinator that is only not there yet")
        until("its status says that it waits", lambda: worker.status().get("state") == "joining")
    coordinator.start().listening()
    for i in (0, 1):
        world.server(i, coordinator).start().listening()
    train(worker)


def no_server(world):
    """A shard whose server was never started, and one whose server is down for a while."""
    coordinator = world.coordinator(workers=1).start().listening()
    servers = [world.server(i, coordinator) for i in (0, 1)]
    servers[0].start().listening()
    worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 2000}).start()
    until("the worker says which server is missing",
          lambda: worker.says("shard.unserved", "shard 1", coordinator.address))
    servers[1].start().listening()
    train(worker)
    servers[1].kill()
    until("the worker says which server is gone",
          lambda: worker.says("server.unreachable", "shard 1", servers[1].address,
                              "its process ended"))
    check(worker.alive() and not worker.says("server.unreachable", "shard 0"), "it says too much")
    servers[1].start().listening()
    worker.must_end(120)
    check(held(servers) == worker.last_holdings(), "worker and servers differ in the end")


CASES = (unknown_key, wrong_line, a_dir_of_somebody_else, other_weights,
         weights_that_are_not_finite, no_such_shard,
         nothing_held_out, address_for_nobody,
         no_data, wrong_ca, expired, wrong_role, wrong_question, operator, old_wire,
         other_key, open_key, other_model, other_units, other_run, port_taken,
         dir_taken, nobody_there, no_server)

if __name__ == "__main__":
    sys.exit(main(CASES, __doc__))
