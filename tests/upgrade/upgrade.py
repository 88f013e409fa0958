#!/usr/bin/env python3
"""A run that an earlier build began goes on with these programs:
`upgrade.py --build build/release --archive tests/fixtures/upgrade/NAME.tar.xz`.

An archive holds what a run's processes left behind when all of them were killed with -9: every
directory, the workers' debug logs, every segment that the servers' logs ever had, model, units, job
key. The CA and its certificates are made anew. All roles are started from these directories with
the programs of --build; the run goes on to its end, and tests/crash/history.py judges its whole
history: nothing that was acknowledged, before or after, is lost, nothing is applied twice, all
replicas are equal, every unit is credited once.

  --then go-on     every role is started on the host where it was killed. Slots count, so every push
                   that was undecided is decided under the incarnation that cut it.
  --then take-over the server with a standby stays away: the standby takes its shards over. The
                   hosts have another boot id, so a slot that says nothing of a sync does not count.

`--make killed` and `--make undecided` write an archive with the programs of --build, of the commit
before a change. Of the first one a worker had stood still, so that its pushes are stale and will be
refused; of the second one the servers died first, until each worker had a push of each shard that
nobody decided. In both, pushes were refused before.
"""
import argparse
import json
import os
import signal
import struct
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "crash"))
# pylint: disable=wrong-import-position
import history
from cluster import REGIONS, Cluster, World, check, figures, until, verdict
from standby import in_sync

SHAPE = {"architecture": "transformer", "vocab": 256, "dim": 4, "layers": 1, "heads": 2,
         "kv_heads": 1, "ffn": 8, "context": 64, "tied": True}
UNITS = 150
QUICK = {"push.retry_base_ms": "20 ms", "push.retry_max_ms": "200 ms", "replica.every_versions": 12,
         "snapshot.every_rounds": 3, "trainer.kind": "synthetic", "trainer.batch": 1,
         "log.level": "debug", "log.format": "json"}
SERVER = {"digest.every_versions": 10, "wal.segment_bytes": "64 KiB", "checkpoint.replay_ms": 0,
          "update.staleness_max_per_worker": 1}
ALL = 1000000  # the standby's log has to hold all that is judged, so it makes no checkpoint
SPEED = 1500
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Certificates end, and a status is a process's.
MADE_ANEW = ("ca", "certs", "text", "status.json")


class Upgraded(World):
    """The world of an archive."""

    def __init__(self, build, archive, keep):  # pylint: disable=super-init-not-called
        self.build, self.run, self.keep, self.nodes = build, "crash", keep, []
        self.dir = tempfile.mkdtemp(prefix="longhaul-upgrade-")
        with tarfile.open(archive) as tar:
            tar.extractall(self.dir, filter="data")
        self.read_units()
        self.make_ca()


class Run(Cluster):
    """One server with two shards acknowledges alone, one with two others has a standby; three
    workers and a coordinator."""

    SHARDS = 4
    FOLDERS = ("history-pair", "history-owner")

    def __init__(self, world, speed):  # pylint: disable=super-init-not-called
        self.world, self.missed, self.read, self.told = world, set(), {}, 0
        self.kept = [world.path(name) for name in self.FOLDERS]
        self.coordinator = world.coordinator(**{"coordinator.worker_timeout_s": "20 s"})
        self.pair = self.server("pair", "shard", [0, 1], "durable", 15)
        self.owner = self.server("owner", "shard", [2, 3], "replicated", ALL)
        self.standby = self.server("standby", "standby", [2, 3], "replicated", ALL)
        self.servers = [self.pair, self.owner]
        self.workers = [world.worker(region, self.coordinator, **QUICK, **{
            "trainer.tokens_per_s": speed}) for region in REGIONS]

    def server(self, name, role, shards, acknowledge, checkpoint_every):
        return self.world.server(shards[0], self.coordinator, name=name, **SERVER, **{
            "role": role, "shards": shards, "acknowledge": acknowledge,
            "checkpoint.every_versions": checkpoint_every})

    def start(self, speed=0, checkpoint_every=0, away=()):
        self.coordinator.start().listening()
        for node in (self.pair, self.owner, self.standby, *self.workers):
            node.settings["coordinator"] = self.coordinator.address
            if node not in away:
                node.start()
                if node.kind == "server":
                    node.listening()
        return self

    def nodes(self):
        return [self.pair, self.owner, self.standby, *self.workers, self.coordinator]

    def pushes(self, what, outcome=""):
        """(worker, shard, incarnation, step) of each push of which its worker's log says this."""
        return {(worker, e.shard, e.incarnation, e.step)
                for worker, (_, events) in self.heard()[0].items() for e in events
                if e.what == what and e.outcome == outcome}

    def undecided(self):
        return self.pushes("cut") - self.pushes("decided", "admitted") - \
            self.pushes("decided", "refused")


# ---------------------------------------------------------------- an archive is made

def all_wait(run, shards):
    """Each worker has a push of each of these shards that nobody decides."""
    due = {(worker.name, shard) for worker in run.workers for shard in shards}
    until("each worker has an undecided push",
          lambda: due <= {push[:2] for push in run.undecided()})


def one_gets_stale(run):
    """A worker stands still with pushes that nobody has decided; then the others go on."""
    slow = run.workers[0]
    run.keep_segments()
    run.pair.kill()
    all_wait(run, [0, 1])
    slow.process.send_signal(signal.SIGSTOP)
    run.pair.process.stdout.close()
    run.pair.start().listening()

    def decided(shard):
        return sum(push[1] == shard for push in run.pushes("decided", "admitted"))
    due = [decided(shard) + 12 for shard in (0, 1)]
    until("the others went on", lambda: (
        run.keep_segments(), all(decided(i) >= due[i] for i in (0, 1)))[1])
    return slow


def a_push_was_refused(run):
    one_gets_stale(run).process.send_signal(signal.SIGCONT)
    until("a push is refused", lambda: run.pushes("decided", "refused"))
    run.wait_for_pushes(40)


def all_stood_still(run):
    for server in (run.pair, run.owner, run.standby):
        server.process.send_signal(signal.SIGKILL)
    all_wait(run, range(run.SHARDS))


BEFORE_THE_END = {"killed": one_gets_stale, "undecided": all_stood_still}


def pack(run, archive):
    """Everything but what is made anew and settings, whose place is in this file."""
    def wanted(entry):
        name = os.path.basename(entry.name)
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return None if name in MADE_ANEW or name.endswith(".yaml") else entry
    os.makedirs(os.path.dirname(archive), exist_ok=True)
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        tar.add(run.world.dir, ".", filter=wanted)


def make(given):
    world = World(given.build, run="crash", units=UNITS, keep=given.keep, shape=SHAPE,
                  unit_tokens=256, shards=Run.SHARDS)
    with world:
        for name in Run.FOLDERS:
            os.mkdir(world.path(name))
        run = Run(world, SPEED).start()
        until("the standby is in sync", lambda: in_sync(run.owner))
        run.wait_for_pushes(60)
        a_push_was_refused(run)
        check(in_sync(run.owner), "the standby fell out of sync")
        BEFORE_THE_END[given.make](run)
        for node in run.nodes():
            node.process.send_signal(signal.SIGKILL)
        for node in run.nodes():
            node.process.wait()
        run.keep_segments()
        made = {"commit": given.commit, "killed_after": figures_so_far(run)}
        with open(world.path("made.json"), "w", encoding="utf-8") as file:
            json.dump(made, file, indent=2)
        pack(run, given.archive)
        print(f"{given.archive}: {os.path.getsize(given.archive)} bytes, {made}")


def figures_so_far(run):
    return {"admitted": len(run.pushes("decided", "admitted")),
            "refused": len(run.pushes("decided", "refused")), "undecided": len(run.undecided())}


# ---------------------------------------------------------------- an archive goes on

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def killed_on_this_boot(folder):
    """The slots of a worker's directory say that this boot of this host wrote them (the layout is
    worker/push/slot.h's, version 2)."""
    with open(BOOT_ID, encoding="utf-8") as file:
        boot = bytes.fromhex(file.read().strip().replace("-", ""))
    for name in filter(lambda n: n.startswith("slot-"), os.listdir(folder)):
        with open(os.path.join(folder, name), "r+b") as file:
            data = bytearray(file.read())
            claims, _, places = struct.unpack_from("<IQI", data, 84)
            end = 112 + 8 * claims + 16 * places + 4
            check(struct.unpack_from("<I", data, end) == (crc32c(data[:end]),),
                  f"{name} is no slot of version 2")
            data[16:32] = boot
            struct.pack_into("<I", data, end, crc32c(data[:end]))
            file.seek(0)
            file.write(data)


def go_on(run):
    for worker in run.workers:
        killed_on_this_boot(worker.dir)
    undecided, before = run.undecided(), figures_so_far(run)
    check(undecided and before["refused"], f"the archive has too little in it: {before}")
    run.start()
    run.finish()
    check(not run.undecided(), f"nobody decided {run.undecided()}")
    for worker in run.workers:
        check(not worker.says("residual.rebuilt"), f"{worker.name} lost a slot")
    until("the standby is in sync", lambda: in_sync(run.owner))


def take_over(run):
    run.servers = [run.pair, run.standby]
    run.kept[1] = os.path.join(run.standby.dir, "log")
    run.start(away=[run.owner])
    run.finish()
    check(run.coordinator.says("shard.taken_over"), "the standby did not take over")


def upgraded(given):
    with Upgraded(given.build, given.archive, given.keep) as world:
        run = Run(world, 0)
        {"go-on": go_on, "take-over": take_over}[given.then](run)
        h = run.history()
        bad = history.judge(h)
        check(not bad, f"{len(bad)} violations, the first: {bad[:5]}")
        check(not history.unseen(h), f"tampered and unseen: {history.unseen(h)}")
        print(figures(h))
        for node in run.nodes():
            if node.alive():
                node.must_stop()


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", required=True, help="the build tree")
    flags.add_argument("--archive", required=True)
    flags.add_argument("--then", choices=("go-on", "take-over"), default="go-on")
    flags.add_argument("--make", choices=list(BEFORE_THE_END), help="write the archive")
    flags.add_argument("--commit", help="what the programs were built from, for --make")
    flags.add_argument("--keep", action="store_true", help="keep the run's folder")
    given = flags.parse_args()
    return verdict(lambda: make(given) if given.make else upgraded(given))


if __name__ == "__main__":
    sys.exit(main())
