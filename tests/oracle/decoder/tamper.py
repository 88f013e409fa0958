"""Checks that the verification can fail: flips bits in memory, each of which must be noticed."""
import random

import numpy as np

from .ledger import Row
from .log import ADMIT
from .plain import Differs, need


class Flip:
    """The hook of one verification. It flips one bit of one kind of data in one place.

    The kinds, with the place that each of them has:
      log         a bit of an entry of a segment: the path, and the entry's (begin, end)
      record      a bit of a record whose entry's checksum is right: path and offset
      sealed      a bit of a sealed payload: shard and version
      plain       a bit of an unsealed payload, which the digests have to notice: shard and version
      parameter   a bit of the folded parameters: shard and version
      ledger      the lowest bit of one number of the ledger: shard and version
      checkpoint  a bit of the file: its path
      state       a bit of the state in the file, unsealed: its path
      said        a bit of the epoch, chain or digest in the file's header: its path
      hashes      a bit of the hashes in a file of format 2 whose checksums are right: its path
      signer      a bit of the public key in a file whose checksums are right: the path
      signature   a bit of the signature in such a file: the path
      signed      a bit of the signed data, header and hashes, in such a file: the path
    """

    def __init__(self, what, place, dice):
        self.what, self.dice = what, dice
        self.place, self.span = place if what == "log" else (place, None)
        self.done = None  # the flipped bit

    def __call__(self, what, where, data):
        if self.done or where != self.place:
            return data
        if what == self.what:
            return self.bit(data)
        if what == "fold" and self.what == "parameter":
            data.theta = np.frombuffer(self.bit(data.theta.tobytes()), np.float32).copy()
        if what == "fold" and self.what == "ledger":
            self.ledger(data.ledger)
        return data

    def bit(self, data):
        """The data with one bit changed."""
        begin, end = self.span or (0, len(data))
        at = self.dice.randrange(8 * begin, 8 * end)
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        self.done = f"bit {at}"
        return bytes(changed)

    def ledger(self, ledger):
        """Changes one number of the ledger or of a row."""
        places = [(ledger, name) for name in ("epoch", "admitted", "refused", "tokens")]
        places += [(row, name) for row in ledger.rows.values() for name in Row.__annotations__
                   if name not in ("last_digest", "norms")]
        places += [(row.norms, name) for row in ledger.rows.values()
                   for name in ("count", "steps", "clipped", "outliers", "let_back")]
        place, name = self.dice.choice(places)
        setattr(place, name, getattr(place, name) ^ 1)
        self.done = f"{type(place).__name__}.{name}"


def places(run):
    """The places where each kind can be flipped, in a verified run."""
    records = run.folded()
    admits = [(record.shard, record.version) for record in records if record.kind == ADMIT]
    files = [path for path, _, _ in run.checkpoints]
    # The format is at byte 4, low byte first.
    listed = [path for path, data, _ in run.checkpoints if data[4] == 2]
    # A file of format 2 has its flags at byte 7; bit 0 says that it is signed.
    signed = [path for path, data, _ in run.checkpoints if data[7] & 1]
    return {"log": [record.entry for record in records],
            "record": [record.where for record in records],
            "sealed": admits, "plain": admits, "parameter": run.known(), "ledger": run.known(),
            "checkpoint": files, "state": files, "said": files, "hashes": listed,
            "signer": signed, "signature": signed, "signed": signed}


def tamper(run, trials, seed=1):
    """Flips one bit per verification; gives the number noticed of each kind, which must be all."""
    run.verify()
    dice, noticed = random.Random(seed), {}
    for what, where in places(run).items():
        for place in dice.choices(where, k=trials) if where else ():
            flip = Flip(what, place, dice)
            try:
                run.verify(flip)
            except Differs as found:
                need(flip.done, f"tamper: {found}, and nothing was flipped")
                noticed[what] = noticed.get(what, 0) + 1
                continue
            raise Differs(f"tamper: {what} at {place}, {flip.done}: not noticed")
    return noticed
