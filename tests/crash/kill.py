#!/usr/bin/env python3
"""kill -9 of real processes, again and again: `kill.py --build build/release --cycles 2000`.

Coordinator, two shard servers and three workers on loopback. A cycle kills one of them at a random
moment, in its start or later, and starts it again. Every --per-run cycles the run is let to its
end, and history.py decides from what all processes left: nothing that was acknowledged is lost,
nothing is applied twice, every unit is credited once, all replicas are equal. Then the history is
tampered with in a dozen ways, and the checker has to see each.

Exit status 1 at the first violation; the run's folder is kept.
"""
import argparse
import random
import sys
import time

from cluster import Cluster, Sums, add_flags, check, figures, judged, verdict
from report import Report


def victim(draw, cluster):
    return draw.choices(cluster.nodes(), weights=[4, 4, 3, 3, 3, 2])[0]


def cycle(draw, cluster, node):
    """One death, at any moment: whoever died before may still be starting. Not of a worker that
    has ended as it should."""
    time.sleep(draw.choice((0, 0.1, 0.3, 0.8)) * draw.random())
    cluster.keep_segments()
    if not node.alive() and node.kind == "worker" and node.process.returncode == 0:
        return False
    check(node.alive(),
          f"{node.name} ended by itself with {node.process.returncode}:\n{node.tail()}")
    node.kill()
    node.process.stdout.close()
    node.start()
    if node.kind != "worker" and draw.random() < 0.7:
        node.listening()
    return True


def one_run(given, draw, cycles, sums):
    cluster = Cluster(given.build, given.units_per_cycle * cycles + 60, keep=given.keep)
    with cluster.world:
        begun = time.monotonic()
        cluster.start(given.speed)
        cluster.wait_for_pushes(10)
        dead = dict.fromkeys(("coordinator", "server", "worker"), 0)
        started = time.monotonic()
        while sum(dead.values()) < cycles and not cluster.over():
            node = victim(draw, cluster)
            dead[node.kind] += cycle(draw, cluster, node)
            if sum(dead.values()) % 5 == 0:
                cluster.wait_for_pushes(6)
        killing, told = time.monotonic() - started, cluster.pushes_told()
        done = sum(dead.values())
        check(done, "the run was over before the first kill")
        found = figures(judged(cluster)) | {"acknowledged_amid_kills": told}
        found |= {"killed_" + k: v for k, v in dead.items()}
        sums.add(found)
        print(f"{done} cycles in {killing:.1f} s, the run in {time.monotonic() - begun:.1f} s: "
              f"{found}", flush=True)
        return done, killing


def campaign(given):
    draw, sums, left = random.Random(given.seed), Sums(), given.cycles
    report = Report("campaign-kill", given.json, given.join)
    report.call(f"--seed {given.seed} --cycles {given.cycles}")
    end, killing = time.monotonic() + given.minutes * 60, 0
    while left > 0 and time.monotonic() < end:
        done, took = one_run(given, draw, min(left, given.per_run), sums)
        left -= done
        killing += took
    report.condition("faults", "kill -9 of a random process, at a random moment")
    report.count("kill.cycles", given.cycles - left)
    sums.rows(report, "kill")
    report.count("kill.seconds", killing, "s")
    report.finish()


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", required=True, help="the build tree")
    flags.add_argument("--cycles", type=int, default=40)
    flags.add_argument("--per-run", type=int, default=100)
    flags.add_argument("--units-per-cycle", type=int, default=6)
    flags.add_argument("--speed", type=int, default=1500, help="tokens a second of each worker")
    flags.add_argument("--minutes", type=float, default=1e9, help="begin no run after so long")
    flags.add_argument("--keep", action="store_true", help="keep the runs' folders")
    add_flags(flags, "chooses victims and moments")
    given = flags.parse_args()
    return verdict(lambda: campaign(given))


if __name__ == "__main__":
    sys.exit(main())
