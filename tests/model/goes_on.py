#!/usr/bin/env python3
"""Every order of events of one worker, one shard and the coordinator of a run that ends and then
goes on (server/docs/0000-protocol.md#rule-36).

Mass is in one place: applied in the log, in the worker's residual, or in its undecided push. A
worker that folds END returns an undecided push to the residual without a record, and copies of it
may still be under way: a sent copy may arrive at any later time, any number of times, or never.

The worker may restart from its copy of an END. Its outbox is the last one, and the outcome of the
last admitted push may be forgotten.

Each state is judged. Besides, every fair run reaches the goal: all mass is applied while the run
goes on, or the worker ends where the run ends for the last time."""

from __future__ import annotations

import collections
import typing

from search import for_ever

BUGS = {
    "push_of_the_end": ("start", "a push whose base is not above END is decided like any other"),
    "first_end_only": ("twice", "where the run has ended twice, the first end alone is looked at"),
    "old_end_decides": ("start", "a copy of an END takes back what was pushed after that END"),
    "taken_back_counts": ("start", "a row that lacks what END took back is one of an older copy"),
    "gap_in_session": ("start", "BEHIND ends no session: what END took back is missed for ever"),
    "end_unasked": ("word", "an END is the last one, whatever the coordinator says"),
    "end_by_phase": ("word", "an END is the last one in phase END, whatever its version"),
    "asked_before": ("word", "the coordinator was asked before the worker stood at an END"),
    "asked_at_another": ("word", "the coordinator was asked when it stood at an earlier END"),
}
ENDS = 2
END, GOES_ON, FENCE, PUSH = range(4)  # kinds of records


class Push(typing.NamedTuple):
    """A frame, carrying one unit of mass."""

    life: int  # incarnation
    step: int
    base: int


class State(typing.NamedTuple):
    """The world."""

    log: tuple = ()  # (END,), (GOES_ON,), (FENCE, life), (PUSH, frame, admitted)
    wire: frozenset[Push] = frozenset()
    closing: bool = False  # the coordinator's plan has phase CLOSE or END
    known: int = 0  # the newest version that the coordinator knows
    mass: int = 0  # all mass that was ever trained
    goes: int = 1  # how often an operator's command to go on comes
    residual: int = 0
    life: int = 1
    next: int = 1
    decided: int = 0
    sure: bool = True  # the server must have the last decision, made in its epoch
    outbox: tuple = ()  # (frame, whether it is known to be admitted)
    folded: int = 0  # the worker's version
    ended: bool = False
    settled: bool = True
    session: bool = False
    follows: bool = True
    request: tuple = ()  # (sent at the END where the worker is, the answer or nothing)
    done: bool = False
    copy: int = 0  # version of the END of which the worker has a copy
    starts: int = 0  # restarts left
    wrong: str = ""


def ends(log: tuple) -> list[int]:
    """Versions of the END records."""
    return [v for v, record in enumerate(log, 1) if record[0] == END]


def is_over(log: tuple) -> bool:
    """Whether the last END or GOES_ON of the log is END."""
    return next((r[0] == END for r in reversed(log) if r[0] in (END, GOES_ON)), False)


def row(log: tuple) -> tuple[int, tuple[int, int], bool]:
    """The worker's row: its incarnation, the last decided push, and whether it was admitted."""
    life, last, admitted = 1, (0, 0), False
    for record in log:
        if record[0] == FENCE:
            life = record[1]
        elif record[0] == PUSH:
            last, admitted = (record[1].life, record[1].step), record[2]
    return life, last, admitted


def applied(log: tuple) -> list[Push]:
    """Pushes that were admitted."""
    return [r[1] for r in log if r[0] == PUSH and r[2]]


def undecided(s: State) -> Push | None:
    """The push that is undecided, as far as the worker knows."""
    return next((p for p, admitted in s.outbox if not admitted), None)


def take_back(s: State, push: Push) -> State:
    """One flip: the mass returns, and the step counts as decided."""
    decided = max(s.decided, push.step) if push.life == s.life else s.decided
    return s._replace(outbox=tuple(e for e in s.outbox if e[0] != push),
                      residual=s.residual + 1, decided=decided)


def admit(s: State, push: Push) -> State:
    """The worker learns that the push was admitted."""
    decided = max(s.decided, push.step) if push.life == s.life else s.decided
    return s._replace(outbox=tuple((p, a or p == push) for p, a in s.outbox), decided=decided)


def undecidable(s: State, push: Push) -> bool:
    """No copy of the push can be decided any more."""
    life, last, _ = row(s.log)
    return push.life < life or (push.life, push.step) <= last


def arrives(s: State, push: Push, bug: str | None) -> State:
    """A copy arrives at the server."""
    life, last, _ = row(s.log)
    step = last[1] if last[0] == life else 0
    if s.closing or is_over(s.log) or push.life != life:
        return s  # not final
    if push.step > step + 1:
        behind = push.life == s.life and bug != "gap_in_session"
        return s._replace(session=s.session and not behind)
    if push.step <= step:
        return s  # decided before
    of = ends(s.log)
    end = (of[0] if bug == "first_end_only" else of[-1]) if of else 0
    late = of and push.base <= end and bug != "push_of_the_end"
    return s._replace(log=(*s.log, (PUSH, push, not late)))


def settle(s: State, bug: str | None) -> State:
    """The worker is at an END. Its replica's row decides pushes from before it; the log decides
    pushes from after it, if the run went on."""
    _, last, admitted = row(s.log[: s.folded])
    for push, known in s.outbox:
        if push.base > s.folded and bug != "old_end_decides":
            continue
        key = (push.life, push.step)
        if key < last or (key == last and admitted):
            s = admit(s, push)
        else:
            s = take_back(s, push)
            if key > last and not known and bug != "taken_back_counts":
                s = s._replace(sure=False)
    return s._replace(settled=True)


def hello(s: State) -> State:
    """The worker greets the server."""
    life, last, admitted = row(s.log)
    step = last[1] if last[0] == s.life else 0
    if s.sure and last < (s.life, s.decided) and s.decided:
        return s  # the server's directory is an older copy: nothing is pushed to it
    if life < s.life:
        if s.closing or is_over(s.log):
            return s
        return s._replace(log=(*s.log, (FENCE, s.life)))
    gap = step + 1 < s.next and all(p[:2] != (s.life, step + 1) for p, _ in s.outbox)
    if step < s.decided or gap:
        return s._replace(life=s.life + 1, next=1, decided=0)
    for push, _ in s.outbox:
        key = (push.life, push.step)
        if key < last or (key == last and admitted):
            s = admit(s, push)
        elif key == last or push.life < s.life:  # refused; or fenced and never applied
            s = take_back(s, push)
    return s._replace(session=True, sure=True)


def heard(s: State) -> typing.Iterator[tuple[str, State]]:
    """The session's answer to the undecided push."""
    push = undecided(s)
    record = next((r for r in s.log if push and r[0] == PUSH and r[1] == push), None)
    if record and s.session:
        yield "it hears the decision", admit(s, push) if record[2] else take_back(s, push)


def fold(s: State, bug: str | None) -> State:
    """The worker folds up to the next END, or the whole log."""
    to = next((e for e in ends(s.log) if e > s.folded), len(s.log))
    records = s.log[s.folded : to]
    ended = s.ended and all(r[0] != GOES_ON for r in records)
    if records[-1][0] == END:
        request = s.request if bug == "asked_at_another" else (False, *s.request[1:])
        return s._replace(folded=to, ended=True, settled=False, request=s.request and request)
    return s._replace(folded=to, ended=ended, done=s.done and ended)


def says(s: State) -> State:
    """The coordinator answers; the version of the last END is for the judge alone."""
    last = ends(s.log)[-1] if is_over(s.log) else len(s.log) + 1
    return s._replace(request=(s.request[0], (s.closing, s.known, last)))


def answered(s: State, bug: str | None) -> State:
    """An answer arrives: the coordinator's phase and the newest version that it knows."""
    at_end, (closed, known, last) = s.request
    s = s._replace(request=())
    if not s.ended or not (at_end or bug == "asked_before"):
        return s
    if not closed or (known > s.folded and bug != "end_by_phase"):
        return s._replace(ended=False, done=False, follows=True, session=False)
    wrong = "an earlier END is told as the last one" if s.folded < last else s.wrong
    return s._replace(done=True, wrong=wrong)


def start(s: State) -> State:
    """The worker restarts from its copy of an END."""
    outbox, decided = s.outbox, s.decided
    last = outbox[-1][0] if outbox else None
    if last and (last.life, last.step) == (s.life, decided):  # the next flip stores its outcome
        outbox, decided = (*outbox[:-1], (last, False)), decided - 1
    return s._replace(outbox=outbox, decided=decided, folded=s.copy, ended=True, settled=False,
                      session=False, follows=False, request=(), done=False, starts=s.starts - 1)


def runs(s: State, bug: str | None) -> typing.Iterator[tuple[str, State]]:
    """All possible next events of the server and the coordinator."""
    for push in s.wire:
        mine = push == undecided(s)
        yield "its push arrives" if mine else "a copy arrives", arrives(s, push, bug)
    if s.known < len(s.log) and not s.mass:
        yield "the server reports", s._replace(known=len(s.log))
    over = is_over(s.log)
    if not s.closing and not over and len(ends(s.log)) < ENDS:
        if s.mass or s.known == len(s.log):
            yield "the run is to end", s._replace(closing=True, known=len(s.log))
    if s.closing and not over:
        yield "END is a record", s._replace(log=(*s.log, (END,)))
    if s.closing and over and s.log.count((GOES_ON,)) < s.goes:
        yield "an operator raises the budget", s._replace(closing=False)
    if not s.closing and over:
        yield "the log goes on", s._replace(log=(*s.log, (GOES_ON,)))
    if s.request and not s.request[1]:
        yield "the coordinator answers", says(s)


def works(s: State, bug: str | None) -> typing.Iterator[tuple[str, State]]:
    """All possible next events of the worker."""
    push = undecided(s)
    # It cuts after it has folded its last decision, so that the world is finite.
    waits = s.ended or is_over(s.log[: s.folded]) or row(s.log[s.folded :])[1] > (0, 0)
    if s.residual and not push and not waits:
        made = Push(s.life, s.next, s.folded)
        yield "it cuts", s._replace(outbox=(*s.outbox, (made, False)), residual=s.residual - 1,
                                    next=s.next + 1)
    if push and s.session and push not in s.wire and not undecidable(s, push):
        yield "it sends", s._replace(wire=s.wire | {push})
    yield from heard(s)
    if not s.session and not s.ended:
        yield "it greets", hello(s)
    if s.follows and s.folded < len(s.log):
        yield "it folds", fold(s, bug)
    if s.ended and not s.settled:
        yield "it settles", settle(s, bug)
    if s.ended and s.copy < s.folded and s.starts:
        yield "a copy of END is durable", s._replace(copy=s.folded)
    if s.ended and bug == "end_unasked" and not s.done:
        of = ends(s.log)
        wrong = "an earlier END is told as the last one" if s.folded < of[-1] else s.wrong
        yield "it is done", s._replace(done=True, wrong=wrong)
    elif not s.request:  # a finished worker still receives answers while its process lives
        asks = s._replace(request=(s.ended, ()))
        yield "it asks", asks if not s.mass else answered(says(asks), bug)
    if s.request and s.request[1]:
        yield "the answer comes", answered(s, bug)
    if s.ended and s.follows:
        yield "the stream ends", s._replace(follows=False)
    if s.session:
        yield "the session ends", s._replace(session=False)
    if s.copy and s.starts:
        yield "it starts again", start(s)


def bad(s: State) -> str:
    """Mass that is lost or in two places, or a wrong last answer."""
    done = applied(s.log)
    held = sum(p not in done for p, admitted in s.outbox)
    twice = sum(p in done for p, admitted in s.outbox if not admitted)
    total = len(done) + s.residual + held
    if total != s.mass:
        return f"mass is {'lost' if total < s.mass else 'in two places'}"
    return s.wrong if twice <= 1 else "two pushes are undecided"


def reached(s: State) -> bool:
    """The goal."""
    if s.closing and is_over(s.log):
        return s.done and s.log.count((GOES_ON,)) == s.goes
    return not s.closing and len(applied(s.log)) == s.mass


FAIR = ("its push arrives", "the server reports", "END is a record",
        "an operator raises the budget", "the log goes on", "the coordinator answers", "it cuts",
        "it sends", "it hears the decision", "it greets", "it folds", "it settles",
        "it asks", "the answer comes", "it is done")


WORLDS = {
    "word": State(starts=1),  # the answers to the worker, without mass
    "start": State(mass=1, residual=1, starts=1),
    "twice": State(mass=1, residual=1, goes=2),
}


def search(world: str, bug: str | None = None) -> tuple[int, str]:
    """The number of states, and the violation found."""
    edges, first = {}, WORLDS[world]
    seen, todo = {first}, collections.deque([first])
    while todo:
        s = todo.popleft()
        if bad(s):
            return len(seen), bad(s)
        edges[s] = [*runs(s, bug), *works(s, bug)]
        edges[s] = [(label, t._replace(wire=frozenset(p for p in t.wire if not undecidable(t, p))))
                    for label, t in edges[s]]
        for _, after in edges[s]:
            if after not in seen:
                seen.add(after)
                todo.append(after)
    stuck = for_ever(edges, reached, FAIR)
    return len(seen), "it never ends" if stuck else ""


def main() -> None:
    """Checks that the rules hold, and that each planted bug is found."""
    for world in WORLDS:
        states, found = search(world)
        print(f"{world}: {states} states, {found or 'sound'}", flush=True)
    for bug, (world, _) in BUGS.items():
        states, found = search(world, bug)
        print(f"  {bug}: {found or 'MISSED'} after {states} states", flush=True)


if __name__ == "__main__":
    main()
