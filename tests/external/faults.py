#!/usr/bin/env python3
"""Each wait of the CUDA path is left out once, and a test must detect it: faults.py PROGRAM.

A call of the runtime does nothing (CUDART_FAULT of cudart.c): to the library's user that looks the
same as if device.c did not make the call.
"""
import os
import subprocess
import sys
from typing import NamedTuple


class Fault(NamedTuple):
    name: str
    test: str  # the test that detects it


FAULTS = (
    Fault("caller_waits_for_copies", "the_next_step_waits_for_the_copy"),
    Fault("copies_are_marked", "the_next_step_waits_for_the_copy"),
    Fault("copies_wait_for_caller", "the_copy_waits_for_the_step_before"),
    Fault("caller_is_marked", "the_copy_waits_for_the_step_before"),
    Fault("host_asks_for_copies", "the_copy_waits_for_the_step_before"),
    Fault("errors_are_cleared", "the_copy_waits_for_the_step_before"),
    Fault("host_waits_for_copies", "closing_waits_for_the_copy"),
    Fault("host_waits_for_caller", "closing_waits_for_additions"),
)


def run(program: str, test: str, fault: str) -> subprocess.CompletedProcess:
    return subprocess.run([program, test], env={**os.environ, "CUDART_FAULT": fault},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                          check=False)


def try_one(program: str, fault: Fault) -> tuple[bool, str]:
    found = run(program, fault.test, fault.name)
    said = f"[  FAILED  ] {fault.test}" in found.stdout or "cudart: " in found.stdout
    return bool(found.returncode) and said, f"{fault.test}: status {found.returncode}"


def main() -> int:
    program = sys.argv[1]
    for test in sorted({fault.test for fault in FAULTS}):
        sound = run(program, test, "none")
        if sound.returncode or f"[       OK ] {test}" not in sound.stdout:
            print(f"{test} fails without a fault:\n{sound.stdout}")
            return 1
    missed = 0
    for fault in FAULTS:
        found, how = try_one(program, fault)
        missed += not found
        print(f"{'found' if found else 'NOT FOUND':9} {fault.name:24} {how}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
