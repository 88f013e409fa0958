#!/usr/bin/env python3
"""Small checks beside protocol.py: fuzzy checkpoints, durable position, staleness, fp32 facts."""

import itertools

import numpy as np


def fuzzy():
    """two chunk ranges and the dedupe/scalar part, each copied at its own version

    Then the log is trimmed, the state restored, the tail folded.
    """
    n = 6
    tested = 0
    out = {}

    def restore(v, cut, filt, start):
        parts = [list(range(1, x + 1)) for x in v]
        for rec in range(start + 1, n + 1):
            if rec <= cut:
                return None  # needed and trimmed
            for i in range(3):
                if not filt or rec > v[i]:
                    parts[i].append(rec)
        return parts

    good = [list(range(1, n + 1))] * 3
    for v in itertools.product(range(n + 1), repeat=3):
        for name, cut, filt, start in (
            ("cut at min, filter per range", min(v), 1, min(v)),
            ("cut at max (nominal version)", max(v), 1, min(v)),
            ("cut at min, no filter", min(v), 0, min(v)),
            ("replay from max", min(v), 1, max(v)),
        ):
            out.setdefault(name, [0, 0])
            out[name][0] += 1
            tested += 1
            if restore(v, cut, filt, start) != good:
                out[name][1] += 1
    for k, (a, b) in out.items():
        print(f"fuzzy checkpoint, {k}: wrong in {b} of {a}")


def durable_position():
    """records carry the durable position known when they were written

    Gives the acknowledged records whose damage is mistaken for a torn tail.
    """
    for name in ("as written", "with a mark synced when idle"):
        silent = refused = 0
        for groups in range(1, 7):
            sizes = [2] * groups
            pos = 0
            recs = []
            for g in sizes:
                for _ in range(g):
                    recs.append(pos)  # durable position in the record header
                pos += g
            mark = pos if name != "as written" else 0
            for hit in range(len(recs)):  # one acknowledged record is damaged
                known = max(
                    [d for i, d in enumerate(recs) if i < hit]
                    + [d for i, d in enumerate(recs) if i > hit]
                    + [mark]
                )
                if hit < known:
                    refused += 1
                else:
                    silent += 1
        print(
            f"durable position, {name}: {refused} refused, "
            f"{silent} acknowledged records cut in silence"
        )


def staleness():
    """every version passed, less R_live - 1, compared with only the admitted pushes of others"""
    for R, inflight, other in ((1, 1, 0), (1, 6, 0), (1, 1, 6), (4, 1, 24)):
        # one round of the others, own pushes in flight, records that are not pushes
        passed = (R - 1) + (inflight - 1) + other
        s_text = max(0, passed - (R - 1))
        s_new = 0
        verdict = "REFUSED" if s_text > 4 * R else "damped" if s_text else "ok"
        print(
            f"staleness R={R} own in flight={inflight} digest/refuse/fence/plan records={other}: "
            f"every version s={s_text} (S_max={4*R}, {verdict}), others' admitted pushes s={s_new}"
        )


def floats():
    r = np.random.default_rng(1)
    n = 1 << 20
    f = np.float32
    th = r.normal(0, 0.02, n).astype(f)
    a = r.normal(0, 1e-3, n).astype(f)
    b = r.normal(0, 1e-3, n).astype(f)
    one = ((th - a).astype(f) - b).astype(f)
    two = (th - (a + b).astype(f)).astype(f)
    print(
        "merged window: (theta-a)-b != theta-(a+b) in "
        f"{np.mean(one != two)*100:.0f} % of coordinates"
    )
    d = np.abs(r.normal(0, 1e-3, n)).astype(np.float16).astype(f)
    w, e = f(0.8), f(1 / 3)
    apart = ((d * w).astype(f) * e).astype(f)
    print(
        "scale as one fp32 against eta/R and w apart: differs in "
        f"{np.mean(d * f(w * e) != apart)*100:.0f} %"
    )
    E = r.normal(0, 1e-3, n).astype(f)
    c = np.float16(np.mean(np.abs(E)))
    q = (np.sign(E) * f(c)).astype(f)
    back = ((E - q).astype(f) + q).astype(f)
    print(
        f"residual: (E-q)+q != E in {np.mean(back != E)*100:.0f} % of coordinates "
        "(bit equality needs the fixed-point mode)"
    )
    x = r.normal(0, 1e-3, n).astype(f)
    g = x.reshape(-1, 4096)
    print(
        "norm gate: sum of squares in two orders, fp32:",
        repr(float(np.cumsum(x * x, dtype=f)[-1])),
        repr(float(np.sum(g * g, axis=1, dtype=f).sum(dtype=f))),
    )


if __name__ == "__main__":
    fuzzy()
    durable_position()
    staleness()
    floats()
