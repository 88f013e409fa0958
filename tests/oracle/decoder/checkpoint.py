"""Checkpoints: a state in a file, its seals, its digest, and the signature under it."""
import struct

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .fold import State
from .plain import (RANGE, Cursor, Differs, Unreadable, crc32c, digest_of, keep, need, read_text,
                    unseal)

SEAL_CHECKPOINT = 2


class Checkpoint:
    """A checkpoint's file, unsealed: its header, its state, and its verified signature.

    trusted: the public keys that may sign, or None if they are unknown.
    """

    def __init__(self, path, data, job, trusted, flip=keep):
        self.path, self.trusted, self.flip = path, trusted, flip
        self.name, self.weights = str(path), path.suffix == ".weights"
        cursor = Cursor(data, self.name)
        self.read_header(cursor, path, job)
        self.state, hashes = self.read_ranges(cursor, job, data[:164])
        self.read_manifest(cursor, data[:164], hashes)
        cursor.end()
        said = struct.pack("<Q", self.epoch) + self.chain + self.digest
        self.said, self.state = flip("said", path, said), flip("state", path, self.state)

    def read_header(self, cursor, path, job):
        """Reads and checks the 164 bytes of the header."""
        name = self.name
        magic, self.format, self.cipher, flags, self.key_id = cursor.read("4sHBBI")
        self.shard, shards, self.ranges, owner, manifest = cursor.read("III16s32s")
        self.epoch, self.version, self.chain, self.digest, self.size = cursor.read("QQ32s32sQ")
        need(cursor.read("I") == crc32c(cursor.data[:160]), f"{name}: checksum of the header")
        need(magic == b"LHCK" and self.format == 2, f"{name}: not a checkpoint")
        need(flags < 4 and bool(flags & 2) == self.weights, f"{name}: flags {flags}")
        self.signed = bool(flags & 1)
        need((owner, manifest, shards) == (job.id, job.manifest, job.shards),
             f"{name}: of another job or model")
        need(path.stem == f"{self.shard:04x}-{self.version:016x}", f"{name}: header names shard "
             f"{self.shard} version {self.version}")

    def read_ranges(self, cursor, job, header):
        """Unseals the ranges; gives the state and the joined H of each range as it stands."""
        key = job.subkey(SEAL_CHECKPOINT, self.cipher, self.key_id, 0, self.version, 0, self.shard)
        step, parts, hashes = RANGE, [], []
        need(self.ranges == -(-self.size // step), f"{self.name}: {self.ranges} ranges")
        for number in range(self.ranges):
            begin = cursor.at
            first, size, version, nonce = cursor.read("QIQ24s")
            name = f"{self.name}: range {number}"
            need((first, size) == (number * step, min(step, self.size - number * step)),
                 f"{name}: {size} bytes at {first}")
            need(version == self.version, f"{name}: version {version}")
            parts.append(unseal(key, self.cipher, nonce, cursor.take(size + 16), header, name))
            hashes.append(digest_of(cursor.data[begin:cursor.at]))
        return b"".join(parts), b"".join(hashes)

    def read_manifest(self, cursor, header, hashes):
        """Checks the end of a file: hashes, signature, checksum."""
        begin = cursor.at
        magic, ranges = cursor.read("4sI")
        listed = cursor.take(32 * self.ranges)
        listed = self.flip("hashes", self.path, listed)
        key, signature = cursor.read("32s64s")
        crc = crc32c(cursor.data[begin:cursor.at])
        need(cursor.read("I") == crc, f"{self.name}: checksum of the manifest")
        need(magic == b"LHCM" and ranges == self.ranges, f"{self.name}: not a manifest")
        need(listed == hashes, f"{self.name}: a range is not what its hash says")
        if not self.signed:
            need(not any(key + signature), f"{self.name}: a signature without the flag")
            return
        key = self.flip("signer", self.path, key)
        signature = self.flip("signature", self.path, signature)
        signed = self.flip("signed", self.path, header + hashes)
        need(self.trusted is None or key in self.trusted, f"{self.name}: signed by {key.hex()}, "
             "which is no trusted key")
        message = b"longhaul signed 1" + digest_of(b"longhaul checkpoint 2", signed)
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
        except (InvalidSignature, ValueError):
            raise Differs(f"{self.name}: the signature is wrong") from None

    def compare(self, state):
        """Compares with the folded state at the checkpoint's version."""
        need(state.ledger.version == self.version, f"{self.name}: a state of version "
             f"{state.ledger.version}")
        folded = state.weights() if self.weights else state.pack()
        digest = digest_of(folded) if self.weights else state.digest()
        said = struct.pack("<Q", state.ledger.epoch) + state.ledger.chain + digest
        need(self.said == said, f"{self.name}: epoch, chain and digest are {self.said.hex()}, "
             f"folded {said.hex()}")
        need(self.state == folded, f"{self.name}: the state is not the folded one")

    def compare_itself(self, job):
        """Compares the header with the state in the file, if no log leads to it."""
        if self.weights:
            need(digest_of(self.state) == self.said[40:], f"{self.name}: the digest is another one")
            return
        self.compare(State.of(job, self.shard, self.state, self.name))

    def __str__(self):
        kind = "weights" if self.weights else "state"
        signed = "signature" if self.signed else "no signature"
        return (f"{self.name}: format {self.format}, {kind} of shard {self.shard} version "
                f"{self.version}, {self.ranges} ranges, {self.size} bytes, digest, {signed}")


def read_trusted(directory):
    """The public keys in a server's signer.pub, or None if it has no such file."""
    path = directory / "signer.pub"
    if not path.exists():
        return None
    try:
        return [bytes.fromhex(line.split()[0]) for line in read_text(path).splitlines()]
    except (ValueError, IndexError):
        raise Unreadable(f"{path}: a line is no key and name") from None
