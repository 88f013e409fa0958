"""Silence, slowness and hanging delay nobody for ever: small worlds.

Numbers are those of server/docs/0000-protocol.md#rule-28 to #rule-30. coordinator.py searches these
worlds.

  silence   28: the coordinator is paused for a while; that is not a silence of the others
  patience  29: a rebuild wants a state that is offered for ever and never arrives
  stalled   30: a worker that has begun a unit hangs, for a while or for good; another one trains
            the unit a second time, and the run ends
"""

BUGS = {
    "pause_counts": ("silence", "the time in which the coordinator stood still counts as silence"),
    "old_view": ("silence", "who was silent is judged before what came meanwhile is read"),
    "pause_forgives": ("silence", "a pause sets the silence of all to nothing"),
    "no_patience": ("patience", "an offer that is wanted is waited for without a bound"),
    "words_renew": ("patience", "saying the offer again renews the patience"),
    "word_returns": ("patience", "who was passed over and offers again is wanted first again"),
    "one_patience": ("patience", "the bound is one for the whole transfer, whatever it brings"),
    "no_second": ("stalled", "what a stalled worker has begun runs nowhere else"),
    "second_credits": ("stalled", "the second claim of a unit credits it, too"),
    "drain_waits": ("stalled", "DRAIN has no bound: it waits for all that are heard"),
    "late_push": ("stalled", "a shard that closed takes a push of a worker that was left out"),
    "end_first": ("stalled", "the run ends before its shard has closed"),
    "end_waits": ("stalled", "the run ends when all have folded it, those that hang too"),
}


# ---------------------------------------------------------------- 28: silence

def silence(bugs, timeout=2):
    """(alive, paused, ticks of silence that the coordinator counts, whether a message is unread,
    given up). A tick is the owner's interval: a live owner sends in each. Its message to a paused
    coordinator waits to be read, or its call breaks and it sends again in the next tick."""
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

    # A dead owner is given up, however often the coordinator is paused, as long as it also runs.
    fair = ("listen for a tick", "it goes on", "read", "give up")
    return start, nxt, bad, lambda s: s[0] or s[4], fair


# ---------------------------------------------------------------- 29: patience

def patience(bugs, bound=3, parts=3):
    """(wanted, ticks without progress, parts received, passed over). Follower 0 offers the highest
    version and never sends more than a part of it; follower 1 offers less, and sends a part before
    the bound expires."""
    start = (0, 0, 0, frozenset())

    def nxt(s):
        wanted, idle, came, passed = s
        if came == parts:
            return
        if idle == bound and "no_patience" not in bugs:
            passed = passed | {wanted}
            passed = frozenset() if len(passed) == 2 else passed  # all passed: start again
            yield "pass over", (min({0, 1} - passed), 0, 0, passed)
        late = wanted == 1 and idle == bound - 1 and "one_patience" not in bugs
        if not late and idle < bound:
            yield "tick", (wanted, idle + 1, came, passed)
        if wanted == 1 and idle < bound or wanted == 0 and came == 0:
            renewed = idle if "one_patience" in bugs else 0
            # A part takes time: with one bound for all parts, each takes half of it.
            if "one_patience" not in bugs or idle >= min(bound, 2 * (came + 1) - 1):
                yield f"a part of {wanted}", (wanted, renewed, came + 1, passed)
        if "words_renew" in bugs and wanted == 0:
            yield "words", (wanted, 0, came, passed)
        elif "word_returns" in bugs and 0 in passed:
            yield "words", (0, 0, 0, passed - {0})
        else:
            yield "words", s

    return start, nxt, lambda s: "", lambda s: s[2] == parts, ("tick", "pass over", "a part of 1")


# ---------------------------------------------------------------- 30: stalled workers

def stalled(bugs):
    """(worker a, worker b, whether a hangs, whether the coordinator has a as stalled, claims in the
    log in their order, the coordinator's phase, the shard's phase, the head that END names or -1,
    whether a is left out). A worker has nothing (0), a lease of the unit (1), a push under way (2),
    or a decided one (3). A push of a may arrive at any time, also when a hangs or is left out."""
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

    # The run ends whatever a does; a need not ever resume.
    fair = ("a is stalled", "the unit goes to b, too", "b trains", "b's push is decided", "drain",
            "close", "the shard closes", "end", "a moves", "a trains", "a's push is decided")
    return start, nxt, bad, lambda s: s[5] == end, fair


WORLDS = {"silence": silence, "patience": patience, "stalled": stalled}
