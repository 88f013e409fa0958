#!/usr/bin/env python3
"""The charge at level reported (server/docs/0000-protocol.md#rule-34), exhaustively.

A loop that adds noise by itself trains beside one worker, with one shard. Each of its steps is a
release from the moment at which a push that contains it could have been sent. A push takes the
steps since the last cut and the residual. The loop cannot be held back: it trains beyond the
budget. The worker charges a step when it sees it; a step that is lost with both processes before
that is not in the model. A loop that dies may have kept its learned state, such as an optimizer's,
so its lost steps are contained in the next push. Faults: the worker is killed, with its loop or
without it, the loop is killed, the budget file is lost, a push is refused, the log loses its tail
above the stable point.
"""
import sys
from typing import NamedTuple

import search

STEPS, AHEAD, MADE_MAX = 3, 2, 5  # of the plan; the protocol's A; steps that the loop trains

BUGS = {
    "charge_after_flip": "the budget is charged once the push is committed",
    "charge_at_push": "steps are charged when they are pushed, and not when they are seen",
    "no_budget": "a cut beyond the budget is pushed",
    "lost_free": "a loop's steps that no cut has are not counted once it died",
    "resume_at_log": "a worker that finds its loop alive counts from the log's total",
    "left_over": "what came back is pushed by itself, with the total of the log",
    "lost_at_log": "a lost file goes on at the total of the log",
}


class State(NamedTuple):
    """A world at rest between two steps."""
    file: int = 0            # charged steps in the budget file, on the disk
    trained: int = 0         # the worker's count, in memory
    before: int = 0          # of these: before the loop's present process
    life: int = 0            # steps of the loop's present process
    base: int = 0            # of these: in a committed cut
    open: tuple = ()         # steps since the base, in the loop
    whole: tuple = ()        # (total, steps, end, count): a cut that the worker has taken
    push: tuple = ()         # (flipped, total, steps, end, count); end: in the loop's process, -1:
                             # an earlier one's; count: charged steps
    residual: tuple = ()     # steps that no release holds yet
    memory: tuple = ()       # steps that dead loops lost, and whose traces the next loop has
    back: bool = False       # a refused push's mass is there, too
    log: tuple = ()          # totals of admitted pushes
    kept: tuple = ()         # totals of own pushes in the outbox
    stable: int = 0          # records of the log that are stable
    made: int = 0            # steps of all processes
    seen: frozenset = frozenset()  # steps that could have been sent
    alive: bool = True       # the loop is
    kills: int = 2
    losses: int = 1
    refusals: int = 1
    tails: int = 1


def shown(s):
    """The highest total in log and outbox."""
    return max([0, *s.log, *s.kept, *(s.push[1:2] if s.push and s.push[0] else ())])


def stable_total(s):
    """The total that survives any loss of the directory."""
    rests = not s.push and not s.whole and len(s.log) == s.stable
    under = max([0, *s.log[:s.stable]])
    # steps beyond it that were never pushed are not beyond the stable point
    return max(under, s.before + s.base) if rests else under


def restart(s, bugs, file, loop, **more):
    """The worker restarts; `loop`: the loop outlived it."""
    push = s.push if s.push and s.push[0] else ()
    t = s._replace(push=push)
    most = shown(t)
    if file < 0 or file < most:
        file = min(STEPS, most + (0 if "lost_at_log" in bugs else AHEAD))
    trained = most if loop and "resume_at_log" in bugs else file
    # a cut that was not committed goes back to the loop
    again = ()
    for end, ids in ([(s.push[3], s.push[2])] if s.push and not s.push[0] else []) + (
            [(s.whole[2], s.whole[1])] if s.whole else []):
        again += ids if end >= 0 else ()
    t = t._replace(file=file, whole=(), trained=trained, **more)
    if not loop:
        return t._replace(before=trained, life=0, base=0, open=(), alive=False,
                          memory=(*s.memory, *again, *s.open))
    before = max(0, trained - s.base)
    return t._replace(before=before, trained=max(trained, before + s.life), open=(*again, *s.open))


def train(s, bugs):
    """A step of the loop; the worker counts it, and charges it as far as the budget goes."""
    life, trained = s.life + 1, max(s.trained, s.before + s.life + 1)
    late = "charge_at_push" in bugs or "charge_after_flip" in bugs
    file = s.file if late else max(s.file, min(STEPS, trained))
    return s._replace(life=life, open=(*s.open, s.made), made=s.made + 1, trained=trained,
                      file=file)


def loop_dies(s, bugs):
    """Steps that it had not handed over are lost; the worker has seen them."""
    before = s.trained - len(s.open) if "lost_free" in bugs else s.trained
    return s._replace(alive=False, open=(), before=before, life=0, base=0, kills=s.kills - 1,
                      memory=(*s.memory, *s.open),
                      whole=(*s.whole[:2], -1, *s.whole[3:]) if s.whole else (),
                      push=(*s.push[:3], -1, *s.push[4:]) if s.push else ())


def holds(s, end):
    """The base of the loop's process when a cut is committed."""
    return end if end >= 0 else s.base


def take(s, bugs):
    """Turns a cut that the worker has taken into a push, if the budget allows it."""
    total, ids, end, count = s.whole
    if total > STEPS and "no_budget" not in bugs:
        yield "absorb", s._replace(whole=(), residual=(*s.residual, *ids), base=holds(s, end))
    elif count > AHEAD:
        dies = loop_dies(s._replace(whole=(), memory=(*s.memory, *ids)), ())
        yield "the life ends", dies._replace(kills=s.kills)
    elif total <= stable_total(s) + AHEAD and not s.push:
        late = "charge_after_flip" in bugs
        if s.file < total and not late:
            yield "charge", s._replace(file=total)
        else:
            yield "make", s._replace(whole=(), push=(False, total, ids, end, count))


def flip(s):
    """The commit point: after it the push may be sent."""
    _, total, ids, end, count = s.push
    return s._replace(push=(True, total, ids, end, count), residual=(), back=False,
                      base=holds(s, end),
                      seen=s.seen | {*ids, *s.residual})


def decide(s):
    """The server decides, and the worker receives the decision."""
    _, total, _, _, count = s.push
    fits = max([0, *s.log]) + count <= total <= STEPS
    if fits:
        yield "admit", s._replace(log=(*s.log, total), kept=(*s.kept, total), push=())
    if s.refusals or not fits:
        yield "refuse", s._replace(push=(), back=True, refusals=max(0, s.refusals - 1))


def steps(s, bugs):
    """(event, next state)"""
    if s.alive and s.made < MADE_MAX:
        yield "train", train(s, bugs)
    if s.alive and s.open and not s.whole and not s.push:
        ids = (*s.memory, *s.open)
        yield "cut", s._replace(whole=(s.before + s.life, ids, s.life, s.life - s.base), open=(),
                                memory=())
    if not s.alive:
        yield "a loop begins", s._replace(alive=True, before=max(s.before, 0), life=0, base=0)
    if s.whole:
        yield from take(s, bugs)
    if s.push and not s.push[0]:
        yield "flip", flip(s)
    elif s.push:
        yield from decide(s)
    if "charge_after_flip" in bugs and s.push and s.push[0] and s.file < s.push[1]:
        yield "charge late", s._replace(file=s.push[1])
    if "left_over" in bugs and (s.back or s.residual) and not s.alive and not s.push:
        yield "push what is left", s._replace(push=(False, shown(s), (), -1, 0))
    if s.stable < len(s.log):
        yield "stable", s._replace(stable=len(s.log))
    if s.kills:
        yield "kill the worker", restart(s, bugs, s.file, s.alive, kills=s.kills - 1)
        yield "kill both", restart(s, bugs, s.file, False, kills=s.kills - 1)
        if s.alive:
            yield "kill the loop", loop_dies(s, bugs)
    if s.losses:
        yield "the file is lost", restart(s, bugs, -1, s.alive, losses=0)
    if s.tails and s.stable < len(s.log):
        lost = s.log[s.stable:]
        yield "the log's tail is lost", s._replace(
            log=s.log[:s.stable], tails=0, back=True, kept=tuple(k for k in s.kept
                                                                 if k not in lost))


def bad(s):
    """The violated invariant, or an empty text."""
    if len(s.seen) > s.file:
        return f"{len(s.seen)} steps could have been sent, {s.file} are charged"
    if s.file > STEPS or len(s.seen) > STEPS:
        return "more than the plan's steps"
    if max([0, *s.log]) > s.file:
        return "the log shows more than the file"
    return ""


def explore(bugs=()):
    """Searches every state. {"bad": why, ...} or {"ok": "complete", ...}"""
    return search.search(State(), lambda s: steps(s, bugs), bad)


def main():
    """Checks the rules, then every planted bug."""
    return search.rules_then_bugs(explore, BUGS)


if __name__ == "__main__":
    sys.exit(main())
