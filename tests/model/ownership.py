#!/usr/bin/env python3
"""Which server may order a shard's log: forced take-over by a standby, and a live move.

Exhaustive: one shard, two servers, one coordinator, a worker with N steps. Messages may be lost,
repeated and reordered for ever (the set of messages only grows); no rule depends on clocks: the
coordinator may suspect the owner at any moment.

State: (coordinator, X, Y, worker, net, budget).  A record is (step, epoch) or ('MOVE', epoch).
"""

import time
from collections import deque

BUGS = {
    "take_any": ("take", "the standby takes over without being recorded as in sync"),
    "old_epoch": ("take", "the promoted standby still confirms records of the old epoch"),
    "degrade_local": ("take", "the owner drops a slow standby on its own, then acknowledges"),
    "zombie_stable": ("zombie", "an owner of an old epoch may register a stable checkpoint"),
    "take_no_stable": ("zombie", "the new owner starts below the registered stable checkpoint"),
    "promote_unsynced": ("zombie", "the new owner serves before its own tail is synced"),
    "freeze_mem": ("move", "the freeze before a move is in memory only"),
    "flip_early": (
        "move",
        "the coordinator flips the map when the target reports the tail, before the freeze",
    ),
    "move_unsynced": ("move", "the target serves on a MOVE record that is not durable there"),
}


def model(mode, bugs=(), N=3, crashes=2):
    B = set(bugs)
    # coordinator: owner, epoch, insync, stable(step set as max index), move(0/1)
    C0 = (0, 1, 1, (), 0)
    # server: up, epoch, owner?, log, syn, confirmed-by-peer, frozen (volatile),
    #         drop (volatile: peer dropped by us)
    X0 = (1, 1, 1, (), 0, 0, 0, 0)
    Y0 = (1, 1, 0, (), 0, 0, 0, 0)
    W0 = ((), 0)  # acked steps, trimmed up to
    start = (C0, X0, Y0, W0, frozenset(), crashes)

    def steps(log):
        return [r[0] for r in log if r[0] != "MOVE"]

    def nxt(s):
        C, X, Y, Wk, net, cr = s
        co, ce, isr, st, mv = C
        S = (X, Y)
        out = []

        def put(C=C, i=None, v=None, Wk=Wk, add=None, cr=cr, label=""):
            SS = list(S)
            if i is not None:
                SS[i] = v
            out.append((label, (C, SS[0], SS[1], Wk, net | {add} if add else net, cr)))

        for i in (0, 1):
            up, ep, own, log, syn, conf, frz, dr = S[i]
            if not up:
                # A restart finds the synced records (both outcomes of the unsynced tail were taken
                # at the crash).
                e2, o2 = ep, own
                put(i=i, v=(1, e2, o2, log, len(log), 0, 0, 0), label=f"start{i}")
                continue
            if cr:
                for keep in {syn, len(log)}:
                    put(
                        i=i, v=(0, ep, own, log[:keep], keep, 0, 0, 0), cr=cr - 1, label=f"crash{i}"
                    )
            if syn < len(log):
                put(i=i, v=(up, ep, own, log, len(log), conf, frz, dr), label=f"sync{i}")
            ended = any(r[0] == "MOVE" and r[1] > ep for r in log) and "freeze_mem" not in B
            moved = any(r[0] == "MOVE" for r in log)
            if own and not ended and not frz:
                k = (
                    len(steps(log)) + 1
                )  # the worker sends its next step to the owner that it knows; dedupe by step
                if k <= N:
                    put(
                        i=i,
                        v=(up, ep, own, log + ((k, ep),), syn, conf, frz, dr),
                        label=f"push{i}:{k}",
                    )
            if own and i == 0:  # ship the durable log to the peer
                if syn and mode != "zombie":
                    put(add=("ship", ep, log[:syn]), label="ship")
                if mode == "zombie" and syn:
                    put(add=("ship", ep, log[:syn]), label="follow")
            if own:  # acknowledge
                if mode == "take":
                    lim = conf if (i == 0 and isr and not dr) else syn
                else:
                    lim = syn
                lim = min(lim, syn)
                for r in log[:lim]:
                    if r[0] != "MOVE" and r[0] not in Wk[0]:
                        put(Wk=(tuple(sorted(Wk[0] + (r[0],))), Wk[1]), label=f"ack{i}:{r[0]}")
            if mode == "take" and i == 0 and own:
                if "degrade_local" in B and not dr:
                    put(i=0, v=(up, ep, own, log, syn, conf, frz, 1), label="drop peer")
                elif isr and co == 0:
                    put(C=(co, ce, 0, st, mv), label="degrade by CAS")
                if not isr and co == 0 and conf == len(log) == syn and syn:
                    put(C=(co, ce, 1, st, mv), label="in sync again") if False else None
            if (
                mode == "zombie" and own and syn
            ):  # register a stable checkpoint, by CAS on the epoch
                n = log[:syn]
                if len(n) > len(st) and (ep == ce or "zombie_stable" in B):
                    put(C=(co, ce, isr, n, mv), label=f"stable by {i}: {len(n)}")
        # messages
        Yv = S[1]
        Xv = S[0]
        for x in net:
            if x[0] == "ship" and Yv[0]:
                up, ep, own, log, syn, conf, frz, dr = Yv
                if x[1] >= ep or "old_epoch" in B:
                    if len(x[2]) > len(log) and x[2][: len(log)] == log and not own:
                        put(i=1, v=(up, ep, own, x[2], syn, conf, frz, dr), label="store")
                    have = x[2][:syn] if log[:syn][: len(x[2])] == x[2][:syn] else None
                    if (
                        have is not None
                        and mode == "take"
                        and syn >= len(x[2])
                        and log[: len(x[2])] == x[2]
                    ):
                        put(add=("conf", x[1], len(x[2])), label="confirm")
                    elif "old_epoch" in B and own and mode == "take":
                        put(add=("conf", x[1], len(x[2])), label="confirm old")
            if (
                x[0] == "conf"
                and Xv[0]
                and Xv[2]
                and x[1] == Xv[1]
                and x[2] > Xv[5]
                and x[2] <= len(Xv[3])
            ):
                put(i=0, v=Xv[:5] + (x[2],) + Xv[6:], label="confirmed")
            if x[0] == "promote" and Yv[0] and x[1] > Yv[1]:
                log, syn = Yv[3], Yv[4]
                if (
                    mode == "zombie"
                    and "take_no_stable" not in B
                    and st[: len(log)] != log[: len(st)][: len(st)]
                ):
                    log, syn = st, len(st)
                if mode == "zombie" and "take_no_stable" not in B and len(st) > len(log):
                    log, syn = st, len(st)
                if "promote_unsynced" not in B:
                    syn = len(log)  # its initial log is durable before it serves
                put(i=1, v=(1, x[1], 2, log, syn, 0, 0, 0), label="promoted")
            if x[0] == "demote" and Xv[0] and x[1] > Xv[1] and Xv[2]:
                put(i=0, v=(1, Xv[1], 0) + Xv[3:], label="X learns it is over")
        # coordinator
        if mode in ("take", "zombie") and co == 0:
            if isr or "take_any" in B or mode == "zombie":
                C2 = (1, ce + 1, isr, st, mv)
                net2 = net | {("promote", ce + 1), ("demote", ce + 1)}
                out.append(("take over", (C2, X, Y, Wk, net2, cr)))
        if mode == "move":
            if not mv and co == 0:
                put(C=(co, ce, isr, st, 1), label="reserve epoch 2")
            if mv and Xv[0] and Xv[2] and not any(r[0] == "MOVE" for r in Xv[3]):
                if "freeze_mem" in B:
                    if not Xv[6]:
                        put(i=0, v=Xv[:6] + (1, 0), label="freeze in memory")
                elif "flip_early" not in B:
                    put(i=0, v=Xv[:3] + (Xv[3] + (("MOVE", 2),),) + Xv[4:], label="MOVE record")
            if (
                "freeze_mem" in B
                and mv
                and Xv[0]
                and Xv[6]
                and Yv[0]
                and not Yv[2]
                and Yv[3] == Xv[3]
                and Yv[4] == len(Yv[3])
            ):
                put(i=1, v=(1, 2, 1) + Yv[3:], label="flip")
            if (
                "flip_early" in B
                and mv
                and Yv[0]
                and not Yv[2]
                and Yv[4] == len(Yv[3])
                and Yv[3] == Xv[3][: len(Yv[3])]
            ):
                put(i=1, v=(1, 2, 1) + Yv[3:], C=(1, 2, isr, st, mv), label="flip")
            lim = len(Yv[3]) if "move_unsynced" in B else Yv[4]
            if Yv[0] and not Yv[2] and any(r[0] == "MOVE" for r in Yv[3][:lim]):
                put(i=1, v=(1, 2, 1) + Yv[3:], label="Y owns by the MOVE record")
            if Yv[2] and co == 0 and Yv[0]:
                put(C=(1, 2, isr, st, mv), label="coordinator learns")
        # the worker trims its outbox below the stable point that it is told
        for k in steps(st) if mode == "zombie" else ():
            if k == Wk[1] + 1 and k in Wk[0]:
                put(Wk=(Wk[0], k), label=f"trim {k}")
        return out

    def bad(s):
        C, X, Y, Wk, net, cr = s
        owners = [v for v in (X, Y) if v[0] and v[2]]
        for v in (X, Y):
            st = steps(v[3])
            if len(set(st)) != len(st):
                return "step applied twice in one log"
        if mode in ("take", "move"):
            top = max(owners, key=lambda v: v[1], default=None)
            if top and top[1] >= 2:
                miss = [k for k in Wk[0] if k not in steps(top[3])]
                if miss:
                    return f"acknowledged step {miss} is not in the log of the new owner"
            if (
                mode == "move"
                and len(
                    [
                        v
                        for v in owners
                        if (not any(r[0] == "MOVE" for r in v[3]) and not v[6]) or v[1] >= 2
                    ]
                )
                > 1
            ):
                return "two owners accept pushes"
        if mode == "zombie":
            if C[0] == 1 and Y[0] and Y[2]:
                for k in range(1, Wk[1] + 1):
                    if k not in steps(Y[3]):
                        return f"step {k} is trimmed and not in the log of the owner"
        return ""

    return start, nxt, bad


def explore(mode, bugs=(), limit=3000000, secs=150, **kw):
    start, nxt, bad = model(mode, bugs, **kw)
    seen = {start: None}
    Q = deque([start])
    t0 = time.time()
    n = 0
    trans = 0
    while Q:
        s = Q.popleft()
        n += 1
        if n > limit or time.time() - t0 > secs:
            return dict(ok="bounded", states=n, transitions=trans, secs=round(time.time() - t0, 1))
        for lab, t in nxt(s):
            trans += 1
            if t in seen:
                continue
            seen[t] = (s, lab)
            w = bad(t)
            if w:
                tr = []
                x = t
                while seen[x]:
                    tr.append(seen[x][1])
                    x = seen[x][0]
                return dict(bad=w, states=len(seen), trace=tr[::-1])
            Q.append(t)
    return dict(ok="complete", states=n, transitions=trans, secs=round(time.time() - t0, 1))


if __name__ == "__main__":
    for mode in ("take", "zombie", "move"):
        print(mode, "correct:", explore(mode, N=2), flush=True)
        for b, (m, txt) in BUGS.items():
            if m == mode:
                print(" ", b, "->", explore(mode, [b], N=2), flush=True)
