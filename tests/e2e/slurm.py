#!/usr/bin/env python3
"""A region under Slurm: `longhaul render slurm`, then Debian's slurmctld and slurmd on loopback.

One region's rendered job runs under Slurm, another region's worker outside of it. The batch script
gets the SIGTERM that Slurm sends before a job's time is over: the worker saves its state and ends,
its leases go to others, and the job is requeued. Slurm starts it once more, it goes on where it
was, and the run ends with every unit credited once. A cancelled job is not requeued. All daemons
run from a folder of the test, which is removed.
"""
import argparse
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time

from loopback import check_credit, check_replicas, steps
from world import DENSITY, Failure, Node, World, check, free_ports, until

SPEED = {"asia": 3000, "europe": 400}  # tokens/s: europe alone takes longer than asia's absence
AWAY_S = 12  # Slurm's delay before it restarts a job; above the coordinator's worker_timeout_s
TOPOLOGY = """run: e2e
budget_tokens: {budget}
model: {{import: {dir}, context: 64}}
coordinator: {{region: europe}}
servers: [{{name: s0, region: europe, shards: [0, 1]}}]
regions: {{asia: , europe: }}
worker:
  codec: {{density: {density}}}
  trainer: {{batch: 4, learning_rate: 0.003, tokens_per_s: {speed}}}
"""
CONF = """ClusterName=longhaul
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={d}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket,cred_expire={away}
StateSaveLocation={dir}/ctld
SlurmdSpoolDir={dir}/d
SlurmctldPidFile={dir}/ctld.pid
SlurmdPidFile={dir}/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SchedulerParameters=sched_interval=1,batch_sched_delay=0
ReturnToService=2
MpiDefault=none
KillWait=30
NodeName=localhost NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=localhost Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
"""


class Slurm:
    """munged, slurmctld and slurmd of one node."""

    def __init__(self, world):
        self.dir = world.path("slurm")
        self.daemons = []
        for name in ("ctld", "d"):
            os.makedirs(os.path.join(self.dir, name), mode=0o755)
        os.chmod(world.dir, 0o755)  # munged refuses a path that others may write above its socket
        key = self.path("munge.key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as out:
            out.write(secrets.token_bytes(128))
        with open(self.path("slurm.conf"), "w", encoding="utf-8") as out:
            ctld, node = free_ports(26000, 2)
            out.write(CONF.format(dir=self.dir, away=AWAY_S, ctld=ctld, d=node))
        bins = [os.path.join(world.build, room) for room in ("deploy", "worker")]
        self.env = {"SLURM_CONF": self.path("slurm.conf"),
                    "PATH": ":".join([*bins, "/usr/sbin:/usr/bin:/sbin:/bin"])}

    def path(self, name):
        return os.path.join(self.dir, name)

    def start(self):
        self.daemon("munged", "--foreground", "--force", "--key-file", self.path("munge.key"),
                    "--socket", self.path("munge.socket"), "--pid-file", self.path("munge.pid"),
                    "--log-file", self.path("munge.out"), "--seed-file", self.path("munge.seed"))
        until("munged listens", lambda: os.path.exists(self.path("munge.socket")))
        self.daemon("slurmctld", "-D", "-c")
        self.daemon("slurmd", "-D", "-N", "localhost")
        until("the node is idle", lambda: "idle" in self.say("sinfo", "-h", "-o", "%T"))

    def daemon(self, *words):
        with open(self.path(words[0] + ".log"), "ab") as log:
            self.daemons.append(subprocess.Popen(words, env=self.env, stdin=subprocess.DEVNULL,
                                                 stdout=log, stderr=log, cwd=self.dir))

    def say(self, *words, cwd=None):
        """A command's output; "" if it failed."""
        for daemon in self.daemons:
            if daemon.poll() is not None:
                raise Failure(f"{daemon.args[0]} ended:\n{self.tail(daemon.args[0])}")
        done = subprocess.run(words, env=self.env, cwd=cwd, capture_output=True, text=True,
                              check=False, timeout=60)
        return done.stdout if done.returncode == 0 else ""

    def state(self, job):
        found = re.search(r"JobState=(\S+)", self.say("scontrol", "show", "job", job))
        return found and found.group(1)

    def submit(self, folder, script):
        said = self.say("sbatch", "--parsable", script, cwd=folder)
        check(said.strip().isdigit(), f"sbatch says {said!r}")
        return said.strip()

    def tail(self, name):
        with open(self.path(name + ".log"), encoding="utf-8", errors="replace") as file:
            return file.read()[-3000:]

    def ours(self):
        """Processes that Slurm started for this cluster, found by their environment."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if f"SLURM_CONF={self.env['SLURM_CONF']}".encode() in file.read().split(b"\0"):
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        left = self.ours()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return left


class Job(Node):
    """The worker whose process Slurm starts."""

    def __init__(self, world, folder):
        super().__init__(world, "worker", "asia", "asia-0", {})
        self.dir, self.log = os.path.join(folder, "asia-0"), os.path.join(folder, "asia-0.log")

    def status(self):
        try:
            with open(os.path.join(self.dir, "status.json"), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def alive(self):
        return False  # Slurm ends the process


def render(world, coordinator):
    """The folder from which asia submits, with its keys and data."""
    topology, out, model = world.path("t.yaml"), world.path("rendered"), world.path("imported")
    os.mkdir(model)  # the run's own folder is no model: its run has not ended
    for name in ("model.json", "weights.bin"):
        shutil.copy(world.path(name), model)
    with open(topology, "w", encoding="utf-8") as file:
        file.write(TOPOLOGY.format(budget=sum(u["tokens"] for u in world.units), dir=model,
                                   density=DENSITY, speed=SPEED["asia"]))
    said = world.tool("render", "slurm", topology, "--out", out, "--coordinator",
                      coordinator.address)
    folder = os.path.join(out, "asia")
    check(os.path.join(folder, "asia.sbatch") in said.split(), said)
    with open(os.path.join(out, "files", "weights.bin"), "rb") as a, \
            open(world.path("weights.bin"), "rb") as b:
        check(a.read() == b.read(), "the rendered initial parameters are others")
    world.certificate("worker", "asia", "asia-0")
    os.mkdir(os.path.join(folder, "secrets"))
    for path in (world.path("ca", "ca.pem"), world.path("certs", "asia-0.pem"),
                 world.path("certs", "asia-0.key"), world.path("job.keys")):
        shutil.copy2(path, os.path.join(folder, "secrets"))
    shutil.copytree(world.path("data"), os.path.join(folder, "data"))
    return folder


def leased(world, coordinator):
    return json.loads(world.tool("get", "leases", "--worker", "asia-0", "--state", "leased",
                                 *world.admin(coordinator), "-o", "json"))["leases"]


def play(world, slurm):
    coordinator = world.coordinator(workers=2).start().listening()
    server = world.server(0, coordinator, name="s0", shards=[0, 1]).start().listening()
    europe = world.worker("europe", coordinator, **{"trainer.tokens_per_s": SPEED["europe"]})
    folder = render(world, coordinator)
    europe.start()
    asia = Job(world, folder)
    slurm.start()
    job = slurm.submit(folder, "asia.sbatch")
    until("asia trains", lambda: steps(asia) > 5 and leased(world, coordinator))
    first = asia.status()["pid"]

    asked = time.monotonic()
    slurm.say("scancel", "--signal=TERM", "--batch", job)
    until("its worker has ended in order", lambda: asia.says("program.end", "by a signal")
          and not os.path.exists(f"/proc/{first}"))
    print(f"ended {time.monotonic() - asked:.1f} s after SIGTERM")
    until("its units are free for others", lambda: not leased(world, coordinator))
    print(f"its leases are back after {time.monotonic() - asked:.1f} s")
    until("it is started once more", lambda: asia.status()["pid"] != first)
    check(re.search(r"Restarts=1\b", slurm.say("scontrol", "show", "job", job)),
          "Slurm did not start the same job again")
    until("it trains on", lambda: steps(asia) > 5)

    slurm.say("scancel", job)
    until("the job is cancelled for good", lambda: slurm.state(job) == "CANCELLED")
    second = asia.status()["pid"]
    job = slurm.submit(folder, "asia.sbatch")
    until("it trains in a job of its own", lambda: asia.status()["pid"] != second
          and steps(asia) > 5)
    check(not os.path.exists(os.path.join(asia.dir, "final.weights")), "the run ended before")

    europe.must_end()
    until("the job ends by itself", lambda: slurm.state(job) == "COMPLETED")
    check_credit(world, coordinator, [server])
    check_replicas([server], [europe, asia])
    again = slurm.submit(folder, "asia.sbatch")
    until("a job of a run that is over ends", lambda: slurm.state(again) == "COMPLETED")
    server.must_stop()
    coordinator.must_stop()


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--build", required=True)
    flags.add_argument("--keep", action="store_true")
    given = flags.parse_args()
    with World(os.path.abspath(given.build), units=36, keep=given.keep) as world:
        slurm, done = Slurm(world), False
        try:
            play(world, slurm)
            done = True
        finally:
            if not done:
                for daemon in slurm.daemons:
                    print(f"---- {daemon.args[0]}\n{slurm.tail(daemon.args[0])}")
            left = slurm.stop()
        check(not left, f"processes that Slurm left: {left}")
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
