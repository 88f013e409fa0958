#!/usr/bin/env python3
"""Debian packages, tried in an empty Debian: packages.py [--suite SUITE] [--build] [--keep]

Run as root; needs debootstrap and a mirror. It installs the packages of build/release (`cpack -G
DEB`), or, with --build, packages built from this tree in an empty Debian of that suite (a quarter
of an hour). Then, without a compiler and outside the tree: each program prints its version, the
Python package loads its library, the server's account exists, and `longhaul up` trains on a text of
three regions until its budget is spent. No mount is left.
"""
import argparse
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from play import MIRROR, TREE, Stage

RUN = """run: packages
budget_tokens: 60_000
model: {dim: 32, layers: 2, heads: 2, kv_heads: 1, ffn: 64, context: 64}
coordinator: {region: europe}
servers: [{name: shard-0, region: europe, shards: [0]}]
regions: {asia: , europe: , america: }
"""


class Empty(Stage):
    def __init__(self, folder, suite, name):
        super().__init__(folder, f"docker.io/library/debian:{suite}", name)


def built(folder, suite):
    """Packages built from this tree's HEAD in an empty Debian."""
    stage = Empty(folder, suite, "build")
    os.makedirs(stage.at("/src"))
    made = subprocess.run(["git", "-C", TREE, "archive", "HEAD"], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", stage.at("/src")], input=made.stdout, check=True)
    stage.folder = "/src"
    stage.run("deploy/install-deps.sh --build-only && cmake --preset release -DBUILD_TESTING=OFF "
              "-DLONGHAUL_CUDA=OFF && cmake --build --preset release --target programs && "
              "apt-get install -y --no-install-recommends dpkg-dev file && "
              "cd build/release && cpack -G DEB")
    return glob.glob(stage.at("/src/build/release/*.deb"))


def texts(place):
    """Enough words for a small run: this tree's own pages."""
    for region, pages in (("asia", "server"), ("europe", "worker"), ("america", "deploy")):
        to = os.path.join(place, region, pages)  # a "language" has one home
        os.makedirs(to)
        for i, page in enumerate(sorted(pathlib.Path(TREE, pages).rglob("*.md"))):
            shutil.copy(page, os.path.join(to, f"{i}.txt"))
    os.makedirs(os.path.join(place, "heldout"))
    shutil.copy(TREE / "DESIGN.md", os.path.join(place, "heldout", "server.txt"))


def try_them(stage, packages):
    os.makedirs(stage.at("/debs"))
    for package in packages:
        shutil.copy(package, stage.at("/debs"))
    stage.run("apt-get update -qq && apt-get install -y -qq --no-install-recommends /debs/*.deb "
              ">/dev/null && ! command -v gcc")
    for program in ("longhaul", "longhaul-server", "longhaul-worker"):
        stage.run(f"{program} --version")
    stage.run("getent passwd longhaul")
    stage.run("python3 -c 'import longhaul.library'")
    os.makedirs(stage.at("/tmp/run"))
    texts(stage.at("/tmp/run/text"))
    pathlib.Path(stage.at("/tmp/run/run.yaml")).write_text(RUN, encoding="utf-8")
    stage.folder = "/tmp/run"
    stage.run("longhaul data prepare --text text --out data && "
              "longhaul up run.yaml --no-wan --data data --dir out")


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--suite", default="12", choices=("12", "13"), help="Debian's number")
    flags.add_argument("--build", action="store_true")
    flags.add_argument("--keep", action="store_true", help="keep the folders")
    given = flags.parse_args()
    packages = [] if given.build else glob.glob(str(TREE / "build/release/*.deb"))
    if not given.build and not packages:
        raise SystemExit("packages: no build/release/*.deb: run `cpack -G DEB` there")
    folder = tempfile.mkdtemp(prefix="longhaul-packages-")
    try:
        packages = packages or built(folder, given.suite)
        try_them(Empty(folder, given.suite, "tried"), [p for p in packages if "-cuda_" not in p])
    finally:
        if given.keep:
            print(f"kept: {folder}")
        else:
            subprocess.run(["rm", "-rf", "--one-file-system", folder], check=True)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
