"""The plain payload of a frame, by kernels/docs/0001-payload.md: its indices and values."""
import numpy as np

from .plain import Cursor, need

DENSE, TOPK, FRAGMENT = 0, 1, 2
# Value codes: bits of a code, and number of fp16 before the codes of a chunk.
VALUES = {1: (1, 1), 3: (4, 1), 5: (16, 0), 6: (32, 0)}

def carried(density, length):
    """The number of selected values of a chunk; Python rounds ties to even too."""
    return max(1, round(density * length))


def fragment(turn, count, length):
    """The indices of a chunk that a fragment carries, ascending."""
    first = turn * count % length
    return np.sort((first + np.arange(count)) % length)


def unpack(data, count, width, name):
    """count fields of width bits, the lowest bit first; padding bits have to be 0."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    need(not bits[count * width:].any(), f"{name}: a padding bit is set")
    fields = bits[:count * width].reshape(count, width).astype(np.uint64)
    return fields @ (np.uint64(1) << np.arange(width, dtype=np.uint64))


def values_of(codes, value, before, name):
    """The f32 values of a chunk's codes."""
    need(np.isfinite(before).all() and not np.signbit(before).any(),
         f"{name}: a centroid or scale is {before}")
    if value == 1:
        return np.where(codes.astype(bool), -before[0], before[0]).astype(np.float32)
    if value == 3:
        levels = (codes.astype(np.int64) + 8) % 16 - 8
        need((levels > -8).all(), f"{name}: level -8")
        return levels.astype(np.float32) * before[0]
    plain = codes.astype(np.uint16).view(np.float16) if value == 5 \
        else codes.astype(np.uint32).view(np.float32)
    need(np.isfinite(plain).all(), f"{name}: a value is not finite")
    return plain.astype(np.float32)


class Payload:
    """Decodes the plain payload of a frame to indices within the shard and values."""

    def __init__(self, plain, frame, layout):
        self.frame, self.layout, self.name = frame, layout, frame.name
        self.cursor = Cursor(plain, f"{frame.name}: payload")
        self.rice, self.turn = self.read_header()
        self.streams, self.counts = self.read_table()
        need(sum(self.counts) == frame.values, f"{self.name}: {sum(self.counts)} values in the "
             f"counts, {frame.values} in the header")

    def read_header(self):
        """Compares the header with the frame; reads top-k's Rice parameter or a fragment's turn."""
        version, index, value, rice, flags, density, chunks, values = self.cursor.read("BBBBIfIQ")
        frame = self.frame
        need(version == 1 and (flags == 0 or index == FRAGMENT),
             f"{self.name}: payload version {version} flags {flags}")
        need((index, value, density) == (frame.index, frame.value, frame.density),
             f"{self.name}: payload and frame name other codecs or densities")
        need(index in (DENSE, TOPK, FRAGMENT) and value in VALUES and (index, value) != (DENSE, 5)
             and (index != FRAGMENT or value == 6), f"{self.name}: unknown codec")
        need(0 < density <= 1 and (index != DENSE or density == 1), f"{self.name}: density")
        need(rice <= (12 if index == TOPK else 0), f"{self.name}: Rice parameter {rice}")
        need(chunks == len(self.layout.chunks), f"{self.name}: {chunks} chunks")
        need(values == frame.values, f"{self.name}: {values} values")
        return rice, flags

    def read_table(self):
        """Reads the sizes of the groups' unary streams, and the number of values of each chunk."""
        lengths = [length for _, length in self.layout.chunks]
        groups = range(0, len(lengths), 16)
        if self.frame.index == DENSE:
            return [0 for _ in groups], lengths
        top = self.frame.index == TOPK
        return ([self.cursor.read("H") if top else 0 for _ in groups],
                [carried(self.frame.density, length) for length in lengths])

    def chunk(self, number):
        """The low bits of a chunk's gaps (None if dense), its b, and its values."""
        count = self.counts[number]
        bits, before = VALUES[self.frame.value]
        low = b = 0
        if self.frame.index != DENSE:
            b = self.rice
        floats = np.frombuffer(self.cursor.take(2 * before), "<f2").astype(np.float32)
        name = f"{self.name}: chunk {number}"
        if self.frame.index == TOPK and self.frame.value == 6:
            low = unpack(self.cursor.take(-(-count * b // 8)), count, b, name)
            codes = unpack(self.cursor.take(4 * count), count, 32, name)
        else:
            width = b + bits
            fields = unpack(self.cursor.take(-(-count * width // 8)), count, width, name)
            low, codes = fields & np.uint64((1 << b) - 1), fields >> np.uint64(b)
        return low, b, values_of(codes, self.frame.value, floats, name)

    def unary(self, size, count):
        """The high parts of a group's gaps."""
        stream = np.frombuffer(self.cursor.take(size), np.uint8)
        ones = np.flatnonzero(np.unpackbits(stream, bitorder="little"))
        need(len(ones) == count, f"{self.name}: {len(ones)} ones for {count} values")
        need(size == (ones[-1] // 8 + 1 if count else 0), f"{self.name}: unary stream too long")
        return np.diff(ones, prepend=-1) - 1

    def decode(self):
        """Indices within the shard, ascending, and their values."""
        indices, values, chunks = [], [], self.layout.chunks
        for group, size in enumerate(self.streams):
            numbers = range(16 * group, min(16 * group + 16, len(chunks)))
            parts = [self.chunk(number) for number in numbers]
            values += [part[2] for part in parts]
            if self.frame.index == DENSE:
                indices += [chunks[n][0] + np.arange(chunks[n][1]) for n in numbers]
                continue
            if self.frame.index == FRAGMENT:
                indices += [chunks[n][0] + fragment(self.turn, self.counts[n], chunks[n][1])
                            for n in numbers]
                continue
            highs = self.unary(size, sum(self.counts[n] for n in numbers))
            for number, (low, b, _) in zip(numbers, parts):
                high, highs = highs[:len(low)], highs[len(low):]
                index = np.cumsum((high << b) + low.astype(np.int64) + 1) - 1
                need(len(index) == 0 or index[-1] < chunks[number][1],
                     f"{self.name}: an index leaves chunk {number}")
                indices.append(chunks[number][0] + index)
        self.cursor.end()
        return np.concatenate(indices), np.concatenate(values)
