"""The plan in force and the ledger: everything of a shard's state but its parameters."""
import struct
from dataclasses import dataclass, field

from .log import ADMIT, EPOCH
from .plain import Cursor, digest_of, need

SGD, NESTEROV = 0, 1


class Plan:
    """The body of a PLAN; without a body the plan of zeros."""

    def __init__(self, body=None, name="plan"):
        self.body = body or struct.pack("<HQBBBffIIIIIBfIfIQBIB", 4, *[0] * 20)
        cursor = Cursor(self.body, name)
        version, self.number, self.phase, mode, weighting = cursor.read("HQBBB")
        self.eta, damping, staleness = cursor.read("ffI")
        need(version == 4 and self.phase <= 4 and mode <= 1 and weighting <= 1,
             f"{name}: version {version} phase {self.phase} mode {mode} weighting {weighting}")
        self.live = cursor.array(cursor.read("I"))
        self.ends = cursor.array(cursor.read("I"))
        self.expelled = cursor.array(cursor.read("I"))
        self.let_back = [cursor.read("QI") for _ in range(cursor.read("I"))]
        self.optimizer, self.momentum, self.pushes, self.bound = cursor.read("BfIf")
        need(self.optimizer in (SGD, NESTEROV), f"{name}: optimizer {self.optimizer}")
        need(self.optimizer or not (self.momentum or self.pushes or self.bound),
             f"{name}: SGD with momentum")
        self.steps, self.step_tokens, self.data = cursor.read("IQB")
        self.exceptions = [cursor.read("QB") for _ in range(cursor.read("I"))]
        need(self.data <= 2 and all(data <= 2 for _, data in self.exceptions),
             f"{name}: data of a kind that is none")
        self.privacy = cursor.read("B")
        if self.privacy:
            self.privacy = (self.privacy, *cursor.read("dddddQQII"))
            need(self.privacy[0] <= 3, f"{name}: privacy of level {self.privacy[0]}")
        self.left_out = cursor.array(cursor.read("I")) if cursor.more() else ()
        self.retired_up_to, self.retired = 0, ()
        if cursor.more():
            self.retired_up_to = cursor.read("I")
            self.retired = cursor.array(cursor.read("I"))
            need(self.retired_up_to > 0 or cursor.more(),
                 f"{name}: retires names without a number")
        self.budget = cursor.read("QQQ") if cursor.more() else (0, 0, 0)
        self.paused = cursor.read("B") if cursor.more() else 0
        cursor.end()
        need(all(self.budget[:2]) or not any(self.budget), f"{name}: a budget of nothing")
        need(self.paused == 0 or (self.paused == 1 and self.phase <= 1),
             f"{name}: a pause of phase {self.phase}")
        need(list(self.retired) == sorted(set(self.retired)), f"{name}: retired do not ascend")
        need(not self.left_out or self.phase >= 3, f"{name}: leaves out before it closes")
        need(list(self.left_out) == sorted(set(self.left_out)), f"{name}: left out do not ascend")
        need(list(self.live) == sorted(set(self.live)), f"{name}: live workers do not ascend")

    def interval(self):
        """N: admitted pushes between outer steps."""
        return max(1, self.pushes or len(self.live))


@dataclass
class Norms:
    """The norms of a worker's last pushes."""

    last: tuple = (0.0,) * 7
    count: int = 0
    steps: int = 0
    clipped: int = 0
    outliers: int = 0
    let_back: int = 0

    def pack(self):
        """The bytes of the norms."""
        return struct.pack("<7fIIBII", *self.last, self.count, self.steps, self.clipped,
                           self.outliers, self.let_back)

    def median(self):
        """The lower median of the norms so far."""
        return sorted(self.last[:self.count])[(self.count - 1) // 2]


def low_and_high(values):
    """The lower and the upper median."""
    values = sorted(values)
    return values[(len(values) - 1) // 2], values[len(values) // 2]


@dataclass
class Row:
    """The ledger's row of a worker."""

    number: int = 0
    noise: int = 0
    last_number: int = 0
    last_noise: int = 0
    last_step: int = 0
    last_version: int = 0
    last_digest: bytes = bytes(16)
    last_reason: int = 0
    admitted: int = 0
    refused: int = 0
    tokens: int = 0
    round: int = 0
    charged: int = 0
    norms: Norms = field(default_factory=Norms)

    def pack(self):
        """The row's bytes after the worker's id."""
        *own, norms = self.__dict__.values()
        return struct.pack("<QQQQQQ16sIQQQQQ", *own) + norms.pack()


class Ledger:
    """The ledger of one shard."""

    def __init__(self, job, shard):
        self.shard, self.shards = shard, job.shards
        self.version, self.epoch, self.move = 0, 1, None
        self.chain = digest_of(b"longhaul log 1", job.id, job.manifest,
                               struct.pack("<II", shard, job.shards))
        self.admitted = self.refused = self.tokens = 0
        self.rows, self.credit, self.plan = {}, bytearray(), Plan()
        self.reference = 0.0

    def unpack(self, cursor):
        """Reads the bytes of pack(), if the log's beginning is missing."""
        name = cursor.name
        version, shard, shards, self.epoch, self.version = cursor.read("HIIQQ")
        need(version == 4, f"{name}: ledger of version {version}")
        need((shard, shards) == (self.shard, self.shards), f"{name}: ledger of shard {shard} of "
             f"{shards}")
        self.chain, self.admitted, self.refused, self.tokens = cursor.read("32sQQQ")
        self.reference = cursor.read("d")
        move = cursor.read("QQ")
        self.move = move if move[0] else None
        for _ in range(cursor.read("I")):
            worker, *row = cursor.read("QQQQQQQ16sIQQQQQ")
            norms = cursor.read("7fIIBII")
            need(worker > max(self.rows, default=-1), f"{name}: rows do not ascend")
            self.rows[worker] = Row(*row, Norms(norms[:7], *norms[7:]))
        self.credit = bytearray(cursor.take(cursor.read("I")))
        need(not self.credit or self.credit[-1], f"{name}: credit ends with a zero")
        self.plan = Plan(cursor.take(cursor.read("I")), name)

    def follow(self, record, identity):
        """Checks a record's version, epoch and chain, and advances to it."""
        name = record.where
        need(record.version == self.version + 1, f"{name}: version {record.version}")
        need(record.kind == EPOCH or record.epoch == self.epoch, f"{name}: epoch {record.epoch}")
        need(self.move is None or record.kind == EPOCH, f"{name}: only an EPOCH may follow a MOVE")
        chain = digest_of(self.chain, struct.pack("<QQHIf", record.version, record.epoch,
                                                  record.kind, record.reason, record.scale),
                          identity)
        need(chain == record.chain, f"{name}: chain of version {record.version} is "
             f"{chain.hex()}, the record says {record.chain.hex()}")
        self.version, self.chain = record.version, chain

    def fence(self, record):
        """Sets the incarnation of a worker; only a FENCE does."""
        cursor = Cursor(record.body, record.where)
        worker, number, noise = cursor.read("QQQ")
        cursor.end()
        need(worker in self.rows or not self.plan.retired_up_to or
             number >> 32 > self.plan.retired_up_to, f"{record.where}: a retired number")
        row = self.rows.setdefault(worker, Row())
        need(number > row.number, f"{record.where}: incarnation {number} after {row.number}")
        row.number, row.noise = number, noise

    def push(self, frame, record):
        """Books an ADMIT or a REFUSE."""
        need(frame.worker in self.rows, f"{frame.name}: a push without a FENCE before it")
        row = self.rows[frame.worker]
        incarnation = frame.number, frame.noise
        need(incarnation == (row.number, row.noise), f"{frame.name}: a push of an incarnation "
             f"that is not its worker's")
        same = incarnation == (row.last_number, row.last_noise)
        due = row.last_step + 1 if same else 1
        need(frame.step == due, f"{frame.name}: step {frame.step} where {due} is the next one")
        admitted = record.kind == ADMIT
        row.last_number, row.last_noise = frame.number, frame.noise
        row.last_step, row.last_version = frame.step, record.version
        row.last_digest = frame.digest()
        row.last_reason = 0 if admitted else record.reason
        others = [self.rows[worker].round if worker in self.rows else 0
                  for worker in self.plan.live if worker != frame.worker]
        row.round = max(row.round + 1, min(others, default=0))
        if not admitted:
            row.refused += 1
            self.refused += 1
            return
        row.admitted += 1
        self.admitted += 1
        row.tokens += frame.tokens
        row.charged = frame.charged
        self.tokens += frame.tokens
        steps = self.steps(frame.worker, frame.steps) if frame.steps else 0
        self.note(row.norms, record.reason, steps)
        for unit in frame.claims:
            self.claim(unit)

    def counted(self, skip):
        """The norms that count: of live workers, or of all if those are few."""
        def some(workers):
            rows = [self.rows[w].norms for w in workers
                    if w in self.rows and w != skip and w not in self.plan.expelled]
            return [n for n in rows if n.count and n.outliers < 10]
        return some(self.plan.live), some(self.rows)

    def steps(self, worker, steps):
        """The number of local steps with which a push counts."""
        live, everybody = self.counted(worker)
        most = [n.steps for n in live or everybody]
        bound = min(1 << 16, 8 * low_and_high(most)[0] if most else 1 << 16)
        return max(1, min(steps, bound))

    def note(self, norms, bits, steps):
        """Adds a norm, and moves the reference."""
        norm, = struct.unpack("<f", struct.pack("<I", bits & 0x7ffffffe))
        if steps and norm > 0:
            norms.last = (norm, *norms.last[:6])
            norms.count = min(7, norms.count + 1)
            norms.steps = steps
        norms.clipped = bits & 1
        norms.outliers = norms.outliers + 1 if bits >> 31 else 0
        live, everybody = self.counted(None)
        counted = live if len(live) > 1 else everybody
        if not counted:
            return
        low, high = low_and_high([n.median() for n in counted])
        factor = 1 + 0.5 / max(1, len(self.plan.live))
        if not self.reference:
            silent = [w for w in self.plan.live if w in self.rows
                      and not self.rows[w].norms.count and self.rows[w].admitted >= 7]
            if len(counted) + len(silent) > 1 or len(self.plan.live) < 2:
                self.reference = low
        elif self.reference < low:
            self.reference = min(self.reference * factor, low)
        elif self.reference > high:
            self.reference = max(self.reference / factor, high)

    def take_plan(self, plan):
        """A plan comes into force."""
        before = self.plan.retired_up_to
        need(plan.retired_up_to >= before, f"plan {plan.number} forgets retired numbers")
        for worker in plan.retired:
            if worker in self.rows and self.rows[worker].number >> 32 <= plan.retired_up_to:
                del self.rows[worker]
        for worker in plan.live if plan.retired else ():
            if worker not in self.rows and worker not in plan.retired and len(self.rows) < 1024:
                self.rows[worker] = Row(number=before << 32 | 0xffffffff)
        self.plan = plan
        for worker, count in plan.let_back:
            if worker in self.rows and self.rows[worker].norms.let_back < count:
                self.rows[worker].norms = Norms(let_back=count)

    def claim(self, unit):
        """Credits a unit, if this shard keeps it."""
        if unit % self.shards == self.shard:
            self.credit.extend(bytes(max(0, unit // 8 + 1 - len(self.credit))))
            self.credit[unit // 8] |= 1 << unit % 8

    def pack(self):
        """The ledger's bytes."""
        parts = [struct.pack("<HIIQQ", 4, self.shard, self.shards, self.epoch,
                             self.version), self.chain,
                 struct.pack("<QQQd", self.admitted, self.refused, self.tokens, self.reference),
                 struct.pack("<QQ", *(self.move or (0, 0)))]
        parts.append(struct.pack("<I", len(self.rows)))
        for worker, row in sorted(self.rows.items()):
            parts.append(struct.pack("<Q", worker) + row.pack())
        for block in (self.credit, self.plan.body):
            parts.append(struct.pack("<I", len(block)) + block)
        return b"".join(parts)
