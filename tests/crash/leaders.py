#!/usr/bin/env python3
"""Two coordinators on an etcd of three members, under faults: `leaders.py --build build/release`.

Each cycle is one fault drawn from the seed, in a run of the real programs: kill -9 of the leader,
of the standby, of one etcd member or of two; SIGSTOP of the leader until the other leads; a cut
between the leader and etcd alone; kill -9 of a server and a worker while the leader is stopped.
After each, one coordinator leads with a number no lower than before, no node has forgotten the
highest number that it heard, and all workers train on. A run ends after --faults cycles: units are
credited as in the logs, no push is lost, all replicas have the servers' digests.

With --file each run is a line there, and the same call goes on where an interrupted one stopped.
"""
import os
import random
import signal
import sys
import time

from cluster import REGIONS, World, campaign_of_faults, check, until
import etcd as pairs
from loopback import check_replicas, trained_on

UNITS = 6000  # more than can be trained during a run's faults


class Run:
    def __init__(self, world, etcd, draw):
        self.world, self.etcd, self.draw = world, etcd, draw
        self.pair = pairs.coordinators(world, etcd)
        self.both = pairs.Both(*self.pair)
        for node in self.pair:
            node.start()
        pairs.roles(self.pair)
        self.servers = [world.server(i, self.both).start().listening() for i in (0, 1)]
        self.workers = [world.worker(region, self.both, **{"trainer.tokens_per_s": 4000}).start()
                        for region in REGIONS]
        until("all workers train", trained_on(self.workers, {}, 4))

    # ------------------------------------------------------------ faults

    def leader_is_killed(self, lead, other, before):
        lead.kill()
        pairs.takes_over(other, before)
        lead.start()

    def standby_is_killed(self, _, other, _before):
        other.kill()
        other.start()

    def member_is_killed(self, *_):
        member = self.draw.choice(self.etcd.member)
        member.kill()
        pairs.goes_on(self.pair, self.workers)
        self.etcd.start(member)

    def majority_is_killed(self, *_):
        away = self.draw.sample(self.etcd.member, 2)
        for member in away:
            member.kill()
        until("nobody leads", lambda: not any(pairs.leads(node) for node in self.pair))
        self.etcd.start(*away)

    def leader_stands_still(self, lead, other, before, restarted=()):
        lead.process.send_signal(signal.SIGSTOP)
        pairs.takes_over(other, before)
        number = pairs.number_of(other)
        for node in restarted:
            until("it has heard the new leader", lambda node=node: pairs.heard(node) >= number)
            node.kill()
            node.start()
            if node in self.servers:
                node.listening()
        lead.process.send_signal(signal.SIGCONT)

    def leader_stands_still_beside_restarts(self, lead, other, before):
        self.leader_stands_still(lead, other, before,
                                 [self.draw.choice(self.servers), self.draw.choice(self.workers)])

    def leader_is_cut_off(self, lead, other, before):
        for relay in lead.relays:
            relay.cut()
        pairs.takes_over(other, before)
        until("the one that is cut off does not lead", lambda: not pairs.leads(lead))
        pairs.goes_on(self.pair, self.workers)
        for relay in lead.relays:
            relay.mend()

    FAULTS = (leader_is_killed, standby_is_killed, member_is_killed, majority_is_killed,
              leader_stands_still, leader_stands_still_beside_restarts, leader_is_cut_off)

    def fault(self):
        lead, other = pairs.roles(self.pair)
        fault, before = self.draw.choice(self.FAULTS), pairs.number_of(lead)
        heard = [pairs.heard(node) for node in self.servers + self.workers]
        began = time.monotonic()
        fault(self, lead, other, before)
        pairs.led(self.pair, before)
        pairs.goes_on(self.pair, self.workers)
        now = [pairs.heard(node) for node in self.servers + self.workers]
        check(all(b >= a for a, b in zip(heard, now)), f"{heard} became {now}")
        return [fault.__name__, round(time.monotonic() - began, 1)]

    def end(self):
        until("the run is told to end", lambda: self.world.try_tool(
            "drain", "run", "--end", *self.world.admin(self.both))[0] == 0)
        for worker in self.workers:
            worker.must_end()
        check_replicas(self.servers, self.workers)
        check(all(w.last("lost") == 0 for w in self.workers), "a push was lost")
        until("the leader knows that it ended", lambda: any(
            pairs.leads(node) and node.status().get("phase") == "ended" for node in self.pair))
        logged = sum(s["credited"] for n in self.servers for s in n.status()["shards"])
        there = pairs.credited(self.pair)
        check(there == logged, f"{there} credited, {logged} in the logs")
        for node in [*self.pair, *self.servers]:
            node.must_stop()
        return logged


def one_run(given, seed):
    draw = random.Random(seed)
    with World(given.build, units=UNITS) as world:
        etcd = pairs.Etcd(world.path("etcd"), given.build)
        try:
            etcd.start()
            run = Run(world, etcd, draw)
            faults = [run.fault() for _ in range(given.faults)]
            credited = run.end()
        finally:
            etcd.close()
    return {"seed": seed, "faults": faults, "credited": credited,
            "load": round(os.getloadavg()[0], 1)}


if __name__ == "__main__":
    sys.exit(campaign_of_faults(__doc__, one_run, 10))
