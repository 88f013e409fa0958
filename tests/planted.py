"""Planted faults, for programs that have each compiled in and one in force at a time: would their
tests see it?

A fault is a text that occurs once in its file and the text that takes its place; F in it is true
while that fault is in force. tests/parity/faults.py and tests/gpu/faults.py list theirs. Those of
tests/external/faults.py are calls of a stand-in that do nothing, and are judged here alone.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
from typing import Callable, Protocol, Sequence


class Named(Protocol):
    """A fault that is judged."""

    name: str


class Fault(Named, Protocol):
    """What every list of faults that are texts says of one."""

    file: str
    text: str
    fault: str


def plant(file: str, text: str, faults: Sequence[Fault], force: str) -> str:
    """The file's text with its faults in it. `force` is the variable that has the number, from 1,
    of the one in force."""
    for number, fault in enumerate(faults, 1):
        if fault.file != file:
            continue
        if text.count(fault.text) != 1:
            sys.exit(f"faults.py: {fault.name}: its text occurs {text.count(fault.text)} times in "
                     f"{file}; write it down anew")
        text = text.replace(fault.text,
                            re.sub(r"\bF\b", f"!({force} != {number})", fault.fault))
    return text


def write(out: pathlib.Path, text: str) -> None:
    """Writes the file, but one that is the same already: nothing is built again for it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if not out.exists() or out.read_text(encoding="utf-8") != text:
        out.write_text(text, encoding="utf-8")


def copy(files: Sequence[str], faults: Sequence[Fault], force: str, source: pathlib.Path,
         target: pathlib.Path) -> None:
    """Writes these C files, with their faults in them, to the target."""
    for file in files:
        text = plant(file, (source / file).read_text(encoding="utf-8"), faults, force)
        write(target / pathlib.Path(file).name, f"extern int {force};\n{text}")


def run(line: Sequence[str], limit_s: float, **env: str) -> tuple[int | None, list[str]]:
    """Its exit status, None where it has not ended by then, and what it said on stderr."""
    try:
        said = subprocess.run(line, capture_output=True, text=True, errors="replace",
                              timeout=limit_s, check=False, env={**os.environ, **env})
    except subprocess.TimeoutExpired:
        return None, [f"has not ended in {limit_s:.0f} s"]
    lines = [text for text in said.stderr.splitlines() if text.strip()]
    return said.returncode, lines or [f"status {said.returncode}"]


def judge(faults: Sequence[Named], only: str | None,
          try_one: Callable[[int], tuple[bool, str]]) -> int:
    """Tries each fault, or the one of this name. try_one(number) says whether it was found, and
    how. Gives the exit status: 0 when each was found."""
    numbers = [n for n, fault in enumerate(faults, 1) if only in (None, fault.name)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(try_one, numbers))
    for number, (found, how) in zip(numbers, results):
        print(f"{'found' if found else 'NOT FOUND':9} {faults[number - 1].name:24} {how[:110]}")
    missed = sum(not found for found, _ in results)
    print(f"{len(results) - missed} of {len(results)} planted faults found")
    return 1 if missed else 0


def flags_of(doc: str, *run: str) -> argparse.Namespace:
    """The command line: generate SOURCE TARGET, or run with these arguments [--only NAME]."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("generate")
    command.add_argument("source", type=pathlib.Path)
    command.add_argument("target", type=pathlib.Path)
    command = commands.add_parser("run")
    for name in run:
        command.add_argument(name)
    command.add_argument("--only")
    return parser.parse_args()
