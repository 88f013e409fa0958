#!/usr/bin/env python3
"""Which process with a worker's name goes on (server/docs/0000-protocol.md#rule-8), exhaustively.

One name, one shard, the coordinator's store. Two processes of that name start one after the other,
each on an empty directory: the operator believes that the host of the first is lost. A process's
request may arrive at any later time, any number of times, or never; an answer may be lost.

  lost     the first host is really lost, and the coordinator's store is lost, or an older copy
           comes back
  newer    the first process lives on
  both     two processes start at once
  made_up  the shard's server makes up a row

Each state is judged. In `lost` and `newer` the newest process pushes in every fair run.
"""
from __future__ import annotations

import typing

import search

LIVES, FAR, MADE_UP = 2, 2, 9  # FAR: how far the row's number may lie above the worker's
MOST = 4  # numbers granted; two processes that replace each other would go on for ever

BUGS = {
    "asks_nobody": ("lost", "a worker whose number is below the row's stops unasked"),
    "late_join": ("lost", "a join is granted a number whatever number it replaces"),
    "above_unasked": ("newer", "a worker whose number is below the row's goes above it unasked"),
    "grant_in_memory": ("newer", "a number is granted before it is stored"),
    "older_attempt": ("both", "a life that asks once more hears a number that replaced its own"),
    "any_row": ("made_up", "a worker goes above any row"),
}


class Life(typing.NamedTuple):
    """A process with the name."""

    stage: str = "unborn"  # asks, runs, is fenced, is gone
    over: int = 0  # the number that its join replaces
    number: int = 0  # granted
    local: int = 0


class State(typing.NamedTuple):
    """The world."""

    granted: int = 0  # the coordinator's memory
    stored: int = 0
    attempts: tuple[int, ...] = ()  # lives that got a number, the newest first
    joins: frozenset = frozenset()  # (life, the number that it replaces)
    lives: tuple[Life, ...] = (Life("asks"),) + (Life(),) * (LIVES - 1)
    row: tuple[int, int, int] = (0, 0, -1)  # number, local number, life
    losses: int = 0
    stays: bool = False  # the first process lives on
    ordered: bool = True  # the second life begins when the first one has a number
    lies: int = 0


def put(s: State, k: int, **change) -> State:
    """Changes one life."""
    life = s.lives[k]._replace(**change)
    return s._replace(lives=(*s.lives[:k], life, *s.lives[k + 1 :]))


def grant(s: State, number: int, bug: str | None) -> State:
    """Raises the coordinator's number."""
    return s._replace(granted=number, stored=s.stored if bug == "grant_in_memory" else number)


def join(s: State, k: int, over: int, bug: str | None) -> typing.Iterator[tuple[str, State]]:
    """A join without a directory arrives."""
    asks = s.lives[k].stage == "asks"
    if k in (s.attempts if bug == "older_attempt" else s.attempts[:1]):
        if asks:
            yield f"{k} is granted a number", put(s, k, stage="runs", number=s.granted)
        return
    if over != s.granted and bug != "late_join":
        if asks:
            yield f"{k} hears the number in force", put(s, k, over=s.granted)
        return
    if s.granted == MOST:
        return
    s = grant(s, s.granted + 1, bug)._replace(attempts=(k, *(x for x in s.attempts if x != k)))
    yield f"a join of {k} is granted", s
    if asks:
        yield f"{k} is granted a number", put(s, k, stage="runs", number=s.granted)


def greet(s: State, k: int, bug: str | None) -> State:
    """A process greets the shard's server."""
    life = s.lives[k]
    own, row = (life.number, life.local), s.row[:2]
    if own > row:
        return s._replace(row=(*own, k))
    if row[0] == life.number:
        return s if s.row[2] == k else put(s, k, local=row[1] + 1)
    # Its number is below the row's: the server asks the coordinator which one is in force.
    if row[0] - life.number > FAR and bug != "any_row":
        return put(s, k, stage="is fenced")
    above = put(s, k, number=row[0], local=row[1] + 1)
    if bug == "above_unasked":
        return above
    if bug == "asks_nobody":
        return put(s, k, stage="is fenced")
    return confirm(s, k, bug) if life.number != s.granted else above


def confirm(s: State, k: int, bug: str | None) -> State:
    """A process with a directory joins: its number, or a higher one, is in force."""
    number = s.lives[k].number
    if number < s.granted:
        return put(s, k, stage="is fenced")
    return grant(s, number, bug)


def following(s: State, bug: str | None) -> typing.Iterator[tuple[str, State]]:
    """(event, next state)"""
    for k, life in enumerate(s.lives):
        if life.stage == "asks":
            yield f"{k} asks", s._replace(joins=s.joins | {(k, life.over)})
        if life.stage == "runs":
            yield f"{k} greets", greet(s, k, bug)
            yield f"{k} joins again", confirm(s, k, bug)
        if life.stage == "unborn" and (s.lives[k - 1].stage == "runs" or not s.stays):
            gone = s if s.stays else put(s, k - 1, stage="is gone")
            yield f"{k} begins", put(gone, k, stage="asks")
    for k, over in s.joins:
        yield from join(s, k, over, bug)
    if s.granted != s.stored:
        yield "the store commits", s._replace(stored=s.granted)
        yield "the coordinator starts again", s._replace(granted=s.stored)
    # Not covered: a join from before the loss that arrives after it, or a first process that lives
    # on.
    for older in range(s.granted) if s.losses and s.lives[-1].stage != "unborn" else ():
        yield "the store is lost", s._replace(granted=older, stored=older, attempts=(),
                                              joins=frozenset(), losses=s.losses - 1)
    if s.lies:
        yield "a row is made up", s._replace(row=(MADE_UP, 0, -1), lies=0)


def bad(s: State) -> str:
    """The violated invariant."""
    running = [(x.number, x.local) for x in s.lives if x.stage == "runs"]
    numbers = [x.number for x in s.lives if x.stage in ("runs", "is fenced")]
    if s.stays and len(set(numbers)) < len(numbers):
        return "two processes have one number"
    if s.granted >= MADE_UP or any(number >= MADE_UP for number, _ in running):
        return "a made-up row wears the numbers out"
    newest = s.lives[-1]
    if s.ordered and s.stays and newest.stage == "is fenced":
        return "an older process fences a newer one"
    return ""


def goal(s: State) -> bool:
    """The newest life pushes, or the world has no goal."""
    return s.lies > 0 or not s.ordered or s.row[0] == MADE_UP or s.row[2] == LIVES - 1


FAIR = [f"{k} {does}" for k in range(LIVES) for does in (
    "asks", "begins", "greets", "joins again", "hears the number in force",
    "is granted a number")]
WORLDS = {"lost": State(granted=1, stored=1, losses=1), "newer": State(stays=True),
          "both": State(stays=True, ordered=False, lives=(Life("asks"),) * LIVES),
          "made_up": State(lies=1)}


def explore(world: str, bug: str | None = None) -> dict:
    """Searches every state. {"bad": why, ...} or {"ok": "complete", ...}"""
    return search.search(WORLDS[world], lambda s: following(s, bug), bad, goal, FAIR)


def main() -> None:
    """Checks the rules, then every planted bug."""
    for world in WORLDS:
        print(world, explore(world), flush=True)
    for bug, (world, _) in BUGS.items():
        print(" ", bug, "->", explore(world, bug), flush=True)


if __name__ == "__main__":
    main()
