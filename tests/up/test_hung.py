#!/usr/bin/env python3
"""Commands that save to a disk that hangs: test_hung.py LONGHAUL [unittest arguments].

The nodes are made up, the disk is real: a file system on a loop device, frozen as an unreachable
storage would freeze it. The kernel ends no process that waits for it. Exit status 77 where
namespaces or loop devices can't be had.
"""
import json
import os
import shutil
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "crash"))
import hung_disk  # noqa: E402, pylint: disable=wrong-import-position
import power  # noqa: E402, pylint: disable=wrong-import-position

power.isolated()
from launcher import PATIENCE_S, TOPOLOGY, Launcher  # noqa: E402, pylint: disable=C0413


class Hung(Launcher):
    PROGRAMS = ("longhaul-", "command.py")

    def setUp(self):
        super().setUp()
        self.disk = power.Disk(self.path("disk"), 8 << 20)
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk.folder], check=False)

    def saves(self, **environment):
        shutil.copy(os.path.join(HERE, "command.py"), self.path("command.py"))
        line = json.dumps([sys.executable, self.path("command.py"), "save",
                           os.path.join(self.disk.folder, "model")])
        self.write("t.yaml", TOPOLOGY.replace("eu: {}, us: {}", 'eu: {}, us: {command: ""}') +
                   f"command: {line}\n")
        return self.start(**environment)

    def test_a_run_ends_beside_a_command_that_cannot_be_killed(self):
        """Its worker was left out, so nothing waits for the file that it saves."""
        with hung_disk.frozen(self.disk):
            said, _ = self.saves(NODE_LEAVES_OUT="eu-0").communicate(timeout=2 * PATIENCE_S)
            self.assertIn("eu-0.trainer is stopped: the run ended without its worker", said)
            self.assertIn("eu-0.trainer was killed and does not end: a disk", said)
            self.assertNotIn("s0 was killed", said)
            self.assertNotEqual(self.nodes_left(), [])
        self.wait_for("it ends with its disk", lambda: not self.nodes_left())


if __name__ == "__main__":
    unittest.main()
