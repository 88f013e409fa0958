#!/usr/bin/env python3
"""Both wheels, installed as by a new user: wheels.py BUILD LIBRARY.

They are built and installed into an environment made for them, to which this Python lends PyTorch
and NumPy. Then, without a variable of Longhaul's and without the build tree in PATH: the programs
start with the libraries of their wheel, `python3 -m longhaul.first` makes a run of three regions,
`longhaul up` trains it to its end, and every loop has saved the run's parameters. So it is with the
script and the topology that worker/python/README.md shows.
"""
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import numpy
import torch
from wheel import audited

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAMS = ("longhaul", "longhaul-server", "longhaul-worker")
OF_THE_HOST = re.compile(r"linux-vdso|ld-linux|lib(c|m|dl|pthread|rt|resolv)\.so")
SAME = """
import sys, torch
first, *rest = [torch.load(path) for path in sys.argv[1:]]
for other in rest:
    assert all(torch.equal(first[name], other[name]) for name in first)
"""


class Wheels:
    """An environment with both wheels, in a folder that is removed."""

    def __init__(self, folder, build, library):
        self.folder, self.place = folder, os.path.join(folder, "place")
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("LONGHAUL", "PYTHON", "LD_"))}
        self.env["PATH"] = os.path.join(self.place, "bin") + ":/usr/bin:/bin"
        self.build("deploy/wheel", LONGHAUL_BUILD=build)
        self.build("worker/python", LONGHAUL_LIBRARY=library)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def build(self, package, **environment):
        source = self.path(package)
        shutil.copytree(os.path.join(ROOT, package), source,
                        ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps",
                        "--no-index", "-q", "-w", self.path("wheels"), source], check=True,
                       env={**os.environ, **environment})

    def install(self):
        subprocess.run([sys.executable, "-m", "venv", self.place], check=True)
        wheels = sorted(glob.glob(self.path("wheels", "*.whl")))
        print([(os.path.basename(w), os.path.getsize(w)) for w in wheels])
        self.run("pip", "install", "-q", "--no-index", "--no-deps", *wheels)
        packages = glob.glob(os.path.join(self.place, "lib", "python3*", "site-packages"))[0]
        with open(os.path.join(packages, "lent.pth"), "w", encoding="utf-8") as file:
            for module in (numpy, torch):
                file.write(os.path.dirname(os.path.dirname(module.__file__)) + "\n")
        return os.path.join(packages, "longhaul_programs")

    def run(self, program, *words):
        """The output of a program of the environment, which must exit with 0."""
        ended = subprocess.run([os.path.join(self.place, "bin", program), *words], text=True,
                               env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert ended.returncode == 0, f"{program} {words}: {ended.returncode}\n{ended.stdout}"
        return ended.stdout


def check_libraries(folder):
    """Every library but glibc's comes from the wheel, and has its licence if dpkg knows it."""
    used = set()
    for name in PROGRAMS:
        said = subprocess.run(["ldd", os.path.join(folder, "bin", name)], check=True, text=True,
                              capture_output=True).stdout
        for line in said.splitlines():
            if not OF_THE_HOST.search(line):
                assert os.path.realpath(folder) in os.path.realpath(line.split()[2]), line
                used.add(line.split()[0])
    packed = {n for n in os.listdir(os.path.join(folder, "lib", "longhaul"))}
    assert "libgrpc" in " ".join(used), used
    plugins = {"liblonghaul_cuda.so", "liblonghaul_cublaslt.so"}  # no program links them
    assert packed - used <= plugins, packed - used
    licences = os.listdir(os.path.join(folder, "licenses"))
    print(f"{len(used)} libraries, licences of {licences}")
    if shutil.which("dpkg-query"):
        for part in ("grpc", "ssl", "openblas", "stdc++", "zlib", "gcc-s"):
            assert any(part in name for name in licences), part


def check_run(wheels):
    made = wheels.run("python3", "-m", "longhaul.first", "run", "--tokens", "24000")
    command = shlex.split(made.strip().splitlines()[-1])
    assert command[0] == os.path.join(wheels.place, "bin", "longhaul"), made
    print(wheels.run("longhaul", *command[1:]))
    with open(wheels.path("run", "run", "summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    assert summary["ok"] and summary["replicas"]["equal"], summary
    assert sum(shard["admitted"] for shard in summary["shards"]) > 0, summary
    saved = glob.glob(wheels.path("run", "run", "*.pt"))
    in_time = [c["name"] for c in summary["commands"] if c["ended"] == "exit 0"]
    assert saved and len(saved) == len(in_time), (saved, summary["commands"])
    wheels.run("python3", "-c", SAME, *saved)


def check_page(wheels):
    """The page's own script, its topology and its lines do what they say."""
    with open(os.path.join(ROOT, "worker", "python", "README.md"), encoding="utf-8") as file:
        step = file.read().split("**4. Use your own script.**")[1].split("\n## ")[0]
    for kind, name in (("python", "train.py"), ("yaml", "mine.yaml")):
        with open(wheels.path(name), "w", encoding="utf-8") as file:
            file.write(re.search(rf"```{kind}\n(.*?)```", step, re.S)[1])
    lines = re.findall(r"^    ((?:python|longhaul) .*)$", step, re.M)
    assert len(lines) == 2, lines
    for line in lines:
        print(wheels.run(*line.split()))
    wheels.run("python3", "-c", SAME, *(wheels.path("run", "mine", f"{region}-0.pt")
                                        for region in ("europe", "asia")))


def main():
    build, library = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="lh-wheels-") as folder:
        wheels = Wheels(folder, build, library)
        programs = glob.glob(wheels.path("wheels", "longhaul_programs-*.whl"))[0]
        assert f"-{audited(programs)}.whl" in programs, programs
        check_libraries(wheels.install())
        for name in PROGRAMS:
            assert re.search(r"\d+\.\d+\.\d+", wheels.run(name, "--version")), name
        check_run(wheels)
        check_page(wheels)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
