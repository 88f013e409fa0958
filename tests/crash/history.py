"""The offline checker: reads the files that a run's processes left behind, and judges them.

It shares no code with the programs. From the servers it reads every segment of the log
(server/wal/wal.h), also deleted ones if they were kept. From the workers: their JSON debug logs
over all restarts. From both: the last status.

An entry counts if its sequence is below the first one of the next segment: a start truncates a torn
tail. CRCs are not checked again; the chain is, which covers every byte except the payload, and the
AEAD tag in it covers the payload.

judge() gives the violations, each as (name, text):
  gap        a shard's versions are not 1, 2, 3 ... in the order of the log
  chain      a record does not hash to its chain: history was changed
  twice      a push was decided twice
  skipped    a worker's steps on a shard have a gap
  lost       a push was acknowledged as admitted and is not in the log
  outcome    a worker was told another outcome of its push than the log has
  stranger   a push in the log was never cut by its worker
  folded     a worker folded a version that the log does not have, or has as another kind
  order      a worker folded a shard's versions out of order within one process
  credit     a unit is claimed in another log than its shard's, or counted twice for different
             pushes, or not counted though the run ended, or the servers' count differs
  replicas   a worker ends with another state than the servers
  stable     a shard that lost its disk goes on from below its stable point
  unnamed    the server names another version than the one that its shard went on from

A shard whose disk was lost goes on from an earlier version: the records above it belong to an
abandoned branch. A push that was acknowledged there must also be in the shard's new branch, or its
author must log that its mass returned to the residual, from which it is sent again
(server/docs/0000-protocol.md#rule-7).
"""
import collections
import dataclasses
import hashlib
import json
import os
import re
import struct

ADMIT, REFUSE, FENCE, PLAN, DIGEST, EPOCH, MOVE = range(1, 8)
MARK = 0xFFFFFFFF
TAG = 16
FRAME_HEADER = 200  # bytes of a frame before its claims (common/format/frame.h)


class Unreadable(Exception):
    """The history is incomplete and can't be judged."""


class Missing(Unreadable):
    """Nothing is left of a server's log."""


@dataclasses.dataclass
class Record:
    shard: int
    version: int
    epoch: int
    kind: int
    fixed: bytes  # part of the header, as the chain hashes it
    chain: bytes
    identity: bytes
    worker: int = 0
    incarnation: tuple = (0, 0)
    step: int = 0
    claims: tuple = ()
    manifest: bytes = b""

    def push(self):
        return self.worker, self.incarnation[0], self.step


@dataclasses.dataclass
class Event:
    """A line of a worker's log: cut, decided (with its outcome), returned, folded, snapshot."""
    what: str
    life: int
    shard: int
    incarnation: int = 0
    step: int = 0
    outcome: str = ""
    version: int = 0
    kind: int = 0


@dataclasses.dataclass
class History:
    job: bytes
    shards: int
    units: dict  # id -> tokens
    records: dict  # shard -> [Record]
    workers: dict  # name -> (id, [Event])
    ended: bool = False  # the run came to its end, so every unit must be credited
    credited: int = 0  # from the coordinator's status
    credited_tokens: int = 0
    counted: dict = dataclasses.field(default_factory=dict)  # shard -> units, by its server
    # shard -> (version, digest), from its server; worker -> the same, from the worker
    truth: dict = dataclasses.field(default_factory=dict)
    held: dict = dataclasses.field(default_factory=dict)
    unreadable_lines: int = 0
    # shard -> records of branches that a rebuild abandoned; the rebuilds' log lines
    abandoned: dict = dataclasses.field(default_factory=dict)
    rebuilds: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Rebuild:
    """A shard that lost its disk: the stable point at that time, and the server's report."""
    shard: int
    stable: int
    base: int  # the version it goes on from
    lost_to: int  # highest version above it known to be lost; 0: none


# ---------------------------------------------------------------- reading

def worker_id(domain, run, region, name):
    uri = f"spiffe://{domain}/longhaul/{run}/worker/{region}/{name}"
    return struct.unpack("<Q", hashlib.blake2b(uri.encode(), digest_size=32).digest()[:8])[0] | 1


def parse_record(shard, data):
    version, epoch, kind, flags, reason, scale, size = struct.unpack_from("<QQHHI4sI", data)
    body = data[64:64 + size]
    fixed = struct.pack("<QQHI", version, epoch, kind, reason) + scale
    r = Record(shard, version, epoch, kind, fixed, data[32:64], body)
    if kind not in (ADMIT, REFUSE):
        return r
    claims, = struct.unpack_from("<I", body, 108)
    head = FRAME_HEADER + 24 * claims
    r.worker, number, rand, r.step = struct.unpack_from("<QQQQ", body, 40)
    r.incarnation = (number, rand)
    r.claims = tuple(struct.unpack_from("<I", body, at)[0] for at in range(FRAME_HEADER, head, 24))
    r.manifest = body[128:160]
    if kind == ADMIT and not flags & 1:
        r.identity = body[:head] + body[-TAG:]
    return r


def entries(data):
    """(sequence, shard, record bytes) of a segment's entries, to the end of its complete groups."""
    at, ours, group, left = 64, struct.unpack_from("<Q", data, 16)[0], [], 0
    while data[at:at + 4] == b"LHWR" and at + 48 <= len(data):
        fields = struct.unpack_from("<IQQQII", data, at + 4)
        total, generation, sequence, _, shard, following = fields
        if total < 48 or at + total > len(data) or generation != ours:
            return
        if group and (sequence, following) != (group[-1][0] + 1, left - 1):
            return
        group.append((sequence, shard, data[at + 40:at + total - 8]))
        left = following
        at += total
        if not left:
            yield from group
            group = []


def keep_segment(path, link):
    """Hard-links a segment, so that it outlives a checkpoint. A server killed before the segment's
    header was written makes a new file of the same name: the link then follows that file."""
    if os.path.exists(link):
        if os.path.samefile(path, link):
            return
        os.remove(link)
    os.link(path, link)


def read_segments(folder):
    """The records of one server's log, in order, and the job."""
    found = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        if data[:4] != b"LHWS":
            continue  # created at the moment of a kill, without a header
        number, _, first = struct.unpack_from("<QQQ", data, 8)
        found.append((number, first, data))
    if not found:
        raise Missing(f"no segment in {folder}")
    records, due = [], 1
    for i, (number, first, data) in enumerate(found):
        end = found[i + 1][1] if i + 1 < len(found) else None
        if first != due:
            raise Unreadable(f"{folder}: segment {number:x} begins with entry {first}, not {due}")
        for sequence, shard, bytes_ in entries(data):
            if end is not None and sequence >= end:
                break
            if sequence != due:
                break  # the rest of a group that was discarded
            due += 1
            if shard != MARK:
                records.append(parse_record(shard, bytes_))
    return records, found[0][2][32:48]


def splice(lives):
    """One shard's log over the generations of its disk: (current branch, abandoned records).

    A generation begins with the record after the rebuilt version; older records from there on
    belong to an abandoned branch."""
    records, abandoned = [], []
    for life in lives:
        first = life[0].version if records and life else 1
        abandoned += [r for r in records if r.version >= first]
        records = [r for r in records if r.version < first] + life
    return records, abandoned


def read_pool(folders):
    """shard -> every record in any segment of these folders, abandoned ones too; and the job."""
    pool, job = collections.defaultdict(list), b""
    for path in (entry.path for folder in folders for entry in os.scandir(folder)):
        with open(path, "rb") as file:
            data = file.read()
        if data[:4] != b"LHWS":
            continue
        job = data[32:48]
        for _, shard, bytes_ in entries(data):
            if shard != MARK:
                pool[shard].append(parse_record(shard, bytes_))
    return pool, job


def branch(pool, version, chain):
    """The records of one shard's pool up to this one. Each record's chain was made from the
    previous one's, so the branch is unique."""
    at = {}
    for r in pool:
        at.setdefault(r.version, []).append(r)
    found = [r for r in at.get(version, ()) if r.chain == chain][:1]
    while found and found[-1].version > 1:
        after = found[-1]
        before = [r for r in at.get(after.version - 1, ()) if hashlib.blake2b(
            r.chain + after.fixed + after.identity, digest_size=32).digest() == after.chain]
        if not before:
            raise Unreadable(f"shard {after.shard}: nothing leads to version {after.version}")
        found.append(before[0])
    return found[::-1]


PUSH = re.compile(r"shard (\d+): ([0-9a-f]+)/(\d+)(?: (\w+))?")
FOLD = re.compile(r"shard (\d+): version (\d+) kind (\d+)")


def read_worker(path):
    """The events of a worker's log over its restarts, and the number of unreadable lines."""
    events, life, bad = [], 0, 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                said = json.loads(line)
                event, text = said["event"], said.get("text", "")
            except (ValueError, KeyError):
                bad += 1
                continue
            life += event == "program.begin"
            if event in ("push.cut", "push.decided", "push.returned"):
                shard, number, step, outcome = PUSH.match(text).groups()
                events.append(Event(event[5:], life, int(shard), int(number, 16), int(step),
                                    outcome or ""))
            elif event == "record.folded":
                shard, version, kind = map(int, FOLD.match(text).groups())
                events.append(Event("folded", life, shard, version=version, kind=kind))
            elif event == "replica.snapshot":
                shard, = map(int, re.match(r"shard (\d+)", text).groups())
                events.append(Event("snapshot", life, shard))
    return events, bad


# ---------------------------------------------------------------- judging

def check_chain(h):
    for shard, records in h.records.items():
        manifest = next((r.manifest for r in records if r.manifest), None)
        chain = hashlib.blake2b(b"longhaul log 1" + h.job + (manifest or b"") +
                                struct.pack("<II", shard, h.shards), digest_size=32).digest()
        for due, r in enumerate(records, 1):
            if r.version != due:
                yield "gap", f"shard {shard}: version {r.version} stands where {due} is due"
                break
            if manifest:
                chain = hashlib.blake2b(chain + r.fixed + r.identity, digest_size=32).digest()
                if chain != r.chain:
                    yield "chain", f"shard {shard}: version {r.version} is not what its chain says"
                    break


def check_decided(h):
    for shard, records in h.records.items():
        times = collections.Counter(r.push() for r in records if r.kind in (ADMIT, REFUSE))
        for push, n in times.items():
            if n > 1:
                yield "twice", f"shard {shard}: push {name(push)} was decided {n} times"
        last = {}
        for r in records:
            if r.kind not in (ADMIT, REFUSE):
                continue
            key = r.worker, r.incarnation
            if r.step != last.get(key, r.step - 1) + 1:
                yield "skipped", f"shard {shard}: push {name(r.push())} follows step {last[key]}"
            last[key] = r.step


def name(push):
    worker, incarnation, step = push
    return f"{worker:x}:{incarnation:x}/{step}"


def check_acknowledged(h):
    outcome = {s: {r.push(): r.kind for r in rs if r.kind in (ADMIT, REFUSE)}
               for s, rs in h.records.items()}
    anew = {(s, *r.push()) for s, rs in h.abandoned.items() for r in rs
            if r.kind in (ADMIT, REFUSE)}
    for who, (number, events) in h.workers.items():
        cut = {(e.shard, e.incarnation, e.step) for e in events if e.what == "cut"}
        last = {(e.shard, e.incarnation, e.step): e for e in events if e.what == "decided"}
        returned = {(e.shard, e.incarnation, e.step) for e in events if e.what == "returned"}
        for e in events:
            if e.what != "decided":
                continue
            push = e.shard, e.incarnation, e.step
            given_up = (e.shard, number, e.incarnation, e.step) in anew
            if given_up and (last[push] is not e or push in returned):
                continue  # decided again, told later; or sent again in another cut
            kind = outcome[e.shard].get((number, e.incarnation, e.step))
            told = {"admitted": ADMIT, "refused": REFUSE}[e.outcome]
            text = f"shard {e.shard}: {who} heard that {e.incarnation:x}/{e.step} is {e.outcome}"
            if kind is None and told == ADMIT:
                yield "lost", text
            elif kind != told and kind is not None:
                yield "outcome", text
        for shard, pushes in outcome.items():
            for worker, incarnation, step in pushes:
                if worker == number and (shard, incarnation, step) not in cut:
                    yield "stranger", f"shard {shard}: {who} never cut {incarnation:x}/{step}"


def check_folded(h):
    kinds = {s: {r.version: {r.kind} for r in rs} for s, rs in h.records.items()}
    for shard, given_up in h.abandoned.items():
        for r in given_up:
            kinds[shard].setdefault(r.version, set()).add(r.kind)
    for who, (_, events) in h.workers.items():
        last = {}
        for e in events:
            key = e.life, e.shard
            if e.what == "snapshot":
                last.pop(key, None)
            if e.what != "folded":
                continue
            if e.kind not in kinds[e.shard].get(e.version, ()):
                yield "folded", (f"shard {e.shard}: {who} folded version {e.version} of kind "
                                 f"{e.kind}, the log has {kinds[e.shard].get(e.version)}")
            if e.version != last.get(key, e.version - 1) + 1:
                yield "order", f"shard {e.shard}: {who} folded {e.version} after {last[key]}"
            last[key] = e.version


def check_credit(h):
    claimed = collections.defaultdict(set)
    for shard, records in h.records.items():
        for r in records:
            for unit in r.claims if r.kind == ADMIT else ():
                if unit % h.shards != shard or unit not in h.units:
                    yield "credit", f"shard {shard}: unit {unit} is claimed by {name(r.push())}"
                claimed[shard].add(unit)
    for shard, units in claimed.items():
        if h.counted.get(shard) != len(units):
            yield "credit", (f"shard {shard}: its server counts {h.counted.get(shard)} units, its "
                             f"log credits {len(units)}")
    every = set().union(*claimed.values()) if claimed else set()
    if h.credited != len(every):
        yield "credit", f"the coordinator counts {h.credited} units, the logs credit {len(every)}"
    tokens = sum(h.units.get(unit, 0) for unit in every)
    if h.credited_tokens != tokens:
        yield "credit", f"the coordinator counts {h.credited_tokens} tokens, the logs {tokens}"
    if h.ended and every != set(h.units):
        yield "credit", f"{len(set(h.units) - every)} units are not credited though the run ended"


def check_replicas(h):
    for shard, (version, _) in h.truth.items():
        if version != len(h.records.get(shard, ())):
            yield "replicas", (f"shard {shard}: its server ends at version {version}, the log has "
                               f"{len(h.records.get(shard, ()))} records")
    for who, held in h.held.items():
        if held != h.truth:
            yield "replicas", f"{who} ends with {held}, the servers have {h.truth}"


def check_rebuilds(h):
    for r in h.rebuilds:
        if r.base < r.stable:
            yield "stable", f"shard {r.shard}: rebuilt at {r.base}, version {r.stable} was stable"
        if not any(x.kind == EPOCH and x.version == r.base + 1
                   for x in [*h.records[r.shard], *h.abandoned.get(r.shard, ())]):
            yield "unnamed", (f"shard {r.shard}: its server says it goes on from {r.base}, but no "
                              f"epoch begins with the next version")


CHECKS = (check_chain, check_decided, check_acknowledged, check_folded, check_credit,
          check_replicas, check_rebuilds)


def judge(history):
    return [violation for check in CHECKS for violation in check(history)]


# ---------------------------------------------------------------- checks of the checker

def tampered(history):
    """(name of the expected violation, a changed copy) for each kind of violation."""
    def copy():
        return dataclasses.replace(
            history, records={s: [dataclasses.replace(r) for r in rs]
                              for s, rs in history.records.items()},
            workers={n: (i, list(es)) for n, (i, es) in history.workers.items()},
            held=dict(history.held))

    def change(due, how):
        h = copy()
        how(h)
        return due, h

    def admitted(h):
        return [i for i, r in enumerate(h.records[0]) if r.kind == ADMIT]

    def drop_acknowledged(h):
        told = next((i, e) for i, es in h.workers.values() for e in es
                    if e.what == "decided" and e.shard == 0 and e.outcome == "admitted")
        push = told[0], told[1].incarnation, told[1].step
        h.records[0] = [r for r in h.records[0] if r.kind != ADMIT or r.push() != push]

    def apply_twice(h):
        r = h.records[0][admitted(h)[0]]
        h.records[0].append(dataclasses.replace(r, version=len(h.records[0]) + 1))

    def refuse(h):
        told = {(i, e.incarnation, e.step) for i, es in h.workers.values() for e in es
                if e.what == "decided" and e.shard == 0}
        next(r for r in h.records[0] if r.kind == ADMIT and r.push() in told).kind = REFUSE

    def change_bytes(h):
        r = h.records[0][admitted(h)[-1]]
        r.identity = r.identity[:-1] + bytes([r.identity[-1] ^ 1])

    def skip(h):
        """A gap shows only after an earlier push of the incarnation, whose first step is
        arbitrary."""
        seen, after = set(), []
        for r in h.records[0]:
            key = r.worker, r.incarnation
            if r.kind == ADMIT and key in seen:
                after.append(r)
            if r.kind in (ADMIT, REFUSE):
                seen.add(key)
        after[-1].step += 1

    def forget_cut(h):
        push = h.records[0][admitted(h)[0]].push()
        for who, (number, events) in h.workers.items():
            h.workers[who] = number, [e for e in events if not (
                e.what == "cut" and e.shard == 0 and (number, e.incarnation, e.step) == push)]

    def first_fold(h):
        return next((es, i) for _, es in h.workers.values() for i, e in enumerate(es)
                    if e.what == "folded" and i and es[i - 1].what == "folded"
                    and es[i - 1].life == e.life)

    def fold_another(h):
        events, i = first_fold(h)
        events[i] = dataclasses.replace(events[i], kind=events[i].kind + 10)

    def fold_twice(h):
        events, i = first_fold(h)
        events.insert(i, events[i])

    def claim_again(h):
        next(r for r in h.records[0] if r.kind == ADMIT and r.claims).claims += (1,)

    def forget_claim(h):
        next(r for r in h.records[0] if r.kind == ADMIT and r.claims).claims = ()

    def other_state(h):
        who = next(iter(h.held))
        h.held[who] = {s: (v, "0" * 64) for s, (v, _) in h.held[who].items()}

    def drop_decided_anew(h):
        again = {r.push() for r in h.abandoned[0] if r.kind == ADMIT}
        h.records[0] = [r for r in h.records[0] if r.push() not in again]

    def forget_returned(h):
        h.workers = {who: (i, [e for e in es if e.what != "returned"])
                     for who, (i, es) in h.workers.items()}

    def rebuild(**what):
        def how(h):
            h.rebuilds = [dataclasses.replace(r, **what) for r in h.rebuilds]
        return how

    admitted_before = {r.push() for r in history.abandoned.get(0, ()) if r.kind == ADMIT}
    if admitted_before & {r.push() for r in history.records[0]}:
        yield change("lost", drop_decided_anew)
    if admitted_before - {r.push() for r in history.records[0]}:
        yield change("lost", forget_returned)
    if history.rebuilds:
        yield change("stable", rebuild(stable=max(r.base for r in history.rebuilds) + 1))
        yield change("unnamed", rebuild(base=len(history.records[0]) + 9))
    yield change("lost", drop_acknowledged)
    yield change("gap", drop_acknowledged)
    yield change("twice", apply_twice)
    yield change("outcome", refuse)
    yield change("chain", change_bytes)
    yield change("skipped", skip)
    yield change("stranger", forget_cut)
    yield change("folded", fold_another)
    yield change("order", fold_twice)
    yield change("credit", claim_again)
    yield change("credit", forget_claim)
    yield change("replicas", other_state)


def unseen(history):
    """Names of tampered histories in which judge() misses the violation; should be empty."""
    return [due for due, h in tampered(history) if due not in {n for n, _ in judge(h)}]
