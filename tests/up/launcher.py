#!/usr/bin/env python3
"""A run of made-up nodes under `longhaul up`; its tests are in test_*.py."""
import json
import os
import shutil
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


class Launcher(unittest.TestCase):
    TOPOLOGY = TOPOLOGY
    PROGRAMS = ("longhaul-",)

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="longhaul-up-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.tool = self.path("longhaul")
        shutil.copy(TOOL, self.tool)
        for role in ("server", "worker"):
            shutil.copy(os.path.join(HERE, "node.py"), self.path(f"longhaul-{role}"))
            os.chmod(self.path(f"longhaul-{role}"), 0o755)
        self.write("t.yaml", self.TOPOLOGY)
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

    def start(self, *flags, preexec_fn=None, **environment):
        environment = {"NODE_SPEED": "20000"} | environment
        process = subprocess.Popen(
            [self.tool, "up", self.path("t.yaml"), "--no-wan", "--dir", self.path("run"), "--data",
             self.path("data"), *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=preexec_fn,
            env={k: v for k, v in (os.environ | environment).items() if v is not None})
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
        """Processes whose program is in this test's folder, except the tool."""
        left = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                    line = file.read()
            except OSError:
                continue
            if any(self.path(name) in line for name in self.PROGRAMS):
                left.append(line)
        return left

    def wait_until_trained(self, tokens):
        self.wait_for("a worker trains", lambda: self.status("us-0").get("tokens", 0) > tokens)
