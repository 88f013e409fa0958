"""The cost of a kill: one process of a running `longhaul up` is killed with -9 while a push is
under way, the launcher restarts it, and the others' lost time is read from outside. A kill that
came after the push's answer is repeated.

Training's waiting time is the difference of `stall_s` in the others' status.json, from the last one
before the kill to one written after the restarted process took part for two rounds. Beside it, from
the logs alone: the longest time between two cuts of the others meanwhile.
"""
import json
import os
import subprocess
import time

LOOK_S, PATIENCE_S, TRIES = 0.005, 150, 10
STEADY_S = 21  # `longhaul up` restarts a process that lived 20 s after 0.2 s, others later
ROUNDS_EACH = 1000  # of the budget: more than the kills need; the run is ended after them


class Log:
    """A log as it grows: the JSON lines that were added since the last look."""

    def __init__(self, path):
        self.path, self.at, self.rest = path, 0, ""

    def more(self):
        try:
            with open(self.path, encoding="utf-8") as file:
                file.seek(self.at)
                text = file.read()
                self.at = file.tell()
        except FileNotFoundError:
            return []
        *lines, self.rest = (self.rest + text).split("\n")
        return [json.loads(line) for line in lines if line.startswith("{")]


class Kill:
    def __init__(self, what, victim, senders, shard):
        self.what, self.victim, self.senders, self.shard = what, victim, senders, shard
        self.at = self.back = self.end = 0.0  # machine's clock: killed, works again, measured
        self.before, self.after = {}, {}  # stall_s of the others


class Drill:
    """Kills, one after the other; called by live.Run with the run."""

    def __init__(self, tool, workers, pause):
        self.tool, self.workers, self.pause, self.kills = tool, workers, pause, []
        self.lives = {}  # victim -> start of its present process, seconds of the machine's clock

    def plan_worker(self, victim):
        self.kills.append(Kill("kill-worker", victim, [victim], None))

    def plan_server(self, victim, shard, senders):
        """`senders`: workers far from it, whose pushes take a while."""
        self.kills.append(Kill("kill-server", victim, senders, str(shard)))

    def __call__(self, run):
        self.until(run, "training", lambda: all(
            self.status(run, worker).get("rounds", 0) >= 2 for worker in self.workers))
        for kill in self.kills:
            for _ in range(TRIES):
                self.one(run, kill)
                if self.in_the_middle(run, kill):
                    break
            else:
                raise SystemExit(f"{kill.what}: no push was under way in {TRIES} kills")
        subprocess.run([self.tool, "drain", "run", "--end", "--dir", run.dir], check=True,
                       stdout=subprocess.DEVNULL)

    def others(self, kill):
        return [worker for worker in self.workers if worker != kill.victim]

    @staticmethod
    def status(run, node):
        try:
            return run.status(node)
        except (OSError, ValueError):  # not there yet, or being replaced
            return {}

    def until(self, run, what, holds):
        end = time.monotonic() + PATIENCE_S
        while not holds():
            if run.child.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the run did not come to: {what} (bench/kills.py)")
            time.sleep(LOOK_S)

    def count(self, run, kill):
        """A number that grows while the victim works: a server's version, a worker's rounds."""
        said = self.status(run, kill.victim)
        if kill.shard is None:
            return said.get("pid"), said.get("rounds", 0)
        return said.get("pid"), max((s["version"] for s in said.get("shards", [])), default=0)

    def one(self, run, kill):
        steady = self.lives.get(kill.victim, -STEADY_S) + STEADY_S
        time.sleep(max(2 * self.pause, steady - time.monotonic()))  # well after the kill before
        self.wait_for_push(run, kill)
        pid = self.status(run, kill.victim)["pid"]
        kill.at = run.kill(kill.victim)
        kill.before = self.stalls(run, kill)
        self.until(run, f"{kill.victim} started again",
                   lambda: self.count(run, kill)[0] not in (None, pid))
        self.lives[kill.victim] = time.monotonic()
        begun = self.count(run, kill)[1]
        self.until(run, f"{kill.victim} works again", lambda: self.count(run, kill)[1] > begun)
        kill.back = time.monotonic()
        self.until(run, f"two rounds after {kill.victim} was back",
                   lambda: self.count(run, kill)[1] > begun + (2 if kill.shard is None else 6))
        now = time.time()
        self.until(run, "the others' next status", lambda: all(
            self.status(run, worker).get("time_s", 0) > now for worker in self.others(kill)))
        kill.after, kill.end = self.stalls(run, kill), time.monotonic()

    def stalls(self, run, kill):
        out = {}
        for worker in self.others(kill):
            self.until(run, f"{worker}'s status", lambda w=worker: self.status(run, w))
            out[worker] = self.status(run, worker)["stall_s"]
        return out

    def wait_for_push(self, run, kill):
        """Waits until a push has just been sealed: the victim's own, or one to it."""
        logs = [Log(os.path.join(run.dir, f"{worker}.log")) for worker in kill.senders]
        for log in logs:
            log.more()

        def made():
            for line in (line for log in logs for line in log.more()):
                ours = kill.shard is None or f"shard {kill.shard}:" in line.get("text", "")
                if line["event"] == "push.made" and ours:
                    return True
            return False

        self.until(run, "a push under way", made)

    # ------------------------------------------------------------ rows

    def in_the_middle(self, run, kill):
        """Whether a push of the victim, or to it, was sealed and unanswered when it was killed."""
        for worker in kill.senders:
            under_way = set()
            for e in run.log(worker):
                shard, name = ((e.get("text") or "") + "  ").split(" ")[1:3]
                age = kill.at - e["mono_us"] / 1e6
                if not 0 <= age < self.pause or kill.shard not in (None, shard.strip(":")):
                    continue
                if e["event"] == "push.made":
                    under_way.add((shard, name))
                elif e["event"] == "push.decided":
                    under_way.discard((shard, name))
            if under_way:
                return True
        return False

    def longest(self, run, worker, start, end):
        """The longest time between two cuts of a worker that overlaps this interval."""
        cuts = run.times("push.cut", [worker])
        rounds = [t for i, t in enumerate(cuts) if i == 0 or t - cuts[i - 1] > self.pause / 2]
        return max(b - a for a, b in zip(rounds, rounds[1:]) if b > start and a < end)

    def rows(self, out, run, prefix, what):
        """Rows of all kills of one kind."""
        done = [kill for kill in self.kills if kill.what == what]
        word = "others_" if what == "kill-worker" else ""
        name = f"{prefix}.{what}"
        out.row(f"{name}.{word}stall_s", "s", [kill.after[worker] - kill.before[worker]
                                               for kill in done for worker in self.others(kill)])
        longest = [self.longest(run, worker, kill.at, kill.end)
                   for kill in done for worker in self.others(kill)]
        out.row(f"{name}.{word}longest_round_s", "s", longest, "seconds between two cuts",
                self.pause)
        out.row(f"{name}.back_s", "s", [kill.back - kill.at for kill in done])
