#!/usr/bin/env python3
"""Which messages and copies a coordinator, an owner and a rebuild may trust, in small worlds.

Each file below has some of the worlds, each with its rule's number in server/docs/0000-protocol.md,
and their planted bugs:

  epochs.py   17, 21, 26, 27: late, apart, store, old
  moves.py    22: moved, reserved, together, word
  waiting.py  28 to 30: silence, patience, stalled
  claims.py   13, 17, 19: granted, proved

A world is a function of the planted bugs. It gives its first state, the steps from a state, the
check of a state, the goal or None, and the steps that a fair run takes again and again.

Each is searched exhaustively. In `late`, `store`, `old`, `moved` and `reserved` every state is
judged.
`apart`, `together`, `word`, `silence`, `patience`, `granted`, `proved` and `stalled` have a goal
too: every fair run reaches it.
"""
import claims
import epochs
import moves
import search
import waiting

ROOMS = (epochs, moves, waiting, claims)
WORLDS = {name: world for room in ROOMS for name, world in room.WORLDS.items()}
BUGS = {name: bug for room in ROOMS for name, bug in room.BUGS.items()}


def explore(world, bugs=(), **given):
    return search.search(*WORLDS[world](frozenset(bugs), **given))


if __name__ == "__main__":
    search.each_world(explore, WORLDS, BUGS)
    print("a copy that nobody can see:", explore("old", unseen=True))
