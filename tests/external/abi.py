#!/usr/bin/env python3
"""Exports and dependencies of liblonghaul.so: abi.py LIBRARY.

It exports the functions of longhaul.h under their version and nothing else; it needs only the C
library, glibc 2.28 or newer; the header and the linker's script name the same functions.
"""
import os
import re
import subprocess
import sys

CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "worker", "client")
VERSION = "LONGHAUL_1.0"
GLIBC = (2, 28)  # the newest symbols that it may need


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def text(name: str) -> str:
    with open(os.path.join(CLIENT, name), encoding="utf-8") as file:
        return file.read()


def main() -> int:
    library, wrong = sys.argv[1], []
    declared = set(re.findall(r"LONGHAUL_API [^;{]*?\b(longhaul_\w+)\(", text("longhaul.h")))
    scripted = set(re.findall(r"^\s+(longhaul_\w+);", text("longhaul.map"), re.M))
    shown = set()
    for line in run("nm", "-D", "--defined-only", library).splitlines():
        name = line.split()[-1]
        if line.split()[-2] == "A" and name == VERSION:
            continue
        if not name.endswith(f"@@{VERSION}"):
            wrong.append(f"shown without version: {name}")
        shown.add(name.split("@")[0])
    if not declared or not declared == scripted == shown:
        wrong.append(f"header, script and library differ: {declared ^ scripted | scripted ^ shown}")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", library))
    if needed != ["libdl.so.2", "libc.so.6"]:  # both belong to the C library
        wrong.append(f"needs {needed}")
    versions = re.findall(r"@GLIBC_([\d.]+)", run("nm", "-D", "--undefined-only", library))
    newer = [v for v in versions if tuple(map(int, v.split("."))) > GLIBC]
    if newer or not versions:
        wrong.append(f"wants symbols of glibc {newer}")
    unwanted = re.findall(r"\b(abort|exit|_exit|pthread_create|__assert_fail|printf|fprintf)@",
                          run("nm", "-D", "--undefined-only", library))
    if unwanted:
        wrong.append(f"calls {unwanted}")
    for line in wrong:
        print(f"abi: {line}")
    print(f"abi: {len(shown)} functions, needs {needed}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
