"""The frame: one push of one worker to one shard, and the opening of its seal."""
from .plain import Cursor, digest_of, need, unseal

SEAL_FRAME = 1


class Frame:
    """A push, or the stub of one."""

    def __init__(self, body, whole, name):
        self.name = name
        cursor = Cursor(body, name)
        magic, wire, size, self.index, self.value, self.cipher, zero = cursor.read("4sHHBBBB")
        self.density, self.key_id, self.shard, self.job = cursor.read("fII16s")
        self.worker, self.number, self.noise, self.step = cursor.read("QQQQ")
        self.base, self.base_epoch, self.others, self.tokens = cursor.read("QQQQ")
        self.steps, claims, self.values, self.plain = cursor.read("IIQI")
        self.allowance, self.manifest, self.nonce, self.allowance_tag = cursor.read("f32s24sQ")
        self.charged = cursor.read("Q")
        self.claims, self.grants = [], []
        for _ in range(claims):
            unit, number, tag = cursor.read("II16s")
            self.claims.append(unit)
            self.grants.append((number, tag))
        self.head = body[:cursor.at]
        self.sealed = cursor.take(self.plain) if whole else None
        self.tag = cursor.take(16)
        cursor.end()
        need(magic == b"LHF1" and wire == 2 and size == 200, f"{name}: not a frame of version 2")
        need(not zero, f"{name}: a byte of the frame that should be 0")
        need(0 <= self.allowance <= 3.5e38, f"{name}: an allowance of {self.allowance}")
        self.stub = self.head + self.tag

    def check(self, job, shard):
        """Refuses a frame of another job, model or shard."""
        need(self.job == job.id, f"{self.name}: frame of another job")
        need(self.manifest == job.manifest, f"{self.name}: frame of another manifest")
        need(self.shard == shard, f"{self.name}: frame of shard {self.shard}")

    def digest(self):
        """The digest of the frame."""
        return digest_of(self.stub, key=self.job)[:16]

    def unseal(self, job):
        """The plain payload."""
        key = job.subkey(SEAL_FRAME, self.cipher, self.key_id, self.worker, self.number,
                         self.noise, self.shard)
        return unseal(key, self.cipher, self.nonce, self.sealed + self.tag, self.head, self.name)
