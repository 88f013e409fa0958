#!/usr/bin/env python3
"""Each wait of the CUDA path is left out once, and the tests of it find that: faults.py PROGRAM.

What is left out is a call of the runtime that does nothing (CUDART_FAULT of cudart.c): to the
library's user it is the same as if device.c had forgotten the call.
"""
import os
import subprocess
import sys

FAULTS = {  # the test that finds it
    "caller_waits_for_copies": "the_next_step_waits_for_the_copy",
    "copies_are_marked": "the_next_step_waits_for_the_copy",
    "copies_wait_for_caller": "the_copy_waits_for_the_step_before",
    "caller_is_marked": "the_copy_waits_for_the_step_before",
    "host_asks_for_copies": "the_copy_waits_for_the_step_before",
    "errors_are_cleared": "the_copy_waits_for_the_step_before",
    "host_waits_for_copies": "closing_waits_for_the_copy",
    "host_waits_for_caller": "closing_waits_for_additions",
}


def run(program: str, test: str, fault: str) -> subprocess.CompletedProcess:
    return subprocess.run([program, test], env={**os.environ, "CUDART_FAULT": fault},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                          check=False)


def main() -> int:
    program, wrong = sys.argv[1], []
    for test in sorted(set(FAULTS.values())):
        sound = run(program, test, "none")
        if sound.returncode or f"[       OK ] {test}" not in sound.stdout:
            wrong.append(f"{test} fails without a fault:\n{sound.stdout}")
    for fault, test in FAULTS.items():
        found = run(program, test, fault)
        said = f"[  FAILED  ] {test}" in found.stdout or "cudart: " in found.stdout
        if not found.returncode or not said:
            wrong.append(f"{test} does not find {fault}:\n{found.stdout}")
    for line in wrong:
        print(f"faults: {line}")
    print(f"faults: {len(FAULTS) - len(wrong)} of {len(FAULTS)} found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
