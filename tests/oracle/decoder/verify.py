"""Reads all files of a run's servers and compares everything that can be compared."""
import collections

from .checkpoint import Checkpoint, read_trusted
from .fold import State
from .frame import Frame
from .job import Job
from .log import ADMIT, DIGEST, KINDS, MOVE, REFUSE, gather, read_log
from .payload import Payload
from .plain import Unreadable, keep, need, read_json, read_text


def read_expected(path):
    """Chain and digest by shard and version, from a file with a line for each."""
    try:
        lines = (line.split() for line in read_text(path).splitlines())
        return {(int(shard), int(version)): (chain, digest)
                for shard, version, chain, digest in lines}
    except ValueError:
        raise Unreadable(f"{path}: a line is not shard, version, chain, digest") from None


class Run:
    """The files of a run, and their comparison.

    expect: chain and digest of every version of every shard; digests: the last version of each
    shard and its digest. Either may be missing.
    """

    def __init__(self, dirs, job, run, domain, expect=None, digests=None):
        self.job = Job(job, run, domain)
        self.expect = read_expected(expect) if expect else {}
        form = {str: {"version": int, "digest": str}}
        self.digests = read_json(digests, form) if digests else {}
        self.logs = {}         # directory: path and bytes of each segment
        self.checkpoints = []  # path, bytes, trusted keys
        self.count = collections.Counter()  # numbers compared by the last verification
        for directory in dirs:
            paths = sorted((directory / "log").glob("*.seg"))
            self.logs[directory] = [(path, path.read_bytes()) for path in paths]
            trusted = read_trusted(directory)
            for path in sorted((directory / "checkpoints").glob("*")):
                need(path.suffix in (".ckpt", ".weights"), f"{path}: not a checkpoint's name")
                self.checkpoints.append((path, path.read_bytes(), trusted))
        self.shards = {}       # number: records
        self.begins = {}       # number: version from which its records are folded
        self.ends = {}         # number: version up to which they are folded

    def verify(self, flip=keep):
        """Compares everything; returns a line for each log, shard and checkpoint.

        flip sees all data before they are checked, and may change them.
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
        for shard in {shard for shard, _ in checkpoints} - set(self.shards):
            self.shards[shard] = []  # nothing was written after its last checkpoint
        lines += [self.verify_shard(shard, checkpoints, flip) for shard in sorted(self.shards)]
        for place, some in checkpoints.items():
            folded = place[1] >= self.begins[place[0]]
            for checkpoint in some:
                if not folded:
                    checkpoint.compare_itself(self.job)
                lines.append(f"{checkpoint}: agrees{'' if folded else ' with itself alone'}")
        left = [key for key in self.expect if key[1] > self.ends.get(key[0], -1)]
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
            records = self.shards.get(checkpoint.shard)
            need(not records or checkpoint.version <= records[-1].version,
                 f"{path}: a version that the log has not")
            found[checkpoint.shard, checkpoint.version].append(checkpoint)
            self.count["checkpoints"] += 1
            self.count["signatures"] += checkpoint.signed
        return found

    def begin(self, shard, checkpoints):
        """The state to fold from: version 0, or if the log's beginning is missing, the oldest
        checkpoint that the log goes on from."""
        records = self.shards[shard]
        if records and records[0].version == 1:
            return State(self.job, shard)
        least = records[0].version - 1 if records else 0
        whole = [checkpoint for (number, version), some in sorted(checkpoints.items())
                 for checkpoint in some
                 if number == shard and version >= least and not checkpoint.weights]
        need(whole, f"shard {shard}: the log begins at version {least + 1}, and no checkpoint is "
             f"of version {least} or later")
        first = whole[0] if records else whole[-1]
        return State.of(self.job, shard, first.state, first.name)

    def pass_over(self, shard, state, flip):
        """Checks the records that the first state already contains: chains from the second on,
        frames and payloads. Their fold cannot be compared. Returns the records after them."""
        records, before = self.shards[shard], None
        passed = [record for record in records if record.version <= state.ledger.version]
        chained = State(self.job, shard).ledger
        for record in passed:
            frame = None
            if record.kind in (ADMIT, REFUSE):
                frame = Frame(record.body, record.kind == ADMIT, record.where)
                frame.check(self.job, shard)
            if before:
                chained.version, chained.chain = before.version, before.chain
                chained.epoch, chained.move = before.epoch, () if before.kind == MOVE else None
                chained.follow(record, frame.stub if frame else record.body)
            before = record
            if record.kind == ADMIT:
                place = shard, record.version
                frame.sealed = flip("sealed", place, frame.sealed)
                Payload(frame.unseal(self.job), frame, self.job.layouts[shard]).decode()
        need(not passed or passed[-1].chain == state.ledger.chain,
             f"shard {shard}: the first checkpoint's chain is not the log's")
        self.count["passed"] += len(passed)
        return records[len(passed):]

    def verify_shard(self, shard, checkpoints, flip):
        """Folds a shard's records, compares after each, and returns a line about it."""
        state, kinds = self.begin(shard, checkpoints), collections.Counter()
        self.begins[shard] = state.ledger.version
        records = self.pass_over(shard, state, flip)
        for record in [None, *records]:
            if record:
                state.apply(record, flip)
                kinds[record.kind] += 1
            flip("fold", (shard, state.ledger.version), state)
            self.compare(state)
            for checkpoint in checkpoints.get((shard, state.ledger.version), ()):
                checkpoint.compare(state)
        self.ends[shard] = state.ledger.version
        final = self.digests.get(str(shard))
        if final:
            found = {"version": state.ledger.version, "digest": state.digest().hex()}
            need(found == final, f"shard {shard} ends with {found}, expected is {final}")
            self.count["expected"] += 1
        self.count["records"] += len(records)
        self.count["frames"] += kinds[ADMIT] + kinds[REFUSE]
        self.count["digests"] += kinds[DIGEST]
        text = ", ".join(f"{kinds[kind]} {name}" for kind, name in KINDS.items() if kinds[kind])
        begin = f" from version {self.begins[shard]} on" if self.begins[shard] else ""
        return (f"shard {shard}: agrees: {len(records)} records and chains{begin} ({text}), final "
                f"digest {state.digest().hex()}{' as expected' if final else ''}")

    def compare(self, state):
        """Compares chain and digest with the expectation for this version, if there is one."""
        if not self.expect:
            return
        place = state.shard, state.ledger.version
        need(place in self.expect, f"no expectation of shard and version {place}")
        found = state.ledger.chain.hex(), state.digest().hex()
        need(found == self.expect[place], f"shard and version {place}: chain and digest are "
             f"{found}, expected are {self.expect[place]}")
        self.count["expected"] += 1

    def folded(self):
        """The folded records, each of which the comparison covers completely."""
        return [record for shard, records in self.shards.items() for record in records
                if record.version > self.begins[shard]]

    def known(self):
        """Every shard and version with a known digest."""
        known = {key for key in self.expect if key[1] >= self.begins[key[0]]}
        known |= {(r.shard, r.version - 1) for r in self.folded() if r.kind == DIGEST}
        for shard in self.shards:
            if str(shard) in self.digests:
                known.add((shard, self.ends[shard]))
        return sorted(known)
