#!/usr/bin/env python3
"""deploy/demo.sh: each kind of demo has a folder of its own, so none finds another's run.

A copy of the script is placed in a tree whose installation, build, texts and tool are made up. The
tool refuses a folder that was made from another topology, as the real one does.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = """#!/bin/bash
set -eu
if [ "$1" = data ]; then
    while [ "$1" != --out ]; do shift; done
    mkdir -p "$2"; echo "$*" > "$2/units.json"; exit 0
fi
topology=$2
while [ "$1" != --data ]; do shift; done
[ -e "$2/units.json" ]; while [ "$1" != --dir ]; do shift; done
mkdir "$2"; cp "$topology" "$2/topology.yaml"; echo "$2"
"""  # mkdir fails if the folder exists: that run has ended, or is another's


class Demo(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="longhaul-demo-"))
        self.addCleanup(shutil.rmtree, self.dir)
        for name in ("deploy/examples", "deploy/text", "build/release/deploy", "bin", "run", "own"):
            (self.dir / name).mkdir(parents=True)
        shutil.copy(ROOT / "deploy/demo.sh", self.dir / "deploy")
        for name in ("three-regions.yaml", "poison.yaml"):
            shutil.copy(ROOT / "deploy/examples" / name, self.dir / "deploy/examples")
        for name, text in (("deploy/install-deps.sh", "#!/bin/sh\n"), ("bin/cmake", "#!/bin/sh\n"),
                           ("deploy/poison.sh", TOOL.replace("topology=$2", "topology=$1")),
                           ("deploy/text/corpora.sh", "#!/bin/sh\n"),
                           ("build/release/deploy/longhaul", TOOL)):
            (self.dir / name).write_text(text, encoding="utf-8")
            (self.dir / name).chmod(0o755)

    def demo(self, *flags):
        path = f"{self.dir / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run([self.dir / "deploy/demo.sh", *flags], capture_output=True, text=True,
                              env={**os.environ, "PATH": path}, check=False)
        self.assertEqual(done.returncode, 0, f"{flags}: {done.stdout}{done.stderr}")
        return done.stdout.splitlines()[-1]

    def test_one_kind_after_another(self):
        kinds = ((), ("--short",), ("--with-faults",), ("--short", "--with-faults"), ("--no-wan",),
                 ("--text", "own"), ("--short", "--with-faults", "--no-wan", "--text", "own"),
                 ("--poison",), ("--poison", "--text", "own"))
        folders = [self.demo(*flags) for flags in kinds]
        self.assertEqual(folders[0], "run/demo")
        self.assertEqual(len(set(folders)), len(kinds), folders)

    def test_own_texts_leave_the_demos_tokens_alone(self):
        self.demo()
        before = (self.dir / "data/tokens/units.json").read_text(encoding="utf-8")
        self.demo("--text", "own")
        self.assertEqual((self.dir / "data/tokens/units.json").read_text(encoding="utf-8"), before)

    def test_a_folder_that_was_named_is_taken(self):
        self.assertEqual(self.demo("--short", "--dir", "run/mine"), "run/mine")

    def test_poison_takes_no_other_kind(self):
        for flag in ("--short", "--with-faults", "--no-wan", "--private"):
            with self.assertRaisesRegex(AssertionError, "^2 != 0 .*goes with --text and --dir"):
                self.demo("--poison", flag)

    def test_help_is_the_whole_head(self):
        said = subprocess.run([self.dir / "deploy/demo.sh", "--help"], capture_output=True,
                              text=True, check=True).stdout
        self.assertIn("--dir DIR", said)
        self.assertTrue(said.rstrip().endswith("learned."), said)


if __name__ == "__main__":
    sys.exit(unittest.main())
