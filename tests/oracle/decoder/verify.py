"""Reads all that a run's servers left behind and compares everything that can be compared."""
import collections
import json

from .checkpoint import Checkpoint, read_trusted
from .fold import State
from .job import Job
from .log import ADMIT, DIGEST, KINDS, REFUSE, gather, read_log
from .plain import keep, need


def read_expected(path):
    """Chain and digest by shard and version, from a file with a line for each."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {(int(shard), int(version)): (chain, digest) for shard, version, chain, digest in lines}


class Run:
    """The files of a run, and their comparison.

    expect: chain and digest of every version of every shard; digests: the last version of each
    shard and its digest. Either may be missing.
    """

    def __init__(self, dirs, job, run, domain, expect=None, digests=None):
        self.job = Job(job, run, domain)
        self.expect = read_expected(expect) if expect else {}
        self.digests = json.loads(digests.read_text()) if digests else {}
        self.logs = {}         # directory: path and bytes of each segment
        self.checkpoints = []  # path, bytes, trusted keys
        self.count = collections.Counter()  # of what the last verification compared
        for directory in dirs:
            paths = sorted((directory / "log").glob("*.seg"))
            self.logs[directory] = [(path, path.read_bytes()) for path in paths]
            trusted = read_trusted(directory)
            for path in sorted((directory / "checkpoints").glob("*")):
                need(path.suffix in (".ckpt", ".weights"), f"{path}: not a checkpoint's name")
                self.checkpoints.append((path, path.read_bytes(), trusted))
        self.shards = {}       # number: records

    def verify(self, flip=keep):
        """Compares everything; returns a line for each log, shard and checkpoint.

        flip sees all that is read before it is judged, and may change it.
        """
        self.count.clear()
        lines, logs = [], []
        for directory, files in self.logs.items():
            records, counts = read_log(files, self.job, flip)
            logs.append(records)
            lines.append("{}: log agrees: {} segments, {} entries, {} marks, {} torn tails"
                         .format(directory, *counts))
        self.shards = gather(logs, self.job)
        checkpoints = self.read_checkpoints(flip)
        lines += [self.verify_shard(shard, checkpoints, flip) for shard in self.shards]
        lines += [f"{checkpoint}: agrees" for some in checkpoints.values() for checkpoint in some]
        left = [key for key in self.expect if key[1] > len(self.shards.get(key[0], ()))]
        need(not left, f"the log has not the expected shard and version {sorted(left)}")
        missing = set(self.digests) - {str(shard) for shard in self.shards}
        need(not missing, f"no records of shard {missing}")
        return lines

    def read_checkpoints(self, flip):
        """The checkpoints by shard and version, each unsealed and its signature verified."""
        found = collections.defaultdict(list)
        for path, data, trusted in self.checkpoints:
            data = flip("checkpoint", path, data)
            checkpoint = Checkpoint(path, data, self.job, trusted, flip)
            need(checkpoint.version <= len(self.shards.get(checkpoint.shard, ())),
                 f"{path}: a version that the log has not")
            found[checkpoint.shard, checkpoint.version].append(checkpoint)
            self.count["checkpoints"] += 1
            self.count["signatures"] += checkpoint.signed
        return found

    def verify_shard(self, shard, checkpoints, flip):
        """Folds a shard's records, compares after each, and returns a line about it."""
        state, kinds = State(self.job, shard), collections.Counter()
        records = self.shards[shard]
        for record in [None, *records]:
            if record:
                state.apply(record, flip)
                kinds[record.kind] += 1
            flip("fold", (shard, state.ledger.version), state)
            self.compare(state)
            for checkpoint in checkpoints.get((shard, state.ledger.version), ()):
                checkpoint.compare(state)
        final = self.digests.get(str(shard))
        if final:
            found = {"version": len(records), "digest": state.digest().hex()}
            need(found == final, f"shard {shard} ends with {found}, expected is {final}")
            self.count["expected"] += 1
        self.count["records"] += len(records)
        self.count["frames"] += kinds[ADMIT] + kinds[REFUSE]
        self.count["digests"] += kinds[DIGEST]
        text = ", ".join(f"{kinds[kind]} {name}" for kind, name in KINDS.items() if kinds[kind])
        return (f"shard {shard}: agrees: {len(records)} records and chains ({text}), final digest "
                f"{state.digest().hex()}{' as expected' if final else ''}")

    def compare(self, state):
        """Compares chain and digest with the expectation of this version, if there are any."""
        if not self.expect:
            return
        place = state.shard, state.ledger.version
        need(place in self.expect, f"no expectation of shard and version {place}")
        found = state.ledger.chain.hex(), state.digest().hex()
        need(found == self.expect[place], f"shard and version {place}: chain and digest are "
             f"{found}, expected are {self.expect[place]}")
        self.count["expected"] += 1

    def known(self):
        """Every shard and version whose digest something says."""
        known = set(self.expect)
        for shard, records in self.shards.items():
            known |= {(shard, r.version - 1) for r in records if r.kind == DIGEST}
            if str(shard) in self.digests:
                known.add((shard, len(records)))
        return sorted(known)
