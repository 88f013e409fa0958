"""Whole runs under `longhaul up`, for benches that measure the real programs from outside."""
import json
import os
import subprocess

TOKENS = 256  # of a step, and of a unit


class Run:
    """One run to its end, and what its workers' logs (level debug, format json) tell.

    `text` is its topology, `workers` the names of its workers.
    """

    def __init__(self, tool, folder, name, text, workers, *flags):
        self.dir = os.path.join(folder, name)
        self.topology = self.dir + ".yaml"
        with open(self.topology, "w", encoding="utf-8") as file:
            file.write(text)
        self.summary = self.up(tool, os.path.join(folder, "tokens"), flags)
        self.events = {worker: list(self.log(worker)) for worker in workers}

    def up(self, tool, tokens, flags):
        child = subprocess.run(
            [tool, "up", self.topology, "--dir", self.dir, "--data", tokens, *flags], text=True,
            check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if child.returncode not in (0, 5):  # 5: nothing was learned, as it must be
            raise SystemExit(f"{child.stdout[-4000:]}longhaul up ended with {child.returncode}")
        with open(os.path.join(self.dir, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        if not summary["replicas"]["equal"]:
            raise SystemExit("replicas disagree")
        return summary

    def status(self, node):
        with open(os.path.join(self.dir, node, "status.json"), encoding="utf-8") as file:
            return json.load(file)

    def log(self, worker):
        with open(os.path.join(self.dir, f"{worker}.log"), encoding="utf-8") as file:
            for line in file:
                if line.startswith("{"):
                    yield json.loads(line)

    def times(self, event, workers=None):
        """When an event happened, in seconds of the machine's clock, ascending."""
        return sorted(e["mono_us"] / 1e6 for worker in workers or self.events
                      for e in self.events[worker] if e["event"] == event)


def prepare(tool, folder, places):
    """Invented text in folder/tokens: the synthetic trainer reads none, leases need its units."""
    words = "all work and no play makes a dull model " * 8000
    for place in places:  # REGION/LANGUAGE
        path = os.path.join(folder, "text", place, "a.txt")
        os.makedirs(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as file:
            file.write(words)
        path = os.path.join(folder, "text", "heldout", place.split("/")[1] + ".txt")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(words[:400])
    subprocess.run([tool, "data", "prepare", "--text", os.path.join(folder, "text"), "--out",
                    os.path.join(folder, "tokens"), "--unit-tokens", str(TOKENS), "--sequence",
                    "64"], check=True, stdout=subprocess.DEVNULL)
