"""The server's half of protocol.py: a shard's log, its decisions, its disk and its rebuild.

A record is (kind, w, inc, step, bid, parts, claims, verdict). Kind 'P' is a push, 'F' a fence, 'R'
retires a name: no incarnation up to inc begins a row. 'E' begins an epoch.
"""


class Server:
    """Events at shard j, whose state is s["sv"][j]."""

    def row(m, sv, w, upto):
        """The whole dedupe state of one worker: (lowest incarnation admitted, last decided push)"""
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

    # ---------------------------------------------------------------- decisions
    def do_push(m, s, i, keep, how):
        x = s["net"][i]
        if not keep:
            del s["net"][i]
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
                return  # BEHIND: the worker sends another hello
        verdict = 1
        if how == "busy":
            s["f"]["busy"] -= 1
            return m.add(s, ("A", r, inc, st, j, v["gen"], bid, -2, 0))
        if how == "corrupt":
            s["f"]["corrupt"] -= 1
            bid, parts, verdict = -1, (), 0
        if how == "refuse":
            s["f"]["refuse"] -= 1
            if "unlogged_reject" in B:
                return m.add(s, ("A", r, inc, st, j, v["gen"], bid, -1, 0))
            verdict = 0
        if "credit_any" in B:
            for u, t in s["fence"][j]:
                if u in claims and t != r:
                    verdict = 0
        m.append(s, j, ("P", r, inc, st, bid, parts, claims, verdict))

    # ---------------------------------------------------------------- the log on disk
    def do_sync(m, s, j):
        v = s["sv"][j]
        old = v["pub"]
        v["syn"] = v["pub"] = len(v["log"])
        for i in range(old, v["syn"]):
            if v["log"][i][0] == "P":
                m.ack(s, j, i)

    def do_sfail(m, s, j):
        """The disk is full, or the sync fails: the group is taken back."""
        s["f"]["sfull"] -= 1
        v = s["sv"][j]
        v["back"] = [v["syn"], v["log"][v["syn"] :]]
        del v["log"][v["syn"] :]

    def do_kill(m, s, j):
        s["f"]["kill"] -= 1
        s["sv"][j]["up"] = 0

    def do_tail(m, s, j):
        """The last durable record is damaged and taken for a torn tail."""
        s["f"]["tail"] -= 1
        v = s["sv"][j]
        v["log"].pop()
        v["lostn"] += 1
        v["syn"] = min(v["syn"], len(v["log"]))
        v["pub"] = min(v["pub"], v["syn"])
        if "tail_silent" not in m.B:
            v["ep"] += 1
            v["forks"].append((v["ep"], len(v["log"])))
            v["log"].append(("E", -1, v["ep"], 0, -1, (), (), 1))
        s["led"] = [0] * m.NU
        m.ledger(s)

    def do_power(m, s, j, kept):
        s["f"]["power"] -= 1
        v = s["sv"][j]
        v["up"] = 0
        if not kept:
            del v["log"][v["syn"] :]
        v["syn"] = len(v["log"])
        if v["pub"] > v["syn"]:
            m.fail(s, f"shard {j}: a version that was seen or acknowledged went away")
        v["pub"] = min(v["pub"], v["syn"])

    def do_start(m, s, j):
        v = s["sv"][j]
        v["up"] = 1
        v["gen"] += 1
        v["pub"] = len(v["log"])
        v["hello"] = [0] * m.NW
        if v["back"]:
            at, left = v["back"]
            if "group_left" in m.B and len(v["log"]) >= at:
                v["log"] += left[len(v["log"]) - at :]
                v["pub"] = len(v["log"])
            v["back"] = []
        if "no_resync" not in m.B:
            v["syn"] = len(v["log"])
        if "drop_dedupe" in m.B:
            v["dd"] = len(v["log"])

    # ---------------------------------------------------------------- a lost directory
    def do_disk(m, s, j):
        s["f"]["disk"] -= 1
        v = s["sv"][j]
        if s["f"]["old"]:
            v["old"] = [v["ep"], v["log"][: v["pub"]]]
        v.update(up=0, disk=0, log=[], syn=0, pub=0, dd=0, back=[])
        v["lostn"] += 1
        if "local_stable" in m.B:
            v["stable"] = []

    def do_rebuild(m, s, j, mask):
        """Takes the longest state of the stable point and of the workers in the mask."""
        v = s["sv"][j]
        best = list(v["stable"])
        for r, w in enumerate(s["wk"]):
            rep = w["rep"][j]
            if "rebuild_any_branch" not in m.B:
                for ep, base in v["forks"]:
                    if ep > w["rep_ep"][j]:
                        rep = rep[:base]
            if mask >> r & 1 and len(rep) > len(best) and (rep[: len(best)] == best):
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
            dd=len(best) if "rebuild_no_dedupe" in m.B else 0,
        )
        if "ledger_sticky" not in m.B:
            s["led"] = [0] * m.NU
            m.ledger(s)

    def do_stable(m, s, j):
        s["f"]["stable"] -= 1
        v = s["sv"][j]
        v["stable"] = v["log"][: v["syn"]]
        v["nstable"] = v["syn"]
        v["stable_ep"] = v["ep"]
        m.ledger(s)
