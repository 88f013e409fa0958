"""Whole runs under `longhaul up`, for benches that measure the real programs from outside."""
import json
import os
import signal
import subprocess
import time

TOKENS = 256  # of a step, and of a unit

LONE = {  # shape of one shard that one worker pushes to, seconds between two cuts
    "full": ("{dim: 1024, layers: 20, heads: 8, kv_heads: 8, ffn: 2816, context: 64}", 2.0),
    "tiny": ("{dim: 32, layers: 2, heads: 2, kv_heads: 2, ffn: 64, context: 64}", 0.2),
}


def lone(run, size, rounds, server=None):
    """The topology of `rounds` rounds of that worker, with these settings of the server."""
    shape, pause = LONE[size]
    settings = "".join(f"  {key}: {value}\n" for key, value in (server or {}).items())
    return f"""run: {run}
budget_tokens: {int(TOKENS * rounds)}
tokens_per_s: {TOKENS / pause}
model: {shape}
coordinator: {{region: here}}
servers:
  - {{name: s0, region: here, shards: [0]}}
regions: {{here: {{}}}}
server:
  coordinator.h_base: 1
{settings}  log: {{level: debug, format: json}}
worker:
  codec: {{name: topk-sign, density: 0.015625}}
  trainer: {{kind: synthetic, learning_rate: 0.001, batch: 4}}
  data: {{window: 1}}
  log: {{level: debug, format: json}}
"""


class Run:
    """One run to its end, and the events in its workers' logs (level debug, format json).

    `text` is its topology, `workers` the names of its workers. `during(run)` is called once while
    it runs, to watch and to disturb it.
    """

    def __init__(self, tool, folder, name, text, workers, *flags, during=None):
        self.workers, self.child = workers, None  # `child` is set while it runs
        self.dir = os.path.join(folder, name)
        self.topology = self.dir + ".yaml"
        with open(self.topology, "w", encoding="utf-8") as file:
            file.write(text)
        self.summary = self.up(tool, os.path.join(folder, "tokens"), flags, during)
        self.events = {worker: list(self.log(worker)) for worker in workers}

    def up(self, tool, tokens, flags, during):
        said = os.path.join(os.path.dirname(self.dir), "up.log")
        with open(said, "w+", encoding="utf-8") as file:
            with subprocess.Popen(
                    [tool, "up", self.topology, "--dir", self.dir, "--data", tokens, *flags],
                    stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT) as child:
                self.child = child
                try:
                    if during:
                        during(self)
                except BaseException:
                    child.terminate()  # it drains, and ends its children
                    raise
            file.seek(0)
            if child.returncode not in (0, 5):  # 5: nothing was learned, as expected
                raise SystemExit(f"{file.read()[-4000:]}longhaul up ended with {child.returncode}")
        with open(os.path.join(self.dir, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        if not summary["replicas"]["equal"]:
            raise SystemExit("replicas disagree")
        return summary

    def kill(self, node):
        """Kills a node's process by SIGKILL; `up` starts another. Gives the time in seconds."""
        pid = self.status(node)["pid"]
        os.kill(pid, signal.SIGKILL)
        return time.monotonic()

    def status(self, node):
        with open(os.path.join(self.dir, node, "status.json"), encoding="utf-8") as file:
            return json.load(file)

    def log(self, worker):
        with open(os.path.join(self.dir, f"{worker}.log"), encoding="utf-8") as file:
            for line in file:
                if line.startswith("{") and line.endswith("\n"):  # the last one may be partial
                    yield json.loads(line)

    def times(self, event, workers=None):
        """The times of an event, in seconds of the machine's clock, ascending."""
        return sorted(e["mono_us"] / 1e6 for worker in workers or self.events
                      for e in self.events[worker] if e["event"] == event)


class Tail:
    """A worker's log while the run goes on. Times are seconds of the machine's clock."""

    def __init__(self, run, worker, patience=120):
        self.run, self.worker, self.patience = run, worker, patience

    def times(self, event):
        try:
            events = list(self.run.log(self.worker))
        except (OSError, json.JSONDecodeError):  # not there yet; the last line is being written
            return []
        return [e["mono_us"] / 1e6 for e in events if e["event"] == event]

    def _until(self, what, ready):
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            found = ready()
            if found is not None:
                return found
            time.sleep(0.1)
        raise SystemExit(f"{self.worker}: no {what} within {self.patience} s")

    def wait(self, event, count, after=lambda: None):
        """Waits until an event happened `count` times more, after calling `after`."""
        count += len(self.times(event))
        after()
        self._until(event, lambda: True if len(self.times(event)) >= count else None)

    def next(self, event, after):
        return self._until(event, lambda: min((t for t in self.times(event) if t > after),
                                              default=None))

    def longest_gap(self, event, start, end):
        """The longest time between two events that overlaps this interval."""
        times = self.times(event)
        return max((b - a for a, b in zip(times, times[1:]) if b > start and a < end), default=0.0)


def prepare(tool, folder, places, units=1000):
    """Made-up text in folder/tokens: the synthetic trainer reads none, but leases need units:
    `units` of each place; a run ends when they are used up."""
    line = "all work and no play makes a dull model "
    words = line * (units * TOKENS // len(line) + 1)
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
