#!/usr/bin/env python3
"""elf.py tells faults apart: self_test.py ELF_PY COMPILER."""
import os
import subprocess
import sys
import tempfile

GOOD = ["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-fPIE",
        "-pie", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack"]
SOURCE = """#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    char text[64];
    (void)argc;
    strcpy(text, argv[0]);
    return printf("%s", text) < 0;
}
"""
CASES = {  # flags to add -> elf.py's message, or "" for none
    "good": ([], ""),
    "origin": (["-Wl,-rpath,$ORIGIN/../lib"], ""),
    "empty": (["-Wl,-rpath,$ORIGIN:"], "searches for libraries"),
    "absolute": (["-Wl,-rpath,/opt/lib"], "searches for libraries"),
    "relative": (["-Wl,-rpath,lib"], "searches for libraries"),
    "origin_like": (["-Wl,-rpath,$ORIGINAL"], "searches for libraries"),
    "lazy": (["-Wl,-z,lazy"], "no BIND_NOW"),
    "norelro": (["-Wl,-z,norelro"], "no RELRO"),
    "fixed": (["-no-pie"], "a fixed address"),
    "stack": (["-Wl,-z,execstack"], "an executable stack"),
    "unprotected": (["-fno-stack-protector"], "no stack protector"),
    "unfortified": (["-U_FORTIFY_SOURCE"], "no _FORTIFY_SOURCE"),
}


def main() -> int:
    check, compiler, wrong = sys.argv[1], sys.argv[2], 0
    for name, (flags, want) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "program")
            subprocess.run([compiler, "-x", "c", "-", "-o", program, *GOOD, *flags], check=True,
                           input=SOURCE, text=True)
            run = subprocess.run([sys.executable, check, folder, program], capture_output=True,
                                 text=True, check=False)
            if (run.returncode == 0) != (want == "") or want not in run.stdout:
                print(f"elf.self: {name}: wanted '{want}', got {run.returncode}: {run.stdout}")
                wrong += 1
    print(f"elf.self: {len(CASES)} cases, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
