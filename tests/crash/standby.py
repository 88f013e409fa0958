#!/usr/bin/env python3
"""Servers with standbys: one owner dies, one is only paused: `standby.py --build build/release`.

Both shards acknowledge with a standby (acknowledge: replicated). When both are in sync, one owner
is killed with -9 and the other is stopped, so that it lives on and learns nothing. Their standbys
take over, pushes go on. Then the stopped one is continued: it must end and log why. Both are
restarted as standbys of the new owners and get in sync. At the end history.py checks the new
owners' and the workers' logs: no acknowledged push is lost, none is applied twice, all replicas are
equal. Figures: seconds from the kill, or the stop, to the next push that the shard acknowledges.
"""
import json
import os
import signal
import sys
import time

from cluster import SHARDS, Cluster, Sums, check, figures, flags_of, judged, until, verdict
from report import Report

WHOLE = {"checkpoint.every_versions": "off", "acknowledge": "replicated"}


def decided(worker, shard):
    """Times (machine clock) at which this worker received a decision on a push of the shard."""
    with open(worker.log, encoding="utf-8", errors="replace") as file:
        for line in file:
            if '"push.decided"' in line and line.endswith("\n") and f"shard {shard}:" in line:
                yield json.loads(line)["mono_us"] / 1e6


class Replicated(Cluster):
    """A cluster with a standby for each server."""

    def start(self, speed, checkpoint_every=0):
        super().start(speed, checkpoint_every or 1000000)
        return self

    def make_servers(self, checkpoint_every):
        self.former = [self.world.server(i, self.coordinator, **WHOLE).start().listening()
                       for i in range(SHARDS)]
        self.servers = [self.world.server(i, self.coordinator, name=f"standby-{i}", role="standby",
                                          **WHOLE).start().listening() for i in range(SHARDS)]

    def nodes(self):
        return [*super().nodes(), *self.former]

    def keep_segments(self):
        """Does nothing: without checkpoints no segment is deleted."""

    def logs(self):
        return [os.path.join(server.dir, "log") for server in self.servers]

    def next_push(self, shard, since):
        """Seconds until a worker received a decision on a push of this shard."""
        times = until(f"shard {shard} acknowledges again", lambda: [
            t for w in self.workers for t in decided(w, shard) if t > since])
        return min(times) - since


def in_sync(node):
    shards = node.status().get("shards", [])
    return shards and all(s.get("in_sync", {}).get("state") == "in sync" for s in shards)


def one_run(given, seconds, sums):
    cluster = Replicated(given.build, given.units, keep=given.keep)
    with cluster.world:
        cluster.start(given.speed)
        until("both standbys are in sync", lambda: all(map(in_sync, cluster.former)))
        cluster.wait_for_pushes(30)
        for node, sign in zip(cluster.former, (signal.SIGKILL, signal.SIGSTOP)):
            since = time.monotonic()
            node.process.send_signal(sign)
            shard = node.settings["shards"][0]
            took = cluster.next_push(shard, since + given.in_flight_s) + given.in_flight_s
            seconds.append(took)
            print(f"{node.name} got {sign.name}: next acknowledged push after {took:.2f} s",
                  flush=True)
        killed, stopped = cluster.former
        killed.process.wait()
        cluster.wait_for_pushes(30)
        stopped.process.send_signal(signal.SIGCONT)
        check(stopped.end() != 0, f"{stopped.name} ended as if all was well")
        check(stopped.says("was taken over by its standby"),
              f"it does not say why:\n{stopped.tail()}")
        for node in cluster.former:
            node.process.stdout.close()
            node.settings["role"] = "standby"
            node.start().listening()
        until("the former owners are in sync as standbys",
              lambda: all(map(in_sync, cluster.servers)))
        check(not cluster.over(), "the run was over before the former owners were back")
        h = judged(cluster)
        epochs = [max(r.epoch for r in rs) for rs in h.records.values()]
        check(min(epochs) > 1, f"no new epoch was opened: {epochs}")
        for node in [*cluster.servers, *cluster.former, cluster.coordinator]:
            node.must_stop()
        sums.add(figures(h))


def campaign(given):
    seconds, sums = [], Sums()
    report = Report("campaign-standby", given.json)
    for _ in range(given.runs):
        one_run(given, seconds, sums)
    report.condition("faults", "an owner is killed with -9, another is stopped and goes on later")
    report.row("standby.take_overs", "1", [len(seconds)])
    report.row("standby.seconds_to_next_push", "s", seconds)
    sums.rows(report, "standby")
    report.finish()


def main():
    flags = flags_of(__doc__, units=480, speed=1500)
    flags.add_argument("--runs", type=int, default=1, help="each has two take-overs")
    flags.add_argument("--in-flight-s", type=float, default=0.1,
                       help="answers that come so soon were on their way already")
    flags.add_argument("--json")
    given = flags.parse_args()
    return verdict(lambda: campaign(given))


if __name__ == "__main__":
    sys.exit(main())
