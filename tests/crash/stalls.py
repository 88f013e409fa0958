#!/usr/bin/env python3
"""The cost of a stalled region to the others: `stalls.py --build build/release`.

Coordinator, two shard servers and three workers on loopback, a throttled loop beside each. Each
cycle is a run of its own: in one phase an idle process replaces one region's loop, in the other
that loop gets SIGSTOP, in an order drawn from the seed. With --freeze the disk of that region's
worker hangs instead, by fsfreeze of a file system of its own (root; status 77 without). The tokens
of the other two regions are counted over --window seconds of both phases. Then the run is ended
while the region is stalled: it must end without it and name it, and the others must end with the
servers' digests.

The figure is the ratio of the others' tokens/s beside the stalled region to those beside the idle
process. With --file each cycle is a line there, and the same call goes on where an interrupted one
stopped.
"""
import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time

from cluster import REGIONS, World, check, resumed, until, verdict
import external
from hung_disk import FREEZE, THAW, order
from loopback import check_replicas
from power import Disk, isolated

LEAST, CYCLES_TO_JUDGE = 0.98, 10
DISK_BYTES = 48 << 20
STEP_MS, UNITS, UNIT_TOKENS = 30, 6000, 256
SETTLE_S = 1  # after the change
CONF = {"coordinator.h_base": 4, "coordinator.stall_floor_s": "3 s"}


class Run:
    def __init__(self, world, trainers, given):
        self.world, self.trainers, self.window_s = world, trainers, given.window
        self.disks = []
        external.write_model(world)
        self.coordinator = world.coordinator(**CONF).start().listening()
        self.servers = [world.server(i, self.coordinator).start().listening()
                        for i in range(external.SHARDS)]
        self.workers = [world.worker(region, self.coordinator, **{
            "trainer.kind": "external", "codec.name": "topk-fp32"}) for region in REGIONS]
        for worker in self.workers:
            if given.freeze:
                self.disks.append(Disk(world.path("disk-" + worker.name), DISK_BYTES))
                worker.dir = worker.settings["dir"] = os.path.join(self.disks[-1].folder, "state")
            worker.start()
            trainer = external.Trainer(world, worker, 1, False)
            trainer.words[2] = str(STEP_MS)
            trainers.append(trainer.start())
        self.all_train()

    def all_train(self):
        """Waits until each loop has cut a few times in its present process."""
        until("all loops have cut", lambda: all(t.cuts() > 3 for t in self.trainers))

    def rate(self, victim):
        """Tokens a second of the others."""
        others = [t for i, t in enumerate(self.trainers) if i != victim]
        time.sleep(SETTLE_S)  # measures; no condition is waited for
        begun, before = time.monotonic(), sum(t.tokens() for t in others)
        time.sleep(self.window_s)
        return (sum(t.tokens() for t in others) - before) / (time.monotonic() - begun)

    def hold(self, victim):
        if self.disks:
            order(self.disks[victim], FREEZE)
        else:
            self.trainers[victim].process.send_signal(signal.SIGSTOP)

    def release(self, victim):
        if self.disks:
            order(self.disks[victim], THAW)
        else:
            self.trainers[victim].process.send_signal(signal.SIGCONT)

    def unmount(self):
        for disk in self.disks:
            with contextlib.suppress(OSError):
                order(disk, THAW)
            subprocess.run(["umount", "-l", disk.folder], check=False)

    def beside_idle(self, victim):
        self.trainers[victim].kill()
        with subprocess.Popen(["sleep", "3600"]) as idle:
            try:
                rate = self.rate(victim)
            finally:
                idle.kill()
        self.trainers[victim].start()
        self.all_train()
        return rate

    def beside_stopped(self, victim):
        self.hold(victim)
        rate = self.rate(victim)
        self.release(victim)
        cuts = self.trainers[victim].cuts()
        until("it goes on", lambda: self.trainers[victim].cuts() > cuts + 1)
        return rate

    def end(self, victim):
        """Ends the run while the region is stalled; gives the seconds that took."""
        self.hold(victim)
        begun = time.monotonic()
        self.world.tool("drain", "run", "--end", *self.world.admin(self.coordinator))
        until("the run ends", lambda: self.coordinator.status().get("phase") == "ended")
        took = time.monotonic() - begun
        others = [w for i, w in enumerate(self.workers) if i != victim]
        for worker in others:
            worker.must_end()
        left_out = {w["name"] for w in self.coordinator.status()["workers"] if "left_out" in w}
        check(left_out <= {self.workers[victim].name}, f"left out: {left_out}")
        check_replicas(self.servers, others)
        return took


def cycle(given, seed):
    draw, trainers, run = random.Random(seed), [], None
    victim, stopped_first = draw.randrange(len(REGIONS)), draw.random() < 0.5
    with World(given.build, units=UNITS, unit_tokens=UNIT_TOKENS, shards=external.SHARDS) as world:
        try:
            run = Run(world, trainers, given)
            rates = {}
            for stopped in (stopped_first, not stopped_first):
                rates[stopped] = (run.beside_stopped if stopped else run.beside_idle)(victim)
            took = run.end(victim)
        finally:
            if run:
                run.unmount()
            for trainer in trainers:
                if trainer.process.poll() is None:
                    trainer.kill()
    return {"seed": seed, "kind": "freeze" if given.freeze else "stop", "region": REGIONS[victim],
            "stopped_first": stopped_first,
            "idle": round(rates[False], 1), "stopped": round(rates[True], 1),
            "ratio": round(rates[True] / rates[False], 4), "end_s": round(took, 1),
            "load": round(os.getloadavg()[0], 1)}


def campaign(given):
    done = resumed(given, given.cycles, cycle)
    ratios = [one["ratio"] for one in done]
    middle = statistics.median(ratios)
    print(f"{len(done)} cycles: the others keep {100 * middle:.1f} % (least {100 * min(ratios):.1f}"
          f" %); the run ends within {max(one['end_s'] for one in done):.1f} s")
    check(len(done) < CYCLES_TO_JUDGE or middle >= LEAST, f"less than {LEAST} is kept")


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", required=True, help="the build tree")
    flags.add_argument("--cycles", type=int, default=100)
    flags.add_argument("--seconds", type=float, default=1e9, help="begin no cycle after so long")
    flags.add_argument("--window", type=float, default=8, help="seconds that are counted")
    flags.add_argument("--seed", type=int, default=1, help="of the first cycle")
    flags.add_argument("--freeze", action="store_true", help="a disk that hangs")
    flags.add_argument("--file", help="a line of JSON for each cycle")
    given = flags.parse_args()
    if given.freeze:
        isolated()
    return verdict(lambda: campaign(given))


if __name__ == "__main__":
    sys.exit(main())
