#!/usr/bin/env python3
"""One rank can't go on: the others end as well, soon, and report that rank and its error.

    ends.py LIBRARY PACKAGE EXTERNAL_WORKER

The rank that fails stays alive, with its process group, until the others have ended: they get no
help from connections that close with a process. No time is measured: of_ranks() has a shorter
timeout than gloo.
"""
import array
import hashlib
import json
import os
import sys
import time
import unittest
from unittest import mock

import torch
import torch.distributed as dist
from fake import Fake, errors, group, longhaul, model_of
from hosts import NEAR, RANKS, TOKENS, Judged, Odd, placed
from ranked import client_of, of_ranks

DUE = longhaul.Due.RENEW | longhaul.Due.CUT
SHA256 = hashlib.sha256(array.array("H", range(8)).tobytes()).hexdigest()  # of a unit's tokens
FAILS = 1  # a rank of the first host; RANKS - 1 is on another


def said(call):
    """The error that ends a rank."""
    try:
        call()
    except (RuntimeError, ValueError, OSError, FileNotFoundError) as error:
        return f"{type(error).__name__}: {error}"
    return "it ended well"


# ---------------------------------------------------------------- in a rank, with a worker

def loop(rank, ranks, socket, near, fails, how):
    """A loop on one host or two; at its 20th step a rank makes a forbidden change, or meets an
    unexpected error."""
    placed(rank, near, socket if rank < near else None)
    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def train():
        with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer, hook=False,
                                  tokens_per_step=TOKENS) as run:
            while True:
                model.train_step(run.steps + 1)
                if run.steps == 20 and rank == fails:
                    if how == "own":
                        raise ValueError("a batch of it is empty")
                    model.rows.data = model.rows.data.clone()
                run.step()
    return said(train), ranks


def cannot_begin(rank, ranks, socket, near, fails):
    """A rank whose parameters can't be described."""
    placed(rank, near, socket if rank < near else None)
    model = Odd()
    if rank == fails:
        model.rows.data = model.rows.data.half()
    return said(lambda: longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, None,
                                             hook=False).__enter__()), ranks


# ---------------------------------------------------------------- in a rank, without a worker

def loader(rank, ranks, units):
    """The file of a rank's units is gone."""
    client = client_of(rank, ranks)
    client.leases = [longhaul.Unit(rank, 0, 8), longhaul.Unit(rank + ranks, 0, 8)]
    model = model_of((2, 2))

    def train():
        with longhaul.AsyncDiLoCo(client, model, None, hook=False) as run:
            folder = os.path.join(os.path.dirname(units), "gone" if rank == FAILS else "")
            for _ in longhaul.LeasedDataLoader(run, units, batch_size=1, sequence_length=4,
                                               folder=folder, window=ranks):
                run.step()
    return said(train), len(client.of("close"))


def silent(rank, ranks, patience):
    """A rank never arrives, but lives."""
    group._GRACE_S = 1  # pylint: disable=protected-access
    client = client_of(rank, ranks)
    run = longhaul.AsyncDiLoCo(client, model_of((2, 2)), None, hook=False, timeout_s=patience)
    limit = run.together.timeout_s
    return ("" if rank == FAILS else said(lambda: run.together.of_all(rank))), limit


def one_still_connects(rank, ranks):
    """Whether the slowest rank had its group when this one returned from together()."""
    store, made = group.Together._board(), dist.new_group  # pylint: disable=protected-access

    def slow(*given):
        mine = made(*given)
        time.sleep(1)
        store.set("connected", "yes")
        return mine

    with mock.patch("torch.distributed.new_group", slow if rank == FAILS else made):
        group.together(ranks, 60)
    return store.check(["connected"])


def heard_again(rank, ranks):
    """A rank's message is that of its first error; a later group does not know it."""
    told = []
    for why in (ValueError("first"), ValueError("second")):
        made = group.together(ranks, 60)
        if rank == FAILS:
            made.leave(why)
            made.leave(ValueError("never said"))
            told.append(said(lambda made=made: made.of_all(1)))
        else:
            told.append(said(lambda made=made: made.of_all(1)))
            made.leave(errors.RankError("another's"))
        told.append(said(group.together(ranks, 60).check))
        dist.barrier()
    return told


def cleaned_up(rank, ranks):
    """The loop destroyed the process group itself before its error was handled."""
    made = group.together(ranks, 60)
    dist.barrier()
    dist.destroy_process_group()

    def end():
        try:
            raise OSError("its own")
        except OSError as why:
            made.leave(why)
            raise
    told = [said(made.check), said(end)]
    dist.init_process_group("gloo", init_method=f"file://{os.environ['LH_TEST_STORE']}",
                            rank=rank, world_size=ranks)
    return told


# ---------------------------------------------------------------- beside the ranks

class Ends(Judged):
    def assert_heard(self, found, fails, own):
        """The rank reports its own error, and each other rank reports it with that rank's
        number."""
        for rank, (text, _) in enumerate(found):
            if rank == fails:
                self.assertRegex(text, f"^{own}")
            else:
                self.assertRegex(text, rf"^RankError: rank {fails} can't go on: {own}", rank)

    def test_an_error_at_a_boundary_and_between_two(self):
        for ranks, near in ((NEAR, NEAR), (RANKS, NEAR)):
            for fails in {FAILS, 0, ranks - 1}:
                for how, own in (("moved", "StateError: rows lies elsewhere"),
                                 ("own", "ValueError: a batch of it is empty")):
                    with self.subTest(ranks=ranks, fails=fails, how=how):
                        worker = self.worker(near)
                        found = of_ranks(ranks, loop, self.socket, near, fails, how)
                        self.assert_heard(found, fails, own)
                        worker.kill()
                        worker.wait()
                        os.remove(self.socket)

    def test_a_rank_that_cannot_begin(self):
        for ranks, near, fails in ((NEAR, NEAR, FAILS), (RANKS, NEAR, RANKS - 1),
                                   (RANKS, NEAR, 0)):
            with self.subTest(ranks=ranks, fails=fails):
                found = of_ranks(ranks, cannot_begin, self.socket, near, fails)
                self.assert_heard(found, fails, "UnsupportedError: rows is torch.float16")

    def test_a_loader_that_cannot_read(self):
        with open(self.path("units.json"), "w", encoding="utf-8") as file:
            json.dump({"units": [{"id": i, "file": "a.bin", "from": 0, "tokens": 8,
                                  "sha256": SHA256} for i in range(6)]}, file)
        with open(self.path("a.bin"), "wb") as file:
            array.array("i", [20240520, 1, 8, *[0] * 253]).tofile(file)
            array.array("H", range(8)).tofile(file)
        found = of_ranks(3, loader, self.path("units.json"))
        self.assert_heard(found, FAILS, "FileNotFoundError: .*gone")
        self.assertTrue(all(closed for _, closed in found))

    def test_a_rank_that_never_comes(self):
        for rank, (text, limit) in enumerate(of_ranks(3, silent, 1)):
            self.assertEqual(limit, 2)
            if rank != FAILS:
                self.assertRegex(text, r"^RankError: another rank ended without a word, or did not "
                                 r"answer within 2 s \(timeout_s and 1 more\)")

    def test_no_rank_leaves_while_another_connects(self):
        self.assertEqual(of_ranks(3, one_still_connects), [True] * 3)

    def test_the_limit_is_the_clients_and_ten_seconds(self):
        with mock.patch("torch.distributed.new_group") as made, \
                mock.patch("longhaul.group.Together._board"), \
                mock.patch("torch.distributed.is_initialized", return_value=True), \
                mock.patch("torch.distributed.get_rank", return_value=0), \
                mock.patch("torch.distributed.get_backend", return_value="gloo"), \
                mock.patch("torch.distributed.get_world_size", return_value=2):
            client = Fake()
            client.ranks = 2
            longhaul.AsyncDiLoCo(client, model_of((2, 2)), None, hook=False)
            client.ranks = 1  # one of two hosts
            with mock.patch("longhaul.hosts.Spread"):
                longhaul.AsyncDiLoCo(client, model_of((2, 2)), None, hook=False)
            self.assertEqual([call.args[1].total_seconds() for call in made.call_args_list],
                             [610, 610])

    def test_an_error_is_told_once_and_in_its_group(self):
        for rank, told in enumerate(of_ranks(3, heard_again)):
            for i, why in ((0, "first"), (2, "second")):
                wanted = "RankError: this rank has left the others" if rank == FAILS else \
                    f"RankError: rank 1 can't go on: ValueError: {why}"
                self.assertEqual(told[i:i + 2], [wanted, "it ended well"])

    def test_an_error_after_the_group_is_gone_is_its_own(self):
        with mock.patch.dict(os.environ, LH_TEST_STORE=self.path("store")):
            for heard, told in of_ranks(2, cleaned_up):
                self.assertEqual((heard, told), ("it ended well", "OSError: its own"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
