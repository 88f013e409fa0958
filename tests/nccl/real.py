#!/usr/bin/env python3
"""Fetches the wheel of the real NCCL once, into a folder of the build, and runs `real` with it;
compiles signatures.c with the wheel's header.

Exit status 77, with the reason, where pip cannot fetch it: ctest then says Skipped.
"""
import os
import subprocess
import sys

WHEEL = "nvidia-nccl-cu13==2.28.9"
# The part of CUDA's headers that nccl.h needs, for machines without them.
STAND_IN = {"cuda_runtime.h": "#include <stddef.h>\ntypedef struct CUstream_st *cudaStream_t;\n",
            "cuda_fp16.h": ""}


def check_signatures(folder):
    """Compares worker/ranks/comm/nccl.h with the library's own header."""
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    stand_in = os.path.join(folder, "stand_in")
    os.makedirs(stand_in, exist_ok=True)
    for name, text in STAND_IN.items():
        with open(os.path.join(stand_in, name), "w", encoding="utf-8") as out:
            out.write(text)
    done = subprocess.run(
        [os.environ.get("CC", "cc"), "-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
         "-fsyntax-only", "-I", stand_in, "-I", root, "-I",
         os.path.join(folder, "nvidia", "nccl", "include"), os.path.join(here, "signatures.c")],
        capture_output=True, text=True, check=False)
    print("signatures: as in nccl.h" if not done.returncode else done.stderr)
    return done.returncode == 0


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
    return 0 if check_signatures(folder) else 1


if __name__ == "__main__":
    sys.exit(main())
