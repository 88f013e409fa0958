#!/usr/bin/env python3
"""The optimizer's state that a loop keeps: kept.py LIBRARY PACKAGE."""
import os
import unittest
from unittest import mock

import torch
from units import Case, Fake, errors, longhaul, model_of

CUT = longhaul.Due.CUT


class Kept(Case):
    def setUp(self):
        super().setUp()
        self.optimizer = self.adam()

    def adam(self, rate=0.1):
        return torch.optim.Adam(self.model.parameters(), lr=rate)

    def train(self, client, steps, **options):
        """So many steps with gradients of one; then the process is dead."""
        run = self.run_of(client, keep=self.path("kept"), **options)
        run.__enter__()  # pylint: disable=unnecessary-dunder-call
        for _ in range(steps):
            for p in self.model.parameters():
                p.grad = torch.ones_like(p)
            self.optimizer.step()
        return run

    def moments(self):
        return {i: {k: v.clone() for k, v in of.items()}
                for i, of in self.optimizer.state_dict()["state"].items()}

    def assert_moments(self, wanted):
        mine = self.moments()
        self.assertEqual(mine.keys(), wanted.keys())
        for i, of in wanted.items():
            for k, v in of.items():
                self.assertTrue(torch.equal(v, mine[i][k]), (i, k))

    def test_a_loop_that_starts_again_goes_on_with_the_last_kept_state(self):
        self.train(Fake(dues=[0, CUT]), 2, keep_every=1)
        wanted = self.moments()
        self.train(Fake(), 0)
        self.optimizer = self.adam(rate=0.5)
        with self.assertLogs("longhaul", "WARNING") as said:
            self.train(Fake(), 0)
        self.assertIn("goes on from", said.output[0])
        self.assert_moments(wanted)
        self.assertEqual(self.optimizer.param_groups[0]["lr"], 0.5)  # the script's

    def test_what_came_after_the_last_kept_cut_is_not_there(self):
        self.train(Fake(dues=[CUT, CUT, CUT]), 2, keep_every=2)
        wanted = self.moments()
        self.train(Fake(dues=[CUT]), 1, keep_every=2)
        self.optimizer = self.adam()
        self.train(Fake(), 0)
        self.assert_moments(wanted)

    def test_without_a_cut_nothing_is_kept(self):
        self.train(Fake(), 3, keep_every=1)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_each_rank_has_a_file(self):
        client = Fake(dues=[CUT])
        client.rank, client.ranks = 1, 2
        self.train(client, 1, keep_every=1)
        self.assertEqual(os.listdir(self.folder.name), ["kept.1"])

    def test_another_runs_state_is_left_alone(self):
        client = Fake(dues=[CUT])
        client.credits = 1000
        self.train(client, 1, keep_every=1)
        self.optimizer = self.adam()
        with self.assertLogs("longhaul", "WARNING") as said:
            self.train(Fake(), 0)
        self.assertIn("another run's", said.output[0])
        self.assert_moments({})

    def test_bad_files_are_named(self):
        self.train(Fake(dues=[CUT]), 1, keep_every=1)
        size = os.path.getsize(self.path("kept"))
        os.truncate(self.path("kept"), size // 2)
        with self.assertRaisesRegex(errors.StateError, "kept can't be read.*remove it"):
            self.train(Fake(), 0)
        torch.save([1], self.path("kept"))
        with self.assertRaisesRegex(errors.StateError, "another model or optimizer"):
            self.train(Fake(), 0)
        os.remove(self.path("kept"))
        self.train(Fake(dues=[CUT]), 1, keep_every=1)
        self.model = model_of((2, 3))
        self.optimizer = self.adam()
        with self.assertRaisesRegex(errors.StateError, "another model or optimizer"):
            self.train(Fake(), 0)

    def test_what_cannot_be_kept_is_refused_at_once(self):
        shared = mock.Mock(param_groups=[{"params": [mock.Mock(placements=("Shard(0)",))]}])
        with self.assertRaisesRegex(errors.UnsupportedError, "fully_shard"):
            longhaul.AsyncDiLoCo(Fake(), self.model, shared, keep=self.path("kept"))
        with self.assertRaisesRegex(ValueError, "keep wants the optimizer"):
            longhaul.AsyncDiLoCo(Fake(), self.model, None, keep=self.path("kept"))
        with self.assertRaisesRegex(ValueError, "keep_every"):
            self.run_of(Fake(), keep=self.path("kept"), keep_every=0)

    def test_a_torn_write_leaves_the_old_state(self):
        self.train(Fake(dues=[CUT]), 1, keep_every=1)
        wanted = self.moments()
        with open(self.path("kept.tmp"), "wb") as file:
            file.write(b"half")
        self.optimizer = self.adam()
        self.train(Fake(), 0)
        self.assert_moments(wanted)


if __name__ == "__main__":
    unittest.main(argv=["kept.py"])
