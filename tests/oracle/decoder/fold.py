"""The fold: a shard's parameters, ledger and outer optimizer after each of its records."""
import math
import struct

import numpy as np

from .frame import Frame
from .ledger import Ledger, Plan
from .log import ADMIT, DIGEST, EPOCH, FENCE, MOVE, PLAN, REFUSE
from .payload import Payload
from .plain import Cursor, digest_of, keep, need, range_digests


def ordered_sum(values):
    """The f64 sum of the values in index order."""
    return float(np.add.accumulate(values)[-1]) if values.size else 0.0


def cosine(u, m):
    """The cosine of u and m in f64."""
    u, m = u.astype(np.float64), m.astype(np.float64)
    squares = ordered_sum(u * u), ordered_sum(m * m)
    if 0.0 in squares:
        return 0.0
    return ordered_sum(u * m) / math.sqrt(squares[0]) / math.sqrt(squares[1])


class Outer:
    """The state of an outer optimizer other than sparse SGD."""

    def __init__(self, kind, size):
        self.kind, self.pending, self.steps, self.cosines = kind, 0, 0, 0
        self.rho, self.momentum = 0.0, np.float32(0)
        self.u, self.m = np.zeros(size, np.float32), np.zeros(size, np.float32)

    def unpack(self, cursor):
        """Reads the bytes of fields() and the arrays after them."""
        kind, self.pending, self.steps, self.cosines, self.rho, momentum = cursor.read("BIQQdf")
        need(kind == self.kind, f"{cursor.name}: state of optimizer {kind}, the plan names "
             f"{self.kind}")
        self.momentum = np.float32(momentum)
        self.u, self.m = (floats(cursor, self.u.size) for _ in range(2))

    def admit(self, theta, indices, g, plan):
        """Adds an admitted push, and takes an outer step when enough are pending."""
        theta[indices] -= g
        self.u[indices] += g
        self.pending += 1
        if self.pending < plan.interval():
            return
        mu = self.effective_momentum(plan)
        self.m = mu * self.m + self.u
        theta -= mu * self.m
        self.u[:] = 0
        self.momentum, self.pending, self.steps = mu, 0, self.steps + 1

    def effective_momentum(self, plan):
        """The plan's momentum, or less where it bounds the effective step."""
        if not (plan.bound > 0 and plan.momentum > 0):
            return np.float32(plan.momentum)
        if self.steps > 0:
            c = cosine(self.u, self.m)
            self.rho = 0.9 * self.rho + (1 - 0.9) * c if self.cosines > 0 else c
            self.cosines += 1
        r, room = max(self.rho, 0.0), 1 - plan.eta / plan.bound
        if plan.momentum * r <= room:
            return np.float32(plan.momentum)
        if plan.eta >= plan.bound:
            return np.float32(0)
        return np.float32(min(plan.momentum, room / r))

    def release(self):
        """Drops pushes that no step has used: they have already moved the parameters."""
        self.u[:] = 0
        self.pending = 0

    def fields(self):
        """The 33 bytes before the arrays."""
        return struct.pack("<BIQQdf", self.kind, self.pending, self.steps, self.cosines, self.rho,
                           self.momentum)


def floats(cursor, count):
    """An array of f32 that may be changed."""
    return np.frombuffer(cursor.take(4 * count), "<f4").copy()


def numbers(record):
    """The two numbers that are the body of an EPOCH or a MOVE."""
    cursor = Cursor(record.body, record.where)
    values = cursor.read("QQ")
    cursor.end()
    return values


class State:
    """Everything that follows from a shard's records: ledger, parameters, outer optimizer."""

    def __init__(self, job, shard):
        self.job, self.shard = job, shard
        self.ledger, self.theta, self.outer = Ledger(job, shard), job.initial(shard), None

    @classmethod
    def of(cls, job, shard, data, name):
        """The state in a whole checkpoint, instead of a folded one."""
        state, cursor = cls(job, shard), Cursor(data, name)
        state.ledger.unpack(cursor)
        count = cursor.read("Q")
        need(count == state.theta.size, f"{name}: {count} values")
        state.theta = floats(cursor, count)
        kind = state.ledger.plan.optimizer
        if kind:
            state.outer = Outer(kind, count)
            state.outer.unpack(cursor)
        cursor.end()
        return state

    def apply(self, record, flip=keep):
        """Applies the next record. flip may change a payload before it is used."""
        frame, identity = None, record.body
        if record.kind in (ADMIT, REFUSE):
            frame = Frame(record.body, record.kind == ADMIT, record.where)
            frame.check(self.job, self.shard)
            identity = frame.stub
        before = self.digest() if record.kind == DIGEST else None
        self.ledger.follow(record, identity)
        if frame:
            self.ledger.push(frame, record)
            if record.kind == ADMIT:
                self.fold(frame, np.float32(record.scale), flip)
        elif record.kind == FENCE:
            self.ledger.fence(record)
        elif record.kind == PLAN:
            self.plan(Plan(record.body, record.where))
        elif record.kind == DIGEST:
            need(before == record.body, f"{record.where}: digest of version {record.version - 1} "
                 f"is {before.hex()}, the record says {record.body.hex()}")
        elif record.kind == EPOCH:
            epoch, version = numbers(record)
            need((epoch, version) == (record.epoch, record.version - 1) and
                 epoch > self.ledger.epoch, f"{record.where}: epoch {epoch} after {version}")
            self.ledger.epoch, self.ledger.move = epoch, None
        elif record.kind == MOVE:
            self.ledger.move = numbers(record)

    def fold(self, frame, scale, flip):
        """Opens, decodes and folds an admitted frame."""
        place = self.shard, self.ledger.version
        frame.sealed = flip("sealed", place, frame.sealed)
        plain = flip("plain", place, frame.unseal(self.job))
        indices, values = Payload(plain, frame, self.job.layouts[self.shard]).decode()
        g = scale * values
        if self.outer:
            self.outer.admit(self.theta, indices, g, self.ledger.plan)
        else:
            self.theta[indices] -= g

    def plan(self, plan):
        """Brings a plan into force."""
        number = self.ledger.plan.number
        need(plan.number > number, f"plan {plan.number} after plan {number}")
        need(plan.phase != 4 or plan.ends[self.shard:][:1] == (self.ledger.version - 1,),
             f"the plan of phase 4 is version {self.ledger.version}, its end {plan.ends}")
        self.ledger.take_plan(plan)
        kind = self.outer.kind if self.outer else 0
        if self.outer and (plan.optimizer != kind or plan.phase in (3, 4)):
            self.outer.release()
        if plan.optimizer != kind:
            self.outer = Outer(plan.optimizer, self.theta.size) if plan.optimizer else None

    def digest(self):
        """The digest of the state."""
        parts = [self.ledger.pack(), range_digests(self.theta.tobytes())]
        if self.outer:
            parts += [self.outer.fields(), range_digests(self.outer.u.tobytes()),
                      range_digests(self.outer.m.tobytes())]
        return digest_of(*parts)

    def weights(self):
        """The bytes of a weights-only checkpoint."""
        return struct.pack("<Q", self.theta.size) + self.theta.tobytes()

    def pack(self):
        """The bytes of a whole checkpoint."""
        parts = [self.ledger.pack(), self.weights()]
        if self.outer:
            parts += [self.outer.fields(), self.outer.u.tobytes(), self.outer.m.tobytes()]
        return b"".join(parts)
