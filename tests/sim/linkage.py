#!/usr/bin/env python3
"""The simulator links the same objects as the programs: `linkage.py BUILD`, ctest sim.linkage.

Reads from a Ninja or make build how sim, longhaul-server and longhaul-worker were linked:
 1. sim links the same library files as the two programs, and beside them only that of the world of
    tests.
 2. Its other objects come from tests/sim, the loop beside a worker, and the client library that the
    loop calls; the programs add only their main.c.
 3. No other object, nor the world, defines a symbol of the libraries: a copied or included core
    source would be linked instead of the library's object.
To show that the check can fail, one object of each library is then added to sim's.
"""
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = {"server/longhaul-server": "server/main.c", "worker/longhaul-worker": "worker/main.c"}
SIM, SIM_SOURCES = "tests/sim/sim", ("tests/sim/", "tests/cores/trainer.c",
                             "tests/cores/trainer_link.c", "worker/client/")
CORES = {"lh_server", "lh_worker", "lh_kernels", "lh_common", "lh_proto"}
WORLD = "/tests/world/liblh_world.a"
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(*command: str, **options) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def link_command(build: str, target: str) -> tuple[str, str]:
    """Returns the command that links a target, and the folder it runs in."""
    folder, name = os.path.split(target)
    recipe = os.path.join(build, folder, "CMakeFiles", name + ".dir", "link.txt")
    if os.path.exists(recipe):  # make
        with open(recipe, encoding="utf-8") as file:
            return file.read(), os.path.join(build, folder)
    return run("ninja", "-C", build, "-t", "commands", "-s", target).splitlines()[-1], build


class Linked:
    """The project's files that a target is linked from."""

    def __init__(self, build: str, target: str):
        command, folder = link_command(build, target)
        files = [os.path.realpath(os.path.join(folder, word)) for word in shlex.split(command)
                 if word.endswith((".o", ".a"))]
        inside = os.path.realpath(build) + os.sep
        self.objects = [path for path in files if path.endswith(".o")]
        self.libraries = {path for path in files if path.endswith(".a") and path.startswith(inside)}


def sources(build: str) -> dict[str, str]:
    """Returns {object: its source, relative to the tree}."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    found = {}
    for entry in entries:
        words = shlex.split(entry["command"])
        path = os.path.join(entry["directory"], words[words.index("-o") + 1])
        found[os.path.realpath(path)] = os.path.relpath(entry["file"], SOURCE)
    return found


@functools.cache
def symbols(path: str) -> set[str]:
    """Returns the strong global symbols that an object or a library defines."""
    said = run("nm", "--defined-only", "--extern-only", path)
    return set(re.findall(r"^[0-9a-f]+ [TDBRGC] (\w+)$", said, re.M))


def copies(objects: list[str], libraries: set[str]) -> dict[str, str]:
    """Returns {symbol: the object that defines it although a library does}."""
    core = set().union(*map(symbols, libraries))
    return {name: path for path in objects for name in symbols(path) & core}


class Linkage(unittest.TestCase):
    build = ""

    def setUp(self):
        self.sim = Linked(self.build, SIM)
        self.world = {path for path in self.sim.libraries if path.endswith(WORLD)}
        self.sim.libraries -= self.world
        self.programs = {target: Linked(self.build, target) for target in PROGRAMS}

    def test_the_libraries_are_the_programs_files(self):
        theirs = set().union(*(linked.libraries for linked in self.programs.values()))
        self.assertEqual({re.sub(r".*/lib(\w+)\.a$", r"\1", path) for path in theirs}, CORES)
        self.assertEqual(self.sim.libraries, theirs)

    def test_the_objects_beside_them_are_the_simulators_own(self):
        source = sources(self.build)
        self.assertTrue(self.sim.objects)
        for path in self.sim.objects:
            self.assertTrue(source[path].startswith(SIM_SOURCES), source[path])
        for target, main in PROGRAMS.items():
            self.assertEqual([source[path] for path in self.programs[target].objects], [main])

    def test_nothing_of_the_libraries_is_there_twice(self):
        beside = self.sim.objects + sorted(self.world)
        self.assertEqual(copies(beside, self.sim.libraries), {})
        for linked in self.programs.values():
            self.assertEqual(copies(linked.objects, linked.libraries), {})

    def test_a_copy_would_be_found(self):
        with tempfile.TemporaryDirectory() as folder:
            for library in self.sim.libraries:
                member = run("ar", "t", library).splitlines()[0]
                run("ar", "x", library, member, cwd=folder)
                copy = os.path.join(folder, member)
                self.assertIn(copy, copies(self.sim.objects + [copy], self.sim.libraries).values())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    Linkage.build = sys.argv.pop(1)
    unittest.main()
