#!/usr/bin/env python3
"""Paths on which connecting takes long: programs give the first attempt more time than the tool
does, which makes one more attempt.

A Path is a relay between the programs and the coordinator: it accepts a connection at once, and
forwards its bytes after a chosen delay.
"""
import contextlib
import select
import socket
import sys
import threading
import time

from cases import main, run, train
from world import check

# Longer than an attempt on an unknown path (LH_GRPC_CONNECT_MS, 5 s), and shorter than the first
# attempt of programs (LH_GRPC_CONNECT_FAR_MS, 15 s).
QUIET_S = 7


class Path:
    """A relay to this address. `quiet`: seconds for which the first connections forward nothing, in
    turn; None: for ever. All later ones forward at once. `awaited`: for each connection that began
    to forward, whether its program had not given it up by then."""

    def __init__(self, address, quiet):
        host, port = address.rsplit(":", 1)
        self.to, self.quiet, self.taken, self.ends = (host, int(port)), quiet, 0, []
        self.awaited = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                quiet = self.quiet[self.taken] if self.taken < len(self.quiet) else 0
                self.taken += 1
                self.ends.append(near)
                if quiet is not None:
                    threading.Thread(target=self.carry, args=(near, quiet), daemon=True).start()

    def carry(self, near, quiet):
        time.sleep(quiet)  # the path's own delay
        closed = select.poll()
        closed.register(near, select.POLLRDHUP)
        self.awaited.append(not closed.poll(0))
        with contextlib.suppress(OSError):
            far = socket.create_connection(self.to)
            self.ends.append(far)
            threading.Thread(target=self.pipe, args=(far, near), daemon=True).start()
            self.pipe(near, far)

    @staticmethod
    def pipe(source, to):
        with contextlib.suppress(OSError):
            while part := source.recv(65536):
                to.sendall(part)
            to.shutdown(socket.SHUT_WR)

    def close(self):
        for end in (self.listener, *self.ends):
            end.close()


def a_program_waits_for_its_first_attempt(world):
    coordinator, _ = run(world)
    with contextlib.closing(Path(coordinator.address, [QUIET_S])) as path:
        coordinator.address = path.address
        worker = world.worker("asia", coordinator).start()
        train(worker)
        check(path.awaited[0], "the first attempt was given up; "
              f"of all {path.taken}: {path.awaited}")


def the_tool_tries_once_more(world):
    coordinator, _ = run(world)
    with contextlib.closing(Path(coordinator.address, [None])) as path:
        coordinator.address = path.address
        said = world.tool("get", "members", *world.admin(coordinator))
        check("shard-0" in said, said)
        check(path.taken >= 2, f"it took {path.taken} connections")


if __name__ == "__main__":
    sys.exit(main([a_program_waits_for_its_first_attempt, the_tool_tries_once_more], __doc__))
