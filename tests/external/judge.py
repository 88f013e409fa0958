"""The judge: the expected contents of a made-up worker's file, from the numbers of world.h alone.

It shares only those numbers with the programs: the sums of all credited steps, each once, are
recomputed in integer quarters.
"""
import array
import struct

VALUES, PARTS_MAX, LIVES_MAX, UNITS, UNIT_TOKENS = 9002, 3, 2048, 4096, 512
LIFE = 16 + 3 * 8 * PARTS_MAX
HEAD = 8 * (5 + PARTS_MAX)


class State:
    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            data = file.read()
        (self.parts, self.ranks, lives, self.cuts, self.resumed,
         *self.records) = struct.unpack_from(f"<{5 + PARTS_MAX}Q", data)
        self.lives = []
        for k in range(lives):
            numbers = struct.unpack_from(f"<{3 * PARTS_MAX}Q", data, HEAD + LIFE * k + 16)
            self.lives.append((numbers[:3], numbers[3:6], numbers[6:]))
        at = HEAD + LIFE * LIVES_MAX
        self.theta = array.array("f", data[at:at + 4 * VALUES])
        self.residual = array.array("f", data[at + 4 * VALUES:at + 8 * VALUES])
        at += 8 * VALUES
        places = array.array("Q", data[at:at + 8 * UNITS * PARTS_MAX])
        self.place = [places[UNITS * k:UNITS * (k + 1)] for k in range(PARTS_MAX)]


def expected(state: State) -> list[int]:
    """theta - residual of every value: the initial value, credited steps, records."""
    want = [i % 100 for i in range(VALUES)]
    first = [VALUES * k // state.parts for k in range(state.parts + 1)]
    for part in range(state.parts):
        steps = [0] * 4  # credited steps by their remainder
        for _, step, _ in state.lives:
            for r in range(4):
                steps[r] += (step[part] + 4 - r) // 4 - (r == 0)
        grown = [sum(steps[r] * (1 + (i + r) % 4) for r in range(4)) for i in range(4)]
        for i in range(first[part], first[part + 1]):
            want[i] += grown[i % 4]
        for k in range(1, state.records[part] + 1):
            for i in range(-7 * k % 64, first[part + 1] - first[part], 64):
                want[first[part] + i] += k % 5 - 1
    return want


def judge(path: str, final: str | None = None) -> list[str]:
    """The errors found; empty if none."""
    state, wrong = State(path), []
    for i, (want, theta, rest) in enumerate(zip(expected(state), state.theta, state.residual)):
        if theta - rest != want:
            wrong.append(f"value {i}: {theta} - {rest}, credited were {want}")
            break
    for part in range(state.parts):
        trained, cut = sum(state.place[part]), sum(tokens[part] for _, _, tokens in state.lives)
        if state.parts == 1 and trained != cut:
            wrong.append(f"units hold {trained} tokens, cuts {cut}")
        if trained > cut or max(state.place[part]) > UNIT_TOKENS:
            wrong.append(f"part {part}: units hold {trained} tokens, cuts only {cut}")
    if final:
        with open(final, "rb") as file:
            values = array.array("f", file.read())
        if values != state.theta:
            wrong.append("the trainer ended with other parameters than the run")
    return wrong
