#!/usr/bin/env python3
"""Corrections on their way to a GPU (longhaul/lanes.py): crossed.py LIBRARY PACKAGE.

There is no GPU: streams and events are made up, and all memory is the host's. Each operation of
PyTorch's is noted with the stream that would run it, and two that touch the same memory without an
order between them are a race, as on a real device. Each wait is left out once, and the race must be
found.
"""
import contextlib
import unittest
from unittest import mock

import torch
from fake import parameters
from torch.utils._python_dispatch import TorchDispatchMode

from longhaul import lanes

HOST = "host"


class Race(Exception):
    pass


class Watched(TorchDispatchMode):
    """Records the operations of each stream, and their order."""

    def __init__(self):
        super().__init__()
        self.at, self.clock, self.left_out = [HOST], {HOST: {}}, ""
        self.wrote, self.read, self.alive, self.done = {}, {}, [], []
        self.waits = 0

    def _learn(self, who, clock):
        mine = self.clock[who]
        for other, time in clock.items():
            mine[other] = max(mine.get(other, 0), time)

    def _after(self, who, earlier, what):
        other, time = earlier
        if other != who and self.clock[who].get(other, 0) < time:
            raise Race(f"{what} of {who} beside {other}'s")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        schema, who = func._schema, self.at[-1]  # pylint: disable=protected-access
        out = func(*args, **(kwargs or {}))
        view = any(r.alias_info and not r.alias_info.is_write for r in schema.returns)
        if view:
            return out
        self._learn(who, self.clock[HOST])  # the host submitted it to the stream now
        mine = self.clock[who]
        mine[who] = mine.get(who, 0) + 1
        self.done.append((who, func.overloadpacket.__name__, args, kwargs))
        for argument, value in zip(schema.arguments, args):
            for t in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(t, torch.Tensor):
                    self._touch(who, t, bool(argument.alias_info and argument.alias_info.is_write),
                                func.overloadpacket.__name__)
        if isinstance(out, torch.Tensor):
            self._touch(who, out, True, func.overloadpacket.__name__)
        return out

    def _touch(self, who, tensor, writes, name):
        self.alive.append(tensor)  # so that no memory is reused
        key = tensor.untyped_storage().data_ptr()
        if key in self.wrote:
            self._after(who, self.wrote[key], name)
        now = (who, self.clock[who][who])
        if not writes:
            self.read.setdefault(key, []).append(now)
            return
        for earlier in self.read.pop(key, []):
            self._after(who, earlier, name)
        self.wrote[key] = now

    def named(self, *names):
        return [(who, name) for who, name, _, _ in self.done if name in names]


class MadeUp:
    """A replacement for torch.cuda."""

    pinned = {}

    def __init__(self, watched):
        cuda, self.watched, self.main = self, watched, None

        class Event:
            def __init__(self):
                self.clock = {}

            def record(self, stream):
                self.clock = dict(watched.clock[stream.name])

            def synchronize(self):
                watched.waits += 1
                if watched.left_out != "the host waits":
                    watched._learn(HOST, self.clock)  # pylint: disable=protected-access

        class Stream:
            def __init__(self, _device, name="side"):
                self.name = name
                watched.clock[name] = {}

            def wait_event(self, event):
                if watched.left_out != f"{self.name} waits":
                    watched._learn(self.name, event.clock)  # pylint: disable=protected-access

        self.Event, self.Stream = Event, Stream  # pylint: disable=invalid-name
        self.main = cuda.Stream(None, "training")

    def current_stream(self, _device):
        return self.main

    @contextlib.contextmanager
    def stream(self, stream):
        self.watched.at.append(stream.name)
        yield
        self.watched.at.pop()

    def keep(self, tensor, stream):
        self.watched.done.append((stream.name, "keep", (tensor,), {}))


class Crossed(unittest.TestCase):
    def setUp(self):
        self.draw = torch.Generator().manual_seed(1)
        self.watched = Watched()
        self.cuda = MadeUp(self.watched)

    def lane(self, entries):
        return lanes.Lane("cpu", self.cuda, entries)

    def sparse(self, values, entries):
        return (torch.randn(entries, generator=self.draw),
                torch.randperm(values, generator=self.draw)[:entries].to(torch.int32))

    def renew(self, adders, corrections):
        """Calls the adders as the library does: each part, then a call without values for each."""
        for adder, (first, count, values, where) in corrections:
            adder(first, count, len(values), values.data_ptr(),
                  0 if where is None else where.data_ptr())
            if where is not None:  # the library frees that memory
                with torch.utils._python_dispatch._disable_current_modes():
                    values.fill_(float("nan"))
                    where.fill_(-1)
        for adder in adders:
            adder(0, 0, 0, 0, 0)

    def many(self, entries, sizes=(40, 7, 300), rounds=5):
        """Renewals of several parameters, and a step of training between them."""
        lane = self.lane(entries)
        tensors = [torch.randn(n, generator=self.draw) for n in sizes]
        adders = [parameters.Adder(t, lane) for t in tensors]
        should = [t.clone() for t in tensors]
        for turn in range(rounds):
            corrections = []
            for adder, s in zip(adders, should):
                for _ in range(2):
                    values, where = self.sparse(len(s) - 3, len(s) // 2)
                    s[3 + where.long()] += values
                    corrections.append((adder, (3, len(s) - 3, values, where)))
                if turn % 2:
                    dense = torch.randn(len(s), generator=self.draw)
                    s += dense
                    corrections.append((adder, (0, len(s), dense, None)))
            with self.watched:
                self.renew(adders, corrections)
                with self.cuda.stream(self.cuda.main):
                    for t in tensors:
                        t.mul_(0.5)
            for s in should:
                s.mul_(0.5)
        for t, s in zip(tensors, should):
            self.assertTrue(torch.equal(t, s))

    def test_bits_and_order(self):
        for entries in (1, 5, 16, 1 << 10):
            with self.subTest(entries):
                self.setUp()
                self.many(entries)
                added = self.watched.named("index_put_", "add_")
                self.assertEqual({who for who, _ in added}, {"training"})

    def test_each_wait_is_needed(self):
        for fault in ("side waits", "training waits", "the host waits"):
            with self.subTest(fault):
                self.setUp()
                self.watched.left_out = fault
                with self.assertRaises(Race):
                    self.many(16)

    def test_a_renewal_is_two_copies_and_no_wait(self):
        """For 338 tensors, instead of a copy and a wait for each."""
        lane = self.lane(1 << 14)
        tensors = [torch.zeros(64) for _ in range(338)]
        adders = [parameters.Adder(t, lane) for t in tensors]
        for _ in range(2):  # the two halves of the buffer take turns
            corrections = [(a, (0, 64, *self.sparse(64, 32))) for a in adders]
            with self.watched:
                self.renew(adders, corrections)
        self.assertEqual(self.watched.named("copy_").count(("side", "copy_")), 4)
        self.assertEqual(self.watched.waits, 0)

    def test_no_atomics(self):
        """Atomics would flush subnormal numbers. index_put_ uses none unless it accumulates."""
        lane, to = self.lane(16), torch.full((8,), 1e-45)
        adder = parameters.Adder(to, lane)
        values, where = torch.full((3,), 2e-45), torch.tensor([1, 4, 7], dtype=torch.int32)
        with self.watched:
            self.renew([adder], [(adder, (0, 8, values, where))])
        should = torch.full((8,), 1e-45)
        should[torch.tensor([1, 4, 7])] += 2e-45
        self.assertTrue(torch.equal(to, should) and (to[1] > to[0]).item())
        host, values = torch.full((8,), 1e-45), torch.full((3,), 2e-45)
        where = torch.tensor([1, 4, 7], dtype=torch.int32)
        with self.watched:
            parameters.Adder(host)(0, 8, 3, values.data_ptr(), where.data_ptr())
        puts = [(args, kwargs) for _, name, args, kwargs in self.watched.done
                if name == "index_put_"]
        self.assertEqual(len(puts), 2)
        for args, kwargs in puts:
            self.assertFalse(len(args) > 3 and args[3] or (kwargs or {}).get("accumulate"))
        self.assertEqual(self.watched.named("index_add_", "scatter_add_", "scatter_add"), [])

    def test_dense_ones_cross_beside_training(self):
        lane, to = self.lane(16), torch.zeros(50)
        adder = parameters.Adder(to, lane)
        dense = torch.randn(20, generator=self.draw)
        with self.watched:
            self.renew([adder], [(adder, (5, 20, dense, None))])
        self.assertEqual(self.watched.named("_to_copy", "add_", "keep"),
                         [("side", "_to_copy"), ("training", "keep"), ("training", "add_")])
        self.assertTrue(torch.equal(to[5:25], dense))
        self.assertEqual(self.watched.waits, 0)

    def test_a_shadow_has_the_bits_of_the_hosts(self):
        p = (torch.randn(60, generator=self.draw) * 3).bfloat16()
        q, lane = p.clone(), self.lane(7)
        here, there = parameters.Shadow(p), parameters.Shadow(q, lane)
        for turn in range(4):
            step = torch.randn(60, generator=self.draw).bfloat16()
            p += step
            q += step
            given = [self.sparse(50, n) for n in (20, 0)] + \
                [(torch.randn(50, generator=self.draw), None)]
            for values, where in given:
                here(10, 50, len(values), values.data_ptr(),
                     0 if where is None else where.data_ptr())
            with self.watched:
                self.renew([there], [(there, (10, 50, v, w)) for v, w in given])
            self.assertTrue(torch.equal(here.kept, there.kept), turn)
            self.assertTrue(torch.equal(p, q), turn)

    def test_a_renewal_that_fails_leaves_nothing_behind(self):
        lane, to = self.lane(16), torch.zeros(8)
        adder = parameters.Adder(to, lane)
        values, where = torch.ones(2), torch.tensor([0, 1], dtype=torch.int32)
        adder(0, 8, 2, values.data_ptr(), where.data_ptr())
        with mock.patch.object(lanes, "add_entries", side_effect=MemoryError), \
                self.assertRaises(MemoryError):
            adder(0, 0, 0, 0, 0)
        before = to.clone()
        adder(0, 0, 0, 0, 0)
        self.assertTrue(torch.equal(to, before))


if __name__ == "__main__":
    unittest.main(argv=["crossed"])
