#!/usr/bin/env python3
"""A disk that hangs for a while: `hung_disk.py --build build/release`.

Each server has a standby. The coordinator, the owner of the first shard, the standby of the second
and one worker are on file systems of their own, which are frozen one after the other, as an
unreachable storage would freeze them. The coordinator's log lies there too.

The owner logs that its disk hangs, its standby takes over and pushes go on; when the disk answers
again, the former owner ends, logs why, and restarts as a standby. The standby logs it, its owner
acknowledges without it after a second, and it gets in sync again afterwards; the same happens when
its disk is full. The worker logs it, trains on and pushes later. The coordinator logs it and
answers calls that change nothing, and pushes go on. At the end history.py checks that no
acknowledged push is lost, none is applied twice, and all replicas are equal.

Exit status 77 where namespaces or loop devices can't be had. In every case no file system stays
frozen, and the mounts are this program's own.
"""
import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
import time
import urllib.request

from cluster import check, figures, flags_of, judged, until, verdict
from faults import empty, fill
from power import Disk, isolated
from standby import Replicated, in_sync

FREEZE, THAW = 0xc0045877, 0xc0045878  # FIFREEZE, FITHAW of linux/fs.h
ON_DISKS = ("shard-0", "standby-1", "coordinator", "asia-0")


def order(disk, what):
    fd = os.open(disk.folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, what, 0)
    finally:
        os.close(fd)


@contextlib.contextmanager
def frozen(disk):
    order(disk, FREEZE)
    try:
        yield
    finally:
        order(disk, THAW)


class OnDisks(Replicated):
    """A replicated cluster with some nodes on disks that can be frozen."""

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self.disks = {}
        for kind in ("coordinator", "server", "worker"):
            make = getattr(self.world, kind)
            setattr(self.world, kind, lambda *a, _make=make, **k: self.on_disk(_make(*a, **k)))

    def on_disk(self, node):
        if node.name in ON_DISKS:
            disk = self.disks[node.name] = Disk(self.world.path("disk-" + node.name), 48 << 20)
            node.dir = node.settings["dir"] = os.path.join(disk.folder, "state")
            if node.name == "coordinator":
                node.log = node.settings["log.file"] = os.path.join(disk.folder, "log")
                node.settings["http.listen"] = "127.0.0.1:0"
        return node

    def release(self):
        for disk in self.disks.values():
            with contextlib.suppress(OSError):
                order(disk, THAW)
            subprocess.run(["umount", "-l", disk.folder], check=False)


def owner_hangs(cluster):
    owner = cluster.former[0]
    with frozen(cluster.disks[owner.name]):
        since = time.monotonic()
        took = cluster.next_push(0, since + 1) + 1
        print(f"{owner.name}'s disk hangs: next acknowledged push after {took:.2f} s", flush=True)
        check(owner.says("disk.slow"), f"it says nothing:\n{owner.tail()}")
        check(owner.alive(), "it ended while its disk hung")
        cluster.wait_for_pushes(10)
    check(owner.end() != 0, f"{owner.name} ended as if all was well")
    check(owner.says("was taken over by its standby"), f"it does not say why:\n{owner.tail()}")
    owner.process.stdout.close()
    owner.settings["role"] = "standby"
    owner.start().listening()
    until("the former owner is in sync as a standby", lambda: in_sync(cluster.servers[0]))


def goes_on_alone(cluster, owner):
    since = time.monotonic()
    took = cluster.next_push(1, since + 1) + 1
    print(f"next acknowledged push after {took:.2f} s", flush=True)
    until("it is told", lambda: not in_sync(owner))
    cluster.wait_for_pushes(10)


def standby_hangs(cluster):
    standby, owner = cluster.servers[1], cluster.former[1]
    print(f"{standby.name}'s disk hangs", flush=True)
    with frozen(cluster.disks[standby.name]):
        goes_on_alone(cluster, owner)
        until("it says so", lambda: standby.says("disk.slow"))
        check(standby.alive(), "it ended while its disk hung")
    until("it is in sync again", lambda: in_sync(owner))
    print(f"{standby.name}'s disk is full", flush=True)
    fill(cluster.disks[standby.name].folder)
    try:
        goes_on_alone(cluster, owner)
        until("it says so", lambda: standby.says("disk_full"))
        check(standby.alive(), "it ended while its disk was full")
    finally:
        empty(cluster.disks[standby.name].folder)
    until("it is in sync again", lambda: in_sync(owner))
    check(owner.says("standby.left", "acknowledging without it"), f"{owner.tail()}")


def worker_hangs(cluster):
    worker = cluster.workers[0]
    with frozen(cluster.disks[worker.name]):
        until("it says so", lambda: worker.says("disk.slow"))
        cluster.wait_for_pushes(20)  # pushes of the others
        check(worker.alive(), "it ended while its disk hung")
    until("its push is durable", lambda: worker.says("disk.again"))


def commit_age_s(page):
    """From the coordinator's metrics page: its log is on the disk that hangs."""
    with urllib.request.urlopen(f"http://{page}/metrics", timeout=20) as answer:
        return float(re.search(r"^longhaul_commit_age_seconds(?:{.*})? (\S+)$",
                               answer.read().decode(), re.M).group(1))


def coordinator_hangs(cluster):
    coordinator, world = cluster.coordinator, cluster.world
    disk = cluster.disks[coordinator.name]
    page = coordinator.status()["http"]
    with frozen(disk):
        # An operator's command writes a line of the audit log and a row of the store, so it waits.
        with subprocess.Popen([world.program("longhaul"), "balancer", "freeze",
                               *world.admin(coordinator)], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as asks:
            until("it says so", lambda: commit_age_s(page) > 3)
            cluster.wait_for_pushes(5)
            check(coordinator.alive(), "it ended while its disk hung")
            check(asks.poll() is None, "an operator was answered before the disk had it")
            order(disk, THAW)
            asks.wait()
            order(disk, FREEZE)
    until("it goes on", lambda: coordinator.says("disk.again"))
    check(coordinator.says("disk.slow"), "it says nothing")
    world.tool("balancer", "thaw", *world.admin(coordinator))


def one_run(given):
    cluster = OnDisks(given.build, given.units, keep=given.keep)
    with cluster.world:
        try:
            cluster.start(given.speed)
            until("both standbys are in sync", lambda: all(map(in_sync, cluster.former)))
            cluster.wait_for_pushes(30)
            for hangs in (standby_hangs, worker_hangs, coordinator_hangs, owner_hangs):
                check(not cluster.over(), "the run was over before every disk had hung")
                hangs(cluster)
                cluster.wait_for_pushes(10)
            print(json.dumps(figures(judged(cluster))), flush=True)
            for node in (*cluster.servers, *cluster.former, cluster.coordinator):
                node.must_stop()
        finally:
            cluster.release()


def main():
    given = flags_of(__doc__, units=1440, speed=1500).parse_args()
    isolated()
    return verdict(lambda: one_run(given))


if __name__ == "__main__":
    sys.exit(main())
