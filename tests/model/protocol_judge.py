"""The end of a run of protocol.py: faults cease, everything heals, each invariant is judged."""
import marshal


class Judge:
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
