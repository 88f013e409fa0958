"""Faults that last: stopped processes (SIGSTOP) and full disks, each of which ends by itself.

A fault is undone by its own thread when its time is over, and by release() in any case: no process
stays stopped, however the test ends. A disk that can be filled is a tmpfs mounted over a node's
folder, in a mount namespace of the program's own (power.py); a large file fills it.
"""
import errno
import os
import shutil
import signal
import subprocess
import threading
import time

import history
from cluster import Cluster, check, held

DISK_BYTES = 32 << 20
WITHOUT_ROOM = "No space left on device"  # logged by a process that ends because its disk is full


def fill(folder):
    """Fills the disk with a file, down to pieces of a record's size; called again, it takes the
    space that has been freed since."""
    with open(os.path.join(folder, "filler"), "ab", buffering=0) as file:
        for piece in (1 << 16, 512):
            try:
                while True:
                    file.write(b"x" * piece)
            except OSError as error:
                check(error.errno == errno.ENOSPC, f"filling ended with {error}")


def empty(folder):
    try:
        os.remove(os.path.join(folder, "filler"))
    except FileNotFoundError:
        pass


def newest(pool, version):
    """The branch whose last record has this version; of several, the one of the latest epoch."""
    ends = {r.chain for r in pool if r.version == version}
    return max((history.branch(pool, version, chain) for chain in ends),
               key=lambda records: records[-1].epoch, default=[])


class Lasting:
    """The active faults, by (fault, node's name)."""

    def __init__(self):
        self.timers, self.begun, self.seconds = {}, {}, {}

    def begin(self, key, seconds, do, undo):
        """Starts a fault. undo() may be called twice."""
        self.begun[key] = time.monotonic()
        try:
            do()
        except BaseException:
            self.begun.pop(key)
            undo()
            raise
        self.timers[key] = threading.Timer(seconds, self.over, (key, undo))
        self.timers[key].daemon = True
        self.timers[key].start()

    def over(self, key, undo):
        undo()
        begun = self.begun.pop(key, None)
        if begun is not None:
            self.seconds[key[0]] = self.seconds.get(key[0], 0) + time.monotonic() - begun

    def on(self, key=None):
        """Whether this fault is active; without a key, the number of active faults."""
        return key in self.begun if key else len(self.begun)

    def end(self, key):
        timer = self.timers.pop(key, None)
        if timer:
            timer.cancel()
            timer.join()
            timer.function(*timer.args)

    def release(self):
        for key in list(self.timers):
            self.end(key)


def last_words(node):
    """The last lines of its log, without those about connections refused while it ends."""
    lines = [line for line in node.tail(40).splitlines() if "net.refused" not in line]
    return "\n".join(lines[-3:])


class Faulty(Cluster):
    """A cluster whose processes are killed and stopped, and whose disks are filled (`disks`)."""

    ROLES = ("coordinator", "server", "worker")
    COORDINATOR = {"coordinator.worker_timeout_s": "5 s"}  # some pauses are longer

    def __init__(self, build, units, keep, servers, shards, disks):
        self.SERVERS, self.SHARDS = servers, servers * shards
        super().__init__(build, units, keep)
        self.faults, self.disks, self.no_room, self.ended = Lasting(), {}, set(), {}
        for kind in ("coordinator", "server", "worker") if disks else ():
            make = getattr(self.world, kind)
            setattr(self.world, kind, lambda *a, _make=make, **k: self.on_disk(_make(*a, **k)))

    # ------------------------------------------------------------ disks

    def on_disk(self, node):
        """Gives the node's folder a small file system of its own."""
        folder = self.disks[node.name] = self.world.path("disk-" + node.name)
        os.mkdir(folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", folder],
                       check=True)
        node.dir = node.settings["dir"] = os.path.join(folder, "state")
        if node.kind == "server":
            to = os.path.join(folder, "history")
            os.mkdir(to)
            shim = os.path.join(self.world.build, "tests", "crash", "libcrash_keep.so")
            check(os.path.exists(shim), f"{shim} is missing: build the target crash_keep")
            node.before = ["env", f"LD_PRELOAD={os.path.abspath(shim)}", f"LONGHAUL_HISTORY={to}",
                           "ASAN_OPTIONS=" + os.environ.get("ASAN_OPTIONS", "") +
                           ":verify_asan_link_order=0"]
        return node

    def kept_name(self, path):
        """The same name as keep.c gives: a full disk may cause a segment number to be used
        twice."""
        return f"{os.path.basename(path)}-{os.stat(path).st_ino}"

    def keep_segments(self):
        """Links segments as in Cluster. The links are on the server's disk; segments that only they
        keep alive are moved off it, because otherwise a checkpoint would free no space."""
        self.tend()
        whole, self.kept = self.kept, [
            os.path.join(self.disks[s.name], "history") if s.name in self.disks else kept
            for s, kept in zip(self.servers, self.kept)]
        super().keep_segments()
        here, self.kept = self.kept, whole
        for folder, to in zip(here, self.kept):
            for entry in os.scandir(folder) if folder != to else ():
                if entry.stat().st_nlink == 1:
                    shutil.move(entry.path, os.path.join(to, entry.name))

    def gather(self):
        """Collects the segments that are still in use, beside the others."""
        self.keep_segments()
        for server, to in zip(self.servers, self.kept):
            if server.name in self.disks:
                shutil.copytree(os.path.join(self.disks[server.name], "history"), to,
                                dirs_exist_ok=True)

    def records(self):
        """From all segments of all restarts, the branch to the last version of each owner."""
        truth = held(self.servers)
        self.gather()
        pool, job = history.read_pool(self.kept)
        return {shard: newest(pool[shard], version)
                for shard, (version, _) in truth.items()}, job

    # ------------------------------------------------------------ faults

    def kill(self, node):
        self.faults.end(("stop", node.name))
        node.kill()
        self.start_again(node)

    def up(self, node):
        """Waits for a server or coordinator that was restarted."""
        if node.name not in self.no_room:
            node.listening()

    def role(self, node):
        return node.kind

    def start_again(self, node):
        node.process.stdout.close()
        self.no_room.discard(node.name)
        if self.faults.on(("full", node.name)):
            self.no_room.add(node.name)
        node.start()

    def stop(self, node, seconds):
        process = node.process
        self.faults.begin(("stop", node.name), seconds,
                          lambda: process.send_signal(signal.SIGSTOP),
                          lambda: process.send_signal(signal.SIGCONT))

    def full(self, node, seconds):
        folder = self.disks[node.name]
        self.no_room.add(node.name)
        self.faults.begin(("full", node.name), seconds, lambda: fill(folder),
                          lambda: empty(folder))

    def tend(self):
        """Restarts every process that ended because its disk was full, once there is space. No
        other process may end by itself, except a worker that has finished."""
        for node in self.nodes():
            if node.alive() or not node.process or node.process.returncode == 0:
                continue
            if self.replaced(node):
                continue
            check(node.process.returncode > 0 and node.name in self.no_room and
                  WITHOUT_ROOM in last_words(node),
                  f"{node.name} ended by itself with {node.process.returncode}:\n{node.tail()}")
            if not self.faults.on(("full", node.name)):
                self.ended[node.kind] = self.ended.get(node.kind, 0) + 1
                self.start_again(node)

    def replaced(self, _node):
        """Whether it ended because another server has its shards; a subclass restarts it."""
        return False

    def release(self, keep):
        """Resumes every process, empties and unmounts every disk; `keep` keeps the disks' files."""
        self.faults.release()
        for node in self.world.nodes:
            if node.alive():
                node.kill()
        for folder in self.disks.values():
            if keep:
                shutil.copytree(folder, folder + "-left")
            subprocess.run(["umount", "-l", folder], check=False)

    def noticed(self):
        """role -> number of lines in which its processes log that their disk is full."""
        lines = {}
        for node in self.nodes():
            with open(node.log, encoding="utf-8", errors="replace") as file:
                lines[node.kind] = lines.get(node.kind, 0) + sum("disk_full" in s for s in file)
        return lines

    def more_figures(self):
        return {}

    def given_up(self):
        """How often the coordinator declared a worker lost."""
        with open(self.coordinator.log, encoding="utf-8", errors="replace") as file:
            return sum("worker.lost" in line for line in file)
