"""Mutants of the GPU's code: the CUDA kernels, and the C that queues work on a device.

They are one class, `kernels`, so that the draws of the other classes do not change. Rules special
to a GPU are here; the others are those of rules.py.
"""
import re

import rules

# Calls that order work on a device: without them a kernel may still be right by luck.
ORDERS = re.compile(r"(event|ready)_(record|wait|follow)$|^follow$|_settle$"
                    r"|^cuda(EventRecord|StreamWaitEvent|\w*Synchronize)$")
FUSED = {"__fadd_rn": "fmaf({}, {}, {})", "__fsub_rn": "fmaf(-({}), {}, {})"}


def barrier(f):
    """A barrier of a block's threads is missing."""
    for node in f.tree.all():
        if node.kind == "plain" and f.tokens[node.first].text in ("__syncthreads", "__syncwarp"):
            yield "barrier", *rules.gone(f, node)


def order(f):
    """Work on a stream does not wait for its input, or is not marked for later waits."""
    for _, _, start, end, new in rules.drop_call(f, lambda name: bool(ORDERS.search(name)), ""):
        yield "order", start, end, new.replace("LH_OK", "0")


def fused(f):
    """A product and a sum are rounded once instead of twice."""
    for start, at, end in rules.calls(f, 0, len(f.tokens)):
        parts = rules.arguments(f, at + 1) if f.tokens[at].text in FUSED else []
        for k, other in ((0, 1), (1, 0)) if f.tokens[at].text == "__fadd_rn" else ((1, 0),):
            if len(parts) != 2 or f.tokens[parts[k][0]].text != "__fmul_rn":
                continue
            if f.match[parts[k][0] + 1] + 1 != parts[k][1]:
                continue
            factors = [f.said(*p) for p in rules.arguments(f, parts[k][0] + 1)]
            yield ("fused", *f.span(start, end),
                   FUSED[f.tokens[at].text].format(*factors, f.said(*parts[other])))


def bound(f):
    """A loop over values, rows or lanes ends one early."""
    heads = [n.head for n in f.tree.all() if n.kind == "for"]
    for left, at, _ in rules.compares(f):
        if f.tokens[at].text == "<" and any(first <= at < end for first, end in heads):
            end = f.span(left, at)[1]
            yield "bound", end, end, " + 1"


def of_rules(f):
    for rule in (rules.boundary, rules.negate, rules.skip_check, rules.drop_state):
        for kind, name, start, end, new in rule(f):
            yield f"{kind}_{name}", start, end, new


def edits(f):
    """Every edit of a function of a kernel's file: (class, rule, first offset, end, new text)."""
    return rules.each_once(f, (("kernels", f"kernels.{name}", start, end, new) for rule in (
        barrier, order, fused, bound, of_rules) for name, start, end, new in rule(f)))


def order_edits(f):
    """Those edits of a function in C that queues work on a device; rules.py makes the others."""
    return rules.each_once(f, (("kernels", f"kernels.{name}", start, end, new)
                               for name, start, end, new in order(f)))
