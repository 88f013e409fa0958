"""A moving shard is served by at most one server, and by one in the end: small worlds.

The rule is server/docs/0000-protocol.md#rule-22. coordinator.py searches these worlds.

  moved     22: an older copy of a move's target starts with the MOVE record in its log
  moved     22: an older copy of a move's target starts with the MOVE record in its log
  reserved  22: an operator gives up a move, and the source's log is lost
  together  22: a server's two shards are moved; their records arrive one by one, or are given up,
            or the target loses its log's tail
  word      22: an operator lets a former owner go on, whose log of one shard needs no epoch
"""
import itertools

BUGS = {
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
}


# ---------------------------------------------------------------- 22: a move's target

def moved(bugs):
    """(target's log, whether the record reached this process, whether the coordinator knows, its
    last epoch, epochs with pushes, a copy of the log, whether an epoch began twice). The log: 0, 1
    with the MOVE record, or the epoch that it begins. Workers hear of the target from the
    coordinator."""
    start = (0, 0, 0, 2, frozenset(), None, 0)

    def nxt(s):
        log, came, known, last, used, copy, twice = s
        if log == 0:  # again if it follows from an old log, when another server has the shard
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
    """(the source's log has the MOVE record, the target: has it, has served, or is gone, the
    operator gave the move up, epoch 2 was served, an epoch began twice). Epoch 2 is reserved. The
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
    """(each shard, recalled, whether the source runs, whether the target serves, whether it lost
    its log's tail). A shard is on its way; its record is at the target (here) or its epoch is
    refused; or the coordinator knows one of these: the shard is the target's (went), or the
    source's again (stays). A fenced source is gone: it sends no record, and serves nothing.
    A target that loses its log's tail after it served, and before the coordinator knows, refuses
    all shards. It reports the records that are left, or that it served (shown); the source sends
    the others again. From then on it serves only shards that the coordinator gave it. A message
    from the time when it served may arrive only now."""
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


# ---------------------------------------------------------------- 22: an operator's command

def word(bugs):
    """(the shards that are the former owner's again, whether it runs). Both belong to another
    server, which is lost for good. The former owner's log needs an epoch for shard 0 and none for
    shard 1; a server that asks without the operator's command is refused, and stops."""
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


WORLDS = {"moved": moved, "reserved": reserved, "together": together, "word": word}
