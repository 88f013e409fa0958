#!/usr/bin/env python3
"""The charge of a private region (server/docs/0000-protocol.md#rule-34), exhaustively.

One record set, one worker, one shard, at region level. A release is a piece of the region's delta
under a noise; an observer of the network counts as having seen it from the moment at which it could
have been sent. The budget file holds the number of charged steps. Faults: the worker is killed, the
budget file is lost, alone or with the worker's directory, or replaced by an older copy, a push is
refused, the log loses its tail above the stable point.
"""
import sys
from typing import NamedTuple

import search

STEPS, BLOCK, AHEAD = 4, 2, 2  # of the plan; added by a charge; the protocol's A

BUGS = {
    "charge_after_flip": "the budget is charged once the push is committed",
    "refund": "a start goes on at what the outbox and the log show, not at what the file says",
    "above_budget": "the last block is a whole one",
    "no_bound": "a worker releases any number of pushes beyond the stable point",
    "lost_at_log": "a lost file goes on at the total of the log",
    "older_copy": "a file that is older than the log is believed",
    "return_refused": "a refused push returns to the residual",
    "noise_again": "a refused push gets fresh noise when it is sealed again",
    "send_early": "a push is sent when its entry is written, before the flip",
    "total_again": "a push that is sealed again takes the newest total",
}


class State(NamedTuple):
    """A world at rest between two steps."""
    file: int = 0        # charged steps in the budget file, on the disk
    used: int = 0        # charged steps that have a push, in memory
    old: int = 0         # the total of a copy of the file that may come back
    push: tuple = ()     # (stage, noise, piece, total): made, written, flipped
    again: tuple = ()    # pushes that are to be sealed again: (noise, piece, total)
    kept: tuple = ()     # admitted pushes in the outbox
    log: tuple = ()      # (admitted, noise, piece, total)
    stable: int = 0      # records of the log that are stable
    piece: int = 0       # the next piece in the residual
    noise: int = 0       # the next noise to draw
    seen: frozenset = frozenset()  # releases that could have been sent
    kills: int = 2
    losses: int = 1
    refusals: int = 1
    tails: int = 1


MADE, WRITTEN, FLIPPED = range(3)


def total_of(log):
    """The total of the last admitted push in the log."""
    return max([r[3] for r in log if r[0]], default=0)


def restart(s, bugs, file, **more):
    """The worker restarts: memory is lost, and so is a push that no slot names."""
    push = s.push if s.push and s.push[0] == FLIPPED else ()
    last = max([total_of(s.log), *(k[2] for k in (*s.kept, *s.again)), *push[3:]])
    if file < 0 or (file < last and "older_copy" not in bugs):
        file = min(STEPS, last + (0 if "lost_at_log" in bugs else AHEAD))
    if "refund" in bugs:
        file = min(file, total_of(s.log))
    return s._replace(file=max(file, 0), used=max(file, 0), push=push, **more)


def charge(s, bugs):
    """Adds a block to the budget file; None if the plan has none left."""
    most = STEPS if "above_budget" not in bugs else STEPS + BLOCK
    file = min(s.used + BLOCK, most)
    return s._replace(file=file) if file > s.file else None


def ahead(s):
    """Releases in the worker's directory that are not below the stable point."""
    stable = {r[1:] for r in s.log[:s.stable] if r[0]}
    return len([k for k in s.kept if k not in stable]) + len(s.again)


def cut(s, bugs):
    """Makes the next push."""
    if s.again:
        noise, piece, total = s.again[0]
        fresh = "noise_again" in bugs
        total = s.used if "total_again" in bugs else total
        yield "seal again", s._replace(push=(MADE, s.noise if fresh else noise, piece, total),
                                       noise=s.noise + fresh)
        return
    late = "charge_after_flip" in bugs
    room = s.used < s.file or (late and s.used < STEPS)
    if ahead(s) >= AHEAD and "no_bound" not in bugs:
        return
    if room and s.piece < STEPS + 1:
        total = s.used + 1
        yield "cut", s._replace(push=(MADE, s.noise, s.piece, total), used=total,
                                noise=s.noise + 1)
    elif not room and charge(s, bugs):
        yield "charge", charge(s, bugs)


def flip(s):
    """The commit point: after it the push may be sent."""
    _, noise, piece, total = s.push
    sealed_again = bool(s.again)
    again = s.again[1:] if sealed_again else ()
    return s._replace(push=(FLIPPED, noise, piece, total), again=again,
                      piece=max(s.piece, piece + 1), seen=s.seen | {(noise, piece)})


def decide(s, bugs):
    """The server decides, and the worker receives the decision."""
    _, noise, piece, total = s.push
    fits = total_of(s.log) < total <= STEPS
    record = (noise, piece, total)
    if fits:
        yield "admit", s._replace(log=(*s.log, (True, *record)), push=(), kept=(*s.kept, record))
    if s.refusals or not fits:
        back = {"again": (record, *s.again)}
        if "return_refused" in bugs:
            back = {"piece": piece}
        yield "refuse", s._replace(log=(*s.log, (False, *record)), push=(),
                                   refusals=max(0, s.refusals - 1), **back)


def steps(s, bugs):
    """(event, next state)"""
    if not s.push:
        yield from cut(s, bugs)
    elif s.push[0] == MADE:
        written = s._replace(push=(WRITTEN, *s.push[1:]))
        if "send_early" in bugs:
            written = written._replace(seen=s.seen | {s.push[1:3]})
        yield "write", written
    elif s.push[0] == WRITTEN:
        yield "flip", flip(s)
    else:
        yield from decide(s, bugs)
    if "charge_after_flip" in bugs:
        if s.file < s.used:
            yield "charge late", s._replace(file=min(STEPS, s.used))
    if s.stable < len(s.log):
        yield "stable", s._replace(stable=len(s.log))
    if s.old < s.file and s.losses:
        yield "somebody copies the file", s._replace(old=s.file)
    if s.kills:
        yield "kill", restart(s, bugs, s.file, kills=s.kills - 1)
    if s.losses:
        yield "the file is lost", restart(s, bugs, -1, losses=0)
        lost = s._replace(kept=(), again=(), push=(), piece=s.piece + 1)
        yield "file and directory are lost", restart(lost, bugs, -1, losses=0)
        if 0 < s.old < total_of(s.log):  # a copy that the log does not contradict is not covered
            yield "an older file comes back", restart(s, bugs, s.old, losses=0)
    if s.tails and s.stable < len(s.log):
        yield "the log's tail is lost", lose_tail(s)


def lose_tail(s):
    """A new epoch begins at the stable point; pushes that only the author has are pushed again."""
    log = s.log[:s.stable]
    have = {r[1:] for r in log if r[0]}
    lost = [k for k in s.kept if k not in have]
    flipped = s.push and s.push[0] == FLIPPED
    waits = [*lost, *([s.push[1:]] if flipped else []), *s.again]
    sealed = s.push and not flipped and s.again  # a push being resealed is still in `again`
    push = () if flipped or sealed else s.push
    return s._replace(log=log, tails=0, push=push, again=tuple(waits),
                      kept=tuple(k for k in s.kept if k in have))


def bad(s):
    """The violated invariant, or an empty text."""
    noises = len({noise for noise, _ in s.seen})
    if noises > s.file:
        return f"{noises} releases could have been sent, {s.file} are charged"
    if noises > STEPS or s.file > STEPS:
        return "more than the plan's steps"
    if len({piece for _, piece in s.seen}) < noises and len(s.seen) > noises:
        return "a noise for two pieces"
    if len({piece for _, piece in s.seen}) < len(s.seen):
        return "a piece is released under two noises"
    admitted = [r[1:] for r in s.log if r[0]]
    if len({noise for noise, *_ in admitted}) < len(admitted):
        return "a release is admitted twice"
    totals = [r[3] for r in s.log]
    if len({r[1] for r in s.log}) > max(totals, default=0):
        return "the log shows more releases than its highest total"
    refused = sum(not r[0] for r in s.log)
    if refused > 1:
        return "the total of an honest worker is refused"
    return ""


def explore(bugs=(), faults=None):
    """Searches every state. {"bad": why, ...} or {"ok": "complete", ...}"""
    return search.search(State(**(faults or {})), lambda s: steps(s, bugs), bad)


def main():
    """Checks the rules, then every planted bug."""
    return search.rules_then_bugs(explore, BUGS)


if __name__ == "__main__":
    sys.exit(main())
