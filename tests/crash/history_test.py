#!/usr/bin/env python3
"""Tests the offline checker on made-up histories: `history_test.py`."""
import hashlib
import os
import struct
import sys
import tempfile
import unittest

import history
from history import ADMIT, Event, History, Record

JOB, MANIFEST, WORKER = b"j" * 16, b"m" * 32, 7


def record(version, chain, incarnation, step):
    """A push that claims its own unit; the chain continues from `chain`."""
    fixed = struct.pack("<QQHI", version, 1, ADMIT, 0) + b"\0" * 4
    identity = b"push %d" % version
    chain = hashlib.blake2b(chain + fixed + identity, digest_size=32).digest()
    return Record(0, version, 1, ADMIT, fixed, chain, identity, WORKER, (incarnation, 0), step,
                  (100 + version,), MANIFEST)


def of_pushes(*pushes):
    """The history of one shard and of one worker that cut these (incarnation, step), received their
    decisions and folded them."""
    chain = hashlib.blake2b(b"longhaul log 1" + JOB + MANIFEST + struct.pack("<II", 0, 1),
                            digest_size=32).digest()
    records, events = [], []
    for version, push in enumerate(pushes, 1):
        records.append(record(version, chain, *push))
        chain = records[-1].chain
        events += [Event("cut", 1, 0, *push), Event("decided", 1, 0, *push, "admitted")]
    events += [Event("folded", 1, 0, version=r.version, kind=ADMIT) for r in records]
    units, truth = {r.claims[0]: 100 for r in records}, {0: (len(records), "d" * 64)}
    return History(JOB, 1, units, {0: records}, {"w": (WORKER, events)}, True, len(units),
                   100 * len(units), {0: len(units)}, truth, {"w": dict(truth)})


class Tampered(unittest.TestCase):
    def check_all_seen(self, h):
        self.assertEqual(history.judge(h), [])
        self.assertEqual(history.unseen(h), [])

    def test_every_change_is_seen(self):
        self.check_all_seen(of_pushes((1, 1), (1, 2), (1, 3)))

    def test_every_change_is_seen_where_the_last_push_is_the_first_of_its_incarnation(self):
        self.check_all_seen(of_pushes((1, 1), (1, 2), (2, 1)))

    def test_every_change_is_seen_where_first_pushes_surround_the_others(self):
        self.check_all_seen(of_pushes((1, 1), (2, 5), (2, 6), (3, 1), (4, 1)))


class Kept(unittest.TestCase):
    def test_a_link_follows_a_segment_that_is_made_anew(self):
        with tempfile.TemporaryDirectory() as folder:
            path, link = os.path.join(folder, "1.seg"), os.path.join(folder, "kept")
            for content in ("no header yet", "whole"):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
                for _ in range(2):  # repeatedly, as the drills do
                    history.keep_segment(path, link)
                os.remove(path)  # as a start or a checkpoint does
                with open(link, encoding="utf-8") as file:
                    self.assertEqual(file.read(), content)


if __name__ == "__main__":
    sys.exit(unittest.main())
