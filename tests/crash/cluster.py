"""A run of the real programs that tests kill: a tiny model, the synthetic trainer.

Log segments are hard-linked as soon as they appear, so that the whole history is there when the run
is judged, although checkpoints delete segments.
"""
import argparse
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import history  # pylint: disable=wrong-import-position
from world import REGIONS, Failure, World  # pylint: disable=wrong-import-position
from world import check, flags_of, held, until  # pylint: disable=wrong-import-position

SHAPE = {"architecture": "transformer", "vocab": 256, "dim": 8, "layers": 1, "heads": 2,
         "kv_heads": 1, "ffn": 16, "context": 64, "tied": True}
UNIT_TOKENS = 256
SHARDS = SERVERS = 2
LOUD = {"log.level": "debug", "log.format": "json"}


class Cluster:
    """Coordinator, SERVERS and three workers. WORKER and COORDINATOR hold settings, PROGRAM is
    another program for the workers, and every server has the same number of the SHARDS."""

    WORKER, COORDINATOR, PROGRAM, SHARDS, SERVERS = {}, {}, None, SHARDS, SERVERS

    def __init__(self, build, units, keep=False, world=None):
        self.world = world or World(build, run="crash", units=units, keep=keep, shape=SHAPE,
                                    unit_tokens=UNIT_TOKENS, shards=self.SHARDS)
        self.kept = [self.world.path(f"history-{i}") for i in range(self.SERVERS)]
        self.missed, self.read, self.told = set(), {}, 0
        for folder in self.kept:
            os.mkdir(folder)

    def start(self, speed, checkpoint_every=40):
        world = self.world
        self.coordinator = world.coordinator(
            **{"coordinator.h_base": 2, "coordinator.worker_timeout_s": "20 s",
               **self.COORDINATOR}).start().listening()
        self.make_servers(checkpoint_every)
        settings = LOUD | {
            "trainer.kind": "synthetic", "trainer.batch": 1,
            "trainer.tokens_per_s": speed} | self.WORKER
        self.workers = [world.worker(region, self.coordinator, **settings) for region in REGIONS]
        for worker in self.workers:
            worker.program = self.PROGRAM or worker.program
            worker.start()
        return self

    def make_servers(self, checkpoint_every):
        self.servers = [self.world.server(i, self.coordinator, shards=self.shards_of(i), **{
            "checkpoint.every_versions": checkpoint_every}) for i in range(self.SERVERS)]
        for server in self.servers:
            server.start().listening()

    def shards_of(self, server):
        each = self.SHARDS // self.SERVERS
        return list(range(server * each, (server + 1) * each))

    def nodes(self):
        return [*self.servers, *self.workers, self.coordinator]

    def keep_segments(self, but=None):
        """Links new segments; called so often that no segment comes and goes in between. `but`: a
        server to skip, whose log does not belong to the run yet."""
        for server, kept in zip(self.servers, self.kept):
            if server is but:
                continue
            log = os.path.join(server.dir, "log")
            for name in os.listdir(log):
                try:
                    path = os.path.join(log, name)
                    history.keep_segment(path, os.path.join(kept, self.kept_name(path)))
                except FileExistsError:
                    pass  # linked by keep.c
                except FileNotFoundError:
                    self.missed.add(name)  # deleted just now, perhaps before it was linked

    def kept_name(self, path):
        return os.path.basename(path)

    def pushes_told(self):
        """The number of answers to pushes in the workers' logs."""
        for worker in self.workers:
            with open(worker.log, "rb") as file:
                file.seek(self.read.get(worker.name, 0))
                new = file.read()
            new = new[:new.rfind(b"\n") + 1]
            self.read[worker.name] = self.read.get(worker.name, 0) + len(new)
            self.told += new.count(b'"push.decided"')
        return self.told

    def over(self):
        """The run is near its end, or has ended."""
        status = self.coordinator.status()
        return status.get("phase") in ("draining", "closing", "ended") or \
            status.get("credited", 0) > 0.6 * len(self.world.units)

    def wait_for_pushes(self, more):
        """Waits until `more` further pushes are answered, or the run is over."""
        due = self.pushes_told() + more
        until("pushes are answered",
              lambda: (self.keep_segments(), self.pushes_told() >= due or self.over())[1])

    def finish(self, patience=240):
        """Waits for the run's end: workers exit with 0, every unit is credited."""
        for worker in filter(lambda w: w.alive(), self.workers):
            worker.kill()
            worker.settings["trainer.tokens_per_s"] = 0
            worker.start()
        for worker in self.workers:
            until(f"{worker.name} ends", lambda w=worker: (self.keep_segments(), not w.alive())[1],
                  patience)
            check(worker.process.returncode == 0,
                  f"{worker.name} ended with {worker.process.returncode}:\n{worker.tail()}")
        until("the coordinator knows", lambda: self.coordinator.status().get("phase") == "ended")
        return self

    def logs(self):
        """Folders with all segments that each server ever wrote."""
        return self.kept

    def records(self):
        """The servers' logs: shard -> records; and the job."""
        records, job = {i: [] for i in range(self.SHARDS)}, b""
        self.keep_segments()
        for kept in self.logs():
            found, job = history.read_segments(kept)
            for r in found:
                records[r.shard].append(r)
        return records, job

    def heard(self):
        """The workers' events, and the number of unreadable lines in their logs."""
        workers, bad = {}, 0
        for w in self.workers:
            events, unreadable = history.read_worker(w.log)
            number = history.worker_id("e2e.test", self.world.run, w.region, w.name)
            workers[w.name] = number, events
            bad += unreadable
        return workers, bad

    def history(self):
        """The history for history.py, read after the run's end while the servers still run."""
        truth = held(self.servers)
        counted = {s["shard"]: s["credited"] for n in self.servers for s in n.status()["shards"]}
        records, job = self.records()
        workers, bad = self.heard()
        status = self.coordinator.status()
        return history.History(
            job=job, shards=self.SHARDS, units={u["id"]: u["tokens"] for u in self.world.units},
            records=records, workers=workers, ended=True, credited=status["credited"],
            credited_tokens=status["credited_tokens"], counted=counted, truth=truth,
            held={w.name: w.last_holdings() for w in self.workers}, unreadable_lines=bad)


def judged(cluster):
    """Waits for the run's end and gives its history. history.py must find nothing wrong with it,
    and must detect every tampered copy."""
    h = cluster.finish().history()
    bad = history.judge(h)
    check(not bad, f"{len(bad)} violations, the first: {bad[:5]}")
    unseen = history.unseen(h)
    check(not unseen, f"tampered histories that nobody sees: {unseen}")
    return h


class Sums:
    """Sums over the runs of a campaign."""

    def __init__(self):
        self.of = {}

    def add(self, found):
        for key, value in found.items():
            self.of[key] = self.of.get(key, 0) + value

    def rows(self, report, prefix):
        """Adds the sums to the report; only runs without a violation are counted."""
        for key in sorted(self.of):
            report.count(f"{prefix}.{key}", self.of[key])
        report.row(f"{prefix}.violations", "1", [0])


def add_flags(flags, what):
    """Adds the flags of a campaign's report."""
    flags.add_argument("--seed", type=int, default=1, help=what)
    flags.add_argument("--json")
    flags.add_argument("--join", action="store_true",
                       help="add to FILE's counts, of the same commit: a seed at a time")


def verdict(run):
    """The exit status of a test: 1 if run() met a failure."""
    try:
        run()
    except Failure as failure:
        print(f"FAILED {failure}")
        return 1
    print("ok")
    return 0


def figures(h):
    """Numbers of judged records and events."""
    of_kind = [r.kind for rs in h.records.values() for r in rs]
    events = [e for _, es in h.workers.values() for e in es]
    return {"records": len(of_kind), "admitted": of_kind.count(history.ADMIT),
            "refused": of_kind.count(history.REFUSE),
            "acknowledged": sum(e.what == "decided" for e in events),
            "folded": sum(e.what == "folded" for e in events), "units": len(h.units)}


def resumed(given, count, run):
    """The results of `count` runs: those in --file, and as many more as fit into --seconds.
    run(given, seed) gives the result of one, a line of JSON."""
    done = []
    if given.file and os.path.exists(given.file):
        with open(given.file, encoding="utf-8") as file:
            done = [json.loads(line) for line in file]
        print(f"{len(done)} of {count} runs were made before")
    end = time.monotonic() + given.seconds
    for seed in range(given.seed + len(done), given.seed + count):
        if time.monotonic() > end:
            break
        done.append(run(given, seed))
        print(json.dumps(done[-1]), flush=True)
        if given.file:
            with open(given.file, "a", encoding="utf-8") as file:
                file.write(json.dumps(done[-1]) + "\n")
    return done


def campaign_of_faults(text, one_run, faults, why=""):
    """A script's main(): runs of some faults each. one_run(given, seed) gives a line of JSON with
    its `faults`; `text`: the script's docstring; `why`: an addition to the help of --faults."""
    flags = argparse.ArgumentParser(description=text,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", required=True, help="the build tree")
    flags.add_argument("--runs", type=int, default=10)
    flags.add_argument("--faults", type=int, default=faults, help="cycles of a run" + why)
    flags.add_argument("--seconds", type=float, default=1e9, help="begin no run after so long")
    flags.add_argument("--seed", type=int, default=1, help="of the first run")
    flags.add_argument("--file", help="a line of JSON for each run")
    given = flags.parse_args()

    def campaign():
        done = resumed(given, given.runs, one_run)
        print(f"{sum(len(one['faults']) for one in done)} cycles in {len(done)} runs, "
              "no violation")

    return verdict(campaign)
