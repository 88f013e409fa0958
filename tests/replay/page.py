#!/usr/bin/env python3
"""The bytes that common/docs/0001-formats.md shows are in demo/: `page.py`.

A block of the page begins with "FILE at OFFSET"; then the file's bytes from there on follow in
hexadecimal, with spaces and line ends at any place.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(HERE, "..", "..", "common", "docs", "0001-formats.md")
BLOCK = re.compile(r"^```\n(\S+) at (\d+)\n([0-9a-f\s]+)```$", re.MULTILINE)
BLOCKS = 5


def compare(page):
    """One line for each difference."""
    blocks = BLOCK.findall(page)
    if len(blocks) != BLOCKS or page.count("```") != 2 * BLOCKS:
        yield f"{len(blocks)} blocks of bytes were read, {BLOCKS} are there"
    for name, at, text in blocks:
        shown = bytes.fromhex("".join(text.split()))
        with open(os.path.join(HERE, "demo", name), "rb") as file:
            file.seek(int(at))
            found = file.read(len(shown))
        if not shown or found != shown:
            yield f"{name} at {at}: the page shows {shown.hex()}, the file has {found.hex()}"


def main():
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    wrong = list(compare(page))
    at = page.index("```\nshard-0") + page[page.index("```\nshard-0"):].index("\n4c") + 1
    changed = page[:at] + "5" + page[at + 1:]  # with one digit changed the check must fail
    if not list(compare(changed)):
        wrong.append("a digit that was changed is not seen")
    print("\n".join(wrong) or "the page's bytes are the run's")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
