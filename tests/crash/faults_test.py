#!/usr/bin/env python3
"""Tests that lasting faults end by themselves, and in any case: `faults_test.py`."""
import signal
import subprocess
import sys
import unittest

from cluster import until
from faults import Lasting

KEY = "stop", "sleeper"


def stopped(process):
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


class LastingFaults(unittest.TestCase):
    def setUp(self):
        self.process = subprocess.Popen(["sleep", "600"])
        self.faults = Lasting()

    def tearDown(self):
        self.process.kill()
        self.process.wait()

    def stop(self, seconds, and_then=lambda: None):
        def do():
            self.process.send_signal(signal.SIGSTOP)
            until("it is stopped", lambda: stopped(self.process))
            and_then()
        self.faults.begin(KEY, seconds, do, lambda: self.process.send_signal(signal.SIGCONT))

    def check_over(self):
        until("it goes on", lambda: not stopped(self.process))
        self.assertEqual(self.faults.on(), 0)

    def test_a_pause_ends_by_itself(self):
        self.stop(0.1)
        until("it goes on", lambda: not stopped(self.process))
        until("nothing is on", lambda: not self.faults.on())
        self.assertGreaterEqual(self.faults.seconds["stop"], 0.1)

    def test_release_ends_a_pause_before_its_time(self):
        self.stop(600)
        self.assertTrue(self.faults.on(KEY))
        self.faults.release()
        self.check_over()

    def test_a_fault_that_fails_half_way_is_undone(self):
        def fail():
            raise RuntimeError("half way")
        with self.assertRaises(RuntimeError):
            self.stop(600, fail)
        self.check_over()


if __name__ == "__main__":
    sys.exit(unittest.main())
