#!/usr/bin/env python3
"""Shards that move while workers push: `move.py --build build/release`.

Every server has a standby that follows it; pushes are acknowledged by the owner alone. An operator
moves shard 0 to its standby (`longhaul move`), then shard 1 with the coordinator killed as soon as
it has answered; nothing else is stopped. Each former owner must end by itself and log why, and is
restarted as the new owner's standby; shard 0 then moves back to it, and to and fro until a push was
under way while it moved. At the end history.py checks the owners' and the workers' logs: no
acknowledged push is lost, none is applied twice, all replicas are equal. Figures: how long a push
waited for its answer during a move, and how long any other push did."""
import json
import os
import re
import statistics
import sys

from cluster import SHARDS, Failure, check, figures, flags_of, until
from standby import WHOLE, Replicated

import history
from report import Report

PUSH = re.compile(r"shard (\d+): (\S+)")
MOVES_MAX = 10  # of shard 0, until a push was under way: most moves meet one


class Moving(Replicated):
    """Servers with standbys, acknowledging without them."""

    def make_servers(self, checkpoint_every):
        durable = {**WHOLE, "acknowledge": "durable", "log.format": "json"}
        self.servers = [self.world.server(i, self.coordinator, **durable).start().listening()
                        for i in range(SHARDS)]
        self.former = [self.world.server(i, self.coordinator, name=f"standby-{i}", role="standby",
                                         **durable).start().listening() for i in range(SHARDS)]

    def move(self, shard, and_then=lambda: None):
        """The shard's servers change roles; the former owner ends, and restarts as the standby."""
        source, target = self.servers[shard], self.former[shard]
        until(f"{target.name} follows", lambda: follows(target))
        self.wait_for_pushes(20)
        said = self.world.tool("move", target.name, *self.world.admin(self.coordinator))
        check(f"1 shard to go to {target.name}" in said, said)
        and_then()
        check(source.end() != 0, f"{source.name} ended as if all was well")
        check(source.says("was taken over by its standby, or moved") or
              source.says("another server has it"),  # a server that was a standby before
              f"it does not say why:\n{source.tail()}")
        check(target.says("shard.moved"), f"it does not serve by a move:\n{target.tail()}")
        source.process.stdout.close()
        source.settings["role"] = "standby"
        source.start().listening()
        self.servers[shard], self.former[shard] = target, source
        self.wait_for_pushes(20)

    def waits(self):
        """Seconds from the cut of each push to its answer, with both times."""
        for worker in self.workers:
            cut = {}
            with open(worker.log, encoding="utf-8", errors="replace") as file:
                for line in file:
                    event = json.loads(line) if line.endswith("\n") else {}
                    push = PUSH.match(event.get("text", ""))
                    at = event.get("mono_us", 0) / 1e6
                    if push and event["event"] == "push.cut":
                        cut[push.groups()] = at
                    elif push and event["event"] == "push.decided" and push.groups() in cut:
                        yield int(push[1]), cut.pop(push.groups()), at

    def met_and_others(self):
        """Seconds that pushes waited for their answers: those during a move, and all others."""
        begun = {i: [t for n in (self.servers[i], self.former[i]) for t in moments(n)]
                 for i in range(SHARDS)}
        met, others = [], []
        for shard, cut, decided in self.waits():
            inside = any(cut <= t <= decided for t in begun[shard])
            (met if inside else others).append(decided - cut)
        return met, others


def follows(node):
    shards = node.status().get("shards", [])
    return shards and all(s.get("standby", {}).get("following") for s in shards)


def moments(node):
    """The times when this server began to serve by a move."""
    with open(node.log, encoding="utf-8", errors="replace") as file:
        for line in file:
            if "shard.moved" in line and line.startswith("{"):
                yield json.loads(line)["mono_us"] / 1e6


def check_epochs(records):
    """Epochs never go back, and a MOVE is the last record of its own
    (server/docs/0000-protocol.md#rule-22); gives their number. A start that had to truncate its log
    may open one more in between."""
    epochs = [r.epoch for r in records]
    check(epochs == sorted(epochs), f"epochs {epochs}")
    at = [i for i, r in enumerate(records) if r.kind == history.MOVE]
    check(at and all(i + 1 < len(records) and epochs[i + 1] > epochs[i] for i in at),
          f"a record follows a MOVE in its epoch, or none at all: {at} of {epochs}")
    return len(at)


def one_run(given):
    cluster = Moving(given.build, given.units, keep=given.keep)
    with cluster.world:
        cluster.start(given.speed)

        def restart():
            cluster.coordinator.kill()
            cluster.coordinator.start().listening()

        cluster.move(0)
        cluster.move(1, restart)
        cluster.move(0)
        moved = 2
        while moved < MOVES_MAX and not cluster.met_and_others()[0] and not cluster.over():
            cluster.move(0)
            moved += 1
        check(not cluster.over(), f"the run was over after {moved} moves of shard 0")
        h = cluster.finish().history()
        bad = history.judge(h)
        check(not bad, f"{len(bad)} violations, the first: {bad[:5]}")
        moves = [check_epochs(sorted(rs, key=lambda r: r.version)) for rs in h.records.values()]
        check(moves == [moved, 1], f"moves {moves}, not {moved} and 1")
        for node in [*cluster.servers, *cluster.former, cluster.coordinator]:
            node.must_stop()
        return figures(h), *cluster.met_and_others(), moved + 1


def main():
    flags = flags_of(__doc__, units=600, speed=1500)
    flags.add_argument("--json")
    given = flags.parse_args()
    report = Report("campaign-move", given.json)
    try:
        sums, met, other, moves = one_run(given)
        check(met, "no push met a move")
    except Failure as failure:
        print(f"FAILED {failure}")
        return 1
    print(f"{len(met)} pushes met a move: {min(met):.2f} to {max(met):.2f} s to their answers; "
          f"the median of the other {len(other)}: {statistics.median(other):.3f} s")
    report.condition("faults", f"{moves} moves, the coordinator killed in one of them")
    report.row("move.seconds_of_pushes_that_met_one", "s", met)
    report.row("move.seconds_of_others", "s", [statistics.median(other)])
    for key in sorted(sums):
        report.row(f"move.{key}", "1", [sums[key]])
    report.row("move.violations", "1", [0])
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
