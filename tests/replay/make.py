#!/usr/bin/env python3
"""Remakes demo/, and the bytes of it that common/docs/0001-formats.md shows: `make.py BUILD`.

Needed when a format changes. The run has two servers and three regions on loopback, and 2,600
parameters. No two runs are the same, so everything here changes with it.
"""
import json
import os
import re
import shutil
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from world import REGIONS, World, held  # noqa: E402 pylint: disable=wrong-import-position

DEMO = os.path.join(HERE, "demo")
PAGE = os.path.join(HERE, "..", "..", "common", "docs", "0001-formats.md")
SEGMENT = os.path.join("shard-0", "log", "0000000000000001.seg")
SHAPE = {"architecture": "transformer", "vocab": 256, "dim": 8, "layers": 1, "heads": 2,
         "kv_heads": 1, "ffn": 16, "context": 64, "tied": True}
CODECS = (("topk-sign", 0.1), ("topk-q4", 0.1), ("topk-fp16", 0.1))
MARK, FENCE, ADMIT, PLAN = 0xffffffff, 3, 1, 4
ENTRY, RECORD, HEAD, MAGIC = 40, 64, 200, 0x5257484c


def run(build):
    """Makes a complete run and copies it to demo/."""
    with World(build, run="demo", units=36, shape=SHAPE, unit_tokens=512) as world:
        coordinator = world.coordinator().start().listening()
        quiet = {"checkpoint.every_versions": 100000}
        servers = [world.server(k, coordinator, **quiet).start().listening() for k in (0, 1)]
        workers = []
        for region, (name, density) in zip(REGIONS, CODECS):
            codec = {"codec.name": name, "codec.density": density,
                     "trainer.tokens_per_s": 1500}
            workers.append(world.worker(region, coordinator, **codec).start())
        for node in workers:
            node.must_end()
        digests = held(servers)
        for node in [*servers, coordinator]:
            node.must_stop()
        shutil.rmtree(DEMO)
        for shard in (0, 1):
            name = f"shard-{shard}"
            shutil.copytree(world.path(name, "log"), os.path.join(DEMO, name, "log"))
        for name in ("job.keys", "model.json", "weights.bin"):
            shutil.copy(world.path(name), os.path.join(DEMO, name))
    for folder, _, names in os.walk(DEMO):  # without space that was only reserved
        for name in names:
            if name.endswith(".seg"):
                cut(os.path.join(folder, name))
    with open(os.path.join(DEMO, "digests.json"), "w", encoding="utf-8") as out:
        ends = {str(s): {"version": v, "digest": d} for s, (v, d) in sorted(digests.items())}
        out.write(json.dumps(ends, indent=1) + "\n")


def cut(path):
    """Drops the zeros after the last entry."""
    with open(path, "r+b") as file:
        file.truncate(entries(file.read())[1])


def entries(data):
    """The offsets of the entries, and the end of the last one."""
    at, places = 64, []
    while at + ENTRY <= len(data) and struct.unpack_from("<I", data, at)[0] == MAGIC:
        places.append(at)
        at += struct.unpack_from("<I", data, at + 4)[0]
    return places, at


def show(data):
    """(offset, version) of the first entry in each of the page's blocks, in their order."""
    places, _ = entries(data)
    marks = [at for at in places if struct.unpack_from("<I", data, at + 32)[0] == MARK]
    rest = [at for at in places if at not in marks]
    kind = {at: struct.unpack_from("<H", data, at + ENTRY + 16)[0] for at in rest}
    version = {at: struct.unpack_from("<Q", data, at + ENTRY)[0] for at in rest}
    of_kind = lambda k: [at for at in rest if kind[at] == k]  # noqa: E731
    fence, push, plan = of_kind(FENCE)[0], of_kind(ADMIT)[0], of_kind(PLAN)[-1]
    return [(0, 0), (marks[0], 0), (fence, version[fence]),
            (push + ENTRY + RECORD, version[push]), (plan + ENTRY, version[plan])]


def block(page, number, data, place):
    """The page with its block of that number replaced from the file, in the same form."""
    found = list(re.finditer(r"^```\n(\S+) at (\d+)\n([0-9a-f\s]+)```$", page, re.M))[number]
    taken = data[place:].hex()
    at = 0
    lines = []
    for line in found[3].splitlines():
        words = []
        for word in line.split():
            words.append(taken[at:at + len(word)])
            at += len(word)
        lines.append(" ".join(words))
    fresh = f"```\n{SEGMENT} at {place}\n" + "\n".join(lines) + "\n```"
    return page[:found.start()] + fresh + page[found.end():]


def main():
    run(os.path.abspath(sys.argv[1]))
    with open(os.path.join(DEMO, SEGMENT), "rb") as file:
        data = file.read()
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    places = show(data)
    for number, (place, _) in enumerate(places):
        page = block(page, number, data, place)
    fence, push, plan = (version for _, version in places[2:])
    page = re.sub(r"A FENCE, version \d+ of", f"A FENCE, version {fence} of", page)
    page = re.sub(r"run \(version \d+ of", f"run (version {push} of", page)
    page = re.sub(r"It is version \d+ and its end says \d+",
                  f"It is version {plan} and its end says {plan - 1}", page)
    with open(PAGE, "w", encoding="utf-8") as out:
        out.write(page)


if __name__ == "__main__":
    main()
