#!/usr/bin/env python3
"""What a coordinator, an owner and a rebuild may believe: rules 26 to 29 in four small worlds.

  store     26: the coordinator's store fails to commit; what it answers must outlive its restart
  old       27: an owner starts on an old copy of its directory, beside a standby in sync
  silence   28: the coordinator stands still for a while; nobody else's silence is that
  patience  29: a rebuild wants a state that is offered for ever and never comes

Each is searched exhaustively. `store` and `old` are judged in every state. `silence` and
`patience` have a goal too: no fair run goes on for ever without it.
"""
import itertools
import time
from collections import deque

BUGS = {
    "store_memory": ("store", "a strike-out whose commit failed is in memory, and is answered"),
    "epoch_memory": ("store", "an epoch whose commit failed is in memory, and is answered"),
    "old_report": ("old", "a process that reports less than another one did serves"),
    "standby_gives_up": ("old", "a standby takes a lower state of its own epoch"),
    "strike_behind": ("old", "an owner that is behind its standby may strike it out"),
    "strike_by_version": ("old", "so may one that has as many records, of another chain"),
    "pause_counts": ("silence", "the time in which the coordinator stood still counts as silence"),
    "old_view": ("silence", "who was silent is judged before what came meanwhile is read"),
    "pause_forgives": ("silence", "a pause sets the silence of all to nothing"),
    "no_patience": ("patience", "an offer that is wanted is waited for without a bound"),
    "words_renew": ("patience", "saying the offer again renews the patience"),
    "word_returns": ("patience", "who was passed over and offers again is wanted first again"),
    "one_patience": ("patience", "the bound is one for the whole transfer, whatever it brings"),
}


# ---------------------------------------------------------------- 26: the store

def store(bugs):
    """(memory, disk, told, promoted, acked alone, failures left).

    memory and disk: (owner, epoch, standby in sync); told: the owner was answered that it may go on
    alone; promoted: epochs as the servers heard of them. A commit that fails leaves the disk as it
    was, or has reached it all the same: whoever failed to sync can't know."""
    start = ((0, 1, 1), (0, 1, 1), 0, ((0, 1),), 0, 2)

    def nxt(s):
        memory, disk, told, promoted, alone, fails = s
        owner, epoch, in_sync = memory

        def commit(row, label, answer, bug):
            """A change: done, or failed in one of two ways, and then not answered."""
            yield label, (row, row, *answer, alone, fails)
            for left in (disk, row) if fails else ():
                if bug in bugs:
                    yield label + ", failed", (row, left, *answer, alone, fails - 1)
                else:
                    yield label + ", failed", (memory, left, told, promoted, alone, fails - 1)

        if owner == 0:
            if in_sync:
                yield from commit((0, epoch, 0), "strike out", (1, promoted), "store_memory")
                yield from commit((1, epoch + 1, 0), "take over",
                                  (told, promoted + ((1, epoch + 1),)), "epoch_memory")
            elif epoch < 3:  # the former owner cut its tail, and begins anew
                yield from commit((0, epoch + 1, 0), "open an epoch",
                                  (told, promoted + ((0, epoch + 1),)), "epoch_memory")
        if told and not alone and all(e[0] == 0 for e in promoted):
            yield "acknowledge alone", (memory, disk, told, promoted, 1, fails)
        if memory != disk:
            yield "the coordinator restarts", (disk, disk, told, promoted, alone, fails)

    def bad(s):
        _, _, _, promoted, alone, _ = s
        epochs = [epoch for _, epoch in promoted]
        if len(epochs) != len(set(epochs)):
            return "one epoch was opened twice"
        return "a struck-out standby took over: what was acknowledged alone is lost" \
            if alone and any(owner for owner, _ in promoted) else ""

    return start, nxt, bad, None, ()


# ---------------------------------------------------------------- 27: an old copy

def old(bugs, unseen=False, pushes=3):
    """(owner's log, standby's log, serving, the standby is there, what the coordinator knows of
    both, in sync, acknowledged, next push, copies left).

    Every push is another number, so that a version that exists twice shows. A copy is older than
    what the coordinator heard of, or a standby in sync is there, which says at once what it holds.
    `unseen`: it is neither."""
    start = ((), (), 1, 1, 0, 0, 1, frozenset(), 1, 1)

    def nxt(s):
        log, copy, serving, there, known, known_copy, in_sync, acked, push, copies = s
        if serving and push <= pushes:
            yield "push", (log + (push,), *s[1:8], push + 1, copies)
        if serving and there and in_sync:
            if len(copy) < len(log) and log[:len(copy)] == copy:
                yield "ship", (log, log, *s[2:])
            elif log[:len(copy)] != copy and "standby_gives_up" in bugs:
                yield "the standby takes the lower state", (log, log, *s[2:])
        durable = [n for i, n in enumerate(log) if not in_sync or copy[:i + 1] == log[:i + 1]]
        if serving and set(durable) - acked:
            yield "acknowledge", (*s[:7], acked | set(durable), push, copies)
        if serving and known < len(log):
            yield "the owner reports", (*s[:4], len(log), *s[5:])
        if there and known_copy < len(copy):
            yield "the standby reports", (*s[:5], len(copy), *s[6:])
        yield "the standby leaves, or is back", (*s[:3], 1 - there, *s[4:])
        for n in range(len(log)) if copies else ():
            witness = there and in_sync
            if n < max(known, known_copy) or witness or unseen:
                fine = int(n >= max(known, known_copy) or "old_report" in bugs)
                heard = len(copy) if witness else known_copy
                yield "an old copy starts", (log[:n], copy, fine, there, known, heard, *s[6:9], 0)
        if serving and in_sync:
            same = log[:known_copy] == copy[:known_copy]
            by_version = "strike_by_version" in bugs and len(log) >= known_copy
            if same or by_version or "strike_behind" in bugs:
                yield "strike out", (*s[:6], 0, *s[7:])

    def bad(s):
        log, copy, serving, _, _, _, in_sync, acked, _, _ = s
        if serving and not in_sync and acked - set(log):
            return "an owner goes on alone without what was acknowledged"
        if in_sync and acked - set(copy):
            return "the standby that may take over lacks what was acknowledged"
        return ""

    return start, nxt, bad, None, ()


# ---------------------------------------------------------------- 28: silence

def silence(bugs, timeout=2):
    """(alive, paused, ticks of silence that the coordinator counts, a word is unread, given up). A
    tick is the owner's interval: one that lives speaks in each. What it says to a coordinator that
    stands still waits to be read, or its call breaks and it speaks again in the next tick."""
    start = (1, 0, 0, 0, 0)

    def nxt(s):
        alive, paused, silent, unread, given_up = s
        if given_up:
            return
        if alive:
            yield "the owner dies", (0, *s[1:])
        if paused:
            counts = min(timeout, silent + ("pause_counts" in bugs))
            for word in {unread, unread or alive}:
                yield "it stands still for a tick", (alive, 1, counts, word, 0)
            yield "it goes on", (alive, 0, 0 if "pause_forgives" in bugs else silent, unread, 0)
            return
        yield "it stands still", (alive, 1, *s[2:])
        if unread:
            yield "read", (alive, 0, 0, 0, 0)
        if not unread or "old_view" in bugs:
            if silent >= timeout:
                yield "give up", (*s[:4], 1)
            else:
                yield "listen for a tick", (alive, 0, silent + 1, alive or unread, 0)

    def bad(s):
        return "somebody who spoke all the time is given up" if s[0] and s[4] else ""

    # Whoever died is given up, however often the coordinator stands still, as long as it runs too.
    fair = ("listen for a tick", "it goes on", "read", "give up")
    return start, nxt, bad, lambda s: s[0] or s[4], fair


# ---------------------------------------------------------------- 29: patience

def patience(bugs, bound=3, parts=3):
    """(wanted, ticks without progress, parts that came, passed over). Follower 0 offers the highest
    version and never brings more than a part of it; follower 1 offers less, and brings a part
    before the bound is over."""
    start = (0, 0, 0, frozenset())

    def nxt(s):
        wanted, idle, came, passed = s
        if came == parts:
            return
        if idle == bound and "no_patience" not in bugs:
            passed = passed | {wanted}
            passed = frozenset() if len(passed) == 2 else passed  # all were: begin again
            yield "pass over", (min({0, 1} - passed), 0, 0, passed)
        late = wanted == 1 and idle == bound - 1 and "one_patience" not in bugs
        if not late and idle < bound:
            yield "tick", (wanted, idle + 1, came, passed)
        if wanted == 1 and idle < bound or wanted == 0 and came == 0:
            renewed = idle if "one_patience" in bugs else 0
            # A part takes its time: with one bound for all of them, each one takes half of it.
            if "one_patience" not in bugs or idle >= min(bound, 2 * (came + 1) - 1):
                yield f"a part of {wanted}", (wanted, renewed, came + 1, passed)
        if "words_renew" in bugs and wanted == 0:
            yield "words", (wanted, 0, came, passed)
        elif "word_returns" in bugs and 0 in passed:
            yield "words", (0, 0, 0, passed - {0})
        else:
            yield "words", s

    return start, nxt, lambda s: "", lambda s: s[2] == parts, ("tick", "pass over", "a part of 1")


WORLDS = {"store": store, "old": old, "silence": silence, "patience": patience}


# ---------------------------------------------------------------- search

def graph(start, nxt):
    """state -> [(label, next state)] of all that can be reached; and how each was reached first."""
    edges, came = {}, {start: None}
    queue = deque([start])
    while queue:
        s = queue.popleft()
        edges[s] = list(nxt(s))
        for label, t in edges[s]:
            if t not in came:
                came[t] = (s, label)
                queue.append(t)
    return edges, came


def trace(came, s):
    labels = []
    while came[s]:
        s, label = came[s]
        labels.append(label)
    return labels[::-1]


def components(edges):
    """Strongly connected ones (Tarjan, without recursion)."""
    index, low, stack, inside, count = {}, {}, [], set(), itertools.count()
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = next(count)
        stack.append(root)
        inside.add(root)
        while work:
            s, rest = work[-1]
            for _, t in rest:
                if t not in index:
                    index[t] = low[t] = next(count)
                    stack.append(t)
                    inside.add(t)
                    work.append((t, iter(edges[t])))
                    break
                if t in inside:
                    low[s] = min(low[s], index[t])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[s])
                if low[s] == index[s]:
                    found = set()
                    while not found or s not in found:
                        found.add(stack.pop())
                    inside -= found
                    yield found


def for_ever(edges, goal, fair, among=None):
    """A state of a fair run that never reaches the goal; None where there is none. A run is fair
    (strongly) if it takes again and again what is possible again and again."""
    among = {s for s in edges if not goal(s)} if among is None else among
    inside = {s: [e for e in edges[s] if e[1] in among] for s in among}
    for part in components(inside):
        if any(not edges[s] for s in part):
            return next(iter(part))  # nothing can happen any more
        taken = {label for s in part for label, t in inside[s] if t in part}
        able = {s for s in part if any(label in fair and label not in taken
                                       for label, _ in edges[s])}
        if taken and not able:
            return next(iter(part))
        stuck = for_ever(edges, goal, fair, part - able) if taken and able != part else None
        if stuck:
            return stuck
    return None


def explore(world, bugs=(), **given):
    start, nxt, bad, goal, fair = WORLDS[world](frozenset(bugs), **given)
    began = time.monotonic()
    edges, came = graph(start, nxt)
    for s in edges:
        if bad(s):
            return {"bad": bad(s), "states": len(edges), "trace": trace(came, s)}
    stuck = for_ever(edges, goal, fair) if goal else None
    if stuck:
        return {"bad": "it never ends", "states": len(edges), "trace": trace(came, stuck)}
    return {"ok": "complete", "states": len(edges), "secs": round(time.monotonic() - began, 1)}


if __name__ == "__main__":
    for name in WORLDS:
        print(name, explore(name), flush=True)
        for key, (where, _) in BUGS.items():
            if where == name:
                print(" ", key, "->", explore(name, [key]), flush=True)
    print("a copy that nobody can see:", explore("old", unseen=True))
