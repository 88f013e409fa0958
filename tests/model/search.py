"""A search through every state of a small world, and for runs that never reach their goal."""
import itertools
import time
from collections import deque


def search(start, steps, bad, goal=None, fair=()):
    """Breadth first: {"bad": why, "trace": labels, ...} or {"ok": "complete", "states": n, ...}.

    steps(s) gives (label, next state); bad(s) gives the violated invariant, or "". With a goal(s),
    every fair run must reach it, see for_ever()."""
    began = time.monotonic()
    edges, came, queue = {}, {start: None}, deque([start])

    def found(why, s):
        return {"bad": why, "states": len(came), "trace": trace(came, s)}

    while queue:
        s = queue.popleft()
        if bad(s):
            return found(bad(s), s)
        following = list(steps(s))
        if goal:
            edges[s] = following
        for label, t in following:
            if t not in came:
                came[t] = (s, label)
                queue.append(t)
    stuck = for_ever(edges, goal, fair) if goal else None
    if stuck:
        return found("it never ends", stuck)
    return {"ok": "complete", "states": len(came), "secs": round(time.monotonic() - began, 1)}


def trace(came, s):
    """The labels of the path on which s was first reached."""
    labels = []
    while came[s]:
        s, label = came[s]
        labels.append(label)
    return labels[::-1]


def components(edges):
    """Strongly connected ones (Tarjan, without recursion)."""
    index, low, stack, inside, count = {}, {}, [], set(), itertools.count()
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = next(count)
        stack.append(root)
        inside.add(root)
        while work:
            s, rest = work[-1]
            for _, t in rest:
                if t not in index:
                    index[t] = low[t] = next(count)
                    stack.append(t)
                    inside.add(t)
                    work.append((t, iter(edges[t])))
                    break
                if t in inside:
                    low[s] = min(low[s], index[t])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[s])
                if low[s] == index[s]:
                    found = set()
                    while not found or s not in found:
                        found.add(stack.pop())
                    inside -= found
                    yield found


def for_ever(edges, goal, fair, among=None):
    """A state of a fair run that never reaches the goal, or None. A run is (strongly) fair if it
    takes infinitely often every step that is possible infinitely often."""
    among = {s for s in edges if not goal(s)} if among is None else among
    inside = {s: [e for e in edges[s] if e[1] in among] for s in among}
    for part in components(inside):
        if any(not edges[s] for s in part):
            return next(iter(part))  # nothing can happen any more
        taken = {label for s in part for label, t in inside[s] if t in part}
        able = {s for s in part if any(label in fair and label not in taken
                                       for label, _ in edges[s])}
        if taken and not able:
            return next(iter(part))
        stuck = for_ever(edges, goal, fair, part - able) if taken and able != part else None
        if stuck:
            return stuck
    return None


def rules_then_bugs(explore, bugs):
    """Prints the result for the rules, then for each planted bug. True if a result is
    unexpected."""
    found = explore()
    print("rules:", found)
    missed = "bad" in found
    for bug in bugs:
        found = explore((bug,))
        print(bug, "->", found)
        missed |= "bad" not in found
    return missed


def each_world(explore, worlds, bugs):
    """Prints the result for each world, then for each of its planted bugs."""
    for name in worlds:
        print(name, explore(name), flush=True)
        for key, (where, _) in bugs.items():
            if where == name:
                print(" ", key, "->", explore(name, [key]), flush=True)
