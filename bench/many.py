#!/usr/bin/env python3
"""What do many workers cost one server? `bench/run.sh many [--json FILE] [--workers 8,64]`.

A coordinator, a server with one shard of 1 M parameters, and --workers workers, each a process of
its own, on loopback, with mutual TLS and sealed pushes as usual. The synthetic trainer only keeps
its pace (a step of 256 tokens a second, eight steps a round) and computes nothing, so that the
machine's processors are free for the measured work. Windows of --seconds each, some whole rounds:

 server_cpu_a_push_ms      the server's processor time divided by the pushes that it decided
 server_cpu_a_delivery_ms  the same by records that it sent to followers (pushes x workers)
 worker_cpu_a_record_ms    the workers' processor time divided by records that they followed;
                           includes training, cuts and renewals
 busy                      busy share of the machine's processors, by these processes
 server_bytes, worker_bytes, all_bytes   memory (PSS: shared memory counts once)

With three sizes, the server's processor time a second is the parabola through them: a constant
part, one that grows with the pushes (many.server_cpu.each_push_ms), and one with the deliveries,
which are pushes times workers (.each_follower_ms: the cost that one more follower adds to a push).
At the end the run is ended by `longhaul drain run --end`; all replicas must have one digest, or
nothing is written.

64 workers take some 3 GiB. About nine minutes for the three sizes.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "tests", "e2e")]
import report  # noqa: E402
from loopback import check_replicas, end_all  # noqa: E402
from world import Node, World, check, held, until  # noqa: E402

SHAPE = {"architecture": "transformer", "vocab": 256, "dim": 128, "layers": 4, "heads": 4,
         "kv_heads": 4, "ffn": 512, "context": 64, "tied": True}  # 1.08 M parameters
REGIONS = ("asia", "europe", "america")
STEP_TOKENS, STEP_S, H = 256, 1, 8
UNIT_TOKENS = 4 * STEP_TOKENS
HERTZ = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 600  # many processes start on few processors


class Fleet:
    def __init__(self, world, workers):
        self.world = world
        self.coordinator = world.coordinator(workers, **{
            "coordinator.h_base": H, "coordinator.cadence": "fixed",
            "coordinator.worker_timeout_s": "60 s"}).start().listening()
        self.server = world.server(0, self.coordinator, **{
            "checkpoint.every_versions": 100000}).start().listening()
        self.workers = [self.worker(number) for number in range(workers)]

    def worker(self, number):
        region = REGIONS[number % len(REGIONS)]
        name = f"{region}-{number}"
        settings = self.world.common("worker", region, name)
        settings.update({
            "coordinator": self.coordinator.address, "codec.density": 1 / 64,
            "data.units": self.world.path("data", "units.json"),
            "data.dir": self.world.path("data"), "trainer.batch": STEP_TOKENS // 64,
            "trainer.learning_rate": 0.001, "trainer.kind": "synthetic",
            "trainer.tokens_per_s": STEP_TOKENS / STEP_S})
        return Node(self.world, "worker", region, name, settings).start()

    def nodes(self):
        return [self.coordinator, self.server, *self.workers]

    def pushes(self):
        return self.server.status().get("counters", {}).get("admitted", 0)

    def end(self):
        done = subprocess.run([self.world.program("longhaul"), "drain", "run", "--end",
                               *self.world.admin(self.coordinator)], capture_output=True, text=True,
                              check=False)
        check(done.returncode == 0, f"longhaul drain run --end: {done.stderr}")
        for worker in self.workers:
            worker.must_end(PATIENCE_S)
        until("the coordinator knows", lambda: self.coordinator.status().get("phase") == "ended",
              PATIENCE_S)
        truth = held([self.server])
        for worker in self.workers:
            check(worker.last_holdings() == truth, f"{worker.name} ends with another state")
        end_all([self.coordinator, self.server])


def cpu_s(node):
    """Processor time of the node's process so far."""
    with open(f"/proc/{node.process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / HERTZ


def memory(node):
    with open(f"/proc/{node.process.pid}/smaps_rollup", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


class Moment:
    """The resources used and work done so far. A status is up to a second old: windows are far
    longer."""

    def __init__(self, fleet):
        self.at, self.pushes = time.monotonic(), fleet.pushes()
        self.server = cpu_s(fleet.server)
        self.workers = sum(cpu_s(worker) for worker in fleet.workers)
        self.all = self.server + self.workers + cpu_s(fleet.coordinator)


def windows(fleet, count, seconds):
    moments = [Moment(fleet)]
    for _ in range(count):
        time.sleep(seconds)
        moments.append(Moment(fleet))
    return list(zip(moments, moments[1:]))


def tell(out, fleet, pairs):
    n = len(fleet.workers)
    name = f"many.{n}"
    pushes = [b.pushes - a.pushes for a, b in pairs]
    check(min(pushes) > n // 2, f"only {min(pushes)} pushes in a window of {n} workers: it is too "
          "short, or the machine is too busy")
    server = [1000 * (b.server - a.server) for a, b in pairs]
    each = [ms / done for ms, done in zip(server, pushes)]
    out.row(f"{name}.pushes_a_s", "1/s", [done / (b.at - a.at)
                                          for done, (a, b) in zip(pushes, pairs)],
            "as many as training makes", n / (STEP_S * H))
    out.row(f"{name}.server_cpu_a_push_ms", "ms", each)
    out.row(f"{name}.server_cpu_a_delivery_ms", "ms", [ms / n for ms in each])
    out.row(f"{name}.worker_cpu_a_record_ms", "ms", [
        1000 * (b.workers - a.workers) / n / done for done, (a, b) in zip(pushes, pairs)])
    out.row(f"{name}.busy", "1", [(b.all - a.all) / (b.at - a.at) / os.cpu_count()
                                  for a, b in pairs])
    sizes = [memory(worker) for worker in fleet.workers]
    out.row(f"{name}.server_bytes", "B", [memory(fleet.server)])
    out.row(f"{name}.worker_bytes", "B", sizes)
    out.row(f"{name}.all_bytes", "B", [sum(map(memory, fleet.nodes()))])
    return statistics.median(server) / 1000 / statistics.median(b.at - a.at for a, b in pairs)


def parts(a_second):
    """Processor seconds for each second, each push and each delivery, from the seconds per second
    with three numbers of workers. Each worker pushes once in STEP_S * H."""
    (a, at_a), (b, at_b), (c, at_c) = a_second.items()
    first, second = (at_b - at_a) / (b - a), (at_c - at_b) / (c - b)
    curve = (second - first) / (c - a)
    slope = first - curve * (a + b)
    every_s = STEP_S * H
    return at_a - slope * a - curve * a * a, slope * every_s, curve * every_s


def play(out, flags, workers):
    rounds = (flags.windows * flags.seconds + PATIENCE_S) / (STEP_S * H)  # its data never run out
    units = int(workers * rounds * H * STEP_TOKENS / UNIT_TOKENS) // 3 * 3
    with World(flags.build, run="many", units=units, shape=SHAPE, unit_tokens=UNIT_TOKENS,
               shards=1) as world:
        fleet = Fleet(world, workers)
        # every worker has pushed, and its first snapshot is over
        until("all push", lambda: fleet.pushes() >= 2 * workers, PATIENCE_S)
        a_second = tell(out, fleet, windows(fleet, flags.windows, flags.seconds))
        fleet.end()
    return a_second


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", default="build/release")
    flags.add_argument("--json")
    flags.add_argument("--workers", default="8,32,64", help="sizes, with commas")
    flags.add_argument("--windows", type=int, default=3)
    flags.add_argument("--seconds", type=float, default=40, help="of a window")
    flags = flags.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    out = report.Report("many", flags.json)
    out.condition("model", "1.08 M parameters, one shard, 1/64 of them a push, as signs")
    out.condition("trainer", f"synthetic: a step of {STEP_TOKENS} tokens in {STEP_S} s, H {H}")
    out.condition("windows", f"{flags.windows} of {flags.seconds:g} s")
    sizes = sorted(int(size) for size in flags.workers.split(","))
    a_second = {size: play(out, flags, size) for size in sizes}
    if len(sizes) == 3:
        idle, push, delivery = parts(a_second)
        out.row("many.server_cpu.idle_ms_a_s", "ms", [1000 * idle])
        out.row("many.server_cpu.each_push_ms", "ms", [1000 * push])
        out.row("many.server_cpu.each_follower_ms", "ms", [1000 * delivery])
    out.finish()


if __name__ == "__main__":
    main()
