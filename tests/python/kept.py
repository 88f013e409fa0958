#!/usr/bin/env python3
"""The optimizer's state that a loop keeps: kept.py LIBRARY PACKAGE."""
import contextlib
import errno
import os
import resource
import unittest
from unittest import mock

import torch
from accelerate import Accelerator
from fake import Case, Fake, errors, longhaul, model_of
from fits import Fit, Watch, moments, points, trainer_of
from longhaul.accelerate import LocalSGD
from longhaul.hf import LonghaulCallback

CUT = longhaul.Due.CUT


@contextlib.contextmanager
def full_at(most):
    """Limits the size of this process's files."""
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, was[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, was)


class Kept(Case):
    def setUp(self):
        super().setUp()
        self.optimizer = self.adam()

    def adam(self, rate=0.1):
        return torch.optim.Adam(self.model.parameters(), lr=rate)

    def train(self, client, steps, **options):
        """This many steps with gradients of one; then the run is abandoned, as by a kill."""
        run = self.run_of(client, **{"keep": self.path("kept"), "tokens_per_step": 1,
                                     **options})
        run.__enter__()  # pylint: disable=unnecessary-dunder-call
        for _ in range(steps):
            for p in self.model.parameters():
                p.grad = torch.ones_like(p)
            self.optimizer.step()
        return run

    def moments(self):
        return moments(self.optimizer)

    def assert_moments(self, wanted, mine=None):
        mine = self.moments() if mine is None else mine
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
        self.assertEqual(self.optimizer.param_groups[0]["lr"], 0.5)  # from the script

    def test_steps_after_the_last_kept_cut_are_not_there(self):
        self.train(Fake(dues=[CUT, CUT, CUT]), 2, keep_every=2)
        wanted = self.moments()
        self.train(Fake(dues=[CUT]), 1, keep_every=2)
        self.optimizer = self.adam()
        self.train(Fake(), 0)
        self.assert_moments(wanted)

    def test_masters_that_were_kept_stay_fp32_and_are_the_runs(self):
        """torch's optimizers load a state with the type of its parameter, which would lose bits."""
        class Masters(torch.optim.SGD):
            def step(self, closure=None):
                for p in self.param_groups[0]["params"]:
                    self.state[p].setdefault("master_param", p.detach().float())
                    self.state[p].setdefault("moment", torch.full_like(p, 1.001,
                                                                       dtype=torch.float32))

        self.model.bfloat16()
        for steps in (2, 0):
            self.optimizer, client = Masters(self.model.parameters(), 0.1), Fake(dues=[CUT])
            with self.assertLogs("longhaul", "WARNING") as said:
                self.train(client, steps, keep_every=1)
            self.assertIn("fp32 masters", said.output[-1])
            self.assertEqual(client.kinds, [2, 2, 1, 1])  # the parameters, then their masters
            self.assertEqual(client.places[2:], [self.optimizer.state[p]["master_param"].data_ptr()
                                                 for p in self.model.parameters()])
            for of in self.optimizer.state.values():  # values that bf16 can't hold
                self.assertEqual(of["moment"].dtype, torch.float32)
                self.assertTrue((of["moment"] == torch.tensor(1.001)).all())

    def test_without_a_cut_nothing_is_kept(self):
        self.train(Fake(), 3, keep_every=1)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_several_ranks_want_a_process_group(self):
        client = Fake()
        client.rank, client.ranks = 1, 2
        with self.assertRaisesRegex(errors.UnsupportedError, "2 ranks .*init_process_group"):
            self.run_of(client, keep=self.path("kept"))

    def test_cuts_are_counted_anew_in_another_life(self):
        self.train(Fake(dues=[CUT, "over", CUT, 0]), 3, keep_every=2)
        self.assertEqual(os.listdir(self.folder.name), [])
        self.train(Fake(dues=[CUT, "over", CUT, CUT]), 4, keep_every=2)
        self.assertEqual(os.listdir(self.folder.name), ["kept"])

    def test_a_full_disk_keeps_the_older_state_and_training_goes_on(self):
        self.train(Fake(dues=[CUT]), 1, keep_every=1)
        wanted = self.moments()
        full = OSError(errno.ENOSPC, "No space left on device")
        with mock.patch("os.fsync", side_effect=full), \
                self.assertLogs("longhaul", "WARNING") as said:
            self.train(Fake(dues=[CUT, CUT]), 2, keep_every=1)
        self.assertIn("kept can't be written (", said.output[1])
        self.assertEqual(os.listdir(self.folder.name), ["kept"])
        self.optimizer = self.adam()
        self.train(Fake(), 0)
        self.assert_moments(wanted)

    def test_a_disk_that_is_full_at_any_byte(self):
        """A write that fails within torch.save() raises another kind of error."""
        self.model = model_of((64, 64))  # its tensors exceed a file's buffer
        self.optimizer = self.adam()
        self.train(Fake(dues=[CUT]), 1, keep_every=1)
        wanted, size = self.moments(), os.path.getsize(self.path("kept"))
        for most in (*range(0, size, 4096), size - 1):
            with self.subTest(most=most), full_at(most), \
                    self.assertLogs("longhaul", "WARNING") as said:
                self.train(Fake(dues=[CUT, CUT]), 2, keep_every=1)
            self.assertIn("kept can't be written (", said.output[2])
            self.assertEqual(os.listdir(self.folder.name), ["kept"])
        self.optimizer = self.adam()
        self.train(Fake(), 0)
        self.assert_moments(wanted)

    def test_true_is_the_workers_directory(self):
        socket = {"LONGHAUL_SOCKET": self.path("trainer.sock")}
        with mock.patch.dict(os.environ, socket):
            with self.assertRaisesRegex(errors.StateError, "not a worker's directory: name a file"):
                self.train(Fake(), 0, keep=True)
            with open(self.path("identity"), "wb"):
                pass
            self.train(Fake(dues=[CUT]), 1, keep=True, keep_every=1)
            wanted = self.moments()
            self.assertEqual(sorted(os.listdir(self.folder.name)), ["identity", "optimizer.pt"])
            self.optimizer = self.adam()
            self.train(Fake(), 0, keep=True)
        self.assert_moments(wanted)

    def trainer(self, dues, steps, **given):
        """A life of transformers' Trainer, which ends after this many steps."""
        watch = Watch()
        trainer = trainer_of(Fit(), self.path("out"), watch, max_steps=steps,
                             gradient_accumulation_steps=2, max_grad_norm=0.5, **given)
        LonghaulCallback(1, Fake(dues=dues), keep=self.path("kept"), keep_every=1).attach(trainer)
        trainer.train()
        return watch

    def test_the_trainer_goes_on_with_it(self):
        first = self.trainer([0, CUT, 0], 3, learning_rate=0.1)
        self.assertEqual(first.begun, {})
        with self.assertLogs("longhaul", "WARNING") as said:
            second = self.trainer([0, CUT], 2, learning_rate=0.2)
        self.assertIn("goes on from", said.output[0])
        self.assert_moments(first.after[1], second.begun)
        self.assertEqual(second.rates[0], 0.2)  # from the script
        self.assertEqual({int(of["step"]) for of in second.after[1].values()}, {4})
        third = self.trainer([], 1)
        self.assert_moments(second.after[1], third.begun)

    def test_the_trainers_checkpoint_gives_way_to_what_was_kept_after_it(self):
        first = self.trainer([0, 0, CUT], 3, save_strategy="steps", save_steps=2)
        watch = Watch()
        trainer = trainer_of(Fit(), self.path("out"), watch, max_steps=3,
                             gradient_accumulation_steps=2)
        LonghaulCallback(1, Fake(), keep=self.path("kept")).attach(trainer)
        trainer.train(resume_from_checkpoint=self.path("out/checkpoint-2"))
        self.assert_moments(first.after[2], watch.begun)
        os.remove(self.path("kept"))
        trainer.train(resume_from_checkpoint=self.path("out/checkpoint-2"))
        self.assert_moments(first.after[1], watch.begun)  # the Trainer's own

    def accelerated(self, dues, named=True):
        """A life of a loop of accelerate; the moments at its start and after each step."""
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = Fit()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        model, optimizer, batches = accelerator.prepare(
            model, optimizer, torch.utils.data.DataLoader(points(64), batch_size=4))
        seen = []
        with LocalSGD(accelerator, model, client=Fake(dues=dues),
                      optimizer=optimizer if named else None, keep=self.path("kept"),
                      keep_every=1) as local:
            seen.append(moments(optimizer))
            for batch in batches:
                with accelerator.accumulate(model):
                    accelerator.backward(model(**batch)["loss"])
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
                    optimizer.zero_grad()
                    local.step(tokens=4)
                    if accelerator.sync_gradients:
                        seen.append(moments(optimizer))
                if local.finished:
                    break
        return seen

    def test_a_loop_of_accelerate_goes_on_with_it(self):
        first = self.accelerated([0, CUT, longhaul.Due.DRAIN])
        self.assertEqual((first[0], len(first)), ({}, 4))
        with self.assertLogs("longhaul", "WARNING") as said:
            second = self.accelerated([CUT | longhaul.Due.DRAIN])
        self.assertIn("goes on from", said.output[0])
        self.assert_moments(first[2], second[0])
        self.assert_moments(second[1], self.accelerated([longhaul.Due.DRAIN])[0])

    def test_a_loop_of_accelerate_finds_the_optimizer_that_it_prepared(self):
        first = self.accelerated([0, CUT, longhaul.Due.DRAIN], named=False)
        self.assertIn("kept", os.listdir(self.folder.name))
        second = self.accelerated([longhaul.Due.DRAIN], named=False)
        self.assert_moments(first[2], second[0])

    def test_accelerate_has_to_name_the_optimizer_where_several_are_the_models(self):
        accelerator = Accelerator(cpu=True)
        other = torch.optim.SGD(self.model[0].parameters(), lr=0.1)
        for optimizers in ((), (self.optimizer, other)):
            model, *_ = accelerator.prepare(self.model, *optimizers)
            with self.assertRaisesRegex(ValueError, "keep wants the optimizer"):
                with LocalSGD(accelerator, model, client=Fake(), keep=self.path("kept")):
                    self.fail("it began")

    def test_accelerates_optimizer_of_another_model_is_not_this_ones(self):
        accelerator, other = Accelerator(cpu=True), model_of((3, 3))
        model, _, _, of_it = accelerator.prepare(
            self.model, other, torch.optim.SGD(other.parameters(), lr=0.1), self.optimizer)
        with LocalSGD(accelerator, model, client=Fake()) as local:
            self.assertIs(local.run.optimizer, of_it.optimizer)

    def test_another_runs_state_is_left_alone(self):
        client = Fake(dues=[CUT])
        client.credits = 1000
        self.train(client, 1, keep_every=1)
        self.optimizer = self.adam()
        with self.assertLogs("longhaul", "WARNING") as said:
            self.train(Fake(), 0)
        self.assertIn("another run's", said.output[0])
        self.assert_moments({})

    def test_a_state_of_another_version_is_not_loaded(self):
        torch.save({"kind": "longhaul.kept/1", "credited": 0, "shapes": [[2, 2], [2]],
                    "state": {}}, self.path("kept"))
        with self.assertLogs("longhaul", "WARNING") as said:
            self.train(Fake(dues=[CUT]), 1, keep_every=1)
        self.assertIn("kept was kept by another version of this package; the optimizer warms up",
                      said.output[0])
        wanted = self.moments()
        self.optimizer = self.adam()
        self.train(Fake(), 0)
        self.assert_moments(wanted)

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

    def test_a_fifo_is_not_waited_for(self):
        os.mkfifo(self.path("kept"))
        with self.assertRaisesRegex(errors.StateError, "kept is no file: name another one"):
            self.train(Fake(), 0)

    def test_unusable_keep_settings_are_refused_at_once(self):
        with self.assertRaisesRegex(ValueError, "keep wants the optimizer"):
            longhaul.AsyncDiLoCo(Fake(), self.model, None, hook=False, keep=self.path("kept"))
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
