"""Faults of a fleet, and the evidence in its logs afterwards.

A region has recovered when its worker has received a decision and folded a record of every shard
since the fault ended. The promised bound after a cut is 3 s and four round trips. A killed process
needs more, each step a round trip: a new connection takes four (TCP 1, TLS 2 with the client's
certificate, HTTP/2 1), a hello and a push one each; so eight trips are allowed after a restart of a
server or the coordinator, and fourteen after that of a worker, which joins before its hello.
"""
import dataclasses
import json
import re
import time

TRIPS = {"cut": 4, "storm": 4, "hub-cut": 4, "kill-server": 8, "away": 8, "kill-worker": 14}
GRACE_S = 3.0
PATIENCE_S = 180  # then it counts as not recovered
SHARD = re.compile(r"shard (\d+):")


@dataclasses.dataclass
class Fault:
    """`kind` is one of TRIPS, `region` the affected one, `pause` the seconds without fault
    before."""
    kind: str
    seconds: float = 0.0
    region: str = ""
    pause: float = 2.0

    @property
    def name(self):
        return f"{self.kind}-{self.seconds:g}" if self.seconds else self.kind


def schedule(far):
    """The fixed schedule."""
    return [Fault("cut", 5, far), Fault("cut", 8, far), Fault("cut", 20, far),
            Fault("storm", 10, far), Fault("kill-worker", 0, far), Fault("kill-server"),
            Fault("hub-cut", 20), Fault("away", 45)]


def held_out(regions, draw):
    """A drawn schedule: six faults, any region, any length, any moment."""
    kinds = ["cut", "cut", draw.choice(["storm", "hub-cut"]), "kill-worker", "kill-server", "away"]
    draw.shuffle(kinds)
    lasts = {"cut": (1, 25), "storm": (3, 15), "hub-cut": (1, 25), "away": (5, 45)}
    return [Fault(kind, round(draw.uniform(*lasts[kind])) if kind in lasts else 0,
                  draw.choice(regions) if kind in ("cut", "storm", "kill-worker") else "",
                  round(draw.uniform(0, 12), 1)) for kind in kinds]


class Ear:
    """The events of a node's log so far: (seconds of the machine's clock, event, text)."""

    def __init__(self, node):
        self.node, self.at, self.heard = node, 0, []

    def listen(self):
        with open(self.node.log, "rb") as file:
            file.seek(self.at)
            new = file.read()
        new = new[:new.rfind(b"\n") + 1]
        self.at += len(new)
        for line in new.splitlines():
            try:
                said = json.loads(line)
                self.heard.append((said["mono_us"] / 1e6, said["event"], said.get("text", "")))
            except (ValueError, KeyError):
                pass  # a killed process's partial last line, and the first one after it
        return self

    def first(self, event, since):
        """shard -> time of the first such event."""
        out = {}
        for at, what, text in self.heard:
            if what == event and at > since:
                out.setdefault(SHARD.match(text).group(1), at)
        return out

    def well(self, since, shards):
        """The time at which it had recovered; None: not yet."""
        decided, folded = (self.first(e, since) for e in ("push.decided", "record.folded"))
        if len(decided) < shards or len(folded) < shards:
            return None
        return max(*decided.values(), *folded.values())

    def gap(self, start, end):
        """The longest time without a decision that overlaps this interval."""
        times = [at for at, what, _ in self.heard if what == "push.decided"]
        times.append(max(end, times[-1] if times else start))
        return max((b - a for a, b in zip(times, times[1:]) if b > start and a < end), default=0.0)

    def texts(self, event, start, end):
        return [text for at, what, text in self.heard if what == event and start <= at <= end]


class Drill:
    """A fleet under a schedule. `told` is called with a line for each fault."""

    def __init__(self, fleet, told=print):
        self.fleet, self.told, self.rows = fleet, told, []
        self.ears = {node.name: Ear(node) for node in (*fleet.workers, fleet.coordinator)}
        self.shards, self.usual = len(fleet.servers), {}

    def warm_up(self):
        """Waits until every worker has pushed to all shards for a while: the time between two
        decisions then is the usual gap."""
        begun = time.monotonic()
        self._until_well(self.fleet.workers, begun)
        since = time.monotonic()
        while time.monotonic() < since + 10:
            self._look()
        self.usual = {worker.name: self.ears[worker.name].gap(since, time.monotonic())
                      for worker in self.fleet.workers}
        self.told(f"all train after {since - begun:.1f} s; usual gaps " +
                  ", ".join(f"{name} {gap:.1f} s" for name, gap in self.usual.items()))

    def _look(self, gone=None):
        for ear in self.ears.values():
            ear.listen()
        self.fleet.keep_segments()
        for node in self.fleet.nodes():
            if node is not gone and node.process.poll() is not None:
                raise SystemExit(f"{node.name} ended with {node.process.returncode}:\n"
                                 f"{node.tail()}")
        time.sleep(0.1)

    def _until_well(self, workers, since):
        """For each worker the seconds until it recovered; None: not within PATIENCE_S."""
        out, end = {}, time.monotonic() + PATIENCE_S
        while len(out) < len(workers) and time.monotonic() < end:
            self._look()
            for worker in workers:
                at = self.ears[worker.name].well(since, self.shards)
                if at and worker.name not in out:
                    out[worker.name] = at - since
        return {worker.name: out.get(worker.name) for worker in workers}

    def _hold(self, seconds, gone=None):
        end = time.monotonic() + seconds  # the fault itself
        while time.monotonic() < end:
            self._look(gone)

    def _befall(self, fault):
        """Makes the fault and undoes it; gives the workers to wait for, and the fault's end."""
        fleet, links = self.fleet, self.fleet.links
        dead = fault.kind in ("kill-server", "kill-worker", "away")
        if dead:
            node = {"kill-server": fleet.servers[0], "away": fleet.coordinator}.get(
                fault.kind) or fleet.worker_of(fault.region)
            node.kill()
            if fault.seconds:
                self._hold(fault.seconds, node)
            since = time.monotonic()
            node.start()
            if node.kind != "worker":
                node.listening()
            return ([node] if node.kind == "worker" else fleet.workers), since
        region = fault.region or fleet.hub
        with (links.storm if fault.kind == "storm" else links.cut)(region):
            self._hold(fault.seconds)
        alone = region not in [node.region for node in (fleet.coordinator, *fleet.servers)]
        return ([fleet.worker_of(region)] if alone else fleet.workers), time.monotonic()

    def play(self, fault):
        self._hold(fault.pause)
        begun = time.monotonic()
        whom, since = self._befall(fault)
        well = self._until_well(whom, since)
        end = time.monotonic()
        others = [w for w in self.fleet.workers if w not in whom] or self.fleet.workers
        slowest = max(whom, key=lambda w: (well[w.name] or PATIENCE_S) / self.allowed(fault, w))
        said = self.ears[self.fleet.coordinator.name]
        row = {"fault": fault.name, "region": fault.region, "who": slowest.name,
               "pause": fault.pause, "seconds": well[slowest.name],
               "bound": self.allowed(fault, slowest), "trips": TRIPS[fault.kind],
               "rtt": self.fleet.peers_rtt_s(slowest), "well": well,
               "stalls": {w.name: max(0.0, self.ears[w.name].gap(begun, end) -
                                      self.usual[w.name]) for w in others},
               "given_up": said.texts("worker.lost", begun, end)}
        self.rows.append(row)
        seconds = row["seconds"]
        self.told(f"{fault.name} {fault.region or ''}: "
                  f"{'not' if seconds is None else f'{seconds:.1f} s'} ({row['who']}, of "
                  f"{row['bound']:.1f} s allowed); longest stall of "
                  f"{'the others' if len(others) < len(self.fleet.workers) else 'all'} "
                  f"{max(row['stalls'].values()):.1f} s; given up: {row['given_up'] or 'nobody'}")
        return row

    def allowed(self, fault, worker):
        return GRACE_S + TRIPS[fault.kind] * self.fleet.peers_rtt_s(worker)
