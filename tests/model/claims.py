"""A worker's claim counts only as far as it is proved: small worlds.

Numbers are those of server/docs/0000-protocol.md#rule-13, #rule-17 and #rule-19. coordinator.py
searches these worlds.

  granted   19: a worker claims a unit that was not leased to it, while the coordinator is down
  proved    13, 17: a worker lies about a copy and about a state, and the disks of the server and
            of a region are lost
"""
import itertools

BUGS = {
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
}


# ---------------------------------------------------------------- 19: grants

def granted(bugs):
    """(grants, units that the honest worker has trained and not claimed, key in the server's memory
    and on its disk, the coordinator: here, away, gone for good, credits by worker and unit, whether
    a claim was dropped). Unit 0 may go to either worker, unit 1 only to the honest one. The liar
    has seen every grant: followers see the frames."""
    start = (frozenset(), frozenset(), 0, 0, "here", frozenset(), 0)

    def judge(s, worker, unit, grant):
        """None: not final. Otherwise whether the claim counts."""
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
    """(versions of the log; asia's copies, or None if its disk is lost; europe's copies; the stable
    version; the version up to which the author has trimmed its outbox; the served state: "log",
    "lost" or (version, whose bytes)). One worker in each region is honest; europe's honest one is
    the author of all pushes. A liar there has no state, claims any version, and offers made-up
    bytes."""
    start = (0, frozenset(), frozenset(), 0, 0, "log")

    def regions(s, version, claims):
        found = {"asia"} if version in (s[1] or ()) else set()
        return found | ({"europe"} if claims or version in s[2] else set())

    def confirmed(s):
        """The confirmed states of the history."""
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
            # The operator sees each claim, asks its author, or expels the liar.
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


WORLDS = {"granted": granted, "proved": proved}
