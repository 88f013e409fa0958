#!/usr/bin/env python3
"""What does a synchronisation cost a PyTorch loop? `bench/run.sh frontdoor [--json FILE]`.

The same loop in each region on emulated links, once for each arm (bench/frontdoor): longhaul with
real servers and workers, and its peers, which are installed into .venv-peers. A figure is of one
region and a window of h steps, in which everything is synchronised once. An arm that can't run here
is left out, and the conditions give the reason; longhaul, plain DiLoCo and the loop alone have to
run. `--size 100m,300m` measures these sizes: three regions of 100 M parameters beside plain DiLoCo,
then one of 300 M, with modelled steps; if memory does not suffice the bench refuses before it
starts. Needs root and /dev/net/tun, unless --loopback: then longhaul's bytes are those that the
worker reports, and the peers have none.
"""
import argparse
import contextlib
import ctypes
import json
import os
import queue
import shutil
import signal
import statistics
import subprocess
import sys
import threading
from dataclasses import dataclass, replace

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [HERE, os.path.join(HERE, "drill"), os.path.join(ROOT, "tests", "e2e")]
import report  # noqa: E402
from links import Links  # noqa: E402
from loopback import check_replicas  # noqa: E402
from world import Failure, World, check, until  # noqa: E402

ARMS = ("alone", "longhaul", "gloo", "torchft", "torchft-streaming", "hivemind")
MUST = ("alone", "longhaul", "gloo")
MODULE = {"torchft": "torchft", "torchft-streaming": "torchft", "hivemind": "hivemind"}
REGIONS = ("asia", "europe", "america", "africa")  # all but the last of regions.world, with a hub
TOKENS, UNIT_TOKENS = 32, 1024  # of a step; of a unit: they only give the budget
PATIENCE_S = 600
PEER = "plain DiLoCo over gloo"
COPY = "memcpy of the parameters, on one thread too"


@dataclass
class Size:
    """The conditions of measuring a size."""

    name: str
    regions: int
    arms: tuple
    gib: int  # free memory that all processes of its largest arm need
    modelled: bool  # nothing is computed: processors are as idle as beside a GPU

    @property
    def prefix(self):
        """The prefix of its rows; 15m has none."""
        return f"frontdoor.{self.name}" if self.modelled else "frontdoor"

    def condition(self, name):
        """The name of one of its conditions."""
        return f"{self.name}.{name}" if self.modelled else name


# A region's bytes a parameter: 8 in a modelled loop, 24 in one with AdamW and a copy, 38 in its
# worker while it joins (worker/README.md#memory); 12 in the servers (server/README.md).
SIZES = {size.name: size for size in (
    Size("300m", 1, ("alone", "longhaul"), 19, True),
    Size("100m", 3, ("alone", "gloo", "longhaul"), 18, True),
    Size("15m", 2, ARMS, 4, False),
    Size("tiny", 2, ARMS, 2, False))}


# ---------------------------------------------------------------- places

class Loopback:
    """No links: everything is on this host."""

    interface = "lo"

    def enter(self, _region):
        """The prefix of a command."""
        return []

    def address(self, _region, _port):
        """None: a free port."""
        return None

    def host(self, _region):
        """The address of a region."""
        return "127.0.0.1"

    def sent(self):
        """No links, no counters."""
        return None

    def close(self):
        """Nothing to release."""


class Emulated(Links):
    """The links of regions.world."""

    interface = "wan0"

    def __init__(self, build):
        super().__init__(build, os.path.join(HERE, "frontdoor", "regions.world"),
                         f"frontdoor-{os.getpid()}")

    def host(self, region):
        """The address of a region."""
        return self.address(region, 0).partition(":")[0]

    def sent(self):
        """Bytes that the first region sent and received so far."""
        rows = [json.loads(line) for line in self.tell("stats", "-j").splitlines()]
        near = REGIONS[0]
        return (sum(r["offered_bytes"] for r in rows if r["from"] == near),
                sum(r["delivered_bytes"] for r in rows if r["to"] == near))


# ---------------------------------------------------------------- loops

def die_with_parent():
    """In the child: is killed when the bench ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Loop:
    """One region's process; a thread reads its lines."""

    def __init__(self, bench, region, *words, log, env=None):
        self.name, self.log = f"{words[0]} in {region}", log
        self.lines = queue.Queue()
        self.windows, self.moved, self.proof, self.parameters = [], [], None, 0
        self.loss = None  # held-out loss at the end, of a model that learns
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                [*bench.links.enter(region), bench.python,
                 os.path.join(HERE, "frontdoor", "loop.py"), *words, "--address",
                 bench.links.host(region), "--hub", bench.links.host("hub"), "--first",
                 bench.links.host(REGIONS[0])],
                env={**bench.env, **(env or {})}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True, process_group=0, preexec_fn=die_with_parent)
        self.count = bench.links.sent if region == REGIONS[0] else lambda: None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put((line, self.count() if '"window"' in line else None))
        self.lines.put(("", None))

    def line(self):
        """The next line, and the bytes that the region had sent by then."""
        try:
            line, moved = self.lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise Failure(f"{self.name} has said nothing for {PATIENCE_S} s") from None
        check(line, f"{self.name} ended:\n{self.tail()}")
        return line, moved

    def until_windows(self, count):
        """Waits until this many windows are trained."""
        while len(self.windows) < count:
            self.take(*self.line())

    def until_proof(self):
        """Waits until the loop is over."""
        while self.proof is None:
            self.take(*self.line())

    def take(self, line, moved):
        """A window, or the proof."""
        if line.startswith('{"window"'):
            self.windows.append(json.loads(line))
            self.moved.append(moved)
        if line.startswith('{"proof"'):
            said = json.loads(line)
            self.proof, self.parameters = said["proof"], said["parameters"]
            self.loss = said.get("loss")

    def leave(self):
        """Ends the loop when it is no longer needed."""
        self.process.stdin.close()
        check(self.process.wait(60) == 0, f"{self.name} ended with {self.process.returncode}:\n"
              f"{self.tail()}")

    def end(self):
        """Kills the loop and its children, however the bench ends."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def tail(self):
        """The last lines of its errors."""
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()[-2000:]


class Bench:
    """Shared by all arms of a size: places, the interpreter."""

    servers = ("hub", "hub")  # the place of each shard's server
    settings = {}  # settings of a worker, besides those of longhaul()
    pushes = 1  # least exchanges in a window
    flags_of_loops = ()  # besides those of loop()
    before_workers = ()  # words before a worker's program

    def __init__(self, flags, size, links, folder):
        self.flags, self.size, self.links, self.folder = flags, size, links, folder
        self.regions = REGIONS[:size.regions]
        self.build = os.path.abspath(flags.build)
        self.python = os.path.abspath(flags.python or os.path.join(ROOT, ".venv-peers", "bin",
                                                                   "python"))
        self.env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": links.interface,
                    "PYTHONPATH": os.path.join(ROOT, "worker", "python"),
                    "LONGHAUL_LIBRARY": os.path.join(self.build, "worker", "client",
                                                     "liblonghaul.so.1")}
        self.loops = []

    def loop(self, region, arm, *words, env=None):
        """Starts a process of loop.py."""
        log = os.path.join(self.folder, f"{self.size.name}-{arm}-{region}.log")
        flags = self.flags
        rank = REGIONS.index(region) if region in REGIONS else 0
        self.loops.append(Loop(
            self, region, arm, "--rank", str(rank), "--size", self.size.name, "--h", str(flags.h),
            "--regions", str(self.size.regions), "--step-ms", str(flags.step_ms), "--delay",
            str(flags.delay), *(["--modelled"] if self.size.modelled else []), *self.flags_of_loops,
            *words, log=log, env=env))
        return self.loops[-1]

    def ended(self, workers):
        """Called when longhaul's workers have ended; their last status is still there."""

    def end(self):
        """Ends every process of the arm."""
        for loop in self.loops:
            loop.end()
        self.loops = []


# ---------------------------------------------------------------- arms

def peers(bench, arm):
    """The regions' loops of an arm without servers, and a lighthouse if it needs one."""
    windows = ["--windows", str(bench.flags.windows + 1)]
    if MODULE.get(arm) == "torchft":
        bench.loop("hub", "lighthouse").line()
    first = bench.loop(REGIONS[0], arm, *windows)
    known = []
    if arm == "hivemind":
        line, _ = first.line()
        known = ["--peers", *line.split()[1:]]
    loops = [first, *(bench.loop(region, arm, *windows, *known) for region in bench.regions[1:])]
    for loop in loops:
        loop.until_windows(bench.flags.windows + 1)
        loop.until_proof()
    proofs = [loop.proof for loop in loops]
    check(all(proof == proofs[0] for proof in proofs), f"the regions of {arm} differ: {proofs}")
    synced = proofs[0].get("synced")
    parts = 2 if arm == "torchft-streaming" else 1
    check(arm == "alone" or synced >= bench.pushes * parts * (bench.flags.windows + 1),
          f"{arm} synchronised {synced} times in {bench.flags.windows + 1} windows")
    for loop in loops:
        loop.leave()
    return loops


def longhaul(bench):
    """A coordinator in the hub, a server for each shard, a worker and a loop in each region."""
    tokens = TOKENS * len(bench.regions) * bench.flags.h * (bench.flags.windows + 1)
    with World(bench.build, run="frontdoor", units=3 + 3 * tokens // UNIT_TOKENS,
               unit_tokens=UNIT_TOKENS) as world:
        subprocess.run([bench.python, os.path.join(HERE, "frontdoor", "loop.py"), "longhaul",
                        "--size", bench.size.name, "--initial", world.path("begin"), "--shards",
                        str(len(bench.servers)), *bench.flags_of_loops], check=True, env=bench.env)
        for name in ("model.json", "weights.bin"):
            os.replace(world.path("begin", name), world.path(name))
        return with_servers(bench, world)


def placed(bench, node, region, port):
    """A node that is started in a region."""
    node.before, node.address = bench.links.enter(region), bench.links.address(region, port)
    if node.kind == "worker":
        node.before = [*node.before, *bench.before_workers]
    return node


def with_servers(bench, world):
    slow = {"coordinator.worker_timeout_s": "60 s"} if bench.size.modelled else {}  # GBs to fill
    coordinator = placed(bench, world.coordinator(len(bench.regions), **{
        "coordinator.h_base": bench.flags.h, "coordinator.data": "own", **slow}), "hub", 7700)
    coordinator.start().listening()
    servers = [placed(bench, world.server(i, coordinator), place, 7701 + i).start().listening()
               for i, place in enumerate(bench.servers)]
    workers, loops = [], []
    for region in bench.regions:
        node = placed(bench, world.worker(region, coordinator, **{
            "trainer.kind": "external", "codec.density": 0.015625, **bench.settings}), region, 0)
        workers.append(node.start())
    for region, node in zip(bench.regions, workers):
        loops.append(bench.loop(region, "longhaul", env={
            "LONGHAUL_SOCKET": os.path.join(node.dir, "trainer.sock"),
            "LONGHAUL_MANIFEST": world.path("model.json")}))
    for loop in loops:
        loop.until_windows(bench.flags.windows + 1)
    drain = [*bench.links.enter("hub"), world.program("longhaul"), "drain", "run", "--end",
             *world.admin(coordinator)]
    done = subprocess.run(drain, capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"longhaul drain run --end: {done.stderr}")
    for loop in loops:
        loop.until_proof()
    for node in workers:
        check(node.end(PATIENCE_S) == 0, f"{node.name} ended with {node.process.returncode}")
    until("the coordinator knows", lambda: coordinator.status().get("phase") == "ended",
          PATIENCE_S)
    check_replicas(servers, workers, len(servers))
    check(all(loop.proof == loops[0].proof for loop in loops),
          "the loops end with different parameters")
    for node in workers:
        rounds = node.last("rounds")
        check(rounds >= bench.pushes * bench.flags.windows, f"{node.name} pushed {rounds} times")
    bench.ended(workers)
    for loop in loops:
        loop.leave()
    if loops[0].moved[0] is None:
        loops[0].moved = status_bytes(workers[0], bench.flags.windows + 1)
    for node in [coordinator, *servers]:
        check(node.ask_to_end() == 0, f"{node.name} ended with {node.process.returncode}")
    return loops


def status_bytes(worker, windows):
    """Without links: the payload that the worker reported, divided evenly over the windows."""
    up, down = worker.last("payload_up_bytes"), worker.last("payload_down_bytes")
    return [(up * i / windows, down * i / windows) for i in range(windows)]


# ---------------------------------------------------------------- figures

def differences(moved):
    """Bytes that each window but the first sent, and received."""
    return list(zip(*((b[0] - a[0], b[1] - a[1]) for a, b in zip(moved, moved[1:]))))


class Figures:
    """Rows of one size, compared with plain DiLoCo in the same run."""

    def __init__(self, out, flags, size):
        self.out, self.flags, self.size, self.alone, self.peer = out, flags, size, 0.0, {}

    def row(self, arm, name, unit, samples):
        """Compares with the peer's median, except for the peer itself."""
        against = self.peer.get(name, 0.0) if arm != "gloo" else 0.0
        self.out.row(f"{self.size.prefix}.{arm}.{name}", unit, samples, PEER, against)

    def take(self, arm, loops):
        """Adds the windows of all regions, without the first."""
        windows = [w for loop in loops for w in loop.windows[1:self.flags.windows + 1]]
        seconds = [window["seconds"] for window in windows]
        late = sum(window["late"] for window in windows)
        if late:
            self.out.condition(self.size.condition(f"{arm}.late_steps"), late)
        if arm == "alone":
            self.alone = statistics.median(seconds)
            self.out.condition(self.size.condition("parameters"), loops[0].parameters)
            self.out.row(f"{self.size.prefix}.alone.window_s", "s", seconds)
            return
        lost = [s - self.alone for s in seconds]
        moved = loops[0].moved[:self.flags.windows + 1]
        both = differences(moved) if moved[0] is not None else []
        if arm == "gloo":
            self.peer = {"lost_s": statistics.median(lost)}
            self.peer |= {"sent_bytes": statistics.median(both[0])} if both else {}
        self.row(arm, "lost_s", "s", lost)
        self.out.row(f"{self.size.prefix}.{arm}.share_percent", "%",
                     [100 * s / self.alone for s in lost])
        if both:
            self.row(arm, "sent_bytes", "B", both[0])
            self.out.row(f"{self.size.prefix}.{arm}.received_bytes", "B", both[1])
        self.copies(arm, windows)

    def copies(self, arm, windows):
        """The time of all cuts, and of all renewals, in a window, beside a memcpy in it."""
        if "memcpy_s" not in windows[0]:
            return
        beside = [1e3 * w["memcpy_s"] for w in windows]
        for what in ("cut", "renew"):
            self.out.row(f"{self.size.prefix}.{arm}.{what}_ms", "ms",
                         [1e3 * w[f"{what}_s"] for w in windows], COPY, beside)


def install(bench, flags):
    """Installs the peers' packages: arm -> the reason why it can't run."""
    if not flags.python and not os.path.exists(bench.python):
        subprocess.run([sys.executable, "-m", "venv", os.path.dirname(os.path.dirname(
            bench.python))], check=True)
    with open(os.path.join(HERE, "frontdoor", "requirements.txt"), encoding="utf-8") as file:
        wanted = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    missing = {}
    for requirement in sorted(wanted, key=lambda line: line.split("=")[0] in MODULE.values()):
        module = requirement.partition("=")[0].partition(">")[0]
        why = bring(bench, flags, module, requirement)
        missing |= {arm: why for arm in ARMS if why and MODULE.get(arm) == module}
        check(not why or module in MODULE.values(), why)
    return missing


def bring(bench, flags, module, requirement):
    """Installs one package; gives the reason why it failed, or ''."""
    there = [bench.python, "-c", f"import {module}"]
    if subprocess.run(there, capture_output=True, check=False).returncode == 0:
        return ""
    if flags.python:
        return f"{flags.python} has no {module}"
    done = subprocess.run([bench.python, "-m", "pip", "install", "-q", requirement],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        return f"pip can't install {requirement}: {done.stderr.strip()[-300:]}"
    done = subprocess.run(there, capture_output=True, text=True, check=False)
    return f"{requirement} is not importable: {done.stderr.strip()[-300:]}" if done.returncode \
        else ""


def measure(bench, out, missing):
    """Runs every requested arm; the loop alone and plain DiLoCo come first, because the others are
    compared with them."""
    wanted = bench.flags.arms.split(",") if bench.flags.arms else bench.size.arms
    asked = [arm for arm in ("alone", "gloo", *ARMS) if arm in wanted]
    figures = Figures(out, bench.flags, bench.size)
    for arm in dict.fromkeys(asked):
        why = missing.get(arm)
        try:
            if not why:
                figures.take(arm, longhaul(bench) if arm == "longhaul" else peers(bench, arm))
        except Failure as failure:
            why = str(failure)
        finally:
            bench.end()
        if why:
            check(arm not in MUST, f"{arm}: {why}")
            said = f"not measured: {' '.join(why.split())[-400:]}"
            out.condition(bench.size.condition(arm), said)
            print(f"{arm}: {said}", flush=True)


def free_gib():
    """Memory that processes could take now."""
    with open("/proc/meminfo", encoding="ascii") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    return kib / 2**20


def sizes_of(flags):
    """The requested sizes; refused before anything starts if memory does not suffice."""
    sizes = []
    for name in flags.size.split(","):
        if name not in SIZES:
            raise Failure(f"--size {name}: there are {', '.join(SIZES)}")
        size = SIZES[name]
        regions = flags.regions or size.regions
        gib = max(size.gib, size.gib * regions // size.regions)  # a loop and a worker in each
        if free_gib() < gib:
            raise Failure(f"--size {name} needs {gib} GiB of free memory, and there are "
                          f"{free_gib():.1f}: end what takes it, or leave the size out")
        sizes.append(replace(size, regions=regions, modelled=flags.modelled or size.modelled))
    return sizes


def describe(out, size, flags):
    """Conditions of one size."""
    regions = ("one region", "two regions", "three regions")[size.regions - 1]
    steps = "modelled steps, which move a part of the parameters by noise" if size.modelled \
        else "AdamW"
    out.condition(size.condition("loop"), f"steps of {flags.step_ms:g} ms, h = {flags.h}, one "
                  f"thread, {regions} of one process each, {steps}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json")
    parser.add_argument("--arms", help=f"these alone, with commas, of {','.join(ARMS)}")
    parser.add_argument("--size", default="15m", help=f"with commas, of {', '.join(SIZES)}")
    parser.add_argument("--regions", type=int, choices=(1, 2, 3), help="other than the size's")
    parser.add_argument("--modelled", action="store_true", help="nothing is computed, as with the "
                        "large sizes")
    parser.add_argument("--h", type=int, default=30, help="steps between two synchronisations")
    parser.add_argument("--step-ms", type=float, default=400, help="the modelled step")
    parser.add_argument("--delay", type=int, default=5, help="streaming's steps of overlap")
    parser.add_argument("--windows", type=int, default=5, help="that are counted")
    parser.add_argument("--python", help="in place of .venv-peers; nothing is installed then")
    parser.add_argument("--loopback", action="store_true", help="no emulated links")
    parser.add_argument("--keep", help="a folder for the loops' logs")
    flags = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        run(flags, sizes_of(flags))
    except Failure as failure:
        raise SystemExit(f"frontdoor: {failure}") from None


def run(flags, sizes):
    """All sizes, on the same links."""
    out = report.Report("frontdoor", flags.json)
    folder = flags.keep or os.path.join(ROOT, "run", f"frontdoor-{os.getpid()}")
    os.makedirs(folder, exist_ok=True)
    links = Loopback() if flags.loopback else Emulated(flags.build)
    benches = [Bench(flags, size, links, folder) for size in sizes]
    try:
        out.condition("links", "loopback" if flags.loopback else "150 ms, 100 Mbit/s between each "
                      "two of the regions and a hub, no loss")
        out.condition("longhaul", "codec.density 0.015625, other settings the defaults; "
                      "coordinator and two shard servers in the hub")
        if not all(size.modelled for size in sizes):
            out.condition("torchft", "use_bucketization, which is faster here than its default")
            out.condition("torchft-streaming", f"so too, two fragments, fragment_sync_delay "
                          f"{flags.delay}")
            out.condition("hivemind", "DecentralizedAverager, target_group_size of all regions")
        missing = install(benches[0], flags)
        for bench in benches:
            describe(out, bench.size, flags)
            measure(bench, out, missing)
    finally:
        for bench in benches:
            bench.end()
        links.close()
        if not flags.keep:
            shutil.rmtree(folder)
    out.finish()


if __name__ == "__main__":
    main()
