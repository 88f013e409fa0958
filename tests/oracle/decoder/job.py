"""A run's names, keys and model: the place of each value, and its value at version 0."""
import math
import struct
from dataclasses import dataclass, field

import numpy as np

from .plain import Unreadable, digest_of, need, read_json, read_text

CHUNK = 4096
MODEL = {"chunk": int, "shards": int, "tensors": [{"name": str, "shape": [int]}]}


@dataclass
class Layout:
    """The part of the model that lies in one shard."""

    first: int                                    # first value, in the model's flat order
    chunks: list = field(default_factory=list)    # (offset in the shard, length)
    extents: list = field(default_factory=list)   # (first chunk, number of chunks, length)
    size: int = 0


class Job:
    """Names, keys, model and initial parameters of a run."""

    def __init__(self, directory, run, domain):
        model = read_json(directory / "model.json", MODEL)
        need(model["chunk"] == CHUNK, "model.json: chunk is not 4096")
        self.shards = model["shards"]
        need(self.shards > 0, "model.json: no shards")
        self.tensors = [(t["name"].encode(), t["shape"]) for t in model["tensors"]]
        self.id = digest_of(f"longhaul job 1{domain}/{run}".encode())[:16]
        self.manifest = self.manifest_hash()
        self.layouts = [self.layout(shard) for shard in range(self.shards)]
        self.keys = read_keys(directory / "job.keys")
        self.weights = np.fromfile(directory / "weights.bin", dtype="<f4")
        total = sum(math.prod(shape) for _, shape in self.tensors)
        size = (directory / "weights.bin").stat().st_size
        need(size == 4 * total, f"weights.bin: {size} bytes for {total} values")

    def manifest_hash(self):
        """H of everything that determines the model's layout."""
        parts = [b"longhaul manifest 1", struct.pack("<III", CHUNK, self.shards, len(self.tensors))]
        for name, shape in self.tensors:
            parts.append(struct.pack("<H", len(name)) + name)
            parts.append(struct.pack(f"<B{len(shape)}Q", len(shape), *shape))
        return digest_of(*parts)

    def layout(self, shard):
        """The chunks and extents of a shard."""
        sizes = [math.prod(shape) for _, shape in self.tensors]
        count = sum(-(-size // CHUNK) for size in sizes)
        low, high = count * shard // self.shards, count * (shard + 1) // self.shards
        result, number, flat = None, 0, 0
        for size in sizes:
            begin, length = len(result.chunks) if result else 0, 0
            for at in range(0, size, CHUNK):
                if low <= number < high:
                    result = result or Layout(flat + at)
                    part = min(CHUNK, size - at)
                    result.chunks.append((result.size, part))
                    result.size += part
                    length += part
                number += 1
            if length:
                result.extents.append((begin, len(result.chunks) - begin, length))
            flat += size
        return result or Layout(flat)

    def initial(self, shard):
        """Version 0 of a shard's parameters."""
        layout = self.layouts[shard]
        return self.weights[layout.first:layout.first + layout.size].copy()

    def subkey(self, purpose, cipher, key_id, worker, number, noise, shard):
        """The key of one context."""
        need(key_id in self.keys, f"no key {key_id} in job.keys")
        context = struct.pack("<BBIQQQI", purpose, cipher, key_id, worker, number, noise, shard)
        return digest_of(b"longhaul seal 1", context, key=self.keys[key_id])


def read_keys(path):
    """The job's keys by id."""
    keys = {}
    for line in read_text(path).split():
        number, _, digits = line.rpartition(":")
        try:
            key = bytes.fromhex(digits)
            number = int(number or 1)
        except ValueError:
            key = b""
        if len(key) != 32 or number in keys:
            raise Unreadable(f"{path}: a line is no key, or names one again")
        keys[number] = key
    return keys
