#!/usr/bin/env python3
"""What a coordinator, an owner and a rebuild may believe, in small worlds.

Each file below has some of the worlds, each of them with its rule's number in
server/docs/0000-protocol.md, and the bugs that are planted in them:

  epochs.py   17, 21, 26, 27: late, apart, store, old
  moves.py    22: moved, reserved, together, word
  waiting.py  28 to 30: silence, patience, stalled
  claims.py   13, 17, 19: granted, proved

A world is a function of the planted bugs. It gives its first state, the steps from a state, what is
wrong with a state, the goal or None, and the steps that happen in a fair run again and again.

Each is searched exhaustively. `late`, `store`, `old`, `moved` and `reserved` are judged in every
state.
`apart`, `together`, `word`, `silence`, `patience`, `granted`, `proved` and `stalled` have a goal
too: no fair run goes on for ever without it.
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
