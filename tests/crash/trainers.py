#!/usr/bin/env python3
"""Python training loops, and the workers beside them, are killed and stopped:
`trainers.py --build build/release --cycles 40`.

Coordinator, two shard servers and three workers of `trainer.kind: external` on loopback, a loop of
PyTorch beside each worker (trainer_loop.py) that trains leased units in fixed point. A cycle
inflicts a fault of kill.py on a loop, worker or server, at a random moment, while it starts or
later: kill -9, or SIGSTOP for 0.2 to 20 s. Sometimes a worker and its loop are killed at once.

Every --per-run cycles the run is let to its end. Then history.py judges the servers' and workers'
logs: nothing acknowledged is lost or applied twice, every unit is credited once, all replicas are
equal. mass.c compares log and residuals with the contribution of the credited tokens, bit for bit;
each loop must end by itself, with the run's final parameters.

Exit status 1 at the first violation; the run's folder is kept.
"""
import json
import os
import random
import select
import signal
import subprocess
import sys
import time

import kill
import power
from cluster import ROOT, SHARDS, Cluster, Sums, add_flags, check, flags_of, until, verdict
from exact import Exact
from faults import Faulty
from report import Report
from world import Node

BOTH = 0.4  # how often a killed worker's loop is killed with it


class Forks:
    """The process that forks loops."""

    def __init__(self, build, python):
        package = os.path.join(ROOT, "worker", "python")
        library = os.path.join(os.path.abspath(build), "worker", "client", "liblonghaul.so.1")
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen(
            [python, os.path.join(ROOT, "tests", "crash", "trainer_loop.py")],
            env={**os.environ, "PYTHONPATH": package, "LONGHAUL_LIBRARY": library,
                 "OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what):
        """Sends one line; gives the number in its answer."""
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        check(answer, f"{self.process.args[0]} forks no loop: does it have torch and numpy?")
        return int(answer)

    def close(self):
        """Ends the process, and its loops with it."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Forked:
    """One process of a loop, with the methods of subprocess.Popen that Node and faults.py call."""

    def __init__(self, forks, given):
        self.forks, self.stdout, self.returncode = forks, open(os.devnull, "rb"), None
        self.pid = forks.ask({"start": given})
        self.fd = os.pidfd_open(self.pid)

    def __del__(self):
        os.close(self.fd)

    def wait(self, timeout=None):
        """Its exit status; negative: a signal's number."""
        if self.returncode is None:
            if not select.select([self.fd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a loop", timeout)
            self.returncode = self.forks.ask({"wait": self.pid})
        return self.returncode

    def poll(self):
        """The exit status, or None if it is alive."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number):
        """Uses the pidfd, which cannot name another process if the pid was reused."""
        try:
            signal.pidfd_send_signal(self.fd, number)
        except ProcessLookupError:
            pass


class Loop(Node):
    """The loop beside a worker, over its restarts."""

    def __init__(self, cluster, worker, speed):
        world = cluster.world
        super().__init__(world, "trainer", worker.region, worker.name + ".trainer", {})
        self.cluster, self.worker, self.lives = cluster, worker, 0
        self.out = world.path(self.name + ".final")
        self.given = {
            "manifest": world.path("model.json"), "units": world.path("data", "units.json"),
            "fast": world.path("fast"), "speed": speed, "out": self.out, "log": self.log, "env": {
                "LONGHAUL_SOCKET": os.path.join(worker.dir, "trainer.sock"),
                "LONGHAUL_MANIFEST": world.path("model.json")}}

    def start(self, *_):
        self.process = Forked(self.cluster.forks, self.given)
        self.lives += 1
        return self


class Trained(Exact, Faulty):
    """A cluster whose workers' trainers are Python loops."""

    ROLES = ("server", "worker", "trainer")
    WORKER = Exact.WORKER | {"trainer.kind": "external"}
    PROGRAM = None

    def __init__(self, given, draw, units):
        Faulty.__init__(self, given.build, units, given.keep, SHARDS, 1, False)
        self.write_base()
        self.draw, self.trainers, self.both = draw, [], 0
        self.forks = Forks(given.build, given.python)

    def start(self, speed, checkpoint_every=40):
        super().start(speed, checkpoint_every)
        self.trainers = [Loop(self, worker, speed).start() for worker in self.workers]
        return self

    def kept_name(self, path):
        return os.path.basename(path)  # no disk fills up here, so no number is used twice

    def records(self):
        return Cluster.records(self)

    def nodes(self):
        return [*super().nodes(), *self.trainers]

    def up(self, node):
        if node.kind != "trainer":
            super().up(node)

    def kill(self, node):
        """Sometimes kills loop and worker at once: neither finds the other when it restarts."""
        for loop in self.trainers:
            if loop.worker is node and loop.alive() and self.draw.random() < BOTH:
                self.both += 1
                self.faults.end(("stop", loop.name))
                loop.process.send_signal(signal.SIGKILL)
                super().kill(node)
                super().kill(loop)
                return
        super().kill(node)

    def finish(self, patience=240):
        """Waits until workers and loops end by themselves."""
        with open(self.world.path("fast"), "wb"):
            pass
        for node in [*self.trainers, *self.workers]:
            until(f"{node.name} ends", lambda n=node: (self.keep_segments(), not n.alive())[1],
                  patience)
            check(node.process.returncode == 0,
                  f"{node.name} ended with {node.process.returncode}:\n{node.tail()}")
        until("the coordinator knows", lambda: self.coordinator.status().get("phase") == "ended")
        for loop in self.trainers:
            with open(os.path.join(loop.worker.dir, "final.weights"), "rb") as file:
                run = file.read()
            with open(loop.out, "rb") as file:
                check(file.read() == run, f"{loop.name} ends with other parameters than the run")
        return self

    def noticed(self):
        return {}  # no disk fills up

    def more_figures(self):
        found = {"lives_trainer": sum(loop.lives for loop in self.trainers),
                 "killed_both": self.both}
        for shard in range(SHARDS):
            for key, value in self.mass(shard).items():
                found[key] = found.get(key, 0) + value
        return found

    def release(self, keep):
        super().release(keep)
        self.forks.close()


def one_run(given, draw, cycles, sums):
    cluster = Trained(given, draw, given.units_per_cycle * cycles + 60)
    with cluster.world:
        try:
            return kill.judged_run(given, draw, cluster, cycles, sums)
        finally:
            cluster.release(given.keep)


def campaign(given):
    draw, sums, left = random.Random(given.seed), Sums(), given.cycles
    report = Report("campaign-python", given.json, given.join)
    report.call(f"--seed {given.seed} --cycles {given.cycles}")
    seconds = time.monotonic()
    while left > 0:
        left -= one_run(given, draw, min(left, given.per_run), sums)[0]
    report.condition("faults", "of a random loop, worker or server, at a random moment: kill -9, "
                     "or SIGSTOP for 0.2 to 20 s")
    report.condition("cores", os.cpu_count())
    report.count("python.cycles", given.cycles - left)
    report.count("python.kills", sum(n for key, n in sums.of.items() if key.startswith("killed_")))
    sums.rows(report, "python")
    report.count("python.seconds", time.monotonic() - seconds, "s")
    report.finish()


def main():
    flags = flags_of(__doc__)
    flags.add_argument("--python", default=os.path.join(ROOT, ".venv", "bin", "python"),
                       help="has torch and numpy (tests/run.sh --stage oracle makes it)")
    flags.add_argument("--cycles", type=int, default=40)
    flags.add_argument("--per-run", type=int, default=100)
    flags.add_argument("--units-per-cycle", type=int, default=12)
    flags.add_argument("--speed", type=int, default=1500, help="tokens a second of each loop")
    add_flags(flags, "chooses victims and moments")
    given = flags.parse_args()
    given.faults = ["kill", "stop"]  # half of the cycles each
    if power.can_isolate():
        power.isolated()  # nothing that is stopped outlives this program
    return verdict(lambda: campaign(given))


if __name__ == "__main__":
    sys.exit(main())
