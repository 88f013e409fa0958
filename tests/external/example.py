#!/usr/bin/env python3
"""The example of the client library trains: example.py BUILD."""
import os
import re
import subprocess
import sys
import tempfile

VALUES = 4 * 8 + 4  # the example's parameters


def main() -> int:
    programs = os.path.join(sys.argv[1], "tests", "external")
    with tempfile.TemporaryDirectory(prefix="lh-ext-") as folder:
        socket = os.path.join(folder, "s")
        worker = subprocess.Popen([os.path.join(programs, "external_worker"), folder, socket, "1",
                                   "1", str(VALUES)])
        try:
            said = subprocess.run([os.path.join(programs, "external_example")], text=True,
                                  env={**os.environ, "LONGHAUL_SOCKET": socket}, timeout=60,
                                  capture_output=True, check=False)
            ended = worker.wait(20)
        finally:
            worker.kill()
            worker.wait()
    print(said.stdout, said.stderr)
    losses = [float(v) for v in re.findall(r"\d+\.\d+", said.stdout)]
    good = said.returncode == ended == 0 and len(losses) == 3
    return 0 if good and max(losses[1:]) < losses[0] / 100 else 1


if __name__ == "__main__":
    sys.exit(main())
