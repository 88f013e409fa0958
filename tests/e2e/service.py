#!/usr/bin/env python3
"""The units of deploy/systemd, and the notifications of real programs to a service manager.

systemd accepts the units without a complaint and rates their exposure at most 3.0. This test is the
manager that a program notifies: each program reports ready once it serves or has joined and not
before, then sends watchdog signals, and reports its end. No systemd is booted.
"""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

from world import World, check, flags_of, until

EXPOSURE = 3.0
LATE_S = 30  # WATCHDOG_USEC of the test, in seconds


class Manager:
    """NOTIFY_SOCKET of one node, and all messages received there."""

    def __init__(self, node):
        self.node, self.told = node, []
        self.path = os.path.join(node.world.dir, node.name + ".notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(self.path)
        node.environment = {"NOTIFY_SOCKET": self.path, "WATCHDOG_USEC": str(LATE_S * 1000000)}

    def hears(self, word):
        while True:
            try:
                self.told.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return word in self.told

    def must_hear(self, word):
        until(f"{self.node.name} says {word}", lambda: self.hears(word))


def units(build):
    """The unit files as installed, with the paths of the built programs."""
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("server", "worker"):
            made = pathlib.Path(build, "deploy", f"longhaul-{kind}@.service").read_text("utf-8")
            program = os.path.realpath(os.path.join(build, kind, f"longhaul-{kind}"))
            text, n = re.subn(rf"^ExecStart=longhaul-{kind} ", f"ExecStart={program} ", made,
                              flags=re.MULTILINE)
            check(n == 1, f"no ExecStart in {made}")
            path = os.path.join(folder, f"longhaul-{kind}@node.service")
            pathlib.Path(path).write_text(text, "utf-8")
            ran = subprocess.run(["systemd-analyze", "verify", "--man=no", path], text=True,
                                 capture_output=True, check=False)
            complaints = [line for line in ran.stderr.splitlines() if f"longhaul-{kind}" in line]
            check(ran.returncode == 0 and not complaints, f"{kind}: {ran.stdout}{ran.stderr}")
            ran = subprocess.run(["systemd-analyze", "security", "--offline=true", path],
                                 text=True, capture_output=True, check=False)
            said = re.search(r"Overall exposure level for \S+: ([0-9.]+)", ran.stdout)
            check(said, f"{kind}: {ran.stdout}{ran.stderr}")
            print(f"{kind}: exposure {said[1]}")
            check(float(said[1]) <= EXPOSURE, f"{kind}: {ran.stdout}")


def programs(world):
    coordinator = world.coordinator(1)
    coordinators = Manager(coordinator)
    coordinator.start().listening()
    coordinators.must_hear("READY=1")
    server = world.server(0, coordinator)
    servers = Manager(server)
    server.start().listening()
    servers.must_hear("READY=1")
    worker = world.worker("asia", coordinator)
    workers = Manager(worker)
    server.ask_to_end()
    servers.must_hear("STOPPING=1")
    worker.start()
    workers.must_hear("WATCHDOG=1")
    check("READY=1" not in workers.told, "a worker that has no server is ready")
    server.start().listening()
    workers.must_hear("READY=1")
    worker.must_stop()
    workers.must_hear("STOPPING=1")
    server.must_stop()
    coordinator.must_stop()
    for manager in (coordinators, servers, workers):
        check(manager.hears("WATCHDOG=1"), f"{manager.node.name} never said that it lives")
        check(manager.told.count("READY=1") <= 2, f"{manager.told}")


def main():
    given = flags_of(__doc__).parse_args()
    check(shutil.which("systemd-analyze"),
          "no systemd-analyze: deploy/install-deps.sh --tests installs it")
    units(given.build)
    with World(given.build, units=48, shards=1, keep=given.keep) as world:
        programs(world)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
