#!/usr/bin/env python3
"""The decoder over runs that are made for it: `decode_made.py --tool build/.../oracle_runs`.

They have features that no run in the tree has: outer optimizers with state, AES-256-GCM, states of
several ranges, shards of many groups of chunks.
"""
import argparse
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from decoder.plain import Differs
from decoder.tamper import tamper
from decoder.verify import Run

KINDS = ("log", "record", "sealed", "plain", "parameter", "ledger", "checkpoint", "state", "said",
         "hashes")


class Made(unittest.TestCase):
    folder = None

    def load(self, name):
        """One of the tool's runs."""
        path = self.folder / name
        if not path.exists():
            self.skipTest(f"{name}: this processor lacks its cipher")
        return Run([path / "server"], path, "history", "longhaul.local",
                   path / "server" / "expect.txt")

    def check(self, run, trials, **counts):
        """Everything agrees, these counts were compared, and no flipped bit goes unnoticed."""
        run.verify()
        self.assertEqual({name: count for name, count in run.count.items() if count}, counts)
        self.assertEqual(tamper(run, trials), dict.fromkeys(KINDS, trials))

    def test_optimizers_with_state_agree(self):
        self.check(self.load("optimizers"), 5, records=39, frames=22, digests=3, expected=41,
                   checkpoints=7)

    def test_a_log_that_begins_amid_an_optimizer_agrees(self):
        run = self.load("optimizers")
        folder, files = run.logs.popitem()
        for gone in range(1, len(files)):
            with self.subTest(gone):
                run.logs[folder] = files[gone:]
                run.verify()
                self.assertTrue(run.begins[0] and run.begins[1] and run.folded())
        run.logs[folder] = files[1:]
        run.verify()
        self.assertEqual(tamper(run, 3), dict.fromkeys(KINDS, 3))

    def test_a_checkpoint_of_another_optimizer_differs(self):
        run = self.load("optimizers")
        run.verify()
        at = run.checkpoints[0][0]

        def flip(what, where, data):
            return data[:-8] if (what, where) == ("state", at) else data
        self.assertRaisesRegex(Differs, "not the folded one", run.verify, flip)
        folder, files = run.logs.popitem()
        run.logs[folder] = files[1:]
        self.assertRaisesRegex(Differs, "ends at byte", run.verify, flip)

    def test_large_states_under_aes_agree(self):
        self.check(self.load("large"), 1, records=14, frames=7, digests=2, expected=16,
                   checkpoints=3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True, help="the program oracle_runs")
    known, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="longhaul-oracle-") as made:
        subprocess.run([known.tool, made], check=True)
        Made.folder = Path(made)
        done = unittest.main(argv=[sys.argv[0], *rest], exit=False)
    sys.exit(not done.result.wasSuccessful())
