#!/usr/bin/env python3
"""Secrets of running programs: private keys in memory, and permissions of files.

A private key is at one place of a program's memory, which is locked and excluded from dumps; no
core is written, and only root may read a program's memory. Token files, units and state directories
are closed to other users, even under a umask of 0.
"""
import base64
import os
import re
import stat
import sys

from cases import main, run, train
from world import check

LOCKED, NO_DUMP = "lo", "dd"  # VmFlags of proc_pid_smaps(5)


# ---------------------------------------------------------------- keys

def secrets_of(path):
    """The key's secret number, as bytes and as limbs, and a line of its file that would reveal
    it."""
    with open(path, encoding="ascii") as file:
        lines = file.read().split("-----")[2].split()
    der = base64.b64decode("".join(lines))
    at = der.index(b"\x04\x20")  # ECPrivateKey: an octet string of 32 bytes
    number = der[at + 2:at + 34]
    return number, number[::-1], lines[1].encode()


def mappings(pid):
    """(from, to, flags) of all writable mappings."""
    out, span = [], None
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as file:
        for line in file:
            head = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line)
            if head:
                span = (int(head[1], 16), int(head[2], 16)) if "w" in head[3] else None
            elif span and line.startswith("VmFlags:"):
                out.append((*span, line.split()[1:]))
    return out


def places(pid, secrets):
    """For each place that holds one of these secrets, the flags of its mapping."""
    found = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for begin, end, flags in mappings(pid):
            try:
                memory.seek(begin)
                data = memory.read(end - begin)
            except OSError:
                continue  # a guard page
            for secret in secrets:
                found += [flags] * data.count(secret)
    return found


def sealed_off(pid):
    with open(f"/proc/{pid}/limits", encoding="utf-8") as file:
        core = next(line for line in file if line.startswith("Max core file size")).split()
    check(core[4] == "0" and core[5] == "0", f"cores: {core}")
    owner = os.stat(f"/proc/{pid}/mem").st_uid  # root's, if a process is not dumpable
    check(owner == 0, f"user {owner} may look into process {pid}")


def keys_are_locked(world):
    coordinator, servers = run(world)
    worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 2000}).start()
    train(worker)  # makes connections in both directions
    for node in (coordinator, servers[0], worker):
        sealed_off(node.process.pid)
        if os.geteuid() != 0:
            continue  # closed to this test as well
        flags = places(node.process.pid, secrets_of(node.settings["tls.key"]))
        check(len(flags) == 1, f"{node.name}: its key is in {len(flags)} places: {flags}")
        check(LOCKED in flags[0] and NO_DUMP in flags[0], f"{node.name}: {flags}")


# ---------------------------------------------------------------- files

def files_below(folder):
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            yield path, os.lstat(path)


def closed(folder):
    """Checks that no file is open to other users; gives the number of files."""
    count = 0
    for path, info in files_below(folder):
        if stat.S_ISREG(info.st_mode):
            check(not info.st_mode & 0o027, f"{path} has the mode {stat.S_IMODE(info.st_mode):o}")
            count += 1
    return count


def files_are_closed(world):
    before = os.umask(0)
    try:
        text, data = world.path("text"), world.path("prepared")
        os.makedirs(os.path.join(text, "asia", "la"))
        with open(os.path.join(text, "asia", "la", "a.txt"), "w", encoding="utf-8") as file:
            file.write("some words of a text " * 2000)
        world.tool("data", "prepare", "--text", text, "--out", data, "--unit-tokens", "512")
        for path, info in files_below(data):
            check(stat.S_IMODE(info.st_mode) == 0o640, f"{path}: {stat.S_IMODE(info.st_mode):o}")
        check(any(path.endswith(".json") for path, _ in files_below(data)), "no manifest came")
        check(len(list(files_below(data))) > 1, "no tokens came")
        coordinator, servers = run(world)
        worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 2000}).start()
        train(worker)
        for node in (coordinator, *servers, worker):
            check(closed(node.dir) > 0, f"{node.name} keeps nothing")
    finally:
        os.umask(before)


if __name__ == "__main__":
    sys.exit(main((keys_are_locked, files_are_closed), __doc__))
