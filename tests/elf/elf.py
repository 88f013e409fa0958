#!/usr/bin/env python3
"""Checks how every ELF file of a build is linked: elf.py BUILD PRODUCT...

Every file: no RPATH element but $ORIGIN's, RELRO, BIND_NOW, no executable stack, no fixed address.
The products also: stack protector and _FORTIFY_SOURCE. With exit status 1 it lists the faults.
"""
import os
import re
import subprocess
import sys


def readelf(flags: str, path: str) -> str:
    return subprocess.run(["readelf", "-W", flags, path], check=True, capture_output=True,
                          text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def is_linked(path: str) -> bool:
    """Whether it is a program or a shared library, not an object."""
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        head = file.read(20)
    return head[:4] == b"\x7fELF" and head[16] in (2, 3)


def faults(path: str, product: bool) -> list[str]:
    dynamic, headers = readelf("-d", path), readelf("-hl", path)
    found = []
    for value in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
        bad = [e for e in value.split(":") if e != "$ORIGIN" and not e.startswith("$ORIGIN/")]
        if bad:
            found.append(f"searches for libraries in {bad}, by its RPATH [{value}]")
    if "GNU_RELRO" not in headers:
        found.append("no RELRO")
    if not re.search(r"BIND_NOW|FLAGS_1\).*\bNOW\b", dynamic):
        found.append("no BIND_NOW")
    if not re.search(r"Type:\s+DYN", headers):
        found.append("a fixed address, no PIE")
    stack = re.search(r"GNU_STACK(?:\s+0x\w+){5}\s+([RWE ]+?)\s+0", headers)
    if not stack or "E" in stack.group(1):
        found.append("an executable stack")
    if product:
        symbols = readelf("--dyn-syms", path)
        if "__stack_chk_fail" not in symbols:
            found.append("no stack protector")
        if not re.search(r"UND __(?!stack)\w+_chk\b", symbols):
            found.append("no _FORTIFY_SOURCE")
    return found


def main() -> int:
    build, products = sys.argv[1], {os.path.realpath(p) for p in sys.argv[2:]}
    others = {"CMakeFiles", "nvidia"}  # NVIDIA's wheels, which tests unpack here
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(build)
             for name in names if not others & set(folder.split(os.sep))]
    linked = sorted(p for p in paths if is_linked(p))
    missing = products - {os.path.realpath(p) for p in linked}
    wrong = [f"{p}: not in the build" for p in sorted(missing)]
    for path in linked:
        wrong += [f"{path}: {f}" for f in faults(path, os.path.realpath(path) in products)]
    for line in wrong:
        print(f"elf: {line}")
    print(f"elf: {len(linked)} files, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
