#!/usr/bin/env python3
"""The launcher's promises, over pretended nodes: test_up.py LONGHAUL [unittest arguments]."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.abspath(sys.argv.pop(1))
TOPOLOGY = """run: pretend
budget_tokens: 100000
model: {dim: 8, layers: 1, heads: 2, kv_heads: 2, ffn: 16, context: 16}
coordinator: {region: eu}
servers: [{name: s0, region: eu, shards: [0]}]
regions: {eu: {}, us: {}}
"""
PATIENCE_S = 60


class Up(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="longhaul-up-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.tool = self.path("longhaul")
        shutil.copy(TOOL, self.tool)
        for role in ("server", "worker"):
            shutil.copy(os.path.join(HERE, "node.py"), self.path(f"longhaul-{role}"))
            os.chmod(self.path(f"longhaul-{role}"), 0o755)
        self.write("t.yaml", TOPOLOGY)
        for place in ("eu/aa.d", "us/bb.d"):
            region, language = place.removesuffix(".d").split("/")
            self.write(f"text/{region}/{language}/a.txt", "some words and some more. " * 400)
            self.write(f"text/heldout/{language}.txt", "other words, and others yet. " * 40)
        said = subprocess.run([self.tool, "data", "prepare", "--text", self.path("text"), "--out",
                               self.path("data"), "--unit-tokens", "1024", "--sequence", "16"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def start(self, *flags, **environment):
        environment = {"NODE_SPEED": "20000"} | environment
        process = subprocess.Popen(
            [self.tool, "up", self.path("t.yaml"), "--no-wan", "--dir", self.path("run"), "--data",
             self.path("data"), *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=os.environ | environment)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def status(self, node):
        try:
            with open(self.path("run", node, "status.json"), encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError):
            return {}

    def wait_for(self, what, condition):
        until = time.monotonic() + PATIENCE_S
        while not condition():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.01)  # polls; the condition decides, not the time

    def nodes_left(self):
        """Processes whose program lies in this test's folder, the tool apart."""
        left = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                    line = file.read()
            except OSError:
                continue
            if self.path("longhaul-") in line:
                left.append(line)
        return left

    def wait_until_trained(self, tokens):
        self.wait_for("a worker trains", lambda: self.status("us-0").get("tokens", 0) > tokens)

    def test_kill_9_leaves_no_child(self):
        up = self.start(NODE_SPEED="100")
        self.wait_until_trained(0)
        self.assertEqual(len(self.nodes_left()), 4)
        up.kill()
        up.wait()
        self.wait_for("all children are gone", lambda: not self.nodes_left())

    def test_ctrl_c_drains_and_a_second_up_goes_on(self):
        up = self.start(NODE_SPEED="2000")
        self.wait_until_trained(2000)  # twenty statuses: `up` has seen one of them at least
        up.send_signal(signal.SIGINT)
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 8, said)
        self.assertIn("draining", said)
        self.assertIn("the same command goes on", said)
        self.assertEqual(self.nodes_left(), [])
        reached = self.status("us-0")["tokens"]
        self.assertLess(reached, 100000)
        again = self.start(NODE_SPEED="2000")
        self.wait_until_trained(reached + 2000)
        again.send_signal(signal.SIGTERM)
        said, _ = again.communicate(timeout=PATIENCE_S)
        self.assertEqual(again.returncode, 8, said)
        with open(self.path("run", "curves.csv"), encoding="utf-8") as file:
            seconds = [float(line.split(",")[1]) for line in file if line.startswith("us-0,")]
        self.assertEqual(seconds, sorted(seconds))
        self.assertGreaterEqual(len(seconds), 2)  # a point of each of the two at least

    def test_a_killed_node_is_started_again(self):
        up = self.start(NODE_SPEED="400")
        self.wait_for("the server runs", lambda: "pid" in self.status("s0"))
        first = self.status("s0")["pid"]
        os.kill(first, signal.SIGKILL)
        self.wait_for("a new server", lambda: self.status("s0").get("pid", first) != first)
        up.send_signal(signal.SIGINT)
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertIn("s0 ended with signal 9 (Killed) and was started again", said)

    def test_a_second_up_in_its_folder_is_refused(self):
        up = self.start(NODE_SPEED="400")
        self.wait_until_trained(0)
        settings = self.path("run", "us-0.yaml")
        before = os.stat(settings).st_mtime_ns
        second = self.start()
        said, _ = second.communicate(timeout=PATIENCE_S)
        self.assertEqual(second.returncode, 1, said)
        self.assertIn("a run goes on in", said)
        self.assertEqual(os.stat(settings).st_mtime_ns, before)
        self.assertEqual(len(self.nodes_left()), 4)
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 8)

    def test_a_node_that_only_crashes_ends_the_run(self):
        up = self.start(NODE_CRASH="s0", NODE_SPEED="20")
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 1, said)
        self.assertIn("s0 ended 6 times in a row, last with exit 6", said)
        self.assertIn("s0: out of luck", said)
        self.assertEqual(self.nodes_left(), [])

    def test_a_run_that_ends_without_checkpoints_is_no_success(self):
        up = self.start(NODE_SPEED="200000")
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 3, said)
        self.assertIn("checkpoints", said)
        self.assertFalse(os.path.exists(self.path("run", "summary.json")))
        self.assertEqual(self.nodes_left(), [])

    def test_what_is_missing_has_its_code(self):
        for flags, code, says in (
                (("--data", self.path("nowhere")), 3, "longhaul data prepare"),
                (("--no-wam",), 2, "did you mean --no-wan?")):
            up = self.start(*flags)
            said, _ = up.communicate(timeout=PATIENCE_S)
            self.assertEqual(up.returncode, code, said)
            self.assertIn(says, said)
        os.unlink(self.path("longhaul-worker"))
        up = self.start()
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 3, said)
        self.assertIn("no longhaul-worker beside this program", said)

    def test_a_pipe_that_closes_does_not_kill_the_run(self):
        up = self.start(NODE_SPEED="2000")
        self.wait_until_trained(0)
        up.stdout.close()
        reached = self.status("us-0")["tokens"]
        self.wait_until_trained(reached + 1500)
        up.send_signal(signal.SIGINT)
        self.assertEqual(up.wait(timeout=PATIENCE_S), 8)
        self.assertEqual(self.nodes_left(), [])


if __name__ == "__main__":
    unittest.main()
