#!/usr/bin/env python3
"""The size of the tree: `tests/count.py [FOLDER]`, one figure a row, to compare changes.

Counts lines of files that git tracks. Product: the rooms that users run; tests: tests and bench.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOMS = ("proto", "common", "kernels", "server", "worker", "deploy")
CODE = (".c", ".h", ".cu", ".cuh", ".def", ".proto")
SCRIPTS = (".py", ".sh")


def files(root):
    done = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True,
                          check=True)
    return [Path(root, name) for name in done.stdout.splitlines() if Path(root, name).is_file()]


def lines(paths):
    return sum(path.read_bytes().count(b"\n") for path in paths)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    every = files(root)
    rooms = {}
    for path in every:
        rooms.setdefault(path.relative_to(root).parts[0], []).append(path)
    code = {room: [p for p in rooms.get(room, []) if p.suffix in CODE] for room in ROOMS}
    rows = [(f"lines of {room}", lines(paths)) for room, paths in code.items()]
    product = [path for paths in code.values() for path in paths]
    rows.append(("lines of product", lines(product)))
    for room in ("tests", "bench"):
        paths = [p for p in rooms.get(room, []) if p.suffix in CODE + SCRIPTS]
        rows.append((f"lines of {room}", lines(paths)))
    text = {path: path.read_text(encoding="utf-8", errors="replace") for path in product}
    setting = re.compile(r"^ +LH_CONFIG_ROW_\w+\(\w+, \w+, \"|^LH_SETTING\(", re.M)
    rows.append(("settings, with those of topologies", sum(len(setting.findall(t))
                                                           for t in text.values())))
    codecs = next((t for p, t in text.items() if p.parts[-2:] == ("kernels", "codec.c")), "")
    rows.append(("codecs", len(re.findall(r'\{"[\w-]+", LK_INDEX', codecs))))
    rows.append(("files that see protobuf's types", sum("pb-c.h" in t for t in text.values())))
    rows.append(("result files", len([p for p in every if "bench/results/" in str(p)
                                      and p.suffix == ".json"])))
    rows.append(("bytes of README.md", len(Path(root, "README.md").read_bytes())))
    for name, count in rows:
        print(f"{count:8,}  {name}")
    for path in sorted(product, key=lambda p: -len(text[p].splitlines()))[:5]:
        print(f"{len(text[path].splitlines()):8,}  {path.relative_to(root)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
