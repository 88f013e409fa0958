"""One arm of bench/failures.py at one rate: `cell.py JSON`, in namespaces of its own.

Starts the arm's processes, kills them by the schedule, and restarts each ended one 0.2 s later, as
`longhaul up` does. The last line on stdout is the result. It is the first process of its namespace:
its children end with it.
"""
import contextlib
import ctypes
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial

import loops

sys.path.insert(0, os.path.join(loops.ROOT, "tests", "e2e"))
from world import Failure, World, check, until  # noqa: E402

AGAIN_S, LOOK_S, SAMPLE_S = 0.2, 0.02, 0.5
SAVE_S = 0.03  # approximate cost of a checkpoint, for the best interval
REGIONS = ("asia", "europe", "america", "africa")


def fork(name, function, given, env=None):
    """Starts a loop, with PyTorch imported already: its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # is killed with the forking process
        log = os.path.join(given["folder"], f"{name}.log")
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 1)
        os.dup2(1, 2)
        os.environ.update(env or {})
        function(given)
        os._exit(0)
    except BaseException:  # pylint: disable=broad-exception-caught
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def program(node):
    """Starts a node of tests/e2e/world.py: its process id."""
    if node.process:
        node.process.returncode = 0  # the supervisor waited for it
        node.process.stdout.close()
    return node.start().process.pid


class Arm:
    """Processes that are killed, and their surviving work. `starters`: for each name the function
    that starts its process and gives the process id."""

    together = False  # the end of one ends all

    def __init__(self, given, function, env=lambda region: None, **more):
        loops.begin(given | {"start_s": 0})  # imports the modules of forked loops beforehand
        self.done = [os.path.join(given["folder"], f"done-{r}") for r in range(len(REGIONS))]
        self.starters = {}
        for rank, region in enumerate(REGIONS):
            name = f"{region}-loop"
            self.starters[name] = partial(fork, name, function, {
                **given, "rank": rank, "regions": len(REGIONS), "done": self.done[rank], **more},
                env(region))

    def steps(self):
        """The surviving steps according to the loops."""
        found = [0]
        for path in filter(os.path.exists, self.done):
            with open(path, "rb") as file:
                found.append(int(file.read()))
        return max(found)

    def end(self, _watch):
        """Called after the last sample."""


class Torchft(Arm):
    """Four replicas and the lighthouse."""

    def __init__(self, given):
        import torchft.local_sgd  # pylint: disable=import-outside-toplevel,unused-import

        super().__init__(given, loops.torchft)
        self.starters["lighthouse"] = partial(fork, "lighthouse", loops.lighthouse, given)


class Checkpoint(Arm):
    """Four ranks; a checkpoint every few windows, by the usual rule (sqrt(2 cost x time between
    failures)); the end of one rank ends all, as torchrun does it."""

    together = True

    def __init__(self, given):
        best = math.sqrt(2 * SAVE_S * (given["every_s"] or 300)) / (given["h"] * given["step_s"])
        super().__init__(given, loops.checkpoint, save_steps=given["h"] * max(1, round(best)))


class Longhaul(Arm):
    """A coordinator, two servers, a worker and a loop in each region; the other settings are the
    defaults."""

    def __init__(self, given):
        os.environ["LONGHAUL_LIBRARY"] = os.path.join(
            given["build"], "worker", "client", "liblonghaul.so.1")
        import longhaul  # pylint: disable=import-outside-toplevel

        world = self.world = World(given["build"], run="failures", units=3)
        super().__init__(given, loops.longhaul, lambda region: {
            "LONGHAUL_SOCKET": world.path(f"{region}-0", "trainer.sock"),
            "LONGHAUL_MANIFEST": world.path("model.json")})
        longhaul.save_initial(loops.models.make("bytes"), world.path("begin"), shards=2)
        for name in ("model.json", "weights.bin"):
            os.replace(world.path("begin", name), world.path(name))
        self.coordinator = world.coordinator(len(REGIONS), **{
            "coordinator.h_base": given["h"], "coordinator.data": "own",
            "run.budget_tokens": 10**12})
        self.coordinator.address = "127.0.0.1:7700"
        self.servers = [world.server(i, self.coordinator) for i in range(2)]
        for i, server in enumerate(self.servers):
            server.address = f"127.0.0.1:{7701 + i}"
            del server.settings["checkpoint.every_versions"]
        del self.coordinator.settings["coordinator.worker_timeout_s"]
        self.workers = [world.worker(region, self.coordinator, **{
            "trainer.kind": "external", "codec.density": 0.075}) for region in REGIONS]
        self.starters |= {node.name: partial(program, node) for node in world.nodes}
        self.credited = {}

    def steps(self):
        """The credited tokens: the lowest of all shards' servers."""
        for server in filter(lambda node: os.path.exists(node.dir + "/status.json"), self.servers):
            for shard in server.last("shards"):
                self.credited[shard["shard"]] = shard["tokens"] // loops.TOKENS
        return min(self.credited.values()) if len(self.credited) == 2 else 0

    def end(self, watch):
        """Ends the run in order, and checks that all workers hold the same parameters."""
        self.world.tool("drain", "run", "--end", *self.world.admin(self.coordinator))
        until("all workers are done", lambda: (watch(), all(
            node.last("state") == "done" for node in self.workers))[1])
        held = {json.dumps(node.last_holdings()) for node in self.workers}
        check(len(held) == 1, f"the workers end with different parameters: {held}")


ARMS = {"longhaul": Longhaul, "torchft": Torchft, "checkpoint": Checkpoint}


class Supervisor:
    """Keeps the processes of an arm alive."""

    def __init__(self, arm):
        self.arm, self.due, self.failed, self.ending = arm, {}, 0, False
        self.alive = {start(): name for name, start in arm.starters.items()}

    def look(self):
        """Restarts ended processes when it is time. `failed`: ends that were not kills."""
        now = time.monotonic()
        while self.alive and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            name, status = self.alive.pop(ended[0], None), ended[1]
            if not name or self.ending and not status:
                continue
            self.failed += status != signal.SIGKILL
            self.due[name] = now + AGAIN_S
            for other in self.alive if self.arm.together else ():
                os.kill(other, signal.SIGKILL)
        if self.arm.together and (self.alive or max(self.due.values(), default=now) > now):
            return  # all restart at once
        for name in [name for name, when in self.due.items() if now >= when]:
            del self.due[name]
            self.alive[self.arm.starters[name]()] = name

    def kill(self, name):
        """False: the process does not live now."""
        for pid in [pid for pid, alive in self.alive.items() if alive == name]:
            os.kill(pid, signal.SIGKILL)
            return True
        return False


def schedule(given, names):
    """(second, name): one kill in each interval, at a random moment; each process equally often."""
    draw, left = random.Random(given["seed"]), []
    for k in range(int(given["seconds"] / given["every_s"]) if given["every_s"] else 0):
        left = left or draw.sample(names, len(names))
        yield (k + draw.random()) * given["every_s"], left.pop()


def play(given):
    """The line of one cell."""
    arm = ARMS[given["arm"]](given)
    under = Supervisor(arm)
    enough = 5 * given["h"] * len(REGIONS)
    until("steps survive", lambda: (under.look(), arm.steps() > enough)[1])
    begun, under.failed = time.monotonic(), 0
    kills = list(schedule(given, sorted(arm.starters)))
    found = {"kills": [], "samples": [], "load": [os.getloadavg()[0]]}
    while (now := time.monotonic() - begun) < given["seconds"]:
        under.look()
        if kills and now >= kills[0][0] and under.kill(kills[0][1]):
            found["kills"].append([round(now, 3), kills.pop(0)[1]])
        if now >= SAMPLE_S * len(found["samples"]):
            found["samples"].append([round(now, 3), arm.steps()])
        time.sleep(LOOK_S)
    found["load"].append(os.getloadavg()[0])
    found["failed"], under.ending = under.failed, True
    try:
        arm.end(under.look)
    except Failure as failure:
        found["bad_end"] = str(failure)[-600:]
    return found


def end_all():
    """Ends everything else in this namespace."""
    os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.wait():
            pass


def main():
    given = json.loads(sys.argv[1])
    assert os.getpid() == 1, "bench/failures.py starts it in namespaces of its own"
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory(prefix="longhaul-failures-") as folder:
        tempfile.tempdir = folder  # of the run, too
        try:
            print(json.dumps(play(given | {"folder": folder})), flush=True)
        finally:
            end_all()


if __name__ == "__main__":
    main()
