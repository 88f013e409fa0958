"""The log of a server: segments, entries, groups, and the records in them."""
import struct
from dataclasses import dataclass
from pathlib import Path

from .plain import Cursor, crc32c, keep, need

ADMIT, REFUSE, FENCE, PLAN, DIGEST, EPOCH, MOVE = range(1, 8)
KINDS = {ADMIT: "ADMIT", REFUSE: "REFUSE", FENCE: "FENCE", PLAN: "PLAN", DIGEST: "DIGEST",
         EPOCH: "EPOCH", MOVE: "MOVE"}
MARK = 0xffffffff


@dataclass
class Record:
    """One record of a shard's log, and its place."""

    shard: int
    version: int
    epoch: int
    kind: int
    reason: int
    scale: float
    chain: bytes
    body: bytes
    where: str
    entry: tuple    # path of the segment, (begin, end) of the entry in it


@dataclass
class Segment:
    """The entries of one segment that count: (sequence, shard, bytes of the record, offset)."""

    path: Path
    first: int
    entries: list
    rest: int       # non-zero bytes after the last entry that counts


def read_segment(path, data, job):
    """Reads a segment up to its first entry, or group, that does not count."""
    cursor = Cursor(data, str(path))
    magic, version, zero, number, generation, first = cursor.read("4sHHQQQ")
    owner, zeros, crc, last = cursor.read("16sQII")
    need(magic == b"LHWS" and version == 1, f"{path}: not a segment of version 1")
    need(crc == crc32c(data[:56]), f"{path}: checksum of the header")
    need(number == int(path.stem, 16), f"{path}: header says number {number}")
    need(owner == job.id, f"{path}: of another job, {owner.hex()}")
    need(not (zero or zeros or last), f"{path}: header has bytes that should be 0")
    segment, group, at, follow = Segment(path, first, [], 0), [], 64, 0
    while (found := read_entry(data, at, generation, first + len(segment.entries) + len(group))):
        entry, size, rest = found
        if group and rest != follow - 1:
            break
        need(entry[1] != MARK or not group and rest == 0, f"{path}: a mark within a group")
        group.append(entry)
        at, follow = at + size, rest
        if follow == 0:
            segment.entries += group
            group = []
    begin = group[0][3] if group else at
    segment.rest = len(data[begin:].rstrip(b"\0"))
    return segment


def read_entry(data, at, generation, sequence):
    """The entry at an offset as (entry, size, follow), or None if it does not count."""
    if data[at:at + 4] != b"LHWR" or at + 48 > len(data):
        return None
    size, owner, number, durable, shard, follow = struct.unpack_from("<IQQQII", data, at + 4)
    if size < 48 or size % 8 or at + size > len(data):
        return None
    if owner != generation or number != sequence:
        return None
    crc, zero = struct.unpack_from("<II", data, at + size - 8)
    if crc != crc32c(data[at:at + size - 8]):
        return None
    need(zero == 0 and durable < number, f"entry {number}: zero {zero}, durable {durable}")
    return (number, shard, data[at + 40:at + size - 8], at), size, follow


def read_record(entry, path, flip):
    """The record of an entry."""
    _, shard, data, at = entry
    where = f"{path} at {at}"
    data = flip("record", where, data)
    cursor = Cursor(data, where)
    version, epoch, kind, flags, reason, scale, size, chain = cursor.read("QQHHIfI32s")
    body = cursor.take(size)
    padding = cursor.take(len(data) - cursor.at)
    need(len(padding) < 8 and not any(padding), f"{where}: padding of the entry")
    need(flags == 0, f"{where}: flags {flags} on disk")
    need(kind in KINDS, f"{where}: unknown kind {kind}")
    need(reason == 0 or kind in (ADMIT, REFUSE), f"{where}: kind {kind} with reason {reason}")
    need(kind != ADMIT or reason & 0x7f800000 != 0x7f800000, f"{where}: a norm that is not finite")
    need(scale == 0 or kind == ADMIT, f"{where}: kind {kind} with scale {scale}")
    return Record(shard, version, epoch, kind, reason, scale, chain, body, where,
                  (path, (at, at + 40 + len(data) + 8)))


def valid_header(data):
    """Whether a segment begins with a header at all; the newest one may lack it after a crash."""
    return len(data) >= 64 and data[:4] == b"LHWS" and \
        struct.unpack_from("<I", data, 56)[0] == crc32c(data[:56])


def read_log(files, job, flip=keep):
    """The records of a server's log in order, and (segments, entries, marks, tails).

    files: path and bytes of each segment, ascending.
    """
    files = [(path, flip("log", path, data)) for path, data in files]
    if files and not valid_header(files[-1][1]):
        files.pop()
    segments = [read_segment(path, data, job) for path, data in files]
    need(segments, "a log without segments")
    need(segments[0].first > 0, f"{segments[0].path}: the first sequence is 0")
    entries = []
    for segment in segments:
        while entries and entries[-1][0][0] >= segment.first:
            entries.pop()
        expected = entries[-1][0][0] + 1 if entries else segments[0].first
        need(segment.first == expected, f"{segment.path}: first sequence is {segment.first}, "
             f"{expected} is the next one")
        entries += [(entry, segment.path) for entry in segment.entries]
    need(all(entry[2] == b"" for entry, _ in entries if entry[1] == MARK), "a mark with a record")
    records = [read_record(entry, path, flip) for entry, path in entries if entry[1] != MARK]
    tails = sum(1 for segment in segments if segment.rest)
    return records, (len(segments), len(entries), len(entries) - len(records), tails)


def gather(logs, job):
    """The records of each shard by version; records that two servers have must be equal.

    The first one of a shard may have any version: the log before it was removed.
    """
    shards = {}
    for log in logs:
        before = {}  # by shard: the version before, in this log
        for record in log:
            need(record.shard < job.shards, f"{record.where}: shard {record.shard}")
            due = before.get(record.shard, record.version - 1) + 1
            need(record.version == due, f"{record.where}: version {record.version} where {due} is "
                 "the next one")
            before[record.shard] = record.version
            known = shards.setdefault(record.shard, {}).setdefault(record.version, record)
            need((known.chain, known.epoch) == (record.chain, record.epoch),
                 f"{record.where}: version {record.version} is another one than at {known.where}; "
                 "which branch was given up is not decided here")
    for shard, records in shards.items():
        missing = set(range(min(records), max(records) + 1)) - set(records)
        need(not missing, f"shard {shard}: no log has versions {sorted(missing)[:5]}")
    return {shard: [record for _, record in sorted(records.items())]
            for shard, records in sorted(shards.items())}
