#!/usr/bin/env python3
"""Disk faults: damage to files that a program wrote, and no space to write more.

Damage that may be a torn tail is truncated and the run goes on; damage below the acknowledged
position stops the start with file, place and remedy. A server with a full disk refuses pushes and
still serves pulls.
"""
import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import sys

from cases import FAILED, UNVERIFIED, main, refused, run, train
from world import check, held, until

def entries(path):
    """(offset, total bytes) of each entry of a log segment (server/wal/wal.h)."""
    with open(path, "rb") as file:
        data = file.read()
    found, at = [], 64
    while data[at:at + 4] == b"LHWR":
        total, = struct.unpack_from("<I", data, at + 4)
        found.append((at, total))
        at += total
    return found


def segments(server):
    folder = os.path.join(server.dir, "log")
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x40]))


def corrupt_tail(world):
    coordinator, servers = run(world)
    worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 6000}).start()
    train(worker, 12)
    server = servers[0]
    server.kill()
    path = segments(server)[-1]
    for at, total in entries(path)[-2:]:
        flip(path, at + total - 20)
    # A kill in the middle of a checkpoint leaves this; only the next start can find it.
    unfinished = os.path.join(server.dir, "checkpoints", "0000-00000000000000ff.ckpt.tmp")
    with open(unfinished, "wb") as file:
        file.write(b"half a checkpoint")
    server.start().listening()
    check(not os.path.exists(unfinished), f"{unfinished} is still there")
    check(server.says("log.torn", "new epoch"), f"no word of it:\n{server.tail()}")
    until("the shard has a new epoch", lambda: any(
        s["epoch"] == 2 for s in server.status().get("shards", [])))
    worker.must_end(120)
    until("the run's end is known", lambda: coordinator.status().get("phase") == "ended")
    status = coordinator.status()
    check(status["credited"] == status["units"], "a unit was lost with the log's tail")
    check(held(servers) == worker.last_holdings(), "worker and servers differ in the end")


def corrupt_middle(world):
    coordinator, servers = run(world)
    worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 6000}).start()
    train(worker, 12)
    server = servers[0]
    server.kill()
    path = segments(server)[0]
    at, total = entries(path)[1]
    flip(path, at + total // 2)
    server.start()
    refused(server, UNVERIFIED, path, f"damaged at byte {at}")
    flip(path, at + total // 2)  # flipping the byte back; restoring a copy would do the same
    server.start().listening()
    worker.must_end(120)
    check(held(servers) == worker.last_holdings(), "worker and servers differ in the end")


def missing_segment(world):
    """A segment that lies before another one is gone. As the refusal says, the followers help."""
    coordinator, servers = run(world)
    worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 3000}).start()
    train(worker, 8)
    server = servers[0]
    server.kill()
    server.start().listening()  # begins a segment
    until("the second segment has records", lambda: len(entries(segments(server)[-1])) > 2)
    server.kill()
    first = segments(server)[0]
    check(len(segments(server)) > 1, f"there is one segment alone: {first}")
    os.remove(first)
    server.start()
    refused(server, UNVERIFIED, "part of its log or its newer checkpoints are missing",
            "(rebuild.damaged: followers)")
    server.start("rebuild.damaged=followers").listening()
    worker.must_end(120)
    check(held(servers) == worker.last_holdings(), "worker and servers differ in the end")


def claims(server):
    """The copies of the first shard that workers report to hold, from the server's status."""
    shards = server.status().get("shards") or [{}]
    return shards[0].get("rebuilding", {}).get("claims", [])


def lost_disk(world):
    """A server loses its whole disk and rebuilds from its follower after an operator agrees, and a
    standby gets its state from the server. All three states cross sealed."""
    coordinator, servers = run(world)
    other = world.worker("europe", coordinator, **{"trainer.tokens_per_s": 1}).start()
    until("a second region is known", lambda: "europe" in json.dumps(
        coordinator.status().get("workers", [])))
    other.kill()
    worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 3000}).start()
    train(worker, 12)
    server = servers[0]
    server.kill()
    shutil.rmtree(server.dir)
    server.start().listening()
    # The run has workers of two regions and only one is there: its copy alone is not enough.
    until("an operator is asked", lambda: server.says("rebuild.undecided"))
    until("the status shows the claims", lambda: claims(server))
    newest = max(claims(server), key=lambda claim: claim["version"])
    check((newest["region"], newest["worker"]) == ("asia", worker.name), f"{newest}")
    world.tool("adopt", "--state", newest["state"], "--shards", "0", *world.admin(coordinator))
    until("the follower's state is there", lambda: server.says("shard.rebuilt", "as follower"))
    until("the worker has its answer", lambda: worker.says("restore.brought"))
    # The server's log begins above that state, so records alone do not suffice.
    standby = world.server(0, coordinator, name="standby-0", role="standby").start()
    until("the standby has the state, too", lambda: any(
        s["version"] > 0 for s in standby.status().get("shards", [])))
    worker.must_end(120)
    check(held(servers) == worker.last_holdings(), "worker and servers differ in the end")


# ---------------------------------------------------------------- the coordinator's store

def commits(path):
    """End offsets of a store's commits (server/coordinator/store.h)."""
    with open(path, "rb") as file:
        data = file.read()
    ends, at = [], 8
    while data[at:at + 4] == b"LHSC" and at + 28 <= len(data):
        size, = struct.unpack_from("<Q", data, at + 20)
        at += 28 + size
        if at <= len(data):
            ends.append(at)
    return ends


def damaged_store(world):
    coordinator, servers = run(world)
    worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 2000}).start()
    path = os.path.join(coordinator.dir, "store")
    until("the store has three commits", lambda: len(commits(path)) > 2)
    coordinator.kill()
    place = commits(path)[0] + 9
    flip(path, place)
    coordinator.start()
    refused(coordinator, UNVERIFIED, path, f"damaged at byte {place - 9}", "from a copy")
    check(worker.alive() and all(server.alive() for server in servers), "the others suffered")
    flip(path, place)  # flipping the byte back; restoring a copy would do the same
    with open(path, "ab") as file:
        file.write(b"torn")
    coordinator.start().listening()
    worker.must_end(120)


# ---------------------------------------------------------------- a full disk

MOUNT = 'mkdir -p "$1"; mount -t tmpfs -o size=$2 none "$1" && shift 2 && exec "$@"'


def mounting(*line):
    who = [] if os.getuid() == 0 else ["--map-root-user"]
    return ["unshare", *who, "--mount", "bash", "-c", *line]


def small_disk(node, size):
    """Gives the node a small disk of its own from its next start, while that process lives."""
    node.before = mounting(MOUNT, "small", node.dir, size)


def inside(node, *names):
    return os.path.join(f"/proc/{node.process.pid}/root{node.dir}", *names)


def fill(node):
    with open(inside(node, "filler"), "ab", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError as error:
            check(error.errno == errno.ENOSPC, f"filling ended with {error}")


def shard_of(world, server):
    code, answer, complaint = world.ask("boss", server, "shards")
    check(code == 0, f"{server.name} does not answer: {code} {complaint}")
    return json.loads(answer)["shards"][0]


LOUD = {"codec.name": "dense-fp32", "codec.density": 1, "trainer.tokens_per_s": 2000}


def small_run(world, every):
    """Coordinator, servers, a worker: every push takes its own segment, and the second server's
    disk is small."""
    coordinator = world.coordinator(workers=1).start().listening()
    servers = [world.server(i, coordinator, **{"checkpoint.every_versions": every})
               for i in (0, 1)]
    small_disk(servers[1], "8m")
    for server in servers:
        server.start().listening()
    return coordinator, servers, world.worker("asia", coordinator, **LOUD).start()


def full_disk(world):
    """Fills the disk: the next push has no space for its segment."""
    world.certificate("admin", "europe", "boss")
    coordinator, servers, worker = small_run(world, 4)
    full = servers[1]
    train(worker)
    fill(full)
    until("the server says so", lambda: full.says("log.disk_full", full.dir, "free some space"))
    admitted = shard_of(world, full)["admitted"]
    check(admitted > 0, "nothing was in the log before")
    late = world.worker("europe", coordinator, **LOUD).start()
    until("a newcomer follows to the last version", lambda: any(
        s["shard"] == 1 and s["version"] == shard_of(world, full)["version"]
        for s in late.status().get("shards", [])))
    check(shard_of(world, full)["admitted"] == admitted, "a push was taken without room for it")
    until("the server's status misses, too", lambda: full.says("status.unwritten"))
    tick = late.status()["up_s"]
    until("three more would have been due", lambda: late.status()["up_s"] > tick + 3)
    check(all(node.alive() for node in world.nodes), "a program gave up")
    os.remove(inside(full, "filler"))
    for one in (worker, late):
        one.must_end(120)
    until("the run's end is known", lambda: coordinator.status().get("phase") == "ended")
    status = coordinator.status()
    check(status["credited"] == status["units"], "a unit was lost on the full disk")
    check(full.text().count("status.unwritten") == 1, "the status' lines are many")
    full.dir = inside(full)
    truth = held(servers)
    for one in (worker, late):
        check(one.last_holdings() == truth, f"{one.name} and the servers differ in the end")


def room_of(node):
    disk = os.statvfs(inside(node))
    return disk.f_bavail * disk.f_frsize


def checkpoints(node):
    folder = inside(node, "checkpoints")
    return [os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)
            if name.endswith(".ckpt")]


def leave_room(node, left):
    """Fills the disk up to `left` bytes, if more are free; the server is stopped meanwhile."""
    if room_of(node) <= left:
        return
    node.process.send_signal(signal.SIGSTOP)
    try:
        with open(inside(node, "filler"), "ab", buffering=0) as file:
            while room_of(node) > left:
                file.write(b"x" * 4096)
    finally:
        node.process.send_signal(signal.SIGCONT)


def relieved(world):
    """Space for another checkpoint but not for a segment: the server checkpoints, trims its log and
    goes on, repeatedly, although nobody frees space."""
    coordinator, servers, worker = small_run(world, 6)
    tight = servers[1]
    until("there are two checkpoints", lambda: len(checkpoints(tight)) == 2)
    room = max(checkpoints(tight)) + 12288
    check(room < 65536, f"a checkpoint is no smaller than a segment: {room}")
    def full():  # a trim under way may free space after the first filling
        leave_room(tight, room + 3 * 65536)  # and for pushes above the last checkpoint
        return tight.says("log.disk_full")
    until("the disk is full", full)
    until("there is room again", lambda: tight.says("log.room"))
    worker.must_end(120)
    until("the run's end is known", lambda: coordinator.status().get("phase") == "ended")
    status = coordinator.status()
    check(status["credited"] == status["units"], "a unit was lost on the full disk")
    check(os.path.getsize(inside(tight, "filler")) > 0, "somebody freed room")
    tight.dir = inside(tight)
    check(worker.last_holdings() == held(servers), "worker and servers differ in the end")


def full_from_the_start(world):
    """No space for the first segment: the server refuses to start and names the full disk."""
    coordinator = world.coordinator().start().listening()
    server = world.server(1, coordinator)
    small_disk(server, "16k")
    refused(server.start(), FAILED, server.dir, "No space left", "free some")
    check(coordinator.alive(), "the coordinator suffered")


def full_at_the_end(world):
    """A drained worker's disk is full when the run ends: it waits for space to write the model."""
    coordinator, _ = run(world)
    worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 2000})
    small_disk(worker, "8m")
    late = world.worker("europe", coordinator, **{"trainer.tokens_per_s": 6000})
    folder = worker.start().dir
    worker.dir = inside(worker)
    for one in (late.start(), worker):
        train(one)
    worker.dir = folder
    world.tool("drain", "worker", worker.name, *world.admin(coordinator))
    # Filled again and again: the worker deletes files that it no longer needs.
    until("it says that it waits", lambda: (fill(worker), worker.says(
        "weights.disk_full", "waits for space"))[1])
    until("the run has ended", lambda: coordinator.status().get("phase") == "ended")
    late.must_end()
    check(worker.alive(), "it ended without the model")
    check(not os.path.exists(inside(worker, "final.weights")), "half a model is there")
    os.remove(inside(worker, "filler"))
    worker.must_end()
    check(worker.says("weights.room") and worker.says("run.done"), f"{worker.tail()}")


def damaged_unit(world):
    """A unit of the worker's own region is damaged on its disk: the worker gives it back by its
    number and trains all others, and this one too after its file is mended."""
    unit = next(u for u in world.units if u["home"] == "asia" and u["id"] > 3)
    path = world.path("data", unit["file"])
    at = 1024 + 2 * unit["from"] + 9  # a token has 2 bytes, a file a header of 1024
    coordinator, servers = run(world)
    flip(path, at)
    worker = world.worker("asia", coordinator).start()
    until("the worker says which unit it is", lambda: worker.says(
        "WARN", "unit.away", f"unit {unit['id']} of region asia", "sha256", "restore the file",
        "given back"))
    until("all others are credited",
          lambda: coordinator.status().get("credited") == len(world.units) - 1)
    check(worker.alive(), "the worker ended")
    until("its status has the unit's number", lambda: unit["id"] in worker.status().get(
        "travel", {}).get("refused", []))
    flip(path, at)
    worker.must_end(120)
    until("the run is over", lambda: coordinator.status().get("phase") == "ended")
    check(coordinator.status()["credited"] == len(world.units), "a unit is missing")
    check(held(servers) == worker.last_holdings(), "worker and servers differ in the end")


CASES = (corrupt_tail, corrupt_middle, missing_segment, lost_disk, damaged_store, damaged_unit)
MOUNTED = (full_disk, relieved, full_from_the_start, full_at_the_end)


def possible():
    """MOUNTED, or nothing if LH_NO_WAN=1 and mounts are not allowed."""
    probe = mounting("mount -t tmpfs none /tmp")
    if os.environ.get("LH_NO_WAN") != "1" or subprocess.run(probe, check=False).returncode == 0:
        return MOUNTED
    print("left out:", ", ".join(case.__name__ for case in MOUNTED), "(no private mounts here)")
    return ()


if __name__ == "__main__":
    sys.exit(main(CASES + possible(), __doc__))
