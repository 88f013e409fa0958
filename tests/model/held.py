#!/usr/bin/env python3
"""Which of two workers is stalled that hold up a round of mode bsp
(server/docs/0000-protocol.md#rule-30), exhaustively.

Two shards. Worker a keeps a push to the second one back, again and again. So worker b, which waits
for that round, does not push to the first one, and the others wait for b there: b is honest, and
its bound expires soon after a's.
"""
from __future__ import annotations

import collections
import sys
import typing

# In ticks; and the number of stalls after which nobody waits for a worker (longer than the model).
BOUND, STALLS = 3, 3

BUGS = {
    "all_at_once": "whoever held a round for the bound is stalled",
    "no_new_time": "the time of those who waited for a stalled worker goes on",
    "old_time": "so does that of those who waited for a push that came after all",
    "tie": "of two that began in the same moment none is the first",
    "shortest_first": "who holds a round for the shortest time is stalled first",
    "waits_again": "whoever moves again is waited for again, however often it was stalled",
}


class State(typing.NamedTuple):
    """Ticks for which a and b have held up a round, or None; and the coordinator's actions."""

    a: int | None = None
    b: int | None = None
    able: int = 0  # ticks for which b could have pushed
    stalled: bool = False  # a is stalled
    stalls: int = 0
    honest: bool = False  # b was stalled
    unseen: int = 0  # ticks since the coordinator's last check


def look(s: State, bug: str | None) -> State:
    """The coordinator stalls the worker that has held up a round for longest."""
    over = {k: age for k, age in (("b", s.b), ("a", s.a)) if age is not None and age >= BOUND}
    s = s._replace(unseen=0)
    if not over or (bug == "tie" and s.a == s.b):
        return s
    first = (min if bug == "shortest_first" else max)(over, key=lambda k: (over[k], k == "a"))
    stalled = over.keys() if bug == "all_at_once" else {first}
    if "a" in stalled:
        renewed = s.b is not None and bug != "no_new_time"
        s = s._replace(a=None, b=0 if renewed else s.b, stalled=True, stalls=s.stalls + 1)
    return s._replace(b=None, honest=True) if "b" in stalled else s


def comes(s: State, bug: str | None) -> State:
    """The push that a kept back arrives after all. A worker that held up a round for less time may
    have waited for it, so its time is restarted."""
    renewed = s.b is not None and s.b <= s.a and bug != "old_time"
    return s._replace(a=None, b=0 if renewed else s.b)


def tick(s: State) -> State:
    """Time passes."""
    return s._replace(a=s.a if s.a is None else s.a + 1, b=s.b if s.b is None else s.b + 1,
                      able=s.able + 1 if s.a is None and s.b is not None else 0,
                      unseen=s.unseen + 1)


def following(s: State, bug: str | None) -> typing.Iterator[State]:
    """All possible next states."""
    waits = not s.stalled and (s.stalls < STALLS or bug == "waits_again")
    if s.a is None and s.b is None and waits:
        yield s._replace(a=0)  # a keeps a push back
    if s.a is not None:
        yield comes(s, bug)
        if s.b is None:
            yield s._replace(b=0, able=0)  # b waits
    if s.a is None and s.b is not None:
        yield s._replace(b=None)  # nothing delays b: it pushes
    if s.stalled:
        yield s._replace(stalled=False)  # its next push is admitted
    if s.unseen:
        yield look(s, bug)
    # Time passes while a worker is waited for. An honest push takes less than a bound.
    if s.unseen < 2 and (s.a is not None or (s.b is not None and s.able + 1 < BOUND)):
        yield tick(s)


def bad(s: State) -> str:
    """The violated invariant."""
    if s.honest:
        return "an honest worker is stalled for what another one keeps back"
    if s.a is not None and s.a > BOUND + 2:
        return "the others wait for longer than the bound"
    return "one worker costs the others time for ever" if s.stalls > STALLS else ""


def search(bug: str | None = None) -> tuple[int, str]:
    """The number of states, and the violation found."""
    seen, todo = {State()}, collections.deque([State()])
    while todo:
        s = todo.popleft()
        if bad(s):
            return len(seen), bad(s)
        for after in following(s, bug):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return len(seen), ""


def main() -> int:
    """Checks that the rules hold, and that each planted bug is found."""
    states, found = search()
    print(f"held: {states} states, {found or 'sound'}")
    missed = bool(found)
    for bug in BUGS:
        states, why = search(bug)
        print(f"  {bug}: {why or 'MISSED'} after {states} states")
        missed |= not why
    return missed


if __name__ == "__main__":
    sys.exit(main())
