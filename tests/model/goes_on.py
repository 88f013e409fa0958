#!/usr/bin/env python3
"""Every order of events of one worker and one shard whose run ends, and goes on
(server/docs/0000-protocol.md#rule-36).

Mass is in one place: applied in the log, in the worker's residual, or in its undecided push. A
worker that folds END takes an undecided push back without a record, and copies of it may still be
under way.
"""

from __future__ import annotations

import collections
import typing

BUGS = {
    "push_of_the_end": "a push whose base is not above END is decided like any other",
    "first_end_only": "where the run has ended twice, the first end alone is looked at",
}
ENDS, PUSHES = 2, 3


class Push(typing.NamedTuple):
    """A frame: what it carries is one unit of mass."""

    life: int  # incarnation
    step: int
    base: int


class State(typing.NamedTuple):
    """The world."""

    version: int = 1
    over: bool = False
    ends: tuple[int, ...] = ()  # versions of END records
    row: tuple[int, int] = (1, 0)  # incarnation, last decided step
    applied: frozenset[Push] = frozenset()
    refused: frozenset[Push] = frozenset()
    wire: frozenset[Push] = frozenset()  # copies; one that was delivered may come once more
    life: int = 1
    next: int = 1
    decided: int = 0
    folded: int = 1  # the worker's version
    pending: Push | None = None
    residual: int = 0
    trained: int = 0


def decide(s: State, push: Push, bug: str | None) -> State:
    """The server gets a copy."""
    life, last = s.row
    if s.over or push.life != life or push.step != last + 1:
        return s  # not final, or decided before
    end = (s.ends[0] if bug == "first_end_only" else s.ends[-1]) if s.ends else 0
    late = push.base <= end and bug != "push_of_the_end"
    s = s._replace(version=s.version + 1, row=(life, push.step))
    if late:
        return s._replace(refused=s.refused | {push})
    return s._replace(applied=s.applied | {push})


def fold(s: State) -> State:
    """The worker folds all that the log has by now; END takes an undecided push back."""
    end = any(s.folded < e <= s.version for e in s.ends)
    s = s._replace(folded=s.version)
    push = s.pending
    if push is None:
        return s
    if push in s.applied:
        return s._replace(pending=None, decided=push.step)
    if push in s.refused or end:
        return s._replace(pending=None, decided=push.step, residual=s.residual + 1)
    return s


def hello(s: State) -> State:
    """A row behind what the worker knows: it opens a new incarnation, and what it still holds of
    the old one was never applied and can't be any more."""
    back = s.pending is not None
    return s._replace(life=s.life + 1, row=(s.life + 1, 0), next=1, decided=0, pending=None,
                      residual=s.residual + back, version=s.version + 1)


def following(s: State, bug: str | None) -> typing.Iterator[State]:
    """All that can happen next."""
    if s.trained < PUSHES:
        yield s._replace(trained=s.trained + 1, residual=s.residual + 1)
    if s.residual and s.pending is None:
        push = Push(s.life, s.next, s.folded)
        yield s._replace(pending=push, residual=s.residual - 1, next=s.next + 1)
    if s.pending:
        yield s._replace(wire=s.wire | {s.pending})
    for push in s.wire:
        yield decide(s, push, bug)
        yield s._replace(wire=s.wire - {push})
    if s.folded < s.version:
        yield fold(s)
    if not s.over and len(s.ends) < ENDS:
        yield s._replace(over=True, version=s.version + 1, ends=(*s.ends, s.version + 1))
    if s.over:
        yield s._replace(over=False, version=s.version + 1)
    elif s.row[0] == s.life and s.row[1] < s.decided and s.life < 3:
        yield hello(s)


def wrong(s: State) -> bool:
    """Mass is lost, or in two places."""
    held = s.pending is not None and s.pending not in s.applied
    return len(s.applied) + s.residual + held != s.trained


def search(bug: str | None = None, versions: int = 12) -> tuple[int, bool]:
    """The number of states, and whether a wrong one is among them."""
    seen, todo = {State()}, collections.deque([State()])
    while todo:
        s = todo.popleft()
        if wrong(s):
            return len(seen), True
        for after in following(s, bug):
            if after.version <= versions and after not in seen:
                seen.add(after)
                todo.append(after)
    return len(seen), False


def main() -> None:
    """The rules hold, and each planted bug is found."""
    states, found = search()
    print(f"goes on: {states} states, {'WRONG' if found else 'sound'}")
    assert not found
    for bug in BUGS:
        states, found = search(bug)
        print(f"  {bug}: {'caught' if found else 'MISSED'} after {states} states")
        assert found


if __name__ == "__main__":
    main()
