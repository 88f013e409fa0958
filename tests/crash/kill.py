#!/usr/bin/env python3
"""Real processes are killed, stopped and run out of disk: `kill.py --build BUILD --cycles 99`.

Coordinator, --servers of --shards each and three workers on loopback. A cycle inflicts a fault on
one of them at a random moment, while it starts or later:

  kill  kill -9, and a restart
  stop  SIGSTOP for 0.2 to 20 s, also longer than a worker may be silent, then SIGCONT
  full  its disk is full for 0.2 to 8 s (a tmpfs under its folder; needs root)

With --standbys every server has one, and pushes are acknowledged by both; owner and standby change
roles whenever one takes over (pairs.py).

While a process is stopped or its disk full, others get faults, and it may be killed itself. Every
--per-run cycles the run is let to its end, and history.py judges the logs: no acknowledged push is
lost, none is applied twice, every unit is credited once, all replicas are equal. Then the history
is tampered with in a dozen ways, and the checker must detect each.

Exit status 1 at the first violation; the run's folder is kept. 77 if disks were to be filled but
can't be here: the other faults were run.
"""
import os
import random
import sys
import time

import power
from cluster import Sums, add_flags, check, figures, flags_of, judged, until, verdict
from faults import Faulty
from pairs import Pairs
from report import Report

KINDS = {"kill": "killed", "stop": "stopped", "full": "filled"}
AT_ONCE = 2  # lasting faults; with more of six processes away nothing would be left to judge


def deck(draw, faults, roles):
    """Every fault of every role, endlessly: servers and workers, of which there are more, twice in
    each round."""
    while True:
        cards = [(fault, role) for fault in faults for role in roles + roles[1:]]
        draw.shuffle(cards)
        yield from cards


def seconds(draw, fault):
    """How long it lasts: mostly short; a pause may exceed all timeouts."""
    if fault == "full":
        return 0.2 * 40 ** draw.random()
    return 0.2 * 10 ** draw.random() if draw.random() < 0.75 else 2 * 10 ** draw.random()


def cycle(draw, cluster, fault, role):
    """One fault at any moment, so a process killed before may still be starting. Skips a worker
    that has ended as it should, and a process that already has this fault."""
    time.sleep(draw.choice((0, 0.1, 0.3, 0.8)) * draw.random())
    if fault != "kill":
        until("few faults are on",
              lambda: (cluster.keep_segments(), cluster.faults.on() < AT_ONCE)[1])
    cluster.keep_segments()
    nodes = [n for n in cluster.nodes() if cluster.role(n) == role and n.alive() and
             not cluster.faults.on((fault, n.name))]
    if not nodes:
        return False
    node = draw.choice(nodes)
    if fault == "kill":
        cluster.kill(node)
        if role != "worker" and draw.random() < 0.7:
            cluster.up(node)
    else:
        getattr(cluster, fault)(node, seconds(draw, fault))
    return True


def inflict(draw, cluster, faults, cycles):
    """That many faults, unless the run is over before: (fault, role) -> count."""
    counts = {(fault, role): 0 for fault in faults for role in cluster.ROLES}
    for fault, role in deck(draw, faults, cluster.ROLES):
        if sum(counts.values()) == cycles or cluster.over():
            break
        counts[fault, role] += cycle(draw, cluster, fault, role)
        if sum(counts.values()) % 5 == 0:
            cluster.wait_for_pushes(6)
    check(sum(counts.values()), "the run was over before the first fault")
    until("the last faults are over",
          lambda: (cluster.keep_segments(), not cluster.faults.on() or cluster.over())[1])
    return counts


def one_run(given, draw, cycles, sums):
    kind = Pairs if given.standbys else Faulty
    if given.balance:
        kind.COORDINATOR = kind.COORDINATOR | {"coordinator.balance": given.balance}
    cluster = kind(
        given.build, given.units_per_cycle * cycles + 60, given.keep, given.servers, given.shards,
        "full" in given.faults)
    with cluster.world:
        keep = True
        try:
            done, took = judged_run(given, draw, cluster, cycles, sums)
            keep = given.keep
            return done, took
        finally:
            cluster.release(keep)


def judged_run(given, draw, cluster, cycles, sums):
    begun = time.monotonic()
    cluster.start(given.speed)
    cluster.wait_for_pushes(10)
    started = time.monotonic()
    counts = inflict(draw, cluster, given.faults, cycles)
    cluster.faults.release()
    cluster.keep_segments()
    took, told = time.monotonic() - started, cluster.pushes_told()
    found = figures(judged(cluster)) | {"acknowledged_amid_faults": told}
    found |= {f"{KINDS[fault]}_{role}": n for (fault, role), n in counts.items()}
    found |= {f"seconds_{KINDS[f]}": round(s, 1) for f, s in cluster.faults.seconds.items()}
    found |= {f"ended_without_room_{role}": n for role, n in cluster.ended.items()}
    found |= {f"log_lines_disk_full_{role}": n for role, n in cluster.noticed().items()}
    found |= cluster.more_figures()
    found["workers_given_up"] = cluster.given_up()
    sums.add(found)
    done = sum(counts.values())
    print(f"{done} cycles in {took:.1f} s, the run in {time.monotonic() - begun:.1f} s: {found}",
          flush=True)
    return done, took


def bench_name(given):
    """Each topology has its own report: counts of different ones do not add up."""
    return "campaign-kill" + ("-standbys" if given.standbys else "") + \
        ("-one-server" if given.servers == 1 else "") + \
        (f"-{given.balance}" if given.balance else "")


def campaign(given):
    draw, sums, left = random.Random(given.seed), Sums(), given.cycles
    report = Report(bench_name(given), given.json, given.join)
    report.call(f"--seed {given.seed} --cycles {given.cycles} --faults {','.join(given.faults)} "
                f"--servers {given.servers} --shards {given.shards}"
                f"{' --standbys' if given.standbys else ''}"
                f"{f' --balance {given.balance}' if given.balance else ''}")
    end, killing = time.monotonic() + given.minutes * 60, 0
    while left > 0 and time.monotonic() < end:
        done, took = one_run(given, draw, min(left, given.per_run), sums)
        left -= done
        killing += took
    report.condition("faults", "of a random process, at a random moment: " + ", ".join(
        {"kill": "kill -9", "stop": "SIGSTOP for 0.2 to 20 s", "full": "disk full for 0.2 to 8 s"}
        [fault] for fault in given.faults))
    report.condition("cores", os.cpu_count())
    report.condition("servers", given.servers)
    report.condition("shards_a_server", given.shards)
    if given.balance:
        report.condition("leases", f"coordinator.balance: {given.balance}")
    report.count("kill.cycles", given.cycles - left)
    sums.rows(report, "kill")
    report.count("kill.seconds", killing, "s")
    report.finish()


def main():
    flags = flags_of(__doc__, speed=1500)
    flags.add_argument("--cycles", type=int, default=40)
    flags.add_argument("--per-run", type=int, default=100)
    flags.add_argument("--units-per-cycle", type=int, default=12)
    flags.add_argument("--minutes", type=float, default=1e9, help="begin no run after so long")
    flags.add_argument("--faults", default="kill,stop,full", help="which, with commas")
    flags.add_argument("--servers", type=int, default=2)
    flags.add_argument("--shards", type=int, default=2, help="of each server")
    flags.add_argument("--standbys", action="store_true", help="each server has one")
    flags.add_argument("--balance", choices=("finish", "level", "weighted"),
                       help="coordinator.balance; the programs' default where left out")
    add_flags(flags, "chooses victims and moments")
    given = flags.parse_args()
    given.faults = given.faults.split(",")
    if not set(given.faults) <= set(KINDS):
        flags.error(f"--faults: some of {', '.join(KINDS)}")
    alone = power.can_isolate()
    if alone:
        power.isolated()  # nothing that is stopped or mounted outlives this program
    short = not alone and "full" in given.faults
    if short:
        given.faults.remove("full")
        print("full: not run, it needs root, for namespaces of mounts and processes")
    return verdict(lambda: campaign(given)) or (77 if short else 0)


if __name__ == "__main__":
    sys.exit(main())
