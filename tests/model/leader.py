#!/usr/bin/env python3
"""Every order of events of two coordinators of which one leads, one unit of data and two workers
(server/docs/0000-protocol.md#rule-38).

A key under a lease names the leader; its revision is the leader's number. A commit is a request to
the store: once sent it may arrive at any later time, any number of times, or never. An answer may
arrive late, too. A coordinator may be killed and come back, or be paused while its lease expires. A
worker may be killed and restart with the contents of its disk.

Each state is judged: the unit's row in the store names the worker that was last told, by the
highest leader that answered, that it has the unit; no two leaders have the same number; and no
worker obeys an earlier leader after a later one."""

from __future__ import annotations

import typing

import search

BUGS = {
    "no_fence": "a commit compares nothing",
    "fence_by_name": "a commit compares who leads, not since when",
    "before_durable": "an answer is sent when its commit is sent",
    "before_reading": "a leader takes the rows that it had for the store's",
    "no_number": "an answer of any leader is taken",
    "number_of_name": "a coordinator that leads again has the number that it had",
    "late_answer": "one whose lease may be over answers, and numbers are not looked at",
    "forgets": "a worker that comes back has heard of no leader",
    "notes_late": "a worker acts on the first answer of a leader before its number is on disk",
}
LIVES = 3  # how often the lead is taken, in all
NOBODY = 0
WORKERS = (1, 2)


class Life(typing.NamedTuple):
    """A coordinator: its number (0: standby), and its copy of the row."""

    number: int = 0
    row: int = NOBODY
    asked: int = NOBODY  # the worker whose commit is under way
    sure: bool = True  # by its own clock its lease cannot have expired


class State(typing.NamedTuple):
    """The world. Requests and answers: (number, coordinator, worker)."""

    lives: tuple[Life, ...] = (Life(), Life())
    leader: tuple[int, int] = (0, 0)  # in the key: (number, coordinator); number 0: no key
    last: int = 0  # the highest number so far
    row: int = NOBODY
    requests: frozenset = frozenset()
    answers: frozenset = frozenset()
    told: tuple[int, ...] = (0, 0)  # highest number that each worker's process heard
    kept: tuple[int, ...] = (0, 0)  # the same, on its disk
    has: tuple[int, ...] = (0, 0)  # number under which each worker was told that it has the unit
    wrong: str = ""


def change(numbers: tuple[int, ...], k: int, number: int) -> tuple[int, ...]:
    """The numbers, with worker k's replaced."""
    return numbers[:k] + (number,) + numbers[k + 1:]


def restart(s: State, k: int, bug: str | None) -> State:
    """A worker is killed and restarts."""
    return s._replace(told=change(s.told, k, 0 if bug == "forgets" else s.kept[k]))


def put(s: State, i: int, **change) -> State:
    """Changes one coordinator."""
    lives = list(s.lives)
    lives[i] = lives[i]._replace(**change)
    return s._replace(lives=tuple(lives))


def lead(s: State, i: int, bug: str | None) -> State:
    """The key is free: this coordinator takes it, and reads the store."""
    number = s.last + 1
    if bug == "number_of_name" and s.has != (0, 0):
        number = 1 + i
    row = s.lives[i].row if bug == "before_reading" else s.row
    wrong = "" if number > s.last else "a number is used twice"
    return put(s, i, number=number, row=row, asked=NOBODY, sure=True)._replace(
        leader=(number, i), last=max(s.last, number), wrong=wrong)


def arrive(s: State, request: tuple, bug: str | None) -> State:
    """A commit arrives at the store."""
    number, i, worker = request
    held = {"no_fence": True, "fence_by_name": s.leader[0] and s.leader[1] == i}.get(
        bug, s.leader[0] == number)
    if not held:
        return s
    if s.row not in (NOBODY, worker):
        return s._replace(wrong="the unit is leased again")
    s = s._replace(row=worker)
    life = s.lives[i]
    if life.number == number and life.asked == worker:
        s = put(s, i, row=worker, asked=NOBODY)
        if life.sure or bug == "late_answer":
            s = s._replace(answers=s.answers | {request})
    return s


def hear(s: State, answer: tuple, bug: str | None) -> State:
    """An answer arrives at a worker."""
    number, _, worker = answer
    k = worker - 1
    if number < s.told[k] and bug not in ("no_number", "late_answer"):
        return s
    if number < s.has[k]:
        return s._replace(wrong="a word of an earlier leader counts after one of a later one")
    wrong = "" if s.row == worker else "a worker has what the store does not know"
    kept = s.kept if bug == "notes_late" else change(s.kept, k, number)
    return s._replace(told=change(s.told, k, number), kept=kept, has=change(s.has, k, number),
                      wrong=wrong)


def following(s: State, bug: str | None) -> typing.Iterator[tuple[str, State]]:
    """(event, next state)"""
    for i, life in enumerate(s.lives):
        if not life.number and not s.leader[0] and s.last < LIVES:
            yield f"{i} leads", lead(s, i, bug)
        if life.number:
            yield f"{i} is killed", put(s, i, number=0, asked=NOBODY)
            yield f"{i} stands still", put(s, i, sure=False)
            if s.leader[0] != life.number or not life.sure:
                yield f"{i} sees it and stands by", put(s, i, number=0, asked=NOBODY)
        if life.number and life.sure and not life.asked:
            for worker in WORKERS:
                if life.row == NOBODY:
                    t = put(s, i, asked=worker)
                    request = (life.number, i, worker)
                    t = t._replace(requests=t.requests | {request})
                    if bug == "before_durable":
                        t = t._replace(answers=t.answers | {request})
                    yield f"{i} leases to {worker}", t
                if life.row == worker:  # the worker asks for its leases
                    yield f"{i} says it again", s._replace(
                        answers=s.answers | {(life.number, i, worker)})
    if s.leader[0]:
        life = s.lives[s.leader[1]]
        if life.number != s.leader[0] or not life.sure:
            yield "the lease is over", s._replace(leader=(0, 0))
    for k, worker in enumerate(WORKERS):
        if s.told[k] != s.kept[k]:  # a worker writes its number to disk at some time
            yield f"{worker} notes its leader", s._replace(kept=change(s.kept, k, s.told[k]))
        yield f"{worker} is killed", restart(s, k, bug)
    for request in sorted(s.requests):
        yield f"commit {request} arrives", arrive(s, request, bug)
    for answer in sorted(s.answers):
        yield f"answer {answer} arrives", hear(s, answer, bug)


def explore(bug: str | None = None) -> dict[str, object]:
    """Searches every state. {"bad": why, ...} or {"ok": "complete", ...}"""
    return search.search(State(), lambda s: following(s, bug), lambda s: s.wrong)


def main() -> None:
    """Checks the rules, then every planted bug."""
    print(explore(), flush=True)
    for bug in BUGS:
        print(" ", bug, "->", explore(bug), flush=True)


if __name__ == "__main__":
    main()
