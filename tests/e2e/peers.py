#!/usr/bin/env python3
"""A region whose worker and ranks are peers, beside a region of one process, with kills.

Each rank holds parameters and optimizer; gradients are summed over TCP. A rank is killed with -9:
the others train on, and it takes part again when it is restarted. Then the worker is killed and
restarted, and its ranks, which lived, train on with it. The region goes on without a rank that is
stopped and so answers nothing. With --nccl NCCL and its devices are made up (tests/nccl), and
inject faults: an error, a call that fails, an operation that hangs, a communicator that is refused
or never made, an abort that hangs. With --cuda ranks train on that plugin's device, which is
emulated (tests/simt). With --hosts each rank has its own address and its own files, and all use
mutual TLS, as on several hosts; meanwhile strangers connect to the leader: silent ones, ones that
send garbage, and ones with certificates of others. At the end all ranks hold the worker's
parameters to the bit, the replicas equal the servers', every unit is credited once, and no process
is left.
"""
import argparse
import json
import os
import shutil
import signal
import socket
import ssl
import sys
import time

from loopback import check_credit, check_learned, check_replicas, check_weights, steps
from world import SHAPE, Node, World, check, until

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "crash"))
import history  # pylint: disable=wrong-import-position

STEPS_A_STATUS = 14  # 3000 tokens/s, 256 a step: a status is at most about a second old


class Region:
    """asia: a worker and its ranks."""

    def __init__(self, world, coordinator, ranks, more, hosts=False):
        self.worker = world.worker("asia", coordinator, **{
            "ranks.count": ranks, "trainer.tokens_per_s": 3000, **more})
        self.ranks = [self.worker]
        self.made_up = "trainer.backend" not in more
        self.a_status = STEPS_A_STATUS if self.made_up else 4  # an emulator is slow
        for rank in range(1, ranks):
            name = f"asia-0.{rank}"
            settings = {**self.worker.settings, "dir": world.path(name), "ranks.rank": rank}
            self.ranks.append(Node(world, "worker", "asia", name, settings))
        self.leader = ("127.0.0.2", free_port("127.0.0.2")) if hosts else None
        if hosts:
            self.spread(world)

    def spread(self, world):
        """Puts each rank on a host of its own: an address, a certificate, and only the files that
        such a host would have."""
        for rank, node in enumerate(self.ranks):
            at = "%s:%d" % self.leader
            node.settings["ranks.leader"] = at
            if node.settings["ranks.reduce"] == "tcp":
                node.settings["ranks.address"] = f"127.0.0.{2 + rank}"
            if not rank:
                continue
            world.certificate("worker", "asia", node.name)
            host = world.path(f"host-{rank}")
            os.mkdir(host)
            mine = {"tls.ca": world.path("ca", "ca.pem"),
                    "tls.cert": world.path("certs", node.name + ".pem"),
                    "tls.key": world.path("certs", node.name + ".key"),
                    "model.manifest": world.path("model.json")}
            for key, path in mine.items():
                node.settings[key] = shutil.copy(path, host)
            for key in ("data.units", "data.dir"):
                node.settings[key] = os.path.join(host, "not-here")

    def start(self):
        for rank in self.ranks:
            rank.start()
        return self

    def members(self):
        return self.worker.status().get("region_ranks", {}).get("members", 0)

    def together(self):
        until("all ranks are members", lambda: self.members() == len(self.ranks))

    def goes_on(self, what, rank=None):
        """Waits until the worker, or another rank, takes steps; gives how long that took."""
        node, begun = rank or self.worker, time.monotonic()
        done = lambda: (node.process.pid, steps(node))
        (pid, since) = done()
        until(f"it trains on after {what}",
              lambda: done()[1] > (since if done()[0] == pid else 0) + self.a_status)
        return time.monotonic() - begun


def free_port(host):
    with socket.socket() as s:
        s.bind((host, 0))
        return s.getsockname()[1]


def knock(region, ca, pem):
    """Connects to the leader under TLS with this certificate, and checks that it sends nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(pem, pem.replace(".pem", ".key"))
    try:
        with socket.create_connection(region.leader) as plain:
            with context.wrap_socket(plain) as s:
                s.sendall(b"REPW\x01\x01\0\0" + region.worker.settings["ranks.leader"].encode())
                check(not s.recv(1), f"the leader talks to {pem} of {ca}")
    except OSError:
        pass  # The leader closed the connection meanwhile.


def refused(world, region, role, where, name, ca="ca", words=None):
    """Knocks until the leader logs why it refuses; its log of peers' errors is rate-limited."""
    folder = "certs" if ca == "ca" else ca + "-certs"
    world.tool("certs", "issue", "--dir", world.path(ca), "--run", world.run, "--role", role,
               "--region", where, "--name", name, "--out", world.path(folder))
    def said():
        knock(region, ca, world.path(folder, name + ".pem"))
        return region.worker.says("region.refused", words or f"/{where}/{name}, but")
    until(f"the leader refuses {name} of {ca}", said)


def strangers(world, region):
    """The leader accepts no stranger, and goes on."""
    refused(world, region, "worker", "europe", "europe-7")
    refused(world, region, "server", "asia", "server-7")
    world.tool("certs", "init", "--dir", world.path("others"), "--domain", "e2e.test")
    refused(world, region, "worker", "asia", "asia-7", "others", "the peer's certificate: ")
    before = region.worker.text().count("region.refused")
    silent = [socket.create_connection(region.leader) for _ in range(40)]
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"REPW\x01\x01\0\0" * 64, os.urandom(5000)):
        with socket.create_connection(region.leader) as s:
            s.sendall(garbage)
    until("the leader turns them away",
          lambda: region.worker.text().count("region.refused") > before)
    region.goes_on("strangers came")
    kill_a_rank(region)  # It comes back while the silent connections still take places.
    for s in silent:
        s.close()
    print("40 that say nothing, garbage, and certificates of another region and role: refused")


def another_setting(region, key, words):
    """A rank with another setting than the worker's ends and logs both values; then it restarts
    with the right one."""
    last, mine = region.ranks[-1], region.worker.settings.get(key, words[0])
    other = words[words[0] == mine]
    last.kill()
    last.settings[key] = other
    last.start()
    check(last.end(60) != 0, f"{last.name} ended as if it were in order")
    check(last.says(f"has {key} {other}, the leader {mine}"), last.tail())
    last.settings[key] = mine
    last.start()
    region.together()
    region.goes_on("the rank is as the others", last)
    print(f"a rank with {key} {other} is refused by the leader's {mine}")


def kill_a_rank(region):
    last, begun = region.ranks[-1], time.monotonic()
    before = region.worker.text().count("rank.lost")
    last.kill()
    until("the worker says who", lambda: region.worker.text().count("rank.lost") > before)
    region.goes_on(f"the kill of {last.name}")
    took = time.monotonic() - begun
    last.start()
    region.together()
    region.goes_on("the rank is back", last)
    print(f"kill -9 of a rank: the others train on after {took:.1f} s, and it came back")


def kill_the_worker(region):
    pids = [rank.process.pid for rank in region.ranks[1:]]
    region.worker.kill()
    region.worker.start()
    region.together()
    region.goes_on("the kill of the worker")
    for rank in region.ranks[1:]:
        region.goes_on("the worker is back", rank)
    check([rank.process.pid for rank in region.ranks[1:]] == pids, "a rank did not live through it")
    print("kill -9 of the worker: its ranks train on with it")


def stop_a_rank(region):
    """A stopped rank answers nothing and its connections stay open: only deadlines reveal it."""
    last, begun = region.ranks[-1], time.monotonic()
    before = region.worker.text().count("rank.lost")
    last.process.send_signal(signal.SIGSTOP)
    until("it is done without", lambda: region.worker.text().count("rank.lost") > before)
    region.goes_on("a rank stands still")
    took = time.monotonic() - begun
    last.process.send_signal(signal.SIGCONT)
    region.together()
    region.goes_on("the rank goes on", last)
    print(f"a rank stands still: the others train on after {took:.1f} s")


def fault(world, node, word):
    """Makes this process's made-up NCCL fail in this way at the next occasion."""
    path = world.path("faults", f"fault-{node.process.pid}")
    with open(path + ".tmp", "w", encoding="utf-8") as out:
        out.write(word)
    os.rename(path + ".tmp", path)
    return lambda: not os.path.exists(path)


def fails(world, region, node, word, why):
    before = region.worker.text().count("region.failed")
    until(f"{node.name} meets {word}", fault(world, node, word))
    until(f"the worker hears of {word}",
          lambda: region.worker.text().count("region.failed") > before)
    # A second failure may follow: a fault of the next communicator.
    first = [line for line in region.worker.text().splitlines() if "region.failed" in line][before]
    check(any(w in first for w in why), f"after {word}: {first}")
    region.together()
    region.goes_on(word)
    region.goes_on(word, region.ranks[1])
    print(f"{word} at {node.name}: {first.partition('region.failed')[2].strip()}")


def fail_on_demand(world, region):
    worker, rank, last = region.worker, region.ranks[1], region.ranks[-1]
    # Or a bucket submitted after the first fails: its communicator is in error by then.
    remote = ["remote process exited", ": made-up NCCL error"]
    fails(world, region, rank, "error", remote)
    if not region.made_up:
        fails(world, region, last, "hang", ["takes longer than"])
        return
    fails(world, region, worker, "call", [": made-up NCCL error"])
    fails(world, region, last, "hang", ["takes longer than"])
    refused = fault(world, last, "init")
    fails(world, region, worker, "error", remote)
    check(refused(), "the next communicator was not refused")
    check(worker.says("region.failed", "unhandled system error"), worker.tail())
    never = fault(world, rank, "never")
    fails(world, region, worker, "error", remote)
    check(never(), "the next communicator was made")
    check(worker.says("region.failed", "making a communicator takes longer"), worker.tail())
    hangs = fault(world, last, "abort")
    before = last.process.pid
    until("the worker meets an error", fault(world, worker, "error"))
    check(last.end(60) != 0 and hangs(), f"{last.name} ended as if it were in order")
    check(last.says("abort hangs; this process ends to be started again"), last.tail())
    region.goes_on("a rank is gone")
    last.start()
    region.together()
    check(last.process.pid != before, "it is another process")
    print("an abort that hangs: the process ends, and comes back")


def check_cuda(region):
    for rank in region.ranks:
        check(rank.says("trainer.cuda", "trains on an emulated device"), rank.tail())
    for rank in region.ranks[1:]:
        check(rank.last("backend") == "cuda", rank.tail())
    check(region.worker.last("training")["backend"] == "cuda", region.worker.tail())


def check_nccl(region):
    device = "a made-up device" if region.made_up else "an emulated device"
    for rank in region.ranks:
        check(rank.says("nccl.open", "NCCL 2.28.9 of", device, "NCCL_SOCKET_IFNAME=lo",
                        "NCCL_RAS_ENABLE=0"), rank.tail())


def check_equal(region):
    mine = region.worker.last("region_ranks")
    check(mine["wire"] == region.worker.settings["ranks.wire"], f"at the end there were {mine}")
    check(mine["members"] == len(region.ranks), f"at the end there were {mine}")
    for rank in region.ranks[1:]:
        check(rank.last("digest") == mine["digest"],
              f"{rank.name} ends with parameters {rank.last('digest')}, the worker {mine}")
    print(f"{len(region.ranks)} ranks end with the same parameters; {json.dumps(mine)}")


def run(world, ranks, more, kills, hosts):
    coordinator = world.coordinator(workers=2).start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in (0, 1)]
    region = Region(world, coordinator, ranks, more, hosts).start()
    other = world.worker("europe", coordinator, **{
        "trainer.tokens_per_s": 3000 if region.made_up else 100}).start()
    region.together()
    for rank in region.ranks[1:]:
        region.goes_on("the start", rank)
    if more["ranks.reduce"] == "nccl":
        check_nccl(region)
        if kills:
            fail_on_demand(world, region)
    if hosts:
        strangers(world, region)
    elif kills:
        kill_a_rank(region)
        if not region.made_up:
            another_setting(region, "trainer.backend", ("cuda", "cpu"))
        else:
            another_setting(region, "ranks.wire", ("fp32", "bf16"))
    if kills:
        kill_the_worker(region)
        stop_a_rank(region)
        check(coordinator.status().get("phase", "running") == "running",
              "the run ended before the last kill: the drill proves nothing")
    if not region.made_up:  # The rest of the data belongs to the other region.
        other.kill()
        other.settings["trainer.tokens_per_s"] = 3000
        other.start()
    for node in [*region.ranks, other]:
        node.must_end(180)
    until("the coordinator knows", lambda: coordinator.status().get("phase") == "ended")
    check_equal(region)
    if not region.made_up:
        check_cuda(region)
    check_replicas(servers, [region.worker, other])
    check_credit(world, coordinator, servers)
    check_weights(world, [region.worker, other])
    if kills:
        check_learned(world, region.worker)
    for node in [coordinator, *servers]:
        node.must_stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--nccl", help="the made-up NCCL, and its devices")
    parser.add_argument("--cuda", help="the plugin of an emulated device, on which ranks train")
    parser.add_argument("--hosts", action="store_true", help="as if each rank had its own")
    parser.add_argument("--wire", default="fp32", help="ranks.wire")
    parser.add_argument("--keep", action="store_true")
    flags = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    more = {"ranks.reduce": "tcp", "ranks.patience_ms": "3 s", "ranks.wire": flags.wire}
    if flags.nccl:
        more.update({"ranks.reduce": "nccl", "LONGHAUL_NCCL_LIB": flags.nccl,
                     "LONGHAUL_CUDA_PLUGIN": flags.nccl})
    if flags.cuda:
        more.update({"trainer.backend": "cuda", "LONGHAUL_CUDA_PLUGIN": flags.cuda,
                     "LONGHAUL_GEMM_PLUGIN": flags.cuda, "trainer.batch": 1,
                     "trainer.accumulate": flags.ranks})
    units = 100 if flags.cuda else 600 if flags.hosts else 480
    if flags.nccl and not flags.cuda:
        units = 800 if flags.ranks > 2 else 200
    with World(flags.build, units=units, keep=flags.keep) as world:
        os.mkdir(world.path("faults"))
        os.environ["LH_FAKE_NCCL_FAULTS"] = world.path("faults")
        run(world, flags.ranks, more, flags.ranks > 2, flags.hosts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
