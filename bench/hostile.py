#!/usr/bin/env python3
"""What does a flood cost an honest run? `bench/run.sh hostile [--json FILE [--join]]`.

Two workers train through a coordinator and a server on loopback, in a control group that is pinned
to all processors but the last. Alternately, a process in a group on the last processor floods the
server and the coordinator, and a loop there uses as much processor time as the flood took. So the
difference is the flood's cost to the run's own processes.

 reset   a certificate of another run of the CA: requests that are cancelled at once (rapid reset)
 half    no certificate: connections from three addresses that begin no handshake
 empty   a worker's certificate: data frames without data
 hpack   a worker's certificate: headers of 16 KiB whose bytes stand for 4 KB each, as many as are
         accepted without an end of the connection

 hostile.FLOOD.tokens_a_s  tokens that the workers train a second, compared with the loop
 hostile.FLOOD.refused     the workers' pushes that were refused, given back or lost in all of it
 hostile.FLOOD.server_rss  the server's memory afterwards, compared with that before the flood

Needs root and a cpuset controller, for the control groups. With --join, floods that are measured
one by one (--only NAME) are joined in FILE.
"""
import argparse
import multiprocessing
import os
import socket
import ssl
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "tests", "e2e")]
import report  # noqa: E402
from turns import cpu_seconds  # noqa: E402
from world import World, until  # noqa: E402

SHAPE = {"architecture": "transformer", "vocab": 256, "dim": 128, "layers": 4, "heads": 4,
         "kv_heads": 4, "ffn": 512, "context": 64, "tied": True}  # 1.08 M parameters
REGIONS = ("asia", "europe")
PATIENCE_S = 240  # until all train
FLOODS = ("reset", "half", "empty", "hpack")
HALF_OPEN = 64  # connections that each of three addresses holds
FROM = "127.0.0.5"  # source of the other floods; the run has another address


# ---------------------------------------------------------------- control groups

class Group:
    """A control group whose processes run on these processors."""

    def __init__(self, name, cpus):
        self.path = os.path.join(self.mount(), f"{name}-{os.getpid()}")
        os.mkdir(self.path)
        for key, value in (("cpuset.cpus", cpus), ("cpuset.mems", "0")):
            self.write(key, value)

    @staticmethod
    def mount():
        with open("/proc/mounts", encoding="utf-8") as file:
            for _, path, kind, options, *_ in map(str.split, file):
                if kind == "cgroup" and "cpuset" in options.split(","):
                    return path
                if kind == "cgroup2" and "cpuset" in open(  # pylint: disable=consider-using-with
                        os.path.join(path, "cgroup.controllers"), encoding="utf-8").read().split():
                    with open(os.path.join(path, "cgroup.subtree_control"), "w",
                              encoding="utf-8") as out:
                        out.write("+cpuset")
                    return path
        raise SystemExit("hostile: no control groups with cpuset here")

    def write(self, key, value):
        with open(os.path.join(self.path, key), "w", encoding="utf-8") as out:
            out.write(str(value))

    def enter(self):
        self.write("cgroup.procs", os.getpid())

    def words(self):
        """The prefix of a command that shall run in this group."""
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs; exec "$@"', "sh"]

    def remove(self):
        try:
            os.rmdir(self.path)
        except OSError as error:
            print(f"hostile: {self.path} stays: {error}", file=sys.stderr)


# ---------------------------------------------------------------- floods

def frame(kind, flags, stream, body=b""):
    size = struct.pack(">I", len(body))[1:]
    return size + bytes([kind, flags]) + struct.pack(">I", stream) + body


def literal(name, value):
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


HEADERS, RESET, SETTINGS = 1, 3, 4
CALL = (b"\x83\x87\x04\x19/longhaul.v1.Shard/Status" + b"\x01\x11longhaul.internal" +
        literal(b"content-type", b"application/grpc") + literal(b"te", b"trailers"))
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)


def dial(address, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate + ".pem", certificate + ".key")
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection(address, 5, (FROM, 0))
    try:
        line = context.wrap_socket(plain)
        line.sendall(PREFACE)
    except OSError:
        plain.close()
        raise
    return line


def pour(address, certificate, batch):
    """Sends the results of `batch(number)` until the peer ends the connection."""
    with dial(address, certificate) as line:
        line.settimeout(5)
        for number in range(1 << 20):
            line.sendall(batch(number))


def resets(number):
    streams = range(200 * number + 1, 200 * number + 201, 2)
    return b"".join(frame(HEADERS, 4, at, CALL) + frame(RESET, 0, at, b"\0\0\0\x08")
                    for at in streams)


def empties(number):
    return (b"" if number else frame(HEADERS, 4, 1, CALL)) + 100 * frame(0, 0, 1)


def bombs(number):
    """Within the budget: slightly less than 512 KiB a second. See RFC 7541, sections 5.1 and 6."""
    size = 3900
    kept = b"\x40\x01x\x7f" + bytes([(size - 127) & 127 | 128, (size - 127) >> 7]) + size * b"y"
    time.sleep(1 / 30)
    return frame(HEADERS, 4, 2 * number + 1, CALL + (15000 * b"\xbe" if number else kept))


def half_open(addresses, held):
    for place in range(3 * HALF_OPEN):
        line = held.get(place)
        if line:
            try:
                if line.recv(1):
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            line.close()
        line = held[place] = socket.socket()
        line.bind((f"127.0.0.{2 + place % 3}", 0))
        line.setblocking(False)
        line.connect_ex(addresses[place % len(addresses)])
    time.sleep(0.02)


def flood(name, addresses, certificate, group):
    group.enter()
    held, turn = {}, 0
    while True:
        turn += 1
        try:
            if name == "half":
                half_open(addresses, held)
            else:
                pour(addresses[turn % len(addresses)], certificate,
                     {"reset": resets, "empty": empties, "hpack": bombs}[name])
        except OSError:
            pass  # the peer ended the connection: opens the next one


def burn(share, group):
    group.enter()
    while True:
        began = time.monotonic()
        while time.monotonic() - began < 0.02 * share:
            pass
        time.sleep(0.02 * (1 - share))


# ---------------------------------------------------------------- the run

class Honest:
    """A run whose processes are all in one group."""

    def __init__(self, world, group):
        coordinator = world.coordinator(2, **{"coordinator.worker_timeout_s": "60 s",
                                              "coordinator.h_base": 8})
        self.nodes = [coordinator]
        coordinator.before = group.words()
        coordinator.start().listening()
        self.server = world.server(0, coordinator)
        self.workers = [world.worker(region, coordinator, **{"trainer.batch": 8})
                        for region in REGIONS]
        for node in (self.server, *self.workers):
            node.before = group.words()
            node.start()
        self.server.listening()
        until("all train", lambda: min(self.tokens()) > 0, PATIENCE_S)
        self.addresses = [(host, int(port)) for host, _, port in (
            node.address.rpartition(":") for node in (coordinator, self.server))]

    def tokens(self):
        return [worker.status().get("tokens", 0) for worker in self.workers]

    def refused(self):
        return sum(worker.status().get(key, 0) for worker in self.workers
                   for key in ("refused", "returned", "lost"))

    def rss(self):
        with open(f"/proc/{self.server.process.pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))

    def pace(self, seconds):
        """Tokens a second. A status is up to a second old: windows are far longer."""
        began, before = time.monotonic(), sum(self.tokens())
        time.sleep(seconds)
        return (sum(self.tokens()) - before) / (time.monotonic() - began)


def beside(target, line, honest, seconds):
    """(tokens a second beside that process, its processor time a second)"""
    child = multiprocessing.Process(target=target, args=line, daemon=True)
    child.start()
    try:
        time.sleep(2)
        before, began = cpu_seconds([child.pid]), time.monotonic()
        pace = honest.pace(seconds)
        return pace, (cpu_seconds([child.pid]) - before) / (time.monotonic() - began)
    finally:
        child.kill()
        child.join()


def certificates(world):
    """For each flood a certificate, without its file ending."""
    world.tool("certs", "issue", "--dir", world.path("ca"), "--run", "another", "--role", "worker",
               "--region", "europe", "--name", "stranger", "--out", world.path("certs"))
    world.certificate("worker", "europe", "rogue")
    return {"reset": world.path("certs", "stranger"), "empty": world.path("certs", "rogue"),
            "hpack": world.path("certs", "rogue"), "half": ""}


def measure(out, flags, name, groups):
    run, rogue = groups
    with World(flags.build, run="hostile", units=6000, shape=SHAPE, shards=1) as world:
        honest, certificate = Honest(world, run), certificates(world)[name]
        honest.pace(5)
        line, rss = (name, honest.addresses, certificate, rogue), honest.rss()
        floods, burns = [], []
        shares = [beside(flood, line, honest, flags.seconds)[1]]  # for its processor time
        for turn in range(flags.turns):
            for flooded in (turn % 2 == 0, turn % 2 == 1):  # the host's pace changes
                if flooded:
                    pace, share = beside(flood, line, honest, flags.seconds)
                    floods.append(pace)
                    shares.append(share)
                else:
                    part = min(shares[-1], 1)
                    burns.append(beside(burn, (part, rogue), honest, flags.seconds)[0])
        out.row(f"hostile.{name}.tokens_a_s", "1/s", floods, "a burning loop", burns)
        out.row(f"hostile.{name}.flood_cpu", "1", shares)
        out.row(f"hostile.{name}.refused", "1", [honest.refused()])
        out.row(f"hostile.{name}.server_rss", "B", [honest.rss()], "before the flood", rss)


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", default="build/release")
    flags.add_argument("--json")
    flags.add_argument("--join", action="store_true")
    flags.add_argument("--only", choices=FLOODS)
    flags.add_argument("--turns", type=int, default=5)
    flags.add_argument("--seconds", type=float, default=20, help="of a window")
    flags = flags.parse_args()
    cpus = os.cpu_count()
    if os.geteuid() != 0 or cpus < 2:
        raise SystemExit("hostile: it wants root and two processors, for pinned control groups")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    out = report.Report("hostile", flags.json, flags.join)
    out.condition("run", f"two workers, 1.08 M parameters, on {cpus - 1} of {cpus} processors")
    out.condition("windows", f"{flags.turns} turns of {flags.seconds:g} s")
    groups = [Group("longhaul-run", f"0-{cpus - 2}"), Group("longhaul-flood", cpus - 1)]
    try:
        for name in [flags.only] if flags.only else FLOODS:
            measure(out, flags, name, groups)
    finally:
        for group in groups:
            group.remove()
    out.finish()


if __name__ == "__main__":
    main()
