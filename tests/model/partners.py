#!/usr/bin/env python3
"""Lies of partners, in small worlds.

Numbers are those of server/docs/0000-protocol.md#rule-6, #rule-25 and of #rule-31 to #rule-33.

  pace      25: a worker pushes endlessly beside one whose rounds take a while
  norms     31: one of two workers lies about the size of its pushes, or pushes anything
  third     31: one of three pushes nearly nothing; an honest one starts late
  begun     31: three honest workers, whose first pushes are small, start at different times
  rounds    30: in mode bsp a worker pushes at any time, and others wait for it
  logs       6: of three shards' logs one is a liar's, and workers take the run's clock from them
  expelled  32: an operator expels a worker and admits it again; coordinator and server restart;
            another server lies
  rewound   33: an operator removes a worker's pushes from a stopped server's log, which crashes

Each is searched exhaustively, and every state is judged. `norms`, `rounds`, `logs`, `expelled` and
`rewound` have a goal too: every fair run reaches it.
"""
import search

BUGS = {
    "no_bucket": ("pace", "every push of a flood is decided"),
    "count_all": ("pace", "staleness counts all pushes of a flood"),
    "ratchet": ("norms", "the reference rises to the upper median: to one worker's alone"),
    "own_word": ("norms", "a worker's own earlier pushes speak for it"),
    "silence_keeps": ("norms", "the first bound stays until two workers have said a norm"),
    "alone_lasts": ("norms", "what one voice made of the reference lasts when another is heard"),
    "third_waits": ("third", "the third voice moves the reference by a step, as any other"),
    "alone_unbounded": ("norms", "the one voice that is heard moves its own bound without an end"),
    "one_voice_enough": ("norms", "one other voice sets a worker aside as two do"),
    "far_enough": ("starved", "two that push little set aside one that pushes much"),
    "no_floor": ("norms", "a worker whose pushes are next to nothing clips the other one"),
    "held_by_word": ("rounds", "who holds a round is stalled by its own word alone"),
    "held_forgiven": ("rounds", "one that held rounds is waited for again with each push"),
    "first_log": ("logs", "the first shard's log is the run's clock"),
    "one_log_holds": ("logs", "one log of three that stands still holds the workers"),
    "young_voices": ("begun", "a worker's first pushes set others aside"),
    "expel_memory": ("expelled", "the coordinator keeps who is expelled in memory alone"),
    "expel_consumes": ("expelled", "a push of an expelled worker consumes its step"),
    "word_ends": ("expelled", "a worker ends on any server's word that it is expelled"),
    "word_forgotten": ("rewound", "the operator's word is removed before the epoch is durable"),
    "held_wins": ("rewound", "a rewound server goes on from what followers hold above it"),
    "taken_dropped": ("rewound", "workers drop pushes that the new history does not have"),
    "go_early": ("ordered", "an order goes when one server has said that it can"),
    "order_forgotten": ("ordered", "an order that goes is in the coordinator's memory alone"),
    "standby_stays": ("ordered", "a standby stays in sync while its shard is taken back"),
}


# ---------------------------------------------------------------- 25: pace

def pace(bugs, holds=16, fills=8, most=40):
    """(pushes that the flood's bucket holds, records of the flood since the honest base, whether an
    honest push is under way, whether one was refused as stale). In a round of the honest worker the
    bucket fills by `fills`; two workers are live, and 8 pushes of others do not count as
    staleness."""
    start = (holds, 0, 0, 0)

    def nxt(s):
        bucket, since, flies, stale = s
        if (bucket or "no_bucket" in bugs) and since < most:
            yield "the flood pushes", (max(0, bucket - 1), since + 1, flies, stale)
        if not flies:
            yield "the honest worker cuts", (bucket, since, 1, stale)
        else:
            counted = since if "count_all" in bugs else min(since, 2)
            refused = int(max(0, counted - 1) > 8)
            yield "its push is decided", (min(holds, bucket + fills), 0, 0, refused)

    def bad(s):
        if s[3]:
            return "an honest push is refused as stale"
        return "a flood fills the log" if s[1] > holds + fills else ""

    return start, nxt, bad, None, ()


# ---------------------------------------------------------------- 31: norms

# Sizes are exponents of the root of 10: the gate is 10 times the reference, an outlier is 10 times
# above the others, a record notes 3 times the bound, 1/32 of the shard passes unchanged. The
# reference grows by one exponent per push, which is more than in the code.
GATE, FAR, NOTED, FLOOR = 2, 2, 1, 3
NORMS, OUTLIERS = 3, 3  # in the code 7 and 10
HUGE, TINY = 14, -6


def median(values, upper=False):
    values = sorted(values)
    return values[len(values) // 2 if upper else (len(values) - 1) // 2]


def voices(rows):
    """The median of each worker that has norms and is not set aside."""
    return [median(last) for last, _, outliers, _ in rows if last and outliers < OUTLIERS]


def moved_reference(bugs, reference, before, rows, growth=1):
    said = voices(rows)
    another = any(now[0] and not old[0] for old, now in zip(before, rows))
    silent = sum(not last and admitted >= NORMS for last, _, _, admitted in rows)
    if not said:
        return reference
    low, high = median(said), median(said, upper=True)
    if "ratchet" in bugs:
        low = high
    if another and len(said) == 2 and "alone_lasts" not in bugs:
        return low
    if another and len(said) == 3 and "third_waits" not in bugs:
        return low
    if reference is None:
        heard = len(said) if "silence_keeps" in bugs else len(said) + silent
        return low if heard >= 2 else None
    if reference < low:
        return min(reference + growth, low)
    return max(reference - growth, high) if reference > high else reference


def bound_of(bugs, reference, rows, size):
    if reference is None:
        return size
    bound, said = reference + GATE, len(voices(rows))
    if said < 3 and "no_floor" not in bugs:
        bound = max(bound, size - FLOOR)
    return min(bound, size) if said < 2 and "alone_unbounded" not in bugs else bound


def decided(bugs, who, norm, reference, rows, size):
    """(the norm with which the push moves the shard, the worker's new row). Norm None: the push
    claims zero steps, so its norm is not noted, and is as large as possible."""
    last, _, outliers, admitted = rows[who]
    came = HUGE if norm is None else norm
    bound = bound_of(bugs, reference, rows, size)
    clipped = came > bound
    need = 1 if "young_voices" in bugs else NORMS
    others = [median(r[0]) for k, r in enumerate(rows)
              if k != who and len(r[0]) >= need and not r[1] and r[2] < OUTLIERS]
    far = clipped and bool(others) and came > FAR + median(others, upper=True)
    if far and len(others) == 1 and "one_voice_enough" not in bugs:
        own = "own_word" in bugs and last and came <= FAR + median(last)
        far = came > FAR + size and not own
    if far and "far_enough" not in bugs:
        far = came > size
    noted = min(came, bound + NOTED)
    said = last if norm is None else ((noted,) + last)[:NORMS]
    return min(came, bound), (said, clipped, outliers + 1 if far else 0, min(admitted + 1, NORMS))


def norms(bugs):
    """(the shard's size and the rogue's choice, or None; whether the honest one trains; the
    reference; the rows of both: last norms, clipped, outliers in a row, admitted; whether a push of
    the rogue moved the shard too far). The honest one's pushes have norm 0, or claim zero steps.

    A rogue pushes the same norm endlessly, or any norm each time."""
    likes = (None, TINY, 0, 3, HUGE)
    steady = ((HUGE,), (4,), (None,), (TINY,), likes)
    start = (None, 1, None, (((), False, 0, 0),) * 2, 0)

    def nxt(s):
        world, trains, reference, rows, far = s
        if world is None:
            for size in (-1, 1, 4):
                for does in steady:
                    for trains in (0, 1):
                        yield "begin", ((size, does), trains, *s[2:])
            return
        size, does = world
        pushes = [("honest", 0, 0)] + [("rogue", 1, norm) for norm in does]
        for name, who, norm in pushes:
            if rows[who][2] >= OUTLIERS:
                continue
            if who == 0 and not trains:  # the rest of its residual: nothing
                now, by = ((*rows[0][:3], min(rows[0][3] + 1, NORMS)), rows[1]), 0
            else:
                by, row = decided(bugs, who, norm, reference, rows, size)
                now = tuple(row if k == who else rows[k] for k in (0, 1))
            known = len(rows[0][0]) >= NORMS and rows[1][3] >= NORMS
            most = max(GATE, size - FLOOR if known else size)
            yield f"{name} pushes {norm}", \
                (world, trains, moved_reference(bugs, reference, rows, now), now,
                 far or int(who == 1 and by > most))
        if not trains:
            yield "the honest one has something to train", (world, 1, *s[2:])

    def bad(s):
        world, trains, reference, rows, far = s
        if far:
            return "a rogue moves the shard farther than the bound"
        if rows[0][2] >= OUTLIERS:
            return "an honest worker is set aside"
        if world and trains and rows[0][0] and rows[0][1] and world[0] >= FLOOR:
            return "an honest push is clipped for what another one says"
        if reference is not None and rows[0][0] and reference > 0:
            return "a rogue moves the reference alone"
        return ""

    # A rogue whose pushes are also too large for the shard is set aside.
    def goal(s):
        world, trains, _, rows, _ = s
        if not world or not trains or len(world[1]) > 1 or world[1][0] is None:
            return bool(world)
        return world[1][0] <= FAR + world[0] or rows[1][2] >= OUTLIERS

    return start, nxt, bad, goal, ("begin", f"rogue pushes {HUGE}", "rogue pushes 4",
                                   "honest pushes 0")


def begun(bugs):
    """(the reference, the rows of three honest workers). The first push of each is small, because
    most of its progress stays in the residual; the later ones are 30 times larger, and larger than
    the shard."""
    start = (None, (((), False, 0, 0),) * 3)

    def nxt(s):
        reference, rows = s
        for who in range(3):
            if rows[who][2] >= OUTLIERS:
                continue
            norm = 3 if rows[who][3] else 0
            _, row = decided(bugs, who, norm, reference, rows, 2)
            now = tuple(row if k == who else rows[k] for k in range(3))
            yield f"{who} pushes {norm}", (moved_reference(bugs, reference, rows, now), now)

    def bad(s):
        return "an honest worker is set aside" if any(r[2] >= OUTLIERS for r in s[1]) else ""

    return start, nxt, bad, None, ()


def starved(bugs):
    """(norm of the first one's pushes, the reference, the rows of three workers). Two honest ones
    have little to train and push the hundredth of what an honest one pushes beside them, which is
    the third of the shard's size. A rogue pushes ten times that size."""
    honest, size, rogue = 4, 5, 7
    start = (None, None, (((), False, 0, 0),) * 3)

    def nxt(s):
        first, reference, rows = s
        if first is None:
            for norm in (honest, rogue):
                yield "begin", (norm, *s[1:])
            return
        for who, norm in ((0, first), (1, 0), (2, 0)):
            if rows[who][2] >= OUTLIERS:
                continue
            _, row = decided(bugs, who, norm, reference, rows, size)
            now = tuple(row if k == who else rows[k] for k in range(3))
            yield f"{who} pushes", (first, moved_reference(bugs, reference, rows, now), now)

    def bad(s):
        aside = [row[2] >= OUTLIERS for row in s[2]]
        if any(aside[1:]) or aside[0] and s[0] == honest:
            return "an honest worker is set aside"
        return ""

    return start, nxt, bad, lambda s: s[0] == honest or s[2][0][2] >= OUTLIERS, \
        ("begin", "0 pushes", "1 pushes", "2 pushes")


def third(bugs):
    """(whether the late one has started, the reference, the rows of the rogue, the honest one and
    the late one). The rogue pushes nearly nothing; the shard's size is 1000 times a push's."""
    start = (0, None, (((), False, 0, 0),) * 3)

    def nxt(s):
        late, reference, rows = s
        for who, norm in ((0, TINY), (1, 0), (2, 0)):
            if who == 2 and not late:
                continue
            _, row = decided(bugs, who, norm, reference, rows, 6)
            now = tuple(row if k == who else rows[k] for k in range(3))
            yield f"{who} pushes {norm}", (late, moved_reference(bugs, reference, rows, now), now)
        if not late and rows[0][0] and rows[1][0]:
            yield "the late one begins", (1, *s[1:])

    def bad(s):
        if len(voices(s[2])) == 3 and any(row[1] for row in s[2][1:]):
            return "an honest push is clipped for what another one says"
        return ""

    return start, nxt, bad, None, ()


# ---------------------------------------------------------------- 30: rounds of mode bsp

def rounds(bugs, most=6, forgiven=3):
    """(rounds that the honest worker pushed, those of the rogue, whether the rogue is counted, how
    often others waited a whole bound for it). A round begins when all have pushed that count."""
    start = (0, 0, 1, 0)

    def nxt(s):
        honest, rogue, counted, held = s
        if honest < most and (rogue >= honest or not counted):
            yield "the honest worker pushes", (honest + 1, rogue, counted, held)
        if rogue < honest:
            back = held < forgiven or "held_forgiven" in bugs
            yield "the rogue pushes", (honest, rogue + 1, int(counted or back), held)
            yield "the rogue says that it moves", s
            if counted and "held_by_word" not in bugs:
                yield "the bound is over", (honest, rogue, 0, held + 1)

    def bad(s):
        return "a rogue holds one round after the other" if s[3] > forgiven else ""

    return start, nxt, bad, lambda s: s[0] == most, ("the honest worker pushes",
                                                     "the bound is over")


# ---------------------------------------------------------------- 6: logs

def logs(bugs, far=99, most=3):
    """(tokens of the liar's log, and of two honest ones; whether the liar's log says that the run
    is paused; steps of a worker; whether its clock ever had a value that no honest log had). Honest
    logs are at most a round apart."""
    start = (0, 0, 0, 0, 0, 0)

    def nxt(s):
        liar, one, other, still, steps, off = s
        for lie in (0, far):
            yield "the liar's clock", (lie, one, other, still, steps, off)
        yield "the liar's log stands or goes", (liar, one, other, 1 - still, steps, off)
        if one <= other < most + 1:
            yield "the one log grows", (liar, one + 1, other, still, steps, off)
        if other <= one < most + 1:
            yield "the other log grows", (liar, one, other + 1, still, steps, off)
        if steps < most and not (still and "one_log_holds" in bugs):
            clock = liar if "first_log" in bugs else median((liar, one, other))
            honest = min(one, other) <= clock <= max(one, other)
            yield "the worker steps", (liar, one, other, still, steps + 1, int(off or not honest))

    def bad(s):
        return "a liar moves the run's clock" if s[5] else ""

    return start, nxt, bad, lambda s: s[4] == most, ("the worker steps",)


# ---------------------------------------------------------------- 32: expelled

def expelled(bugs):
    """(the operator's last command, the coordinator's memory, its store, the plan in the shard's
    log, the worker's admitted pushes, steps that the log consumed, whether the worker lives,
    restarts left). A command is admit (0) or expel (1). The worker pushes at most two steps."""
    start = (0, 0, 0, 0, 0, 0, 1, 2)

    def nxt(s):
        word, memory, store, plan, admitted, steps, lives, left = s
        if word < 2:  # expel, then admit
            now = (word + 1) % 2
            kept = 0 if "expel_memory" in bugs else now
            yield ("expel" if now else "admit"), (word + 1, now, kept, plan, admitted, steps, lives,
                                                  left)
        if left:
            yield "the coordinator restarts", (word, store, store, plan, admitted, steps, lives,
                                               left - 1)
        if plan != memory:
            yield "the plan is a record", (word, memory, store, memory, admitted, steps, lives,
                                           left)
        if lives and steps < 2:
            if not plan:
                yield "it pushes", (word, memory, store, plan, admitted + 1, steps + 1, lives,
                                    left)
            elif "expel_consumes" in bugs:
                yield "it pushes in vain", (word, memory, store, plan, admitted, steps + 1, lives,
                                            left)
        if lives and "word_ends" in bugs:
            yield "a server lies", (*s[:6], 0, left)

    def bad(s):
        if not s[6]:
            return "a server's word ends a worker that nobody expelled"
        if s[0] == 1 and not s[1]:
            return "the coordinator forgot what an operator asked"
        if s[4] != s[5]:
            return "a step is consumed and its push is nowhere"
        return ""

    # In the end a command is in the log, and after the last one so are the worker's pushes.
    def goal(s):
        return s[0] == 1 and s[3] == 1 or s[0] == 2 and s[4] == 2

    fair = ("the plan is a record", "it pushes")
    return start, nxt, bad, goal, fair


# ---------------------------------------------------------------- 33: rewound

def rewound(bugs):
    """(the server's log: pushes of the rogue and of an honest worker; the operator's command on its
    disk; the log's epoch; the follower's log and its epoch; the honest worker's outbox; the
    server's phase; crashes left). The operator rewinds the log to before the rogue's push, after
    which the honest one came."""
    stopped, starts, serves = range(3)
    poisoned, clean, whole = "rogue honest", "", "honest"
    start = (poisoned, 0, 1, poisoned, 1, 1, stopped, 2)

    def nxt(s):
        log, word, epoch, held, held_epoch, outbox, phase, left = s
        if phase == stopped and epoch == 1 and not word:
            yield "the operator rewinds", (clean, 1, epoch, held, held_epoch, outbox, stopped, left)
        if phase == stopped and (word or epoch == 2):
            yield "start", (*s[:6], starts, left)
        if phase == starts and word and "word_forgotten" in bugs:
            yield "the word is removed first", (log, 0, *s[2:])
        if phase == starts:
            # A start without the command finds its log below the known version: an older copy.
            rebuilt = not word and epoch == 1 or "held_wins" in bugs
            now = held if rebuilt and held_epoch == epoch else log
            yield "its epoch is durable", (now, word, 2, held, held_epoch, outbox, starts, left)
        if phase == starts and epoch == 2:
            yield "it serves", (log, 0, epoch, held, held_epoch, outbox, serves, left)
        if phase in (starts, serves) and left:
            yield "it crashes", (*s[:6], stopped, left - 1)
        if phase == serves and held_epoch < epoch:
            lost = "taken_dropped" in bugs
            yield "the follower takes its state", \
                (log, word, epoch, log, epoch, 0 if lost else outbox, phase, left)
        if phase == serves and held_epoch == epoch and outbox and log == clean:
            yield "the honest push is sent anew", (whole, word, epoch, held, held_epoch, 0, *s[6:])
        if phase == serves and held_epoch == epoch and held != log:
            yield "the follower folds", (log, word, epoch, log, *s[4:])

    def bad(s):
        log, word, epoch, held, held_epoch, outbox, phase, left = s
        if phase == serves and "rogue" in log:
            return "what an operator took out is served again"
        if phase == serves and held_epoch == epoch and "honest" not in log and not outbox:
            return "an honest push is in no log and with nobody"
        return ""

    fair = ("the operator rewinds", "start", "its epoch is durable", "it serves",
            "the follower takes its state", "the honest push is sent anew", "the follower folds")
    return start, nxt, bad, lambda s: s[0] == s[3] == whole, fair


# ---------------------------------------------------------------- 33: ordered

def ordered(bugs):
    """(the coordinator's order, in memory and in its store; each of two shards; the first one's
    standby; restarts left). Servers are asked, then the order is sent, then each rewinds its shard.
    The second server may answer that it can't; a server that waits to start is silent for long."""
    none, asked, refused, goes, over = range(5)
    old, can, taken, new = range(4)
    away, in_sync, serves = range(3)
    start = (none, none, old, old, in_sync, 2)

    def nxt(s):
        order, store, first, second, standby, left = s
        shards = first, second
        if order == none:
            yield "an operator asks", (asked, *s[1:])
        if order == asked or order == goes and "go_early" in bugs:
            if first == old:
                yield "the first server says yes", (order, store, can, *s[3:])
            if second == old:
                yield "the second server says yes", (order, store, first, can, *s[4:])
                yield "the second server says no", (refused, *s[1:])
        ready = any if "go_early" in bugs else all
        if order == asked and ready(shard != old for shard in shards):
            yield "it goes", (goes, none if "order_forgotten" in bugs else goes, first, second,
                              standby if "standby_stays" in bugs else away, left)
        if order == goes and first == can:
            yield "the first server takes it", (order, store, taken, *s[3:])
        if order == goes and second == can:
            yield "the second server takes it", (order, store, first, taken, *s[4:])
        if first == taken and standby == in_sync:
            yield "the standby takes over", (*s[:4], serves, left)
        if order == goes and first == taken:  # its epoch is opened while the order is sent
            yield "the first server starts", (order, store, new, *s[3:])
        if order == goes and second == taken:
            yield "the second server starts", (order, store, first, new, *s[4:])
        if order == goes and shards == (new, new):
            yield "it is over", (over, over, *s[2:])
        if left:
            forgets = [old if shard == can else shard for shard in shards]
            kept = forgets if store == none else shards
            yield "the coordinator restarts", (store, store, *kept, standby, left - 1)

    def bad(s):
        order, _, first, second, standby, _ = s
        changed = new in (first, second) or taken in (first, second)
        if order == refused and changed:
            return "an order is refused, and a shard has changed"
        if standby == serves:
            return "a standby serves the history that was given up"
        return ""

    fair = ("an operator asks", "the first server says yes", "the second server says yes",
            "it goes", "the first server takes it", "the second server takes it",
            "the first server starts", "the second server starts", "it is over")
    return start, nxt, bad, lambda s: s[0] in (refused, over), fair


WORLDS = {"ordered": ordered, "pace": pace, "norms": norms, "third": third, "begun": begun,
          "starved": starved, "rounds": rounds, "logs": logs, "expelled": expelled,
          "rewound": rewound}


def explore(world, bugs=()):
    return search.search(*WORLDS[world](frozenset(bugs)))


if __name__ == "__main__":
    search.each_world(explore, WORLDS, BUGS)
