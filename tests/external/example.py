#!/usr/bin/env python3
"""The example of the client library: example.py BUILD.

It has at most 60 lines, the command in its README builds it outside the tree's own build, and it
trains.
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
EXAMPLES = os.path.join(ROOT, "worker", "client", "examples")
VALUES = 4 * 8 + 4  # the example's parameters


def built_as_said(build: str, out: str) -> bool:
    """Built with the README's command, with this build's paths and another output file."""
    with open(os.path.join(EXAMPLES, "README.md"), encoding="utf-8") as file:
        lines = re.findall(r"^ {4}(cc .*)$", file.read(), re.M)
    command = lines[0].replace("$PWD/", "").replace("build/release", os.path.abspath(build))
    command = command.replace("-o line", "-o " + out)
    return subprocess.run(command, shell=True, cwd=ROOT, check=False).returncode == 0


def trains(program: str) -> bool:
    """It trains in a run of its own, with a made-up worker."""
    pretends = os.path.join(sys.argv[1], "tests", "external", "external_worker")
    with tempfile.TemporaryDirectory(prefix="lh-ext-") as folder:
        socket = os.path.join(folder, "s")
        worker = subprocess.Popen([pretends, folder, socket, "1", "1", str(VALUES)])
        try:
            said = subprocess.run([program], text=True, timeout=60, capture_output=True,
                                  env={**os.environ, "LONGHAUL_SOCKET": socket}, check=False)
            ended = worker.wait(20)
        finally:
            worker.kill()
            worker.wait()
    print(said.stdout, said.stderr)
    losses = [float(v) for v in re.findall(r"\d+\.\d+", said.stdout)]
    good = said.returncode == ended == 0 and len(losses) == 3
    return good and max(losses[1:]) < losses[0] / 100


def main() -> int:
    with open(os.path.join(EXAMPLES, "line.c"), encoding="utf-8") as file:
        count = len(file.read().splitlines())
    if count > 60:
        print(f"line.c has {count} lines, and 60 are promised")
        return 1
    programs = [os.path.join(sys.argv[1], "tests", "external", "external_example")]
    with tempfile.TemporaryDirectory(prefix="lh-ext-") as folder:
        if len(sys.argv) > 2:  # not with a sanitizer, whose library the README's command lacks
            programs.append(os.path.join(folder, "line"))
            if not built_as_said(sys.argv[1], programs[1]):
                return 1
        return 0 if all(trains(program) for program in programs) else 1


if __name__ == "__main__":
    sys.exit(main())
