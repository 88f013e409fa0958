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

Units are those of the run: NE epochs of NU / NE units of data each. The order of leases is left
open; the coordinator's order is one of the possible ones.

This file has the state, the possible events, the coordinator, and the explorers. protocol_server.py
and protocol_worker.py have the events at each, protocol_judge.py the invariants, and
protocol_bugs.py the bugs."""

import argparse
import marshal
import random
import sys
import time
from collections import deque

from protocol_bugs import BUGS, FOCUS
from protocol_judge import Judge
from protocol_server import Server
from protocol_worker import Worker


class Model(Server, Worker, Judge):
    def __init__(m, NW=2, NS=2, NU=4, bugs=(), faults=None, cuts=99, sticky=0, NE=2):
        m.NW, m.NS, m.NU, m.B, m.cuts, m.sticky = NW, NS, NU, frozenset(bugs), cuts, sticky
        m.NE = NE if NU % NE == 0 else 1
        m.F = dict(kill=2, power=2, disk=2, wkill=2, wpower=1, wlost=1, refuse=3, busy=1, corrupt=1,
                   stable=2, esnap=2, release=1, recall=2, tail=1, wfull=1, sfull=1, old=1, obad=1,
                   retire=1)
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
                    back=[],  # the last failed group: (position, records)
                    old=[],  # a copy of this directory that still exists: (epoch, log)
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
            # a unit that is not begun is given back; a copy of that message may arrive late
            for r, w in enumerate(s["wk"]) if f["recall"] and s["ten"][u] >= 0 else ():
                if s["ten"][u] == r and w["up"] and w["unit"] == u and not m.sticky:
                    A.append(("recall", u, r, 0))
                    A.append(("recall", u, r, 1))
        for i, x in enumerate(s["net"]):
            if not m.sticky:
                A.append(("drop", i))
            for keep in (
                (1,) if m.sticky else (0, 1)
            ):  # sticky: a message can be repeated for ever, or never arrive
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

    def step(m, s, a):
        """apply action a to s in place"""
        getattr(m, "do_" + a[0])(s, *a[1:])
        return s

    # ---------------------------------------------------------------- the coordinator, the net
    def do_lease(m, s, u, r):
        if s["ten"][u] >= 0:
            s["f"]["release"] -= 1
        s["ten"][u] = r
        s["wk"][r]["unit"] = u
        if "credit_any" in m.B:  # token fence reaches only servers that are up
            for j in range(m.NS):
                if s["sv"][j]["up"]:
                    s["fence"][j] = [x for x in s["fence"][j] if x[0] != u] + [(u, r)]
        if m.sticky:
            m.do_train(s, r)

    def do_recall(m, s, u, r, late):
        s["f"]["recall"] -= 1
        s["ten"][u] = -1
        if not late:
            s["wk"][r]["unit"] = -1

    def do_credit(m, s, _j):
        m.ledger(s)

    def do_drop(m, s, i):
        del s["net"][i]

    def ledger(m, s):
        for j in range(m.NS):
            v = s["sv"][j]
            for x in v["log"][: v["pub"]]:
                if x[0] == "P" and x[7] == 1:
                    for u in x[6]:
                        s["led"][u] = 1


# How often a seed draws an action of each kind.
W = dict(sync=6, kill=0.5, power=0.5, disk=0.4, rebuild=3, start=5, tail=2, wkill=0.5, wpower=0.4,
         wlost=0.25, retire=0.25, wstart=5, train=6, esnap=1, cut1=5, cut2=6, hello=6, send=6,
         follow=5, trim=3, lease=3, recall=2, credit=2, drop=1, push=6, ack=6, stable=1, sfail=1,
         oldhello=2, obad=1)


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
