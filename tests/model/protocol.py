#!/usr/bin/env python3
"""Longhaul push protocol: an executable model (see README.md beside this file).

One transition system, two explorers (seeded random, bounded exhaustive), many switchable rules.
The empty set of bugs is the proposed protocol; each name in BUGS is a planted bug or a literal
reading of the rules (server/docs/0000-protocol.md), and must be caught by an invariant.

Abstraction: mass is carried by particles.  Every committed cut of a shard puts new particles into
the residual E; a frame carries some of them; a record that admits a frame applies them.  At rest,
each particle must be in exactly one place: applied once in the shard's log, or in E.
The fold of a log is the log itself, so "same fold" is list equality, and the chain value of
version v is the prefix of length v.

Units are those of the run: NE epochs of NU / NE units of data each. In which order they are leased
is left open; the coordinator's order is one of these.
"""

import argparse
import marshal
import random
import sys
import time
from collections import deque

BUGS = {
    # durability and dedupe, planted
    "ack_before_sync": "acknowledge before the sync",
    "drop_dedupe": "the dedupe table is not rebuilt at restart",
    "no_resync": "a tail found after kill -9 (page cache only) is served without being synced",
    # terminal decisions
    "unlogged_reject": "a refusal is answered without a record and the step is reused",
    "busy_returns": "RESOURCE_EXHAUSTED folds the frame back into the residual",
    "return_twice": 'residual and "step decided" are two commits when a refused frame is returned',
    "corrupt_burn": "a frame that fails to open consumes the step",
    # the worker's disk
    "resend_all": "after a crash every outbox entry is sent, also one above the residual slot",
    "esnap_rollback": "after a power cut the residual snapshot of N rounds ago is used as it is",
    "trim_esnap": "outbox trimming ignores the residual snapshot",
    "same_inc_power": "after a power cut the worker goes on with the same incarnation",
    "inc_reuse": "an incarnation is issued twice (coordinator restored from a backup)",
    "fence_no_resolve": "a new incarnation drops the old outbox: lower incarnation = FENCED",
    "fence_resend": "a new incarnation re-cuts old frames without the fence record's outcome",
    "base_delta": "delta = base - local while an earlier push is still in flight",
    # history
    "local_stable": '"stable" means a checkpoint on the disk that can be lost',
    "rebuild_any_branch": "a rebuild takes the longest tail, also from a branch that was abandoned",
    "tail_silent": "a tail cut as torn, which may have been acknowledged, starts no new epoch",
    "no_chain": "a follower resumes by version number only",
    "rebuild_no_dedupe": "a rebuild takes weights from a follower, not the dedupe state",
    "no_hello": "a restarted server takes frames without hello; old acks are believed",
    "trim_by_ack": "outbox trimmed by acknowledged version <= stable version",
    "resend_refused": "after lost history refused frames are sent again byte for byte",
    "elide_own": "own records are elided by worker identity, not by what the follower holds",
    # credit
    "credit_each": "every shard record of a push carries the credit",
    "credit_any": "the credit rides in the next frame of any shard; tokens fence",
    "epoch_unit": "a claim names the unit of the data, not the unit of the run, which has an epoch",
    "ledger_sticky": 'the ledger stays "done" when the record that credited it is lost',
    # commit, then memory
    "return_in_memory": "a refused frame is in the residual before the flip, which fails",
    "unknown_goes_on": "a flip failed, may be on the disk all the same, and the worker goes on",
    "group_in_memory": "a group whose sync failed is taken back from the log, not from the rows",
    "group_left": "a group that was taken back leaves entries on the disk, which a start reads",
    # older epochs
    "old_hello": "the hello of a server of an older epoch is believed",
    "old_hello_replica": "an older epoch is one below the replica's, not below any that was heard",
    "damaged_goes_on": "a damaged undecided push is left out, and the incarnation goes on",
    "damaged_unread": "a residual snapshot counts though a frame sent after it is damaged",
    "old_hello_forgotten": "what epoch was heard is forgotten when the worker restarts",
    # names
    "retire_forgets": "a retired name's row goes, and nothing says which numbers it had",
}
# the smallest fault budget under which each bug must show (also the budget of its control run)
FOCUS = {
    "ack_before_sync": dict(power=2),
    "drop_dedupe": dict(kill=2),
    "no_resync": dict(kill=1, power=1),
    "unlogged_reject": dict(refuse=2),
    "busy_returns": dict(busy=1),
    "return_twice": dict(refuse=1, wkill=1),
    "corrupt_burn": dict(corrupt=1),
    "resend_all": dict(wkill=2),
    "esnap_rollback": dict(wpower=1, esnap=2),
    "trim_esnap": dict(wpower=1, esnap=2, stable=2),
    "same_inc_power": dict(wpower=1, esnap=2),
    "inc_reuse": dict(wlost=1),
    "fence_no_resolve": dict(wpower=1, esnap=1),
    "fence_resend": dict(wpower=1, esnap=1),
    "base_delta": dict(),
    "local_stable": dict(disk=1, stable=2, esnap=2),
    "no_chain": dict(disk=1),
    "tail_silent": dict(tail=2, kill=2, disk=1, refuse=1),
    "rebuild_any_branch": dict(disk=3, refuse=1),
    "rebuild_no_dedupe": dict(disk=1),
    "no_hello": dict(disk=1, refuse=1),
    "trim_by_ack": dict(disk=2, stable=2),
    "resend_refused": dict(disk=1, refuse=2),
    "elide_own": dict(wlost=1),
    "credit_each": dict(),
    "credit_any": dict(release=2, kill=1),
    "epoch_unit": dict(),
    "ledger_sticky": dict(disk=1, stable=1),
    "return_in_memory": dict(refuse=1, wfull=1),
    "unknown_goes_on": dict(refuse=2, disk=1, wfull=1, wkill=1),
    "group_in_memory": dict(sfull=1),
    "group_left": dict(sfull=1, kill=1),
    "old_hello": dict(disk=1, old=1),
    "old_hello_replica": dict(disk=1, old=1),
    "damaged_goes_on": dict(wkill=1, obad=1),
    "damaged_unread": dict(wkill=3, obad=1, esnap=2, wpower=1),
    "old_hello_forgotten": dict(disk=1, old=1, wkill=1),
    "retire_forgets": dict(retire=1),
}


def clone(s):
    return marshal.loads(marshal.dumps(s, 2))


class Model:
    def __init__(m, NW=2, NS=2, NU=4, bugs=(), faults=None, cuts=99, sticky=0, NE=2):
        m.NW, m.NS, m.NU, m.B, m.cuts, m.sticky = NW, NS, NU, frozenset(bugs), cuts, sticky
        m.NE = NE if NU % NE == 0 else 1
        m.F = dict(
            kill=2,
            power=2,
            disk=2,
            wkill=2,
            wpower=1,
            wlost=1,
            refuse=3,
            busy=1,
            corrupt=1,
            stable=2,
            esnap=2,
            release=1,
            recall=2,
            tail=1,
            wfull=1,
            sfull=1,
            old=1,
            obad=1,
            retire=1,
        )
        if faults is not None:
            m.F = {k: faults.get(k, 0) for k in m.F}

    # ---------------------------------------------------------------- state
    def init(m):
        return {
            "sv": [
                dict(
                    up=1,
                    log=[],
                    syn=0,
                    pub=0,
                    gen=1,
                    dd=0,
                    disk=1,
                    hello=[0] * m.NW,
                    stable=[],
                    nstable=0,
                    stable_ep=1,
                    lostn=0,
                    ep=1,
                    forks=[],
                    back=[],  # what the last failed group was: (position, records)
                    old=[],  # a copy of this directory that is still there: (epoch, log)
                )
                for _ in range(m.NS)
            ],
            "wk": [
                dict(
                    up=1,
                    inc=1,
                    next=[1] * m.NS,
                    known=[0] * m.NS,
                    E=[[] for _ in range(m.NS)],
                    pend=[[] for _ in range(m.NS)],
                    ob=[[] for _ in range(m.NS)],
                    rep=[[] for _ in range(m.NS)],
                    prog=[[] for _ in range(m.NS)],
                    cl=[[] for _ in range(m.NS)],
                    stage=[0] * m.NS,
                    sess=[0] * m.NS,
                    unit=-1,
                    rep_ep=[1] * m.NS,
                    heard=[1] * m.NS,  # the highest epoch that a server of the shard named
                    alt=[[] for _ in range(m.NS)],  # unknown_goes_on: a return: (inc, step)
                    bad=[[0, 0] for _ in range(m.NS)],  # the last damaged push: (inc, step)
                    ncut=[0] * m.NS,
                    es=[[[], 1, 0] for _ in range(m.NS)],
                    lost=0,
                )
                for _ in range(m.NW)
            ],
            "net": [],
            "led": [0] * m.NU,
            "ten": [-1] * m.NU,
            "fence": [[] for _ in range(m.NS)],
            "np": 0,
            "nb": 0,
            "f": dict(m.F),
            "bad": "",
            "raw": [[] for _ in range(m.NS)],
            "may": [[] for _ in range(m.NS)],
            "acked": [],
            "dbl": [[0] * m.NS for _ in range(m.NW)],
        }

    def add(m, s, msg):
        if msg not in s["net"]:
            s["net"].append(msg)
            s["net"].sort()

    def fail(m, s, why):
        if not s["bad"]:
            s["bad"] = why

    # record: (kind, w, inc, step, bid, parts, claims, verdict)   kind 'P' push, 'F' fence, 'R' the
    # name is retired: no incarnation up to inc begins a row
    def row(m, sv, w, upto):
        """the whole dedupe state of one worker: (lowest incarnation admitted, last decided push)"""
        inc, rec = 1, None
        log = sv["log"]
        for i in range(sv["dd"], upto):
            r = log[i]
            if r[1] != w:
                continue
            if r[0] == "F":
                inc = max(inc, r[2])
            elif r[0] == "R":  # between two numbers: the next fence makes the row
                inc, rec = (1 if "retire_forgets" in m.B else r[2] + 0.5), None
            elif r[0] == "P":
                rec = (i, r)
        last = rec[1][3] if rec and rec[1][2] == inc else 0
        return inc, last, rec

    # ---------------------------------------------------------------- actions
    def actions(m, s):
        if s["bad"]:
            return []
        A, f, B = [], s["f"], m.B
        for j, v in enumerate(s["sv"]):
            if v["up"]:
                if v["syn"] < len(v["log"]):
                    A.append(("sync", j))
                    if f["sfull"]:
                        A.append(("sfail", j))
                if f["kill"]:
                    A.append(("kill", j))
                if f["power"]:
                    A.append(("power", j, 0))
                    if v["syn"] < len(v["log"]):
                        A.append(("power", j, 1))
                if f["stable"] and v["syn"] > v["nstable"]:
                    A.append(("stable", j))
            elif v["disk"]:
                A.append(("start", j))
                if f["tail"] and v["log"] and len(v["log"]) > v["nstable"]:
                    A.append(("tail", j))
            else:
                for mask in range(1 << m.NW):
                    A.append(("rebuild", j, mask))
            if f["disk"] and v["disk"] and v["log"]:
                A.append(("disk", j))
            if any(
                x[0] == "P" and x[7] == 1 and any(not s["led"][u] for u in x[6])
                for x in v["log"][: v["pub"]]
            ):
                A.append(("credit", j))
        for r, w in enumerate(s["wk"]):
            if not w["up"]:
                A.append(("wstart", r))
                for j in range(m.NS) if f["obad"] else ():
                    if m.waiting(w, j):
                        A.append(("obad", r, j))
                continue
            if f["wkill"]:
                A.append(("wkill", r))
                if any(w["alt"]):
                    A.append(("wkill", r, "as the failed commit"))
            if f["wpower"]:
                A.append(("wpower", r))
            if f["wlost"]:
                A.append(("wlost", r))
            if f["retire"] and all(v["up"] and v["disk"] for v in s["sv"]):
                A.append(("retire", r))
            if w["unit"] >= 0 and not m.sticky:
                A.append(("train", r))
            if f["esnap"]:
                A.append(("esnap", r))
            for j in range(m.NS):
                v = s["sv"][j]
                if w["stage"][j]:
                    A.append(("cut2", r, j))
                elif (w["prog"][j] or w["E"][j]) and w["ncut"][j] < m.cuts and m.may_cut(w, j):
                    A.append(("cut1", r, j))
                if v["up"]:
                    if w["sess"][j] != v["gen"]:
                        A.append(("hello", r, j))
                    e = m.sendable(s, r, j)
                    if e is not None:
                        A.append(("send", r, j))
                    if w["rep"][j] != v["log"][: v["pub"]]:
                        A.append(("follow", r, j))
                if m.trimmable(s, r, j):
                    A.append(("trim", r, j))
                if f["old"] and v["old"]:
                    A.append(("oldhello", r, j))
        for u in range(m.NU):
            if not s["led"][u]:
                for r, w in enumerate(s["wk"]):
                    if (
                        w["up"]
                        and w["unit"] < 0
                        and s["ten"][u] != r
                        and (s["ten"][u] < 0 or f["release"])
                        and not m.claimed(w, u)
                    ):
                        A.append(("lease", u, r))
            # what is not begun is given back; a copy of those words may come late
            for r, w in enumerate(s["wk"]) if f["recall"] and s["ten"][u] >= 0 else ():
                if s["ten"][u] == r and w["up"] and w["unit"] == u and not m.sticky:
                    A.append(("recall", u, r, 0))
                    A.append(("recall", u, r, 1))
        for i, x in enumerate(s["net"]):
            if not m.sticky:
                A.append(("drop", i))
            for keep in (
                (1,) if m.sticky else (0, 1)
            ):  # sticky: a message can be repeated for ever, or never
                if x[0] == "P":
                    if not s["sv"][x[4]]["up"]:
                        continue
                    A.append(("push", i, keep, "ok"))
                    if f["refuse"]:
                        A.append(("push", i, keep, "refuse"))
                    if f["busy"] and "busy_returns" in B:
                        A.append(("push", i, keep, "busy"))
                    if f["corrupt"] and "corrupt_burn" in B:
                        A.append(("push", i, keep, "corrupt"))
                else:
                    A.append(("ack", i, keep))
                    if f["wfull"] and x[7] == 0:
                        for how in ("full", "failed", "failed, but there"):
                            A.append(("ack", i, keep, how))
        return A

    def claimed(m, w, u):
        for j in range(m.NS):
            if u in w["pend"][j] or u in w["cl"][j]:
                return 1
            for e in w["ob"][j]:
                if u in e[4]:
                    return 1
        return 0

    # entry: [inc, step, bid, parts, claims, status, ver]  status 'U' undecided, 'A' admitted
    def may_cut(m, w, j):
        if "base_delta" in m.B:
            return sum(e[5] == "U" for e in w["ob"][j]) < 2
        return not any(e[5] == "U" for e in w["ob"][j])

    def waiting(m, w, j):
        """The committed push of the incarnation in force that nobody decided, if any"""
        for e in w["ob"][j]:
            if e[5] == "U" and e[0] == w["inc"] and e[1] < w["next"][j]:
                return e
        return None

    def sendable(m, s, r, j):
        w, v = s["wk"][r], s["sv"][j]
        if w["sess"][j] != v["gen"] and "no_hello" not in m.B:
            return None
        for e in w["ob"][j]:
            if e[5] == "U" and e[0] == w["inc"] and e[1] < w["next"][j]:
                return e
        return None

    def trimmable(m, s, r, j):
        w, v = s["wk"][r], s["sv"][j]
        n = v["nstable"]
        if not n or not w["ob"][j]:
            return None
        for e in w["ob"][j]:
            if e[5] != "A":
                continue
            if "trim_by_ack" in m.B:
                if e[6] <= n:
                    return e
                continue
            rep = w["rep"][j]
            if len(rep) < n or ("local_stable" not in m.B and rep[:n] != v["stable"]):
                continue
            if any(x[0] == "P" and x[1] == r and x[2] == e[0] and x[3] == e[1] for x in rep[:n]):
                es = w["es"][j]  # newest durable residual snapshot: (E, inc, step)
                if "trim_esnap" not in m.B and (e[0], e[1]) > (es[1], es[2]):
                    continue
                return e
        return None

    def ret(m, w, j, e):
        """one commit: the mass and the claims of a frame that is decided 'not applied' go back"""
        w["E"][j] = list(e[3]) + w["E"][j]
        w["alt"][j] = []
        if "credit_any" not in m.B:
            w["pend"][j] = sorted(set(w["pend"][j]) | set(e[4]))
        if "resend_refused" in m.B and e[0] == w["inc"] and e[1] <= w["known"][j]:
            e[5] = "R"
        else:
            w["ob"][j].remove(e)

    def decided(m, s, r, j, e, verdict, ver, bid):
        w = s["wk"][r]
        if bid != e[2]:
            return m.fail(s, "same step, other bytes")
        if e[0] == w["inc"]:
            w["known"][j] = max(w["known"][j], e[1])
        if verdict:
            e[5], e[6] = "A", ver
            if "base_delta" in m.B:
                w["prog"][j] = [p for p in w["prog"][j] if p not in e[3]]
        else:
            m.ret(w, j, e)

    def append(m, s, j, rec):
        v = s["sv"][j]
        v["log"].append(rec)
        if "ack_before_sync" in m.B and rec[0] == "P":
            v["pub"] = len(v["log"])
            m.ack(s, j, len(v["log"]) - 1)

    def ack(m, s, j, i):
        v = s["sv"][j]
        x = v["log"][i]
        m.add(s, ("A", x[1], x[2], x[3], j, v["gen"], x[4], x[7], i + 1))

    def step(m, s, a):
        """apply action a to s in place"""
        k, B, f = a[0], m.B, s["f"]
        if k == "sync":
            v = s["sv"][a[1]]
            old = v["pub"]
            v["syn"] = v["pub"] = len(v["log"])
            for i in range(old, v["syn"]):
                if v["log"][i][0] == "P":
                    m.ack(s, a[1], i)
        elif k == "sfail":  # the disk is full, or the sync fails: the group is taken back
            f["sfull"] -= 1
            v = s["sv"][a[1]]
            v["back"] = [v["syn"], v["log"][v["syn"] :]]
            del v["log"][v["syn"] :]
        elif k == "kill":
            f["kill"] -= 1
            s["sv"][a[1]]["up"] = 0
        elif k == "tail":  # the last durable record is damaged and taken for a torn tail
            f["tail"] -= 1
            v = s["sv"][a[1]]
            v["log"].pop()
            v["lostn"] += 1
            v["syn"] = min(v["syn"], len(v["log"]))
            v["pub"] = min(v["pub"], v["syn"])
            if "tail_silent" not in B:
                v["ep"] += 1
                v["forks"].append((v["ep"], len(v["log"])))
                v["log"].append(("E", -1, v["ep"], 0, -1, (), (), 1))
            s["led"] = [0] * m.NU
            m.ledger(s)
        elif k == "power":
            f["power"] -= 1
            v = s["sv"][a[1]]
            v["up"] = 0
            if not a[2]:
                del v["log"][v["syn"] :]
            v["syn"] = len(v["log"])
            if v["pub"] > v["syn"]:
                m.fail(s, f"shard {a[1]}: a version that was seen or acknowledged went away")
            v["pub"] = min(v["pub"], v["syn"])
        elif k == "start":
            v = s["sv"][a[1]]
            v["up"] = 1
            v["gen"] += 1
            v["pub"] = len(v["log"])
            v["hello"] = [0] * m.NW
            if v["back"]:
                at, left = v["back"]
                if "group_left" in B and len(v["log"]) >= at:
                    v["log"] += left[len(v["log"]) - at :]
                    v["pub"] = len(v["log"])
                v["back"] = []
            if "no_resync" not in B:
                v["syn"] = len(v["log"])
            if "drop_dedupe" in B:
                v["dd"] = len(v["log"])
        elif k == "disk":
            f["disk"] -= 1
            v = s["sv"][a[1]]
            if f["old"]:
                v["old"] = [v["ep"], v["log"][: v["pub"]]]
            v.update(up=0, disk=0, log=[], syn=0, pub=0, dd=0, back=[])
            v["lostn"] += 1
            if "local_stable" in B:
                v["stable"] = []
        elif k == "rebuild":
            v = s["sv"][a[1]]
            best = list(v["stable"])
            for r, w in enumerate(s["wk"]):
                rep = w["rep"][a[1]]
                if "rebuild_any_branch" not in B:
                    for ep, base in v["forks"]:
                        if ep > w["rep_ep"][a[1]]:
                            rep = rep[:base]
                if a[2] >> r & 1 and len(rep) > len(best) and (rep[: len(best)] == best):
                    best = list(rep)
            v["ep"] += 1
            v["forks"].append((v["ep"], len(best)))  # in the coordinator's store, before serving
            best.append(("E", -1, v["ep"], 0, -1, (), (), 1))
            v.update(
                up=1,
                disk=1,
                log=best,
                syn=len(best),
                pub=len(best),
                gen=v["gen"] + 1,
                hello=[0] * m.NW,
                dd=len(best) if "rebuild_no_dedupe" in B else 0,
            )
            if "ledger_sticky" not in B:
                s["led"] = [0] * m.NU
                m.ledger(s)
        elif k == "stable":
            f["stable"] -= 1
            v = s["sv"][a[1]]
            v["stable"] = v["log"][: v["syn"]]
            v["nstable"] = v["syn"]
            v["stable_ep"] = v["ep"]
            m.ledger(s)
        elif k == "credit":
            m.ledger(s)
        elif k == "lease":
            u, r = a[1], a[2]
            if s["ten"][u] >= 0:
                f["release"] -= 1
            s["ten"][u] = r
            s["wk"][r]["unit"] = u
            if "credit_any" in B:  # token fence reaches only servers that are up
                for j in range(m.NS):
                    if s["sv"][j]["up"]:
                        s["fence"][j] = [x for x in s["fence"][j] if x[0] != u] + [(u, r)]
        elif k == "recall":
            f["recall"] -= 1
            s["ten"][a[1]] = -1
            if not a[3]:
                s["wk"][a[2]]["unit"] = -1
        if k == "train" or (k == "lease" and m.sticky):
            w = s["wk"][a[1] if k == "train" else a[2]]
            u = w["unit"]
            w["unit"] = -1
            for j in range(m.NS):
                w["prog"][j].append(s["np"])
                s["np"] += 1
                c = u % (m.NU // m.NE) if "epoch_unit" in B else u
                if (j == c % m.NS or "credit_each" in B) and c not in w["cl"][j]:
                    w["cl"][j].append(c)
            if "credit_any" in B:
                for j in range(m.NS):
                    w["cl"][j] = [x for x in w["cl"][j] if x != u]
                w["cl"][(u + s["wk"].index(w)) % m.NS].append(u)
        if k == "cut1":
            w, j = s["wk"][a[1]], a[2]
            E = w["E"][j] + [p for p in w["prog"][j] if p not in w["E"][j]]
            q = E[: max(1, (len(E) + 1) // 2)]
            w["ob"][j].append(
                [
                    w["inc"],
                    w["next"][j],
                    s["nb"],
                    q,
                    sorted(set(w["pend"][j]) | set(w["cl"][j])),
                    "U",
                    0,
                ]
            )
            s["nb"] += 1
            w["stage"][j] = 1
        elif k == "cut2":  # the slot flip is the commit point
            w, j = s["wk"][a[1]], a[2]
            w["stage"][j] = 0
            e = w["ob"][j][-1]
            E = w["E"][j] + [p for p in w["prog"][j] if p not in w["E"][j]]
            s["raw"][j] = sorted(set(s["raw"][j]) | set(E))
            w["E"][j] = [p for p in E if p not in e[3]]
            w["next"][j] += 1
            w["alt"][j] = []
            w["pend"][j] = []
            w["cl"][j] = []
            w["ncut"][j] += 1
            if "base_delta" not in B:
                w["prog"][j] = []
        elif k == "esnap":
            f["esnap"] -= 1
            w = s["wk"][a[1]]
            for j in range(m.NS):
                w["es"][j] = [list(w["E"][j]), w["inc"], w["next"][j] - 1]
        elif k == "send":
            r, j = a[1], a[2]
            e = m.sendable(s, r, j)
            w = s["wk"][r]
            m.add(s, ("P", r, e[0], e[1], j, e[2], tuple(e[3]), tuple(e[4]), s["sv"][j]["gen"]))
        elif k == "drop":
            del s["net"][a[1]]
        elif k == "push":
            m.push(s, a)
        elif k == "ack":
            x = s["net"][a[1]]
            if not a[2]:
                del s["net"][a[1]]
            _, r, inc, st, j, gen, bid, verdict, ver = x
            w = s["wk"][r]
            if not w["up"] or (gen != w["sess"][j] and "no_hello" not in B):
                return s
            for e in w["ob"][j]:
                if e[0] == inc and e[1] == st and e[5] == "U":
                    if st >= w["next"][j] and inc == w["inc"]:
                        continue
                    if "unlogged_reject" in B and bid != e[2]:
                        continue
                    if "busy_returns" in B and bid != e[2]:
                        continue
                    if a[3:] == ("full",):  # the flip that would return it finds no room
                        f["wfull"] -= 1
                        if "return_in_memory" in B:
                            w["E"][j] = list(e[3]) + w["E"][j]
                    elif a[3:]:  # its sync fails: nobody knows what is there, and the worker ends
                        f["wfull"] -= 1
                        if "unknown_goes_on" in B:
                            w["alt"][j] = [inc, st]
                            break
                        if a[3] == "failed, but there":
                            m.decided(s, r, j, e, verdict, ver, bid)
                        m.wkill(s, r)
                    elif verdict in (-1, -2):  # unlogged refusal, busy
                        m.ret(w, j, e)
                        w["next"][j] = e[1]
                    elif verdict == 0 and "return_twice" in B and s["f"]["wkill"]:
                        s["f"]["wkill"] -= 1  # crash between the two commits
                        w["E"][j] = list(e[3]) + w["E"][j]
                        m.wkill(s, r)
                    else:
                        m.decided(s, r, j, e, verdict, ver, bid)
                        if verdict == 1 and (r, inc, st, j) not in s["acked"]:
                            s["acked"].append((r, inc, st, j))
                            s["acked"].sort()
                    break
        elif k == "hello":
            m.hello(s, a[1], a[2])
        elif k == "oldhello":
            f["old"] -= 1
            m.old_hello(s, a[1], a[2])
        elif k == "follow":
            m.follow(s, a[1], a[2])
        elif k == "trim":
            e = m.trimmable(s, a[1], a[2])
            s["wk"][a[1]]["ob"][a[2]].remove(e)
        elif k == "wkill":
            f["wkill"] -= 1
            w = s["wk"][a[1]]
            for j in range(m.NS) if a[2:] else ():
                for e in list(w["ob"][j]):
                    if e[:2] == w["alt"][j] and e[5] == "U":
                        m.decided(s, a[1], j, e, 0, 0, e[2])
            m.wkill(s, a[1])
        elif k == "wpower":
            f["wpower"] -= 1
            w = s["wk"][a[1]]
            m.wkill(s, a[1])
            for j in range(m.NS):
                es = w["es"][j]
                keep = list(es[0])
                if "esnap_rollback" not in B:
                    for e in w["ob"][j]:
                        if (e[0], e[1]) > (es[1], es[2]):
                            keep = [p for p in keep if p not in e[3]]
                if w["bad"][j] > es[1:] and "damaged_unread" not in B:
                    keep = []
                gone = set(w["E"][j]) - set(keep)
                s["may"][j] = sorted(set(s["may"][j]) | gone)
                w["E"][j] = keep
                w["pend"][j] = []  # claims in the lost slot: the unit is leased again
                if "same_inc_power" in B:
                    w["next"][j] = es[2] + 1
                    w["ob"][j] = [e for e in w["ob"][j] if e[1] < w["next"][j]]
                else:
                    for e in w["ob"][j]:  # the outcome of step k is durable with entry k+1
                        if e[0] == w["inc"] and e[1] == w["next"][j] - 1:
                            e[5] = "U"
            if "same_inc_power" not in B:
                m.bump(s, a[1])
            m.retenure(s, a[1])
        elif k == "retire":  # its host is gone for good; later somebody joins under that name
            f["retire"] -= 1
            f["wlost"] += 1
            for j in range(m.NS):
                m.append(s, j, ("R", a[1], s["wk"][a[1]]["inc"], 0, -1, (), (), 1))
            m.step(s, ("wlost", a[1]))
        elif k == "wlost":
            f["wlost"] -= 1
            w = s["wk"][a[1]]
            w["lost"] = 1
            m.wkill(s, a[1])
            for j in range(m.NS):
                s["may"][j] = sorted(
                    set(s["may"][j]) | set(w["E"][j]) | set(p for e in w["ob"][j] for p in e[3])
                )
                w["E"][j] = []
                w["ob"][j] = []
                w["pend"][j] = []
                w["rep"][j] = []
                w["es"][j] = [[], w["inc"] + 1, 0]
            if "inc_reuse" in B:
                w["next"] = [1] * m.NS
                w["known"] = [0] * m.NS
                w["sess"] = [0] * m.NS
            else:
                m.bump(s, a[1])
            m.retenure(s, a[1])
        elif k == "wstart":
            w = s["wk"][a[1]]
            w["up"] = 1
        elif k == "obad":  # found by the next start: its mass is lost, and counted
            f["obad"] -= 1
            w = s["wk"][a[1]]
            e = m.waiting(w, a[2])
            w["ob"][a[2]].remove(e)
            w["bad"][a[2]] = e[:2]
            s["may"][a[2]] = sorted(set(s["may"][a[2]]) | set(e[3]))
            if "damaged_goes_on" not in B:
                m.bump(s, a[1])
            m.retenure(s, a[1])
        else:
            assert k in (
                "sync",
                "kill",
                "power",
                "start",
                "disk",
                "rebuild",
                "stable",
                "credit",
                "lease",
                "recall",
                "train",
                "tail",
                "sfail",
            ), k
        return s

    def retenure(m, s, r):
        for u in range(m.NU):
            if s["ten"][u] == r:
                s["ten"][u] = -1

    def bump(m, s, r):
        w = s["wk"][r]
        w["inc"] += 1
        w["next"] = [1] * m.NS
        w["known"] = [0] * m.NS
        w["sess"] = [0] * m.NS
        if "fence_no_resolve" in m.B:
            for j in range(m.NS):
                w["ob"][j] = [e for e in w["ob"][j] if e[5] == "A"]
        if "fence_resend" in m.B:
            for j in range(m.NS):
                for e in [e for e in w["ob"][j] if e[5] == "U"]:
                    m.ret(w, j, e)

    def wkill(m, s, r):
        w = s["wk"][r]
        w["up"] = 0
        w["unit"] = -1
        for j in range(m.NS):
            w["alt"][j] = []
            w["prog"][j] = []
            w["cl"][j] = []
            w["stage"][j] = 0
            w["sess"][j] = 0
            # the region's replica is volatile: back to what its own durable checkpoint holds
            # (the stable prefix)
            n = s["sv"][j]["nstable"]
            if n < len(w["rep"][j]):
                w["rep_ep"][j] = s["sv"][j]["stable_ep"]
            w["rep"][j] = w["rep"][j][:n]
            if "old_hello_forgotten" in m.B:
                w["heard"][j] = w["rep_ep"][j]
            un = [e for e in w["ob"][j] if e[0] == w["inc"] and e[1] >= w["next"][j]]
            for e in un:
                if "resend_all" in m.B:
                    w["next"][j] = e[1] + 1
                    s["raw"][j] = sorted(set(s["raw"][j]) | set(e[3]))
                else:
                    w["ob"][j].remove(e)
        m.retenure(s, r)

    def push(m, s, a):
        x = s["net"][a[1]]
        if not a[2]:
            del s["net"][a[1]]
        _, r, inc, st, j, bid, parts, claims, gen = x
        v = s["sv"][j]
        B = m.B
        if not v["up"]:
            return
        if "no_hello" not in B and (not v["hello"][r]):
            return  # NEED_HELLO: not terminal
        ri, last, rec = m.row(v, r, len(v["log"]))
        if inc != ri:
            return  # FENCED / NEED_HELLO: not terminal
        for y in v["back"][1] if v["back"] and "group_in_memory" in B else ():
            if (y[0], y[1], y[2], y[3]) == ("P", r, inc, st):
                return m.add(s, ("A", r, inc, st, j, v["gen"], y[4], y[7], v["pub"] + 1))
        if st <= last:
            if st == last and st and rec:
                if rec[1][4] != bid:
                    # the worker never reuses a committed step, so this is a protocol violation
                    return m.fail(s, "same step, other bytes at the server")
                if rec[0] < v["pub"]:
                    m.ack(s, j, rec[0])
            elif "inc_reuse" in B or "same_inc_power" in B:
                m.add(s, ("A", r, inc, st, j, v["gen"], bid, 1, 0))  # ALREADY_APPLIED
            return
        if st > last + 1:
            if v["dd"] == 0:
                return  # BEHIND: the worker says hello again
        verdict = 1
        if a[3] == "busy":
            s["f"]["busy"] -= 1
            return m.add(s, ("A", r, inc, st, j, v["gen"], bid, -2, 0))
        if a[3] == "corrupt":
            s["f"]["corrupt"] -= 1
            bid, parts, verdict = -1, (), 0
        if a[3] == "refuse":
            s["f"]["refuse"] -= 1
            if "unlogged_reject" in B:
                return m.add(s, ("A", r, inc, st, j, v["gen"], bid, -1, 0))
            verdict = 0
        if "credit_any" in B:
            for u, t in s["fence"][j]:
                if u in claims and t != r:
                    verdict = 0
        m.append(s, j, ("P", r, inc, st, bid, parts, claims, verdict))

    def hello(m, s, r, j):
        """Hello(worker, incarnation, highest decided step) to this server process."""
        w, v, B = s["wk"][r], s["sv"][j], m.B
        w["heard"][j] = max(w["heard"][j], v["ep"])
        ri, last, rec = m.row(v, r, v["pub"])
        if ri < w["inc"]:
            if m.row(v, r, len(v["log"]))[0] < w["inc"]:
                m.append(s, j, ("F", r, w["inc"], 0, -1, (), (), 1))
            return  # answered when the fence record is durable
        if ri > w["inc"]:
            return
        if "no_hello" in B or "drop_dedupe" in B or "rebuild_no_dedupe" in B:
            w["sess"][j] = v["gen"]
            v["hello"][r] = 1
            return
        if "inc_reuse" not in B and "same_inc_power" not in B and last >= w["next"][j]:
            m.bump_live(s, r)
            return  # our own state was rolled back
        if last < w["known"][j]:  # history was lost behind us
            if "resend_refused" in B:
                for e in w["ob"][j]:
                    if e[0] == w["inc"] and e[1] > last:
                        e[5] = "U"
                w["known"][j] = last
            else:
                m.bump_live(s, r)
                return
        v["hello"][r] = 1
        w["sess"][j] = v["gen"]
        key = (rec[1][2], rec[1][3]) if rec else (0, 0)
        for e in list(w["ob"][j]):
            k = (e[0], e[1])
            if k == key:
                m.decided(s, r, j, e, rec[1][7], rec[0] + 1, rec[1][4])
            elif k < key:
                if e[5] == "U" and "resend_refused" not in B:
                    return m.fail(s, "outcome of an older step cannot be known")
            elif e[0] < w["inc"]:
                m.ret(w, j, e)  # fenced and not in the log: never applied
            # e[0] == inc and above the row: stays undecided, sent again byte for byte

    def old_hello(m, s, r, j):
        """A copy of the lost directory runs, cut off from the coordinator, and answers the hello of
        whoever reaches it; it takes as many of them as it likes."""
        w, now = s["wk"][r], s["sv"][j]
        ep, log = now["old"]
        heard = w["heard"][j]
        if "old_hello_replica" in m.B:
            heard = w["rep_ep"][j]
        if ep < heard and "old_hello" not in m.B:
            return
        for _ in range(4):
            s["sv"][j] = dict(now, ep=ep, log=log, pub=len(log), hello=[0] * m.NW, gen=-1)
            m.hello(s, r, j)
        s["sv"][j] = now
        w["sess"][j] = 0

    def bump_live(m, s, r):
        w = s["wk"][r]
        st = [x for x in w["stage"]]
        for j in range(m.NS):  # a staged, uncommitted cut is undone
            if st[j]:
                w["ob"][j].pop()
                w["stage"][j] = 0
        m.bump(s, r)

    def follow(m, s, r, j):
        w, v, B = s["wk"][r], s["sv"][j], m.B
        log, rep = v["log"][: v["pub"]], w["rep"][j]
        if "no_chain" in B:
            if len(rep) < len(log):
                rep.append(log[len(rep)])
            return
        if rep != log[: len(rep)]:
            w["rep"][j] = list(log)
            w["rep_ep"][j] = v["ep"]  # forked: snapshot
            w["heard"][j] = max(w["heard"][j], v["ep"])
            w["sess"][j] = 0
            return
        if len(rep) < len(log):
            x = log[len(rep)]
            if (
                "elide_own" in B
                and x[0] == "P"
                and x[1] == r
                and x[7] == 1
                and len(rep) >= v["nstable"]
            ):
                if not any(e[2] == x[4] for e in w["ob"][j]):
                    return m.fail(s, "own record needed, not held")
            rep.append(x)
            w["rep_ep"][j] = v["ep"]
            w["heard"][j] = max(w["heard"][j], v["ep"])

    def ledger(m, s):
        for j in range(m.NS):
            v = s["sv"][j]
            for x in v["log"][: v["pub"]]:
                if x[0] == "P" and x[7] == 1:
                    for u in x[6]:
                        s["led"][u] = 1

    # ---------------------------------------------------------------- heal, drain, judge
    def drain(m, s):
        s["f"] = {k: 0 for k in s["f"]}
        for rnd in range(60):
            before = marshal.dumps(s, 2)
            for j, v in enumerate(s["sv"]):
                if not v["disk"]:
                    m.step(s, ("rebuild", j, (1 << m.NW) - 1))
                if not v["up"]:
                    m.step(s, ("start", j))
            for r, w in enumerate(s["wk"]):
                if not w["up"]:
                    m.step(s, ("wstart", r))
            for n in range(4):
                for j in range(m.NS):
                    for r, w in enumerate(s["wk"]):
                        if w["stage"][j]:
                            m.step(s, ("cut2", r, j))
                        if w["sess"][j] != s["sv"][j]["gen"]:
                            m.step(s, ("hello", r, j))
                        if m.sendable(s, r, j) is not None:
                            m.step(s, ("send", r, j))
                    g = 0
                    while g < len(s["net"]):
                        x = s["net"][g]
                        if x[0] == "P" and x[4] == j:
                            m.step(s, ("push", g, 0, "ok"))
                        else:
                            g += 1
                        if s["bad"]:
                            return s
                    m.step(s, ("sync", j))
                    g = 0
                    while g < len(s["net"]):
                        if s["net"][g][0] == "A":
                            m.step(s, ("ack", g, 0))
                        else:
                            g += 1
                        if s["bad"]:
                            return s
                    for r, w in enumerate(s["wk"]):
                        for _ in range(200):
                            if w["rep"][j] == s["sv"][j]["log"][: s["sv"][j]["pub"]]:
                                break
                            n0 = len(w["rep"][j])
                            m.step(s, ("follow", r, j))
                            if s["bad"]:
                                return s
                            if len(w["rep"][j]) == n0 and "no_chain" in m.B:
                                break
            m.ledger(s)
            if marshal.dumps(s, 2) == before:
                todo = [u for u in range(m.NU) if not s["led"][u]]
                left = [
                    (r, j)
                    for r in range(m.NW)
                    for j in range(m.NS)
                    if s["wk"][r]["pend"][j] or s["wk"][r]["cl"][j] or s["wk"][r]["prog"][j]
                ]
                if not todo and not left:
                    break
                did = 0
                for r, w in enumerate(s["wk"]):
                    if w["unit"] >= 0:
                        if s["led"][w["unit"]]:
                            w["unit"] = -1
                        else:
                            m.step(s, ("train", r))
                        did = 1
                if did:
                    continue
                for r, j in left:
                    if m.may_cut(s["wk"][r], j):
                        w = s["wk"][r]
                        if w["prog"][j] or w["E"][j]:
                            m.step(s, ("cut1", r, j))
                            m.step(s, ("cut2", r, j))
                            did = 1
                        else:
                            w["prog"][j].append(s["np"])
                            s["np"] += 1
                            did = 1
                for u in todo:
                    for r, w in enumerate(s["wk"]):
                        if (
                            w["unit"] < 0
                            and not m.claimed(w, u)
                            and not any(m.claimed(x, u) for x in s["wk"])
                        ):
                            w["unit"] = u
                            m.step(s, ("train", r))
                            did = 1
                            break
                if not did:
                    break
        return s

    def judge(m, s):
        if s["bad"]:
            return s["bad"]
        seen_credit = [0] * m.NU
        for j in range(m.NS):
            v = s["sv"][j]
            log = v["log"][: v["pub"]]
            cnt = {}
            keys = set()
            cred = set()
            for x in log:
                if x[0] != "P" or x[7] != 1:
                    continue
                if (x[1], x[2], x[3]) in keys:
                    return f"shard {j}: push {(x[1], x[2], x[3])} applied twice"
                keys.add((x[1], x[2], x[3]))
                for p in x[5]:
                    cnt[p] = cnt.get(p, 0) + 1
                for u in x[6]:
                    if u not in cred:
                        cred.add(u)
                        seen_credit[u] += 1  # first commit wins inside one log
            E = {}
            for w in s["wk"]:
                for p in w["E"][j]:
                    E[p] = E.get(p, 0) + 1
                for e in w["ob"][j]:
                    if e[5] == "U" and e[0] == w["inc"]:
                        return f"shard {j}: undecided entry after drain (stuck)"
            for p in set(s["raw"][j]) | set(cnt) | set(E):
                n = cnt.get(p, 0) + E.get(p, 0)
                if n > 1:
                    return (
                        f"shard {j}: mass of particle {p} counted {cnt.get(p, 0)} times in the log "
                        f"and {E.get(p, 0)} in residuals"
                    )
                if n == 0 and p not in s["may"][j]:
                    return f"shard {j}: mass of particle {p} lost"
            for r, inc, st, jj in s["acked"]:
                if jj == j and not (s["wk"][r]["lost"] and v["lostn"]):
                    # acknowledged: its mass must be applied, or (history lost, author alive)
                    # applied under a new step or deferred
                    if (r, inc, st) not in keys and not v["lostn"]:
                        return f"shard {j}: acknowledged {(r, inc, st)} not in the log"
            for r, w in enumerate(s["wk"]):
                if w["rep"][j] != log:
                    return f"shard {j}: replica of {r} differs from the log"
        for u in range(m.NU):
            if seen_credit[u] != 1:
                return f"unit {u} credited {seen_credit[u]} times"
        return ""


W = dict(
    sync=6,
    kill=0.5,
    power=0.5,
    disk=0.4,
    rebuild=3,
    start=5,
    tail=2,
    wkill=0.5,
    wpower=0.4,
    wlost=0.25,
    retire=0.25,
    wstart=5,
    train=6,
    esnap=1,
    cut1=5,
    cut2=6,
    hello=6,
    send=6,
    follow=5,
    trim=3,
    lease=3,
    recall=2,
    credit=2,
    drop=1,
    push=6,
    ack=6,
    stable=1,
    sfail=1,
    oldhello=2,
    obad=1,
)


def run_seed(m, seed, steps=90, trace=None):
    R = random.Random(seed)
    s = m.init()
    for _ in range(steps):
        A = m.actions(s)
        if not A:
            break
        # pick a kind by weight, then one of that kind
        kinds = {}
        for a in A:
            kinds.setdefault(a[0], []).append(a)
        ks = list(kinds)
        a = R.choice(kinds[R.choices(ks, [W[k] for k in ks])[0]])
        if a[0] in ("push", "ack") and a[2] and R.random() < 0.6:
            a = (a[0], a[1], 0) + a[3:]
        if trace is not None:
            trace.append((a, s["net"][a[1]] if a[0] in ("push", "ack", "drop") else None))
        m.step(s, a)
        if s["bad"]:
            return s["bad"], s
    if trace is not None:
        trace.append(("--drain--", None))
    m.drain(s)
    return m.judge(s), s


def explore(m, limit_s=60, max_states=10**7, report=10):
    """breadth first over all interleavings within the fault budget

    Every state reached is drained and judged.
    """
    s0 = m.init()
    k0 = marshal.dumps(s0, 2)
    seen = {hash(k0)}
    Q = deque([(k0, 0)])
    n = 0
    t0 = time.time()
    depth = 0
    full = True
    trans = 0
    while Q:
        k, d = Q.popleft()
        n += 1
        depth = max(depth, d)
        s = marshal.loads(k)
        e = marshal.loads(k)
        m.drain(e)
        why = m.judge(e)
        if why:
            return dict(
                bad=why, states=n, depth=d, transitions=trans, complete=False, secs=time.time() - t0
            )
        if time.time() - t0 > limit_s or n >= max_states:
            full = False
            break
        for a in m.actions(s):
            t = marshal.loads(k)
            m.step(t, a)
            trans += 1
            if t["bad"]:
                return dict(
                    bad=t["bad"],
                    states=n,
                    depth=d + 1,
                    transitions=trans,
                    complete=False,
                    secs=time.time() - t0,
                )
            kk = marshal.dumps(t, 2)
            h = hash(kk)
            if h not in seen:
                seen.add(h)
                Q.append((kk, d + 1))
    return dict(
        bad="",
        states=n,
        frontier=len(Q),
        depth=depth,
        transitions=trans,
        complete=full,
        secs=round(time.time() - t0, 1),
    )


SMALL = {
    "1w1s kill+refuse+wkill": dict(
        NW=1, NS=1, NU=2, cuts=2, faults=dict(kill=1, refuse=1, wkill=1)
    ),
    "1w1s power+refuse+wpower": dict(
        NW=1, NS=1, NU=2, cuts=2, faults=dict(power=1, refuse=1, wpower=1)
    ),
    "1w1s refuse+wpower+esnap": dict(
        NW=1, NS=1, NU=2, cuts=2, faults=dict(refuse=1, wpower=1, esnap=1)
    ),
    "1w1s kill+tail+refuse": dict(NW=1, NS=1, NU=2, cuts=2, faults=dict(kill=1, refuse=1, tail=1)),
    "1w1s disk+refuse": dict(NW=1, NS=1, NU=2, cuts=2, faults=dict(disk=1, refuse=1)),
    "1w2s refuse+wkill": dict(NW=1, NS=2, NU=2, cuts=1, faults=dict(refuse=1, wkill=1)),
    "1w2s disk+refuse": dict(NW=1, NS=2, NU=2, cuts=1, faults=dict(refuse=1, disk=1)),
    "1w1s disk+old+wkill": dict(NW=1, NS=1, NU=1, cuts=2, faults=dict(disk=1, old=1, wkill=1)),
    "1w1s disk+refuse+wfull+wkill": dict(
        NW=1, NS=1, NU=1, cuts=1, faults=dict(disk=1, refuse=2, wfull=1, wkill=1)
    ),
    "1w1s kill+sfull+refuse+wfull+wkill": dict(
        NW=1, NS=1, NU=2, cuts=2, faults=dict(kill=1, sfull=1, refuse=1, wfull=1, wkill=1)
    ),
    "2w1s refuse+wlost": dict(NW=2, NS=1, NU=2, cuts=1, faults=dict(refuse=1, wlost=1)),
}

if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seeds", type=int, default=2000)
    ap.add_argument("--from", dest="lo", type=int, default=0)
    ap.add_argument("--bug", default="")
    ap.add_argument("--trace", type=int)
    ap.add_argument("--all-bugs", action="store_true")
    ap.add_argument("--explore", type=float, default=0)
    ap.add_argument("--steps", type=int, default=90)
    o = ap.parse_args()
    bugs = [b for b in o.bug.split(",") if b]
    assert all(b in BUGS for b in bugs)
    if o.explore:
        for n, c in SMALL.items():
            print(n, explore(Model(bugs=bugs, sticky=1, **c), limit_s=o.explore), flush=True)
        sys.exit()
    if o.trace is not None:
        m = Model(bugs=bugs)
        tr = []
        why, s = run_seed(m, o.trace, o.steps, tr)
        for t in tr:
            print(*t)
        print("VERDICT", why or "ok")
        sys.exit(bool(why))
    if o.all_bugs:
        for b in BUGS:  # with its own faults only, and the control
            m, c = Model(bugs=[b], faults=FOCUS[b], NU=4), Model(faults=FOCUS[b], NU=4)
            t0 = time.time()
            hit = None
            for i in range(o.seeds):
                why, s = run_seed(m, i, o.steps)
                if why:
                    hit = (i, why)
                    break
            n = min(o.seeds, max(300, hit[0] + 1 if hit else 0))
            bad = ""
            for i in range(n):
                bad = bad or run_seed(c, i, o.steps)[0]
            print(
                f"{b:18s} "
                + (f"caught, seed {hit[0]}: {hit[1]}" if hit else f"NOT CAUGHT in {o.seeds}")
                + f' | control {n} seeds: {bad or "ok"}',
                flush=True,
            )
        sys.exit()
    m = Model(bugs=bugs)
    t0 = time.time()
    for i in range(o.lo, o.lo + o.seeds):
        why, s = run_seed(m, i, o.steps)
        if why:
            print("seed", i, why)
            sys.exit(1)
    print(f"{o.seeds} seeds ok in {time.time()-t0:.1f}s")
