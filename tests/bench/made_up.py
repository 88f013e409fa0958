"""Runs a program of bench/learning on made-up lines."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VALIDATE = os.path.join(ROOT, "tests", "contracts", "validate.py")


class MadeUp(unittest.TestCase):
    PROGRAM = ""  # its file's name

    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.dir = held.name

    def run_on(self, lines, *flags):
        """Rows by name, and conditions; or the program's error, and None."""
        path, out = os.path.join(self.dir, "a.jsonl"), os.path.join(self.dir, "a.json")
        program = os.path.join(ROOT, "bench", "learning", self.PROGRAM)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
        done = subprocess.run([sys.executable, program, "--results", path, "--json", out, *flags],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr, None
        subprocess.run([sys.executable, VALIDATE, "bench", out], check=True)
        with open(out, encoding="utf-8") as file:
            document = json.load(file)
        return {row["name"]: row for row in document["rows"]}, document["conditions"]
