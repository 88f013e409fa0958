#!/usr/bin/env python3
"""Only the coordinator is paused, and no other process is blamed: `pause.py --build build/release`.

Both shards acknowledge with a standby. The coordinator is stopped (SIGSTOP) for longer than its
timeout for a silent server (coordinator.take_over_ms), or, with --long, for a silent worker, and
continued. All other processes ran all the time: no owner is deposed, no worker is given up, and
pushes go on. At the end history.py checks that no acknowledged push is lost. Then an owner is
killed with -9: its standby still takes over.
"""
import json
import signal
import sys
import time

from cluster import check, figures, flags_of, judged, until, verdict
from standby import Replicated, in_sync

BLAME = ("shard.taken_over", "worker.lost")


def blamed(coordinator):
    """Its log lines that blame others for silence."""
    with open(coordinator.log, encoding="utf-8", errors="replace") as file:
        return [line for line in file if any(event in line for event in BLAME)]


def hold_up(cluster, seconds):
    cluster.coordinator.process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)  # the fault itself
    cluster.coordinator.process.send_signal(signal.SIGCONT)
    cluster.wait_for_pushes(30)
    for owner in cluster.former:
        check(owner.alive(), f"{owner.name} was deposed:\n{owner.tail()}")
    found = blamed(cluster.coordinator)
    check(not found, f"after a pause of {seconds} s of its own:\n{''.join(found)}")


def one_run(given):
    cluster = Replicated(given.build, given.units, keep=given.keep)
    with cluster.world:
        cluster.start(given.speed)
        until("both standbys are in sync", lambda: all(map(in_sync, cluster.former)))
        cluster.wait_for_pushes(20)
        for _ in range(given.times):
            hold_up(cluster, given.seconds)
        check(not cluster.over(), "the run was over before it was held up")
        owner = cluster.former[0]
        owner.kill()
        until("its standby takes over",
              lambda: any(BLAME[0] in line for line in blamed(cluster.coordinator)))
        print(json.dumps(figures(judged(cluster))), flush=True)


def main():
    flags = flags_of(__doc__, units=480, speed=1500)
    flags.add_argument("--times", type=int, default=3)
    flags.add_argument("--seconds", type=float, default=1.5)
    flags.add_argument("--long", dest="seconds", action="store_const", const=25.0)
    given = flags.parse_args()
    return verdict(lambda: one_run(given))


if __name__ == "__main__":
    sys.exit(main())
