#!/usr/bin/env python3
"""Fetches the wheel of the real NCCL once, into a folder of the build, and runs `real` with it.

Exit status 77, with a word, where pip cannot: ctest then says Skipped.
"""
import os
import subprocess
import sys

WHEEL = "nvidia-nccl-cu13==2.28.9"


def main():
    program, folder = sys.argv[1:]
    library = os.path.join(folder, "nvidia", "nccl", "lib", "libnccl.so.2")
    if not os.path.exists(library):
        done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps",
                               "--disable-pip-version-check", "--target", folder, WHEEL],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"not run: pip cannot install {WHEEL}: {done.stderr.strip()[-300:]}")
            return 77
    done = subprocess.run([program, library], capture_output=True, text=True, check=False,
                          timeout=100)
    print(done.stdout + done.stderr)
    if done.returncode:
        return 1
    if "NCCL 2.28.9\n" not in done.stdout or "init: " not in done.stdout:
        print("the real NCCL says something else")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
