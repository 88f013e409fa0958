"""The worker's half of protocol.py: cuts, its outbox and disk, messages to it, and its deaths.

An entry of an outbox is [inc, step, bid, parts, claims, status, ver]. Status 'U' is undecided, 'A'
admitted.
"""


class Worker:
    """Events at worker r, whose state is s["wk"][r], for shard j."""

    # ---------------------------------------------------------------- possible events
    def claimed(m, w, u):
        for j in range(m.NS):
            if u in w["pend"][j] or u in w["cl"][j]:
                return 1
            for e in w["ob"][j]:
                if u in e[4]:
                    return 1
        return 0

    def may_cut(m, w, j):
        if "base_delta" in m.B:
            return sum(e[5] == "U" for e in w["ob"][j]) < 2
        return not any(e[5] == "U" for e in w["ob"][j])

    def waiting(m, w, j):
        """The committed undecided push of the incarnation in force, if any"""
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

    # ---------------------------------------------------------------- cuts and pushes
    def do_train(m, s, r):
        w = s["wk"][r]
        u = w["unit"]
        w["unit"] = -1
        for j in range(m.NS):
            w["prog"][j].append(s["np"])
            s["np"] += 1
            c = u % (m.NU // m.NE) if "epoch_unit" in m.B else u
            if (j == c % m.NS or "credit_each" in m.B) and c not in w["cl"][j]:
                w["cl"][j].append(c)
        if "credit_any" in m.B:
            for j in range(m.NS):
                w["cl"][j] = [x for x in w["cl"][j] if x != u]
            w["cl"][(u + s["wk"].index(w)) % m.NS].append(u)

    def do_cut1(m, s, r, j):
        w = s["wk"][r]
        E = w["E"][j] + [p for p in w["prog"][j] if p not in w["E"][j]]
        q = E[: max(1, (len(E) + 1) // 2)]
        claims = sorted(set(w["pend"][j]) | set(w["cl"][j]))
        w["ob"][j].append([w["inc"], w["next"][j], s["nb"], q, claims, "U", 0])
        s["nb"] += 1
        w["stage"][j] = 1

    def do_cut2(m, s, r, j):
        """The slot flip is the commit point."""
        w = s["wk"][r]
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
        if "base_delta" not in m.B:
            w["prog"][j] = []

    def do_esnap(m, s, r):
        s["f"]["esnap"] -= 1
        w = s["wk"][r]
        for j in range(m.NS):
            w["es"][j] = [list(w["E"][j]), w["inc"], w["next"][j] - 1]

    def do_send(m, s, r, j):
        e = m.sendable(s, r, j)
        m.add(s, ("P", r, e[0], e[1], j, e[2], tuple(e[3]), tuple(e[4]), s["sv"][j]["gen"]))

    def do_trim(m, s, r, j):
        e = m.trimmable(s, r, j)
        s["wk"][r]["ob"][j].remove(e)

    # ---------------------------------------------------------------- decisions
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

    def do_ack(m, s, i, keep, how=""):
        """`how`: the flip that would return a refused push fails."""
        x, f = s["net"][i], s["f"]
        if not keep:
            del s["net"][i]
        _, r, inc, st, j, gen, bid, verdict, ver = x
        w = s["wk"][r]
        if not w["up"] or (gen != w["sess"][j] and "no_hello" not in m.B):
            return
        for e in w["ob"][j]:
            if e[0] == inc and e[1] == st and e[5] == "U":
                if st >= w["next"][j] and inc == w["inc"]:
                    continue
                if "unlogged_reject" in m.B and bid != e[2]:
                    continue
                if "busy_returns" in m.B and bid != e[2]:
                    continue
                if how == "full":  # the disk is full
                    f["wfull"] -= 1
                    if "return_in_memory" in m.B:
                        w["E"][j] = list(e[3]) + w["E"][j]
                elif how:  # its sync fails: the disk's contents are unknown, and the worker ends
                    f["wfull"] -= 1
                    if "unknown_goes_on" in m.B:
                        w["alt"][j] = [inc, st]
                        break
                    if how == "failed, but there":
                        m.decided(s, r, j, e, verdict, ver, bid)
                    m.wkill(s, r)
                elif verdict in (-1, -2):  # unlogged refusal, busy
                    m.ret(w, j, e)
                    w["next"][j] = e[1]
                elif verdict == 0 and "return_twice" in m.B and f["wkill"]:
                    f["wkill"] -= 1  # crash between the two commits
                    w["E"][j] = list(e[3]) + w["E"][j]
                    m.wkill(s, r)
                else:
                    m.decided(s, r, j, e, verdict, ver, bid)
                    if verdict == 1 and (r, inc, st, j) not in s["acked"]:
                        s["acked"].append((r, inc, st, j))
                        s["acked"].sort()
                break

    # ---------------------------------------------------------------- a server's messages
    def do_hello(m, s, r, j):
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
        if last < w["known"][j]:  # history that we had seen was lost
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

    def do_oldhello(m, s, r, j):
        s["f"]["old"] -= 1
        m.old_hello(s, r, j)

    def old_hello(m, s, r, j):
        """A copy of the lost directory runs, cut off from the coordinator, and answers the hello of
        every worker that reaches it; it accepts any number of them."""
        w, now = s["wk"][r], s["sv"][j]
        ep, log = now["old"]
        heard = w["heard"][j]
        if "old_hello_replica" in m.B:
            heard = w["rep_ep"][j]
        if ep < heard and "old_hello" not in m.B:
            return
        for _ in range(4):
            s["sv"][j] = dict(now, ep=ep, log=log, pub=len(log), hello=[0] * m.NW, gen=-1)
            m.do_hello(s, r, j)
        s["sv"][j] = now
        w["sess"][j] = 0

    def do_follow(m, s, r, j):
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

    # ---------------------------------------------------------------- deaths
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

    def bump_live(m, s, r):
        w = s["wk"][r]
        st = [x for x in w["stage"]]
        for j in range(m.NS):  # a staged, uncommitted cut is undone
            if st[j]:
                w["ob"][j].pop()
                w["stage"][j] = 0
        m.bump(s, r)

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

    def do_wkill(m, s, r, as_failed=""):
        """`as_failed`: the disk holds what the failed commit would have written."""
        s["f"]["wkill"] -= 1
        w = s["wk"][r]
        for j in range(m.NS) if as_failed else ():
            for e in list(w["ob"][j]):
                if e[:2] == w["alt"][j] and e[5] == "U":
                    m.decided(s, r, j, e, 0, 0, e[2])
        m.wkill(s, r)

    def do_wpower(m, s, r):
        s["f"]["wpower"] -= 1
        w = s["wk"][r]
        m.wkill(s, r)
        for j in range(m.NS):
            es = w["es"][j]
            keep = list(es[0])
            if "esnap_rollback" not in m.B:
                for e in w["ob"][j]:
                    if (e[0], e[1]) > (es[1], es[2]):
                        keep = [p for p in keep if p not in e[3]]
            if w["bad"][j] > es[1:] and "damaged_unread" not in m.B:
                keep = []
            gone = set(w["E"][j]) - set(keep)
            s["may"][j] = sorted(set(s["may"][j]) | gone)
            w["E"][j] = keep
            w["pend"][j] = []  # claims in the lost slot: the unit is leased again
            if "same_inc_power" in m.B:
                w["next"][j] = es[2] + 1
                w["ob"][j] = [e for e in w["ob"][j] if e[1] < w["next"][j]]
            else:
                for e in w["ob"][j]:  # the outcome of step k is durable with entry k+1
                    if e[0] == w["inc"] and e[1] == w["next"][j] - 1:
                        e[5] = "U"
        if "same_inc_power" not in m.B:
            m.bump(s, r)
        m.retenure(s, r)

    def do_retire(m, s, r):
        """Its host is lost for good; later another worker joins under that name."""
        s["f"]["retire"] -= 1
        s["f"]["wlost"] += 1
        for j in range(m.NS):
            m.append(s, j, ("R", r, s["wk"][r]["inc"], 0, -1, (), (), 1))
        m.do_wlost(s, r)

    def do_wlost(m, s, r):
        s["f"]["wlost"] -= 1
        w = s["wk"][r]
        w["lost"] = 1
        m.wkill(s, r)
        for j in range(m.NS):
            s["may"][j] = sorted(
                set(s["may"][j]) | set(w["E"][j]) | set(p for e in w["ob"][j] for p in e[3])
            )
            w["E"][j] = []
            w["ob"][j] = []
            w["pend"][j] = []
            w["rep"][j] = []
            w["es"][j] = [[], w["inc"] + 1, 0]
        if "inc_reuse" in m.B:
            w["next"] = [1] * m.NS
            w["known"] = [0] * m.NS
            w["sess"] = [0] * m.NS
        else:
            m.bump(s, r)
        m.retenure(s, r)

    def do_wstart(m, s, r):
        s["wk"][r]["up"] = 1

    def do_obad(m, s, r, j):
        """A damaged push is found by the next start: its mass is lost, and counted."""
        s["f"]["obad"] -= 1
        w = s["wk"][r]
        e = m.waiting(w, j)
        w["ob"][j].remove(e)
        w["bad"][j] = e[:2]
        s["may"][j] = sorted(set(s["may"][j]) | set(e[3]))
        if "damaged_goes_on" not in m.B:
            m.bump(s, r)
        m.retenure(s, r)
