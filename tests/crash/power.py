#!/usr/bin/env python3
"""Power cuts under real processes: `power.py --build build/release --cycles 300`. Needs root.

Both servers, the coordinator and one worker have a disk of their own, an ext4 image on a loop
device. A cycle kills the process, shuts its file system down without flushing the journal (the
ioctl EXT4_IOC_SHUTDOWN), unmounts, mounts, and restarts it: unsynced data are lost, as after a
power cut, even those in the page cache. At the end history.py judges the run, as in kill.py, and
tampered histories must be detected.

The process is killed first because of a Linux limitation: an fdatasync() that is under way during
the ioctl may return 0 although its data are lost (a loop of pwrite and fdatasync shows it in 5 of
150 cuts, Linux 6), which no real disk would do.

--lie gives the servers a libc whose fdatasync() and fsync() do nothing: then acknowledged pushes
must be missing, or the cuts have no effect.

A worker whose disk is cut finds another boot id afterwards, as after a real power cut: it sees that
a slot without a record of a sync did not outlive the host (server/docs/0000-protocol.md#rule-11).

Everything lives in a mount and process namespace of its own, which ends with this program, however
it ends: no mount, loop device or process outlives it. Exit status 77 where namespaces, loop devices
or that ioctl can't be had.
"""
import fcntl
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import uuid

from cluster import Cluster, Sums, add_flags, check, figures, flags_of, judged, verdict

import history
from report import Report

SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
INSIDE = "LH_CRASH_NAMESPACE"
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot(node):
    """Simulates a boot of the node's host: another boot id."""
    with open(node.boot, "w", encoding="utf-8") as file:
        file.write(f"{uuid.uuid4()}\n")


class Disk:
    """An ext4 image under a mount point, for one node."""

    def __init__(self, folder, size):
        self.image, self.folder = folder + ".ext4", folder
        with open(self.image, "wb") as file:
            file.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)
        os.mkdir(folder)
        self.mount()

    def mount(self):
        subprocess.run(["mount", "-o", "loop", self.image, self.folder], check=True)

    def cut(self):
        """From now on nothing reaches the disk, and every call gets an error."""
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def back(self):
        subprocess.run(["umount", self.folder], check=True)
        self.mount()


class Hosts(Cluster):
    """A cluster whose servers, coordinator and first WORKERS_ON_DISK workers are on disks of their
    own. These workers' hosts also have their own boot id, a new one after each cut."""

    WORKERS_ON_DISK = 1

    def __init__(self, build, units, keep, shim=None):
        super().__init__(build, units, keep)
        self.disks, self.shim = [], shim
        self.kept = []
        kinds = ("coordinator", "server", "worker")
        self.make = {name: getattr(self.world, name) for name in kinds}
        for name in kinds:
            setattr(self.world, name, lambda *a, _name=name, **k: self.on_disk(_name, *a, **k))

    def on_disk(self, kind, *given, **more):
        node = self.make[kind](*given, **more)
        if kind == "worker":
            if sum(n.kind == "worker" for n in self.world.nodes) > self.WORKERS_ON_DISK:
                return node
            self.on_host(node)
        node.disk = Disk(self.world.path("disk-" + node.name), 24 << 20)
        self.disks.append(node.disk)
        node.dir = node.settings["dir"] = os.path.join(node.disk.folder, "state")
        os.mkdir(os.path.join(node.disk.folder, "history"))
        if kind == "server":
            self.kept.append(os.path.join(node.disk.folder, "history"))
            if self.shim:
                node.before = ["env", "LD_PRELOAD=" + self.shim]
        subprocess.run(["sync", "-f", node.disk.folder], check=True)
        return node

    def on_host(self, node):
        """Shows the node's processes the boot id of its host, each in its own mount namespace."""
        node.boot = self.world.path("boot-" + node.name)
        boot(node)
        node.before = ["unshare", "--mount", "--propagation", "slave", "sh", "-c",
                       f'mount --bind "$0" {BOOT_ID} && exec "$@"', node.boot]

    def lose_power(self, node):
        """Kills the process first (see the module's docstring): its unsynced data are in the page
        cache."""
        node.kill()
        self.lose_disk(node)
        if hasattr(node, "boot"):
            boot(node)
        node.process.stdout.close()

    def lose_disk(self, node):
        node.disk.cut()
        node.disk.back()

    def release(self):
        """Ends the processes and releases the disks."""
        for node in self.world.nodes:
            if node.alive():
                node.kill()
        for disk in self.disks:
            subprocess.run(["umount", disk.folder], check=False)

    def victims(self):
        return [node for node in self.nodes() if hasattr(node, "disk")]


def cycle(draw, cluster, node):
    time.sleep(draw.choice((0.02, 0.1, 0.4)) * draw.random())
    cluster.keep_segments()
    cluster.lose_power(node)
    node.start()
    if node.kind != "worker":
        node.listening()


def one_run(given, draw, cycles, sums):
    cluster = Hosts(given.build, given.units_per_cycle * cycles + 60, given.keep, given.lie)
    with cluster.world:
        try:
            return cuts(given, cluster, draw, cycles, sums)
        finally:
            cluster.release()


def cuts(given, cluster, draw, cycles, sums):
    cluster.start(given.speed)
    cluster.wait_for_pushes(10)
    cut = dict.fromkeys(("coordinator", "server", "worker"), 0)
    started = time.monotonic()
    while sum(cut.values()) < cycles and not cluster.over():
        node = draw.choices(cluster.victims(), weights=[4, 4, 3, 1])[0]
        if node.kind == "worker" and not node.alive() and node.process.returncode == 0:
            break
        cycle(draw, cluster, node)
        cut[node.kind] += 1
        cluster.wait_for_pushes(4)
    done, took = sum(cut.values()), time.monotonic() - started
    check(done, "the run was over before the first cut")
    told = cluster.pushes_told()
    found = figures(judged(cluster)) | {"acknowledged_amid_cuts": told}
    found |= {"cut_" + k: v for k, v in cut.items()}
    sums.add(found)
    print(f"{done} cuts in {took:.1f} s: {found}", flush=True)
    return done, took


def campaign(given):
    draw, sums, left, cutting = random.Random(given.seed), Sums(), given.cycles, 0
    report = Report("campaign-power", given.json, given.join)
    report.call(f"--seed {given.seed} --cycles {given.cycles}")
    while left > 0:
        done, took = one_run(given, draw, min(left, given.per_run), sums)
        left -= done
        cutting += took
    report.condition("faults", "ext4 on a loop device shut down without flushing its journal")
    report.count("power.cycles", given.cycles - left)
    sums.rows(report, "power")
    report.count("power.seconds", cutting, "s")
    report.finish()


def lied(given):
    """Cuts under servers whose libc does not sync: acknowledged pushes must be missing."""
    draw = random.Random(given.seed)
    cluster = Hosts(given.build, 400, given.keep, given.lie)
    with cluster.world:
        try:
            cluster.start(given.speed)
            for server in cluster.servers:
                cluster.wait_for_pushes(20)
                cycle(draw, cluster, server)
            for node in cluster.nodes():
                node.kill()
            try:
                records, job = cluster.records()
            except history.Missing as nothing:
                print(f"as it should: {nothing}")
                return
            left = history.History(job=job, shards=len(records), units={}, records=records,
                                   workers=cluster.heard()[0])
            bad = history.check_acknowledged(left)
            lost = [text for name, text in bad if name == "lost"]
            # A server whose whole log is lost rebuilds from its followers, perhaps completely.
            rebuilt = [server.name for server in cluster.servers if server.says("shard.rebuilt")]
            check(lost or rebuilt,
                  "nothing was synced, and nothing was lost: the cuts prove nothing")
            print(f"as it should: {len(lost)} acknowledged pushes are lost, such as {lost[:1]}; "
                  f"rebuilt from followers: {rebuilt}")
        finally:
            cluster.release()


def not_run(why):
    print(f"power: not run, {why}")
    sys.exit(77)


def can_isolate():
    return INSIDE in os.environ or \
        not subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode


def isolated():
    """Runs this program again as the first process of new namespaces, unless it is that process."""
    if os.environ.pop(INSIDE, None):
        # Private by default; shared, an unmount here also reaches the workers' namespaces.
        subprocess.run(["mount", "--make-rshared", "/"], check=True)
        return
    if not can_isolate():
        not_run("it needs root, for namespaces of mounts and processes")
    os.environ[INSIDE] = "1"
    os.execvp("unshare", [*NAMESPACES, sys.executable, *sys.argv])


def probe():
    """One cut without a process: synced data survive, unsynced data do not."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            disk = Disk(os.path.join(folder, "probe"), 8 << 20)
        except (OSError, subprocess.CalledProcessError) as error:
            not_run(f"an ext4 image can't be made and mounted here: {error}")
        try:
            for name in ("synced", "not"):
                with open(os.path.join(disk.folder, name), "w", encoding="utf-8") as file:
                    file.write(name)
                    file.flush()
                    if name == "synced":
                        os.fsync(file.fileno())
            disk.cut()
            disk.back()
            left = set(os.listdir(disk.folder)) - {"lost+found"}
            check(left == {"synced"}, f"after a cut the disk holds {left}")
        except OSError as error:
            not_run(f"this kernel does not shut a file system down: {error}")
        finally:
            subprocess.run(["umount", disk.folder], check=False)


def main():
    flags = flags_of(__doc__, speed=1500)
    flags.add_argument("--cycles", type=int, default=20)
    flags.add_argument("--per-run", type=int, default=60)
    flags.add_argument("--units-per-cycle", type=int, default=8)
    flags.add_argument("--lie", metavar="LIB", help="a library whose fdatasync() does nothing")
    add_flags(flags, "chooses victims and moments")
    given = flags.parse_args()
    isolated()
    return verdict(lambda: (probe(), lied(given) if given.lie else campaign(given)))


if __name__ == "__main__":
    sys.exit(main())
