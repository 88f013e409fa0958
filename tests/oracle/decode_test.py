#!/usr/bin/env python3
"""The decoder over the runs of the tree and the examples of the payload's page: `decode_test.py`.

The runs are tests/replay/demo and each folder of tests/fixtures/history, whose job is in history/.
"""
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from decoder.job import Layout
from decoder.ledger import Ledger
from decoder.log import ADMIT, FENCE, REFUSE, read_record
from decoder.payload import Payload, fragment
from decoder.plain import Differs, keep
from decoder.tamper import tamper
from decoder.verify import Run

HERE = Path(__file__).resolve().parent
DEMO = HERE.parent / "replay" / "demo"
HISTORY = HERE.parent / "fixtures" / "history"
PAGE = (HERE.parents[1] / "kernels" / "docs" / "0001-payload.md").read_text(encoding="utf-8")

TRIALS = 5
LOG_KINDS = ("log", "record", "sealed", "plain", "parameter", "ledger")
FILE_KINDS = LOG_KINDS + ("checkpoint", "state", "said")
SIGNED_KINDS = FILE_KINDS + ("hashes", "signer", "signature", "signed")
INDEX = {"dense": 0, "topk": 1, "fragment": 2}
VALUE = {"sign": 1, "q4": 3, "fp16": 5, "fp32": 6}


def history(name):
    """One of the stored histories of tests/fixtures/history."""
    folder = HISTORY / name
    return Run([folder], HERE / "history", "history", "longhaul.local", folder / "expect.txt")


class Runs(unittest.TestCase):
    def check(self, run, kinds, **counts):
        """Everything agrees, these counts were compared, and no flipped bit goes unnoticed."""
        run.verify()
        self.assertEqual({name: count for name, count in run.count.items() if count}, counts)
        self.assertEqual(tamper(run, TRIALS), dict.fromkeys(kinds, TRIALS))

    def test_the_demo_agrees(self):
        run = Run([DEMO / "shard-0", DEMO / "shard-1"], DEMO, "demo", "e2e.test",
                  digests=DEMO / "digests.json")
        records = sum(shard["version"] for shard in json.loads(
            (DEMO / "digests.json").read_text(encoding="utf-8")).values())
        run.verify()
        counts = {name: count for name, count in run.count.items() if count}
        frames, digests = counts.pop("frames"), counts.pop("digests")
        self.assertEqual(counts, {"records": records, "expected": 2})
        self.assertGreater(frames, 50)
        self.assertGreater(digests, 2)
        self.assertEqual(tamper(run, TRIALS), dict.fromkeys(LOG_KINDS, TRIALS))

    def test_a_history_with_a_move_agrees(self):
        self.check(history("1"), SIGNED_KINDS, records=31, frames=16, digests=5, expected=33,
                   checkpoints=7, signatures=7)

    def test_every_history_has_a_test(self):
        self.assertEqual(sorted(path.name for path in HISTORY.iterdir()), ["1"])

    def test_a_signer_that_is_not_trusted_differs(self):
        run = history("1")
        path, data, trusted = run.checkpoints[0]
        run.checkpoints[0] = path, data, [bytes(32)]
        self.assertRaisesRegex(Differs, "no trusted key", run.verify)
        run.checkpoints[0] = path, data, [bytes(32), *trusted]
        run.verify()

    def test_a_segment_without_a_header_is_met_only_at_the_end(self):
        run = history("1")
        folder, files = run.logs.popitem()
        empty = folder / "log" / "0000000000000004.seg", bytes(1 << 16)
        run.logs[folder] = files + [empty]
        run.verify()
        run.logs[folder] = files[:1] + [empty] + files[1:]
        self.assertRaisesRegex(Differs, "not a segment", run.verify)

    def test_bytes_behind_the_last_entry_mean_nothing(self):
        run = history("1")
        folder, files = run.logs.popitem()
        path, data = files[-1]
        end = len(data.rstrip(b"\0"))
        torn = data[:end + 16 - end % 8] + b"LHWR" + bytes(100)
        run.logs[folder] = files[:-1] + [(path, torn)]
        self.assertIn("1 torn tails", run.verify()[0])

    def test_a_log_without_its_beginning_or_middle_is_refused(self):
        run = history("1")
        folder, files = run.logs.popitem()
        run.logs[folder], kept, run.checkpoints = files[1:], run.checkpoints, []
        self.assertRaisesRegex(Differs, "no checkpoint is of version 7 or later", run.verify)
        run.logs[folder], run.checkpoints = files[:1] + files[2:], kept
        self.assertRaisesRegex(Differs, "first sequence is", run.verify)


    def test_a_log_whose_beginning_was_removed_agrees(self):
        run = history("1")
        folder, files = run.logs.popitem()
        for gone, passed in ((1, 10), (2, 5)):  # shard 1 has no record after its last checkpoint
            with self.subTest(gone):
                run.logs[folder] = files[gone:]
                self.check(run, SIGNED_KINDS, records=9, frames=3, digests=2, expected=11,
                           checkpoints=7, signatures=7, passed=passed)

    def test_the_records_before_the_first_checkpoint_are_checked_too(self):
        run = history("1")
        folder, files = run.logs.popitem()
        run.logs[folder] = files[1:]
        run.verify()
        first, *passed = [r for r in run.shards[0] if r.version <= run.begins[0]]
        self.assertGreater(first.version, 1)
        push = next(r for r in passed if r.kind == ADMIT)
        for what, place, why in (("sealed", (0, push.version), "seal does not open"),
                                 ("record", push.where, "chain of version")):
            def flip(kind, where, data, at=(what, place)):
                return data[:-1] + bytes([data[-1] ^ 1]) if (kind, where) == at else data
            with self.subTest(what), self.assertRaisesRegex(Differs, why):
                run.verify(flip)


class Files(unittest.TestCase):
    """Invalid files beside the run are reported in one line, never by a traceback."""

    BROKEN = (
        ("model.json", "{", "no JSON"),
        ("model.json", "[]", "an object is expected"),
        ("model.json", '{"chunk": 4096, "shards": 2}', "lacks tensors"),
        ("model.json", '{"chunk": 4096, "shards": true, "tensors": []}', "a count is expected"),
        ("model.json", '{"chunk": 4096, "shards": 2, "tensors": [{"name": "x", "shape": [-1]}]}',
         r"tensors\[0\].shape\[0\]: -1"),
        ("model.json", '{"chunk": 4096, "shards": 0, "tensors": []}', "no shards"),
        ("model.json", b"\xff", "no text"),
        ("weights.bin", b"abc", "3 bytes for 5080 values"),
        ("job.keys", "7:xyz", "no key"),
        ("job.keys", "7:abcd", "no key"),
        ("digests.json", "{", "no JSON"),
        ("digests.json", '{"0": 5}', "an object is expected"),
        ("digests.json", '{"0": {"version": 5}}', "lacks digest"),
        ("expect.txt", "0 0 chain", "a line is not"),
        ("expect.txt", "x 0 chain digest", "a line is not"),
        ("signer.pub", "zz name", "no key and name"),
    )

    def test_each_is_said(self):
        for name, text, why in self.BROKEN:
            with self.subTest((name, text)), tempfile.TemporaryDirectory() as folder:
                folder = Path(folder)
                shutil.copytree(HERE / "history", folder, dirs_exist_ok=True)
                shutil.copytree(HISTORY / "1", folder, dirs_exist_ok=True)
                if not (folder / "digests.json").exists():
                    (folder / "digests.json").write_text("{}")
                (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
                said = subprocess.run(
                    [sys.executable, HERE / "decode.py", "--job", folder, "--run", "history",
                     "--expect", folder / "expect.txt", "--digests", folder / "digests.json",
                     folder], capture_output=True, text=True, check=False)
                self.assertEqual((said.returncode, said.stderr), (1, ""))
                self.assertRegex(said.stdout, why)


class Rules(unittest.TestCase):
    """Violations that no valid log has, nor any run in the tree."""

    def setUp(self):
        job = SimpleNamespace(id=bytes(16), manifest=bytes(32), shards=1)
        self.ledger = Ledger(job, 0)
        self.fence(1)

    def fence(self, number):
        """Worker 7 gets an incarnation."""
        body = struct.pack("<QQQ", 7, number, number + 100)
        self.ledger.fence(SimpleNamespace(body=body, where="a fence"))

    def push(self, number, step, worker=7):
        """A push of a worker is admitted."""
        frame = SimpleNamespace(worker=worker, number=number, noise=number + 100, step=step,
                                tokens=1, steps=1, claims=(), charged=0, name="a push",
                                digest=lambda: bytes(16))
        self.ledger.push(frame, SimpleNamespace(kind=ADMIT, version=1, reason=0))

    def test_steps_go_on_and_begin_again_with_an_incarnation(self):
        for number in (1, 2):
            self.assertRaisesRegex(Differs, "1 is the next", self.push, number, 2)
            self.push(number, 1)
            self.assertRaisesRegex(Differs, "2 is the next", self.push, number, 1)
            self.assertRaisesRegex(Differs, "2 is the next", self.push, number, 3)
            self.push(number, 2)
            self.fence(number + 1)

    def test_a_push_has_the_incarnation_of_its_row(self):
        self.push(1, 1)
        self.assertRaisesRegex(Differs, "not its worker's", self.push, 2, 1)
        self.fence(2)
        self.assertRaisesRegex(Differs, "not its worker's", self.push, 1, 2)
        self.assertRaisesRegex(Differs, "without a FENCE", self.push, 2, 1, worker=9)

    def test_a_fence_raises_the_incarnation(self):
        self.assertRaisesRegex(Differs, "incarnation 1 after 1", self.fence, 1)

    def test_flags_reason_and_scale_are_0_where_they_mean_nothing(self):
        for why, *fields in (("flags", ADMIT, 1, 0, 1), ("norm", ADMIT, 0, 0x7f800000, 1),
                             ("scale", REFUSE, 0, 1, 1), ("reason", FENCE, 0, 1, 0),
                             ("scale", FENCE, 0, 0, 1)):
            data = struct.pack("<QQHHIfI32s", 1, 1, *fields, 0, bytes(32))
            with self.subTest((why, fields)), self.assertRaisesRegex(Differs, why):
                read_record((1, 0, data, 64), "log", keep)


def half(text):
    """The value of an IEEE binary16 that the page shows as two bytes."""
    return struct.unpack("<e", bytes.fromhex(text))[0]


TWO = np.array([.5, -3, 0, 2.5, -.25, 1, -1, 0, 2.5, -7, 7, .125], np.float32)
TWO_LAYOUT = Layout(0, [(0, 9), (9, 3)], [(0, 1, 9), (1, 1, 3)], 12)
TWO_CARRIED = [1, 3, 8, 9]


def levels(codes, first, second):
    """Levels of the first tensor times its scale, then those of the second."""
    count = len(codes) - (3 if len(codes) == 12 else 1)
    return [level * half(first if at < count else second) for at, level in enumerate(codes)]


def two_readings():
    """The reading of each form of the first example, from the page's column of readings."""
    sparse, dense = TWO[TWO_CARRIED], [1, -1, 1, 1, -1, 1, -1, 1, 1, -1, 1, 1]
    return {
        "topk-sign": levels([-1, 1, 1, -1], "5541", "0047"),
        "topk-q4": levels([-7, 6, 6, -7], "db36", "003c"),
        "topk-fp16": sparse, "topk-fp32": sparse,
        "dense-sign": levels(dense, "c73c", "b544"),
        "dense-q4": levels([1, -7, 0, 6, -1, 2, -2, 0, 6, -7, 7, 0], "db36", "003c"),
        "dense-fp32": TWO}


def page(pattern):
    """The bytes that the page shows where the pattern's groups are."""
    return bytes.fromhex("".join(re.search(pattern, PAGE).groups()))


def shown(column):
    """The bytes that a column of the page's table shows; "..." is left out."""
    return bytes.fromhex("".join(re.findall(r"`([0-9a-f .]+)`", column)).replace(".", ""))


def decode(codec, rice, density, body, layout, count, turn=0):
    """Indices and values of a payload's body, behind the header that belongs to it."""
    index, value = codec.split("-")
    index, value, density = INDEX[index], VALUE[value], float(np.float32(density))
    plain = struct.pack("<BBBBIfIQ", 1, index, value, rice, turn, density, len(layout.chunks),
                        count)
    frame = SimpleNamespace(index=index, value=value, density=density, values=count, name=codec)
    return Payload(plain + body, frame, layout).decode()


class Examples(unittest.TestCase):
    def check(self, want, *example):
        """The example has this reading, and neither more nor fewer bytes have one."""
        indices, values = decode(*example)
        self.assertEqual((list(indices), list(values)), (list(want[0]), list(np.float32(want[1]))))
        codec, rice, density, body, layout, count = example
        for wrong in (body + b"\0", body[:-1]):
            self.assertRaises(Differs, decode, codec, rice, density, wrong, layout, count)

    def test_the_header_of_topk_q4(self):
        head = struct.pack("<BBBBIfIQ", 1, INDEX["topk"], VALUE["q4"], 1, 0, .3, 2, 4)
        self.assertEqual(head, page(r"here of topk-q4: `([0-9a-f ]+)`"))

    def test_every_form_of_two_tensors(self):
        rows = dict(re.findall(r"^\| ((?:topk|dense)-\w+) \| (.*?) \|", PAGE, re.M))
        readings = two_readings()
        topk = page(r"stands `(0100)`, the group's one byte")
        self.assertEqual(set(rows), set(readings))
        for codec, column in rows.items():
            with self.subTest(codec):
                index, value = codec.split("-")
                body, reading = shown(column), readings[codec]
                if index == "dense":
                    if value == "fp32":  # the page shows only the first bytes
                        self.assertTrue(TWO.tobytes().startswith(body) and body)
                        body = TWO.tobytes()
                    self.check((range(12), reading), codec, 0, 1, body, TWO_LAYOUT, 12)
                    continue
                want = TWO_CARRIED, reading
                self.check(want, codec, 1, .3, topk + body, TWO_LAYOUT, 4)

    def test_fragments_of_two_tensors(self):
        rows = re.findall(r"^\| fragment-fp32, turn (\d+) \| (.*?) \|", PAGE, re.M)
        self.assertEqual([turn for turn, _ in rows], ["1", "5"])
        for (turn, column), want in zip(rows, ([3, 4, 5, 10], [6, 7, 8, 11])):
            indices, values = decode("fragment-fp32", 0, .3, shown(column), TWO_LAYOUT, 4,
                                     int(turn))
            self.assertEqual((list(indices), list(values)), (want, list(TWO[want])))
        # Wraps at the end of a chunk: 4 of 9, from 8 on.
        self.assertEqual(list(fragment(2, 4, 9)), [0, 1, 2, 8])

    def test_malformed_payloads_are_refused(self):
        decode("topk-sign", 1, .3, bytes.fromhex("0100 554107 004702 33"), TWO_LAYOUT, 4)
        for why, text in (("padding bit", "0100 554147 004702 33"),
                          ("5 ones", "0100 554107 004702 73"),
                          ("3 ones", "0100 554107 004702 13"),
                          ("stream too long", "0200 554107 004702 33 00"),
                          ("leaves chunk", "0200 554107 004702 03 03"),
                          ("centroid", "0100 55c107 004702 33"),
                          ("centroid", "0100 557e07 004702 33")):
            with self.subTest(text), self.assertRaisesRegex(Differs, why):
                decode("topk-sign", 1, .3, bytes.fromhex(text), TWO_LAYOUT, 4)


if __name__ == "__main__":
    sys.exit(unittest.main())
