#!/usr/bin/env python3
"""The steps of deploy/Containerfile, run in empty Debians: no registry of images is needed.

    tests/container/play.py [--keep]        # as root, a quarter of an hour; wants debootstrap

Each stage begins with its own minbase Debian; COPY, RUN, WORKDIR, USER and ENTRYPOINT do the same
as in an image, and any other instruction is an error. Then, in the last stage and as its user: the
three programs print their version, settings are explained, and certificates and a key are made. No
mount is left.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

TREE = pathlib.Path(__file__).resolve().parents[2]
FILE = TREE / "deploy/Containerfile"
MIRROR = "http://deb.debian.org/debian"


def instructions(text):
    """(word, rest) of each instruction."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        line = line.strip()
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word.upper(), rest.strip()


class Stage:
    def __init__(self, folder, image, name):
        repository, _, tag = image.rpartition(":")
        if not repository.endswith("/debian"):
            raise SystemExit(f"{FILE}: {image} is no image of Debian")
        suite = {"12": "bookworm", "13": "trixie"}[tag.split("-")[0]]
        self.root = os.path.join(folder, name)
        self.folder, self.user, self.entry = "/", "root", []
        print(f"== {name}: an empty {suite}", flush=True)
        subprocess.run(["debootstrap", "--variant=minbase", suite, self.root, MIRROR], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.copy("/etc/resolv.conf", os.path.join(self.root, "etc/resolv.conf"))

    def run(self, words):
        """Runs a command in the stage's root, with /proc and /dev in its own mount namespace."""
        line = (f"mount -t proc proc {shlex.quote(self.root)}/proc && "
                f"mount --rbind /dev {shlex.quote(self.root)}/dev && "
                f"exec chroot {shlex.quote(self.root)} su -s /bin/sh {self.user} -c "
                + shlex.quote(f"cd {shlex.quote(self.folder)} && {words}"))
        subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", line],
                       check=True, stdin=subprocess.DEVNULL,
                       env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C"})

    def at(self, path):
        return os.path.join(self.root, os.path.join(self.folder, path).lstrip("/"))


def copy(stages, stage, rest):
    words = rest.split()
    origin = None
    if words[0].startswith("--from="):
        origin = stages[words.pop(0)[len("--from="):]]
    source, target = words
    if origin:
        source = origin.at(source)
        subprocess.run(["cp", "-a", source + "/.", stage.at(target)], check=True)
        return
    if source != ".":
        raise SystemExit(f"{FILE}: COPY {rest}: this test copies the whole tree alone")
    os.makedirs(stage.at(target), exist_ok=True)
    made = subprocess.run(["git", "-C", TREE, "archive", "HEAD"], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", stage.at(target)], input=made.stdout, check=True)


def play(folder):
    stages, stage = {}, None
    for word, rest in instructions(FILE.read_text("utf-8")):
        print(f"-- {word} {rest}", flush=True)
        if word == "FROM":
            image, *named = rest.split()
            name = named[1] if named else "last"
            stages[name] = stage = Stage(folder, image, name)
        elif word == "WORKDIR":
            stage.folder = os.path.join(stage.folder, rest)
            os.makedirs(stage.at(""), exist_ok=True)
        elif word == "USER":
            stage.user = rest
        elif word == "ENTRYPOINT":
            stage.entry = json.loads(rest)
        elif word == "COPY":
            copy(stages, stage, rest)
        elif word == "RUN":
            stage.run(rest)
        else:
            raise SystemExit(f"{FILE}: {word}: an instruction that this test does not know")
    return stage


def look(stage):
    if stage.user == "root":
        raise SystemExit(f"{FILE}: the programs run as root")
    tool = shlex.join(stage.entry)
    for program in (tool, "longhaul-server", "longhaul-worker"):
        stage.run(f"{program} --version")
    stage.run(f"test $(id -u) != 0 && {tool} config explain --kind server >/dev/null")
    stage.run(f"{tool} certs init --dir ca --domain example.org && {tool} certs key --out job.key")


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--keep", action="store_true", help="keep the folders")
    given = flags.parse_args()
    for program in ("debootstrap", "unshare", "chroot", "git"):
        if not shutil.which(program):
            raise SystemExit(f"play: no {program}")
    if os.getuid() != 0:
        raise SystemExit("play: run as root")
    folder = tempfile.mkdtemp(prefix="longhaul-container-")
    try:
        look(play(folder))
    finally:
        if given.keep:
            print(f"kept: {folder}")
        else:
            subprocess.run(["rm", "-rf", "--one-file-system", folder], check=True)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
