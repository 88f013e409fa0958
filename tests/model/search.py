"""A search through every state of a small world."""
import time
from collections import deque


def search(start, steps, bad):
    """Breadth first: {"bad": why, "trace": labels, ...} or {"ok": "complete", "states": n, ...}."""
    began = time.monotonic()
    came, queue = {start: None}, deque([start])
    while queue:
        s = queue.popleft()
        if bad(s):
            labels, at = [], s
            while came[at]:
                at, label = came[at]
                labels.append(label)
            return {"bad": bad(s), "states": len(came), "trace": labels[::-1]}
        for label, t in steps(s):
            if t not in came:
                came[t] = (s, label)
                queue.append(t)
    return {"ok": "complete", "states": len(came), "secs": round(time.monotonic() - began, 1)}


def rules_then_bugs(explore, bugs):
    """Prints what is found in the rules, then with each planted bug. True: not as it should be."""
    found = explore()
    print("rules:", found)
    missed = "bad" in found
    for bug in bugs:
        found = explore((bug,))
        print(bug, "->", found)
        missed |= "bad" not in found
    return missed
