#!/usr/bin/env python3
"""Compares what ptxas says of each kernel with the limits in this folder.

    ptxas_check.py [--write] --nvcc VERSION LIMITS REPORT...

A limit is for every architecture of the report. A kernel without a limit and a limit without a
kernel are findings too. The limits were recorded with one release of nvcc, named in their first
line; another release allocates registers otherwise, so its findings are warnings. --write makes
the file of limits anew from the reports.
"""
import argparse
import pathlib
import re
import sys

KERNEL = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)'")
SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def plain(mangled: str) -> str:
    """lk_encode_topk_256 of _Z14lk_encode_topkILi256EEv14lk_encode_args."""
    match = re.match(r"_Z(\d+)", mangled)
    if not match:
        return mangled
    end = match.end() + int(match.group(1))
    number = re.match(r"ILi(\d+)E", mangled[end:])
    return mangled[match.end():end] + (f"_{number.group(1)}" if number else "")


def read(reports: list[pathlib.Path]) -> dict[str, list[int]]:
    """name -> the most registers, shared bytes and spilled bytes over all architectures."""
    most: dict[str, list[int]] = {}
    for report in reports:
        name = ""
        for line in report.read_text(encoding="utf-8").splitlines():
            if found := KERNEL.search(line):
                name = plain(found.group(1))
                most.setdefault(name, [0, 0, 0])
            elif found := SPILL.search(line):
                most[name][2] = max(most[name][2], int(found.group(1)) + int(found.group(2)))
            elif found := USED.search(line):
                shared = SHARED.search(line)
                most[name][0] = max(most[name][0], int(found.group(1)))
                most[name][1] = max(most[name][1], int(shared.group(1)) if shared else 0)
    return most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--nvcc", required=True, help="release of the compiler, as 13.0")
    parser.add_argument("limits", type=pathlib.Path)
    parser.add_argument("report", type=pathlib.Path, nargs="+")
    flags = parser.parse_args()
    is_now = read(flags.report)
    if flags.write:
        rows = [f"{name:24} {row[0]:5} {row[1]:7} {row[2]:5}"
                for name, row in sorted(is_now.items())]
        head = (f"# nvcc {flags.nvcc}\n"
                "# Most registers a thread, bytes of shared memory a block and bytes spilled of\n"
                "# each kernel, on every architecture; above them ptxas_check.py fails.\n")
        flags.limits.write_text(head + "\n".join(rows) + "\n", encoding="utf-8")
        return 0
    limits = {}
    lines = flags.limits.read_text(encoding="utf-8").splitlines()
    recorded = lines[0].removeprefix("# nvcc ")
    for line in lines:
        if line and not line.startswith("#"):
            name, *row = line.split()
            limits[name] = [int(value) for value in row]
    wrong = [f"{name} has no limit" for name in sorted(set(is_now) - set(limits))]
    wrong += [f"{name} has a limit and is no kernel" for name in sorted(set(limits) - set(is_now))]
    for name in sorted(set(limits) & set(is_now)):
        for what, value, most in zip(("registers", "bytes of shared memory", "bytes spilled"),
                                     is_now[name], limits[name]):
            if value > most:
                wrong.append(f"{name}: {value} {what}, at most {most}")
    binds = flags.nvcc == recorded
    for line in wrong:
        print(f"ptxas: {line}" + ("" if binds else f" (a warning: the limits are of {recorded})"),
              file=sys.stderr)
    return 1 if wrong and binds or not is_now else 0


if __name__ == "__main__":
    sys.exit(main())
