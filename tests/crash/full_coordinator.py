#!/usr/bin/env python3
"""The coordinator's disk is full when a standby dies: `full_coordinator.py --build build/release`.

A standby that can't be struck out durably may still take over, so its owner must not acknowledge
without it. First the disk gets space again: the standby is struck out, and pushes go on. Then, with
the standby back and the disk full once more, the standby dies again, together with the coordinator
and the owner. The coordinator comes back with space on its disk and remembers the standby, which
takes over, and history.py checks that no acknowledged push is lost.

The coordinator's disk is a small tmpfs in a mount namespace of this program's own. Exit status 77
where that is not possible.
"""
import json
import os
import signal
import subprocess
import sys

from cluster import check, figures, flags_of, judged, until, verdict
from faults import empty, fill
from power import isolated
from standby import Replicated, in_sync

FULL = "store.disk_full"


def said(node, event):
    with open(node.log, encoding="utf-8", errors="replace") as file:
        return sum(event in line for line in file)


def alone(owner):
    return any(s.get("in_sync", {}).get("state") == "alone" for s in owner.status()["shards"])


def write_until_full(cluster, folder):
    """Fills the disk until the coordinator logs it: the store's last page may have had space."""
    asks, times = cluster.world.admin(cluster.coordinator), said(cluster.coordinator, FULL)

    def full():
        fill(folder)
        for order in ("freeze", "thaw"):  # each is a write, refused if the disk is full
            cluster.world.try_tool("balancer", order, *asks)
        return said(cluster.coordinator, FULL) > times
    until("the coordinator says so", full)


def signal_workers(cluster, number):
    for worker in cluster.workers:
        worker.process.send_signal(number)


def die_without_room(cluster, folder):
    """The first shard's standby dies, and can't be struck out.

    The workers are stopped until then. Without disk space nothing is leased, so if the filling took
    long they would have trained and pushed all their units, and the owner would ask for nothing.
    """
    owner, standby = cluster.former[0], cluster.servers[0]
    signal_workers(cluster, signal.SIGSTOP)
    try:
        write_until_full(cluster, folder)
        standby.kill()
    finally:
        signal_workers(cluster, signal.SIGCONT)
    until("the owner asks", lambda: any(
        s["in_sync"]["state"] == "leaving" for s in owner.status()["shards"]))
    check(cluster.coordinator.alive(), "the coordinator stopped")
    check(not alone(owner), "the owner acknowledges without its standby")


def start(*nodes):
    for node in nodes:
        node.process.stdout.close()
        node.start().listening()


def twice(cluster, speed, folder):
    cluster.start(speed)
    until("both standbys are in sync", lambda: all(map(in_sync, cluster.former)))
    cluster.wait_for_pushes(20)
    owner, standby = cluster.former[0], cluster.servers[0]
    die_without_room(cluster, folder)
    empty(folder)
    cluster.world.tool("balancer", "thaw", *cluster.world.admin(cluster.coordinator))
    until("the owner goes on alone", lambda: alone(owner))
    cluster.wait_for_pushes(20)
    start(standby)
    until("the standby is back", lambda: in_sync(owner))
    check(not cluster.over(), "the run was over before the second time")
    die_without_room(cluster, folder)
    cluster.coordinator.kill()
    owner.kill()
    empty(folder)
    start(cluster.coordinator, standby)
    until("the standby takes over", lambda: said(cluster.coordinator, "shard.taken_over"))
    print(json.dumps(figures(judged(cluster))), flush=True)


def one_run(given):
    cluster = Replicated(given.build, given.units, keep=given.keep)
    folder = cluster.world.path("coordinator")
    os.mkdir(folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder], check=True)
    with cluster.world:
        try:
            twice(cluster, given.speed, folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=False)


def main():
    # Many units: on a full disk nothing is leased, and an owner without pushes asks for nothing.
    given = flags_of(__doc__, units=480, speed=1500).parse_args()
    isolated()
    return verdict(lambda: one_run(given))


if __name__ == "__main__":
    sys.exit(main())
