#!/usr/bin/env python3
"""What a coordinator, an owner and a rebuild may believe, in small worlds.

Numbers are those of server/docs/0000-protocol.md#rule-17, #rule-21, #rule-22 and of #rule-26 to
#rule-30.

  late      17: a request that opens an epoch comes when its server goes on from another state
  apart     21: an owner loses its directory, and its standby is in sync for some shards only
  store     26: the coordinator's store fails to commit; what it answers must outlive its restart
  old       27: an owner starts on an old copy of its directory, beside a standby in sync
  moved     22: an older copy of a move's target starts with the MOVE record in its log
  reserved  22: a move is given up by an operator, and the source's log is lost
  together  22: a server's two shards are moved; their records come one by one, or are given up, or
            the target loses its log's end
  word      22: an operator lets a former owner go on, whose log of one shard needs no epoch
  silence   28: the coordinator stands still for a while; nobody else's silence is that
  patience  29: a rebuild wants a state that is offered for ever and never comes
  granted   19: a worker claims what was not leased to it, while the coordinator is away
  proved    13, 17: a worker lies about a copy and about a state, and disks of the server and of a
            region are lost
  stalled   30: a worker that has begun a unit hangs, for a while or for good; another one runs the
            unit a second time, and the run ends

Each is searched exhaustively. `late`, `store`, `old`, `moved` and `reserved` are judged in every
state.
`apart`, `together`, `word`, `silence`, `patience`, `granted`, `proved` and `stalled` have a goal
too: no fair run goes on for ever without it.
"""
import itertools
import time
from collections import deque

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
    "reserved_again": ("moved", "a start that finds the record serves in the reserved epoch"),
    "old_record": ("moved", "a record that comes once more reserves the epoch again"),
    "reserved_forgotten": ("reserved", "the log alone says which epoch was a move's"),
    "moved_apart": ("together", "a shard is the target's when that has its record"),
    "given_up_apart": ("together", "where one shard is given up the rest is not asked back"),
    "kept_record": ("together", "a target refuses no epoch whose record it has"),
    "refused_whole": ("together", "a target with all records refuses"),
    "kept_shown": ("together", "a target that shows that it served a shard is not heard to refuse"),
    "late_word": ("together", "what a target said before it lost its log's end counts after it"),
    "word_for_one": ("word", "an operator's word is for those shards alone that need an epoch"),
    "pause_counts": ("silence", "the time in which the coordinator stood still counts as silence"),
    "old_view": ("silence", "who was silent is judged before what came meanwhile is read"),
    "pause_forgives": ("silence", "a pause sets the silence of all to nothing"),
    "no_patience": ("patience", "an offer that is wanted is waited for without a bound"),
    "words_renew": ("patience", "saying the offer again renews the patience"),
    "word_returns": ("patience", "who was passed over and offers again is wanted first again"),
    "claim_unchecked": ("granted", "a claim needs no grant"),
    "grant_of_unit": ("granted", "a claim needs a grant of its unit, whoever's"),
    "grant_of_worker": ("granted", "a claim needs a grant of its worker's, of whatever unit"),
    "key_in_memory": ("granted", "a server keeps the key of the grants in memory alone"),
    "unkeyed_counts": ("granted", "a server that has no key yet takes a claim as it comes"),
    "unkeyed_refuses": ("granted", "a server that has no key yet refuses a claim for good"),
    "unproved": ("proved", "a copy counts by its holder's word"),
    "one_region": ("proved", "a copy of one region is enough while another one lives"),
    "one_voice": ("proved", "a rebuild takes a state that one region alone claims"),
    "digest_free": ("proved", "a rebuild compares the point of what is brought, and not its bytes"),
    "higher_waits": ("proved", "a rebuild waits while somebody claims a higher state"),
    "no_operator": ("proved", "where no state is confirmed a rebuild hears no operator"),
    "no_second": ("stalled", "what a stalled worker has begun runs nowhere else"),
    "second_credits": ("stalled", "the second claim of a unit credits it, too"),
    "drain_waits": ("stalled", "DRAIN has no bound: it waits for all that are heard"),
    "late_push": ("stalled", "a shard that closed takes a push of a worker that was left out"),
    "end_first": ("stalled", "the run ends before its shard has closed"),
    "end_waits": ("stalled", "the run ends when all have folded it, those that hang too"),
    "one_patience": ("patience", "the bound is one for the whole transfer, whatever it brings"),
}


# ---------------------------------------------------------------- 17: late requests

def late(bugs, most=5):
    """(the state that the server is to go on from, its ticket, an epoch may still be opened for it,
    a request is under way, the coordinator's ticket, the state that the epoch begins from or 0,
    requests that were sent). A request is (the state, or 0: it only asks; a ticket); it comes at
    any time, any number of times, or never. State 1 is the directory's own, which is gone from
    memory when a follower's state 2 was taken. An epoch that begins from 1 rules state 2 out."""
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
    """(who serves, the row's standby of each shard, what the owner's directory has of each, what is
    known of each to be on the standby's disk, losses left).

    A row is a shard's, a take-over is a server's. Of a shard a directory has nothing (0), all that
    was acknowledged (1), or what followers have (2)."""
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
    both, in sync, acknowledged, next push, copies left, the standby is about to speak, what the
    owner has compared).

    An owner asks what the standby holds and compares it with its log; it strikes the standby out
    with another request. Meanwhile the standby may say more.

    Every push is another number, so that a version that exists twice shows. A copy is older than
    what the coordinator heard of, or a standby in sync is there, which says what it holds before
    the strike-out. `unseen`: it is neither."""
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


# ---------------------------------------------------------------- 22: a move's target

def moved(bugs):
    """(target's log, the record came to this process, the coordinator knows, its last epoch, epochs
    with pushes, a copy of the log, an epoch began again). The log: 0, 1 with the MOVE record, or
    the epoch that it begins. Workers hear of the target from the coordinator."""
    start = (0, 0, 0, 2, frozenset(), None, 0)

    def nxt(s):
        log, came, known, last, used, copy, twice = s
        if log == 0:  # once more where it follows an old log again, when another one has the shard
            yield "the record comes", (1, int(not known or "old_record" in bugs), *s[2:])
        if log == 1 and (came or "reserved_again" in bugs):
            yield "serve", (2, came, known, last, used, copy, int(2 in used))
        if log == 1 and not came or log == 0 and known:
            yield "ask, and serve", (last + 1, came, 1, last + 1, used, copy, int(last + 1 in used))
        if log > 1:
            yield "the coordinator learns", (log, came, 1, max(last, log), *s[4:])
            if known:
                yield "push", (*s[:4], used | {log}, copy, twice)
        if copy is None:
            yield "copy", (*s[:5], log, twice)
        elif copy != "used":
            yield "the copy starts", (copy, 0, *s[2:5], "used", twice)
        yield "start", (log, 0, *s[2:])

    def bad(s):
        return "an epoch begins that was served before" if s[6] else ""

    return start, nxt, bad, None, ()


# ---------------------------------------------------------------- 22: a move that was given up

def reserved(bugs):
    """(the source's log has the MOVE record, the target has it, or served, or is gone, the operator
    gave the move up, epoch 2 was served, an epoch began again). Epoch 2 is reserved. The
    coordinator's disk is full: it does not learn that the target served."""
    start = (0, "waits", 0, 0, 0)

    def nxt(s):
        record, target, over, served, twice = s
        if target == "waits" and not record and not over:
            yield "the record is written", (1, *s[1:])
        if target == "waits" and record:
            yield "the record comes", (record, "has it", *s[2:])
        if target == "has it":
            yield "serve", (record, "serves", over, 1, twice)
        if record:
            yield "the source's disk is lost", (0, *s[1:])
        if target != "gone":
            yield "the target's disk is lost", (record, "gone", *s[2:])
        if target == "gone" and not over:
            yield "an operator gives the move up", (record, target, 1, served, twice)
        if over and not twice:
            epoch = 3 if record or "reserved_forgotten" not in bugs else 2
            yield f"epoch {epoch} is opened", (record, target, over, served,
                                               int(epoch == 2 and served))

    def bad(s):
        return "an epoch begins that was served before" if s[4] else ""

    return start, nxt, bad, None, ()


# ---------------------------------------------------------------- 22: all shards, or none

def together(bugs):
    """(each shard, wanted back, the source is there, the target serves, it lost its log's end). A
    shard is on its way, its record is at the target (here), or its epoch is refused; and that as
    the coordinator knows it: then it is the target's (went), or its source's again (stays). A
    source that is fenced is gone: it brings no record, and serves nothing.
    A target that loses its log's end after it served, and before the coordinator knows, refuses
    all. It shows the records that are left, or that it served (shown); the source brings the others
    once more. It serves nothing then but what the coordinator says went to it. What it said while
    it served may be heard only now."""
    start = (("way", "way"), (0, 0), 1, 0, 0)

    def put(pair, k, value):
        return tuple(value if i == k else old for i, old in enumerate(pair))

    def nxt(s):
        shards, back, source, serves, lost = s
        whole = all(x in ("here", "shown", "went") for x in shards)
        for k in (0, 1):
            x = shards[k]

            def at(value, k=k):
                return (put(shards, k, value), back, source, serves, lost)

            if x == "way" and source:
                yield f"record {k}", at("here")
                if not any(back):
                    yield f"{k} is wanted back", (shards, put(back, k, 1), source, serves, lost)
            if x == "refused" and lost and source:
                yield f"record {k} once more", at("shown")
            late = x == "here" and ("kept_record" in bugs
                                    or (whole or serves) and "refused_whole" not in bugs)
            if x in ("way", "here") and back[k] and not late:
                yield f"refuse {k}", at("refused")
            if x == "refused" and not lost:
                yield f"learn {k}", at("stays")
            if x == "stays" and lost and "late_word" in bugs:
                yield f"what it said before is heard of {k}", at("went")
            if x == "here" and "moved_apart" in bugs:
                yield f"learn {k}", at("went")
        if whole and ("here" in shards or "shown" in shards):
            yield "learn all", (("went", "went"), back, source, serves, lost)
        if whole and not serves and (not lost or shards == ("went", "went")):
            yield "serve", (shards, back, source, 1, lost)
        if serves and not lost and shards == ("here", "here"):
            for left in itertools.product(("shown", "refused"), repeat=2):
                yield "the log's end is lost", (left, back, source, 0, 1)
        if lost and "refused" in shards:
            refused = ("refused",) if "kept_shown" in bugs else ("refused", "shown")
            left = tuple("stays" if x in refused else x for x in shards)
            yield "learn what is refused", (left, back, source, serves, lost)
        if lost and "stays" not in shards:
            yield "what it said before is heard", (("went", "went"), back, source, serves, lost)
        if "stays" in shards and "given_up_apart" not in bugs and back != (1, 1):
            yield "the rest is wanted back", (shards, (1, 1), source, serves, lost)
        if "went" in shards and source:
            yield "fence", (shards, back, 0, serves, lost)

    def bad(s):
        took_back = s[3] and any(x in ("refused", "stays") for x in s[0])
        apart = "went" in s[0] and "stays" in s[0]
        return "two may serve a shard" if took_back else "one went, one stays" if apart else ""

    def goal(s):
        return s[3] or s[0] == ("stays", "stays") and s[2]

    fair = ("record 0", "record 1", "refuse 0", "refuse 1", "learn 0", "learn 1", "learn all",
            "learn what is refused", "serve", "the rest is wanted back", "fence")
    return start, nxt, bad, goal, fair


# ---------------------------------------------------------------- 22: an operator's word

def word(bugs):
    """(the shards that are the former owner's again, it runs). Both are another server's, which is
    gone for good. Of shard 0 the former owner's log needs an epoch, of shard 1 it does not; who
    asks without the word is refused, and stops."""
    start = ((0, 0), 1)

    def nxt(s):
        rows, runs = s
        if not runs:
            yield "an operator starts it", (rows, 1)
        for k in (0, 1):
            if runs and not rows[k]:
                if k == 0 or "word_for_one" not in bugs:
                    yield f"open an epoch of {k}", (tuple(1 if i == k else r
                                                          for i, r in enumerate(rows)), 1)
                else:
                    yield f"ask for {k}", (rows, 0)

    fair = ("an operator starts it", "open an epoch of 0", "open an epoch of 1", "ask for 1")
    return start, nxt, lambda s: "", lambda s: s[0] == (1, 1), fair


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


# ---------------------------------------------------------------- 19: grants

def granted(bugs):
    """(grants, units that the honest worker has trained and not claimed, key in the server's memory
    and on its disk, the coordinator: here, away, gone for good, who was credited with what, a claim
    was dropped). Unit 0 is anybody's, unit 1 the honest worker's alone. The liar has seen every
    grant: followers see the frames."""
    start = (frozenset(), frozenset(), 0, 0, "here", frozenset(), 0)

    def judge(s, worker, unit, grant):
        """None: not final. Else whether the claim counts."""
        if not s[2]:
            if "unkeyed_counts" in bugs:
                return True
            return False if "unkeyed_refuses" in bugs else None
        if "claim_unchecked" in bugs:
            return True
        return grant in s[0] and (grant[0] == unit or "grant_of_worker" in bugs) and (
            grant[1] == worker or "grant_of_unit" in bugs)

    def credit(s, worker, unit):
        known = any(u == unit for u, _ in s[5])
        return s[5] if known else s[5] | {(unit, worker)}

    def nxt(s):
        grants, trained, memory, disk, there, credits, dropped = s
        done = {u for u, _ in credits}
        for unit, worker in ((0, "liar"), (0, "honest"), (1, "honest")):
            if there == "here" and unit not in done and (unit, worker) not in grants:
                yield f"lease {unit} to {worker}", (grants | {(unit, worker)}, *s[1:])
        for unit in (0, 1):
            if (unit, "honest") in grants and unit not in done:
                yield f"train {unit}", (grants, trained | {unit}, *s[2:])
        if there == "here":
            yield "the key is told", (grants, trained, 1, int("key_in_memory" not in bugs), *s[4:])
            yield "the coordinator is away", (*s[:4], "away", *s[5:])
        if there == "away":
            yield "it returns", (*s[:4], "here", *s[5:])
        if there == "here" and memory and (1, "honest") in grants:
            yield "the coordinator is gone", (*s[:4], "gone", *s[5:])
        yield "the server starts again", (grants, trained, disk, *s[3:])
        for unit in trained:
            counts = judge(s, "honest", unit, (unit, "honest"))
            if counts is not None:
                yield f"honest claims {unit}", (grants, trained - {unit}, memory, disk, there,
                                                credit(s, "honest", unit) if counts else credits,
                                                int(dropped or not counts))
        for unit, grant in itertools.product((0, 1), [None, *grants]):
            if judge(s, "liar", unit, grant):
                yield f"liar claims {unit}", (*s[:5], credit(s, "liar", unit), dropped)

    def bad(s):
        if not s[5] <= s[0]:
            return "a unit is credited to a worker that it was not leased to"
        return "a claim with a grant was refused" if s[6] else ""

    fair = ("lease 1 to honest", "train 1", "the key is told", "it returns", "honest claims 1")
    return start, nxt, bad, lambda s: any(u == 1 for u, _ in s[5]), fair


# ---------------------------------------------------------------- 13, 17: copies and states

def proved(bugs, most=3):
    """(versions of the log, copies that asia has, or None: its disk is lost; europe's, the stable
    version, the version up to which the author has trimmed its outbox, what is served: "log",
    "lost" or (version, whose bytes)). One worker in each region is honest; europe's is the author
    of all pushes. A liar there has no state, claims any version, and offers bytes of its own."""
    start = (0, frozenset(), frozenset(), 0, 0, "log")

    def regions(s, version, claims):
        found = {"asia"} if version in (s[1] or ()) else set()
        return found | ({"europe"} if claims or version in s[2] else set())

    def confirmed(s):
        """The states of the history that count."""
        held = [n for n in (s[1] or frozenset()) | s[2] if n >= s[3]]
        return [n for n in held if len(regions(s, n, 0)) == 2 or n == s[3]]

    def rebuild(s):
        known = (s[1] or frozenset()) | s[2]
        counts = confirmed(s)
        if "one_voice" in bugs:
            yield "the liar's state is taken", (*s[:5], (most + 1, "liar"))
        if counts and "digest_free" in bugs:
            yield "the liar brings what is confirmed", (*s[:5], (max(counts), "liar"))
        if counts and "higher_waits" not in bugs:
            yield "come back", (*s[:5], (max(counts), "log"))
        if not counts and "no_operator" not in bugs:
            # Shown what each claims, the operator asks whose it is; or expels the liar.
            best = max((n for n in known if n >= s[3]), default=0)
            if best or not s[3]:
                yield "an operator chooses", (*s[:5], (best, "log"))
        yield "time passes", s

    def nxt(s):
        versions, asia, europe, stable, trimmed, served = s
        if served == "lost":
            yield from rebuild(s)
        if served != "log":
            return
        if versions < most:
            yield "push", (versions + 1, *s[1:])
        if asia is not None and versions:
            yield "asia copies", (versions, asia | {versions}, *s[2:])
        if versions:
            yield "europe copies", (*s[:2], europe | {versions}, *s[3:])
        for n in range(stable + 1, versions + 1):
            by = regions(s, n, "unproved" in bugs)
            if len(by) == 2 or by and "one_region" in bugs:
                yield f"{n} is stable", (*s[:3], n, *s[4:])
        yield "trim", (*s[:4], stable, served)
        if asia is not None:
            yield "asia's disk is lost", (versions, None, *s[2:])
        yield "the server's disk is lost", (*s[:5], "lost")

    def bad(s):
        if not isinstance(s[5], tuple):
            return ""
        if s[5][1] == "liar":
            return "a state that a liar made up is served"
        return "a push that was trimmed is in no log" if s[5][0] < s[4] else ""

    fair = ("come back", "an operator chooses", "the server's disk is lost")
    return start, nxt, bad, lambda s: isinstance(s[5], tuple), fair


# ---------------------------------------------------------------- 30: stalled workers

def stalled(bugs):
    """(worker a, worker b, a hangs, the coordinator has a as stalled, claims in the log in their
    order, the coordinator's phase, the shard's phase, the head that END names or -1, a is left
    out). A worker has nothing (0), a lease of the unit (1), a push under way (2), or one that is
    decided (3). What a pushed may come at any time, also when a hangs or is left out."""
    run, drain, close, end = range(4)
    start = (1, 0, 0, 0, (), run, run, -1, 0)

    def nxt(s):
        a, b, hangs, is_stalled, log, phase, shard, head, left = s
        yield "time passes", s
        if phase < close:
            yield "a hangs", (a, b, 1, *s[3:])
        if hangs:
            yield "a goes on", (a, b, 0, *s[3:])
        if a == 1 and not hangs:
            yield "a trains", (2, *s[1:])
        if hangs and not is_stalled:
            yield "a is stalled", (*s[:3], 1, *s[4:])
        if is_stalled and not hangs:
            yield "a moves", (*s[:3], 0, *s[4:])
        if is_stalled and b == 0 and phase == run and not log and "no_second" not in bugs:
            yield "the unit goes to b, too", (a, 1, *s[2:])
        if b == 1:
            yield "b trains", (a, 2, *s[2:])
        takes = shard < close or "late_push" in bugs
        if a == 2 and takes:
            yield "a's push is decided", (3, b, hangs, is_stalled, log + ("a",), *s[5:])
        if b == 2 and takes:
            yield "b's push is decided", (a, 3, hangs, is_stalled, log + ("b",), *s[5:])
        if log and phase == run:
            yield "drain", (*s[:5], drain, *s[6:])
        if phase == drain and b in (0, 3):
            drained = not hangs and a == 3
            if drained or "drain_waits" not in bugs:
                yield "close", (*s[:5], close, shard, head, 0 if drained else 1)
        if phase >= close and shard < close:
            yield "the shard closes", (*s[:6], close, *s[7:])
        ready = shard == close or "end_first" in bugs
        if phase == close and ready and not ("end_waits" in bugs and hangs):
            yield "end", (*s[:5], end, shard, len(log), left)

    def bad(s):
        a, b, hangs, is_stalled, log, phase, shard, head, left = s
        credits = len(log) if "second_credits" in bugs else min(1, len(log))
        if credits > 1:
            return "a unit is credited twice"
        if head >= 0 and len(log) != head:
            return "a push enters a log after the run's end"
        if phase == end and (b in (1, 2) or not log):
            return "the run ends without what somebody who moves had begun"
        return ""

    # Whatever a does, the run ends; nothing says that a ever goes on.
    fair = ("a is stalled", "the unit goes to b, too", "b trains", "b's push is decided", "drain",
            "close", "the shard closes", "end", "a moves", "a trains", "a's push is decided")
    return start, nxt, bad, lambda s: s[5] == end, fair


WORLDS = {"late": late, "apart": apart, "store": store, "old": old, "moved": moved,
          "reserved": reserved, "together": together, "word": word, "silence": silence,
          "patience": patience, "granted": granted, "proved": proved,
          "stalled": stalled}


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
