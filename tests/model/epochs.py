"""An epoch is opened for one state, and nothing acknowledged is lost: small worlds.

Numbers are those of server/docs/0000-protocol.md#rule-17, #rule-21, #rule-26 and #rule-27.
coordinator.py searches these worlds.

  late      17: a request that opens an epoch arrives when its server goes on from another state
  apart     21: an owner loses its directory, and its standby is in sync for some shards only
  store     26: the coordinator's store fails to commit; its answers must outlive its restart
  old       27: an owner starts on an old copy of its directory, beside a standby in sync
"""

BUGS = {
    "late_grant": ("late", "an epoch is opened whatever the ticket of its request"),
    "ticket_kept": ("late", "a request that opens nothing leaves its ticket in force"),
    "decides_pending": ("late", "a server goes on from another state while its request is open"),
    "apart_waits": ("apart", "an owner without its directory waits where any shard has a standby"),
    "apart_forgets": ("apart", "the row of an owner that came back keeps no standby"),
    "store_memory": ("store", "a strike-out whose commit failed is in memory, and is answered"),
    "epoch_memory": ("store", "an epoch whose commit failed is in memory, and is answered"),
    "old_report": ("old", "a process that reports less than another one did serves"),
    "standby_gives_up": ("old", "a standby takes a lower state of its own epoch"),
    "strike_behind": ("old", "an owner that is behind its standby may strike it out"),
    "strike_by_version": ("old", "so may one that has as many records, of another chain"),
    "standby_takes_fork": ("old", "a standby takes a higher state of another history of its epoch"),
    "strike_unseen": ("old", "so may one that has not compared what the standby said last"),
}


# ---------------------------------------------------------------- 17: late requests

def late(bugs, most=5):
    """(the state from which the server will go on, its ticket, whether an epoch may still be opened
    for it, whether a request is under way, the coordinator's ticket, the state from which the epoch
    begins or 0, requests sent). A request is (the state, or 0 for a question; a ticket); it arrives
    at any time, any number of times, or never. State 1 is the directory's own, which is dropped
    from memory when a follower's state 2 is taken. An epoch that begins from 1 excludes state 2."""
    start = (1, 0, 0, 0, 1, 0, ())

    def nxt(s):
        has, ticket, pending, waits, in_force, begun, sent = s
        free = not waits and (not pending or "decides_pending" in bugs)
        if waits:
            yield "no answer comes", (has, ticket, pending, 0, in_force, begun, sent)
        if not waits and len(sent) < most:
            yield "ask", (has, ticket, pending, 1, in_force, begun, sent + ((0, ticket),))
        if free and ticket and len(sent) < most:
            yield f"open from {has}", (has, ticket, 1, 1, in_force, begun,
                                       sent + ((has, ticket),))
        if free and has == 1 and not (begun and not pending):
            yield "a follower's state is taken", (2, *s[1:])
        for n, (state, named) in enumerate(sent):
            good = named == in_force or "late_grant" in bugs
            begins = state if state and good and not begun else begun
            used = named == in_force and ("ticket_kept" not in bugs or begins != begun)
            now = in_force + used
            comes = f"request {n} comes"
            yield comes, (has, ticket, pending, waits, now, begins, sent)
            if waits and n == len(sent) - 1:
                yield comes + ", and its answer", (has, now, 0, 0, now, begins, sent)

    def bad(s):
        return "an epoch begins from a state that its server has no more" \
            if s[5] and s[5] != s[0] else ""

    return start, nxt, bad, None, ()


# ---------------------------------------------------------------- 21: in sync for some shards

def apart(bugs):
    """(the serving program, the standby in each shard's row, the owner's directory per shard, the
    standby's disk per shard as far as known, losses left).

    A row belongs to a shard, a take-over concerns a whole server. Of a shard a directory has
    nothing (0), everything that was acknowledged (1), or the followers' state (2)."""
    start = ("owner", (0, 0), (1, 1), (0, 0), 2)

    def put(pair, shard, value):
        return tuple(value if k == shard else old for k, old in enumerate(pair))

    def nxt(s):
        serves, row, has, known, losses = s
        if serves != "standby" and serves != "nobody" and losses:
            safe = row if serves == "owner" else known
            yield "the owner's directory is lost", ("nobody", row, (0, 0), safe, losses - 1)
        if serves == "owner":
            for k in (0, 1):
                yield f"shard {k}: join, or leave", \
                    ("owner", put(row, k, 1 - row[k]), (1, 1), (0, 0), losses)
        elif serves == "nobody":
            if all(row):
                yield "take over", ("standby", (0, 0), (1, 1), known, losses)
            elif not any(row) or "apart_waits" not in bugs:
                kept = (0, 0) if "apart_forgets" in bugs else row
                yield "come back", ("settling", kept, has, known, losses)
        elif serves == "settling":
            for k in (0, 1):
                if not has[k]:
                    yield f"shard {k}: fetch, or rebuild", \
                        ("settling", row, put(has, k, 1 if row[k] else 2), known, losses)
            if all(has):
                yield "serve", ("owner", row, has, known, losses)

    def bad(s):
        serves, _, has, known, _ = s
        lacks = any(safe and have != 1 for safe, have in zip(known, has))
        return "what was acknowledged with a standby is lost" \
            if serves in ("owner", "standby") and lacks else ""

    fair = ("take over", "come back", "serve", *(f"shard {k}: fetch, or rebuild" for k in (0, 1)))
    return start, nxt, bad, lambda s: s[0] in ("owner", "standby"), fair


# ---------------------------------------------------------------- 26: the store

def store(bugs):
    """(memory, disk, told, promoted, acked alone, failures left).

    memory and disk: (owner, epoch, standby in sync); told: the owner was allowed to go on alone;
    promoted: the epochs that the servers heard. A failed commit may or may not have reached the
    disk: after a failed sync nobody knows."""
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
            elif epoch < 3:  # the former owner truncated its tail and starts again
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
    """(owner's log, standby's log, serving, whether the standby is running, the coordinator's
    knowledge of both, in sync, acknowledged, next push, copies left, whether the standby is about
    to report, the state that the owner has compared).

    An owner asks for the standby's state and compares it with its log; it strikes the standby out
    with another request. Meanwhile the standby may report more.

    Every push is another number, so that two different records of one version are noticed. A copy
    is older than the coordinator's knowledge, or a standby in sync is running, which reports its
    state before the strike-out. `unseen`: neither holds."""
    start = ((), (), 1, 1, 0, 0, 1, frozenset(), 1, 1, 0, None)

    def nxt(s):
        log, copy, serving, there, known, known_copy, in_sync, acked, push, *_ = s
        copies, speaks, compared = s[9:]
        if serving and push <= pushes:
            yield "push", (log + (push,), *s[1:8], push + 1, *s[9:])
        if serving and there and in_sync:
            if len(copy) < len(log) and log[:len(copy)] == copy:
                yield "ship", (log, log, *s[2:])
            fork = log[:len(copy)] != copy
            if fork and "standby_gives_up" in bugs and len(log) <= len(copy):
                yield "the standby takes the lower state", (log, log, *s[2:])
            if fork and "standby_takes_fork" in bugs and len(log) > len(copy):
                yield "the standby takes the fork", (log, log, *s[2:])
        durable = [n for i, n in enumerate(log) if not in_sync or copy[:i + 1] == log[:i + 1]]
        if serving and set(durable) - acked:
            yield "acknowledge", (*s[:7], acked | set(durable), *s[8:])
        if serving and known < len(log):
            yield "the owner reports", (*s[:4], len(log), *s[5:])
        if there and known_copy < len(copy):
            yield "the standby reports", (*s[:5], len(copy), *s[6:10], 0, compared)
        if not speaks:
            yield "the standby leaves, or is back", (*s[:3], 1 - there, *s[4:])
        for n in range(len(log)) if copies else ():
            witness = there and in_sync
            if n < max(known, known_copy) or witness or unseen:
                fine = int(n >= max(known, known_copy) or "old_report" in bugs)
                owes = int(witness and known_copy < len(copy))
                yield "an old copy starts", (log[:n], copy, fine, *s[3:9], 0, owes, None)
        if serving and in_sync:
            same = log[:known_copy] == copy[:known_copy]
            by_version = "strike_by_version" in bugs and len(log) >= known_copy
            if same or by_version or "strike_behind" in bugs:
                yield "compare", (*s[:11], known_copy)
            late = "strike_unseen" in bugs and compared is not None and len(log) >= known_copy
            if not speaks and (compared == known_copy or late):
                yield "strike out", (*s[:6], 0, *s[7:])

    def bad(s):
        log, copy, serving, _, _, _, in_sync, acked, *_ = s
        if serving and not in_sync and acked - set(log):
            return "an owner goes on alone without what was acknowledged"
        if in_sync and acked - set(copy):
            return "the standby that may take over lacks what was acknowledged"
        return ""

    return start, nxt, bad, None, ()


WORLDS = {"late": late, "apart": apart, "store": store, "old": old}
