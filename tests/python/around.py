#!/usr/bin/env python3
"""Runs under transformers' Trainer and accelerate's LocalSGD: around.py LIBRARY PACKAGE.

The client is a stand-in that records its calls.
"""
import sys
import unittest
from unittest import mock

import torch
from accelerate import Accelerator, DistributedType
from fake import Case, Fake, Scarce, errors, longhaul
from fits import IN, Fit, Watch, trainer_of
from longhaul.accelerate import LocalSGD
from longhaul.hf import LonghaulCallback
from transformers import TrainerCallback


class Around(Case):
    """Trainer and accelerate."""

    def trainer(self, callback, *watches, **given):
        """A Trainer that trains in a run of this callback."""
        trainer = trainer_of(Fit(), self.path("out"), *watches, **given)
        callback.attach(trainer)
        return trainer

    def test_an_older_checkpoint_is_not_pushed_as_training(self):
        client = Fake()
        with self.assertRaisesRegex(errors.UnsupportedError, "load_best_model_at_end"):
            self.trainer(LonghaulCallback(1, client), load_best_model_at_end=True, max_steps=1,
                         eval_strategy="steps", save_strategy="steps").train()
        self.assertEqual(client.done, [])

    def test_deepspeed_and_fsdp1_are_refused_by_name(self):
        for kind in ("DEEPSPEED", "FSDP"):
            client = Fake()
            state = mock.Mock(distributed_type=DistributedType[kind], is_fsdp2=False)
            with mock.patch("longhaul.hf.AcceleratorState", return_value=state), \
                    self.assertRaisesRegex(errors.UnsupportedError, f"{kind}: .* take FSDP2"):
                self.trainer(LonghaulCallback(1, client), max_steps=1).train()
            self.assertEqual(client.done, [])

    def test_the_runs_figures_reach_the_trainers_trackers(self):
        tracker = Watch()  # the Trainer's own callbacks come before the given ones
        with mock.patch("transformers.trainer.get_reporting_integration_callbacks",
                        return_value=[tracker]):
            self.trainer(LonghaulCallback(1, Fake()), max_steps=2).train()
        self.assertIn("longhaul/cuts", tracker.logs[0])
        self.assertIn("loss", tracker.logs[0])

    def test_the_trainer_counts_the_tokens(self):
        for rank, ranks, mine in ((0, 1, 6 * IN), (0, 4, 11), (1, 4, 11), (2, 4, 10)):
            client = Fake()
            client.rank, client.ranks = rank, ranks
            self.trainer(LonghaulCallback(client=client), max_steps=2,
                         per_device_train_batch_size=3, gradient_accumulation_steps=2,
                         include_num_input_tokens_seen="all").train()
            self.assertEqual(client.of("boundary"), [("boundary", 1, mine), ("boundary", 2, mine)])

    def test_somebody_has_to_count_the_tokens(self):
        client = Fake()
        with self.assertRaisesRegex(errors.InvalidError, "tokens_per_step.*non_padding"):
            self.trainer(LonghaulCallback(client=client), max_steps=1).train()
        self.assertEqual(client.done, [])

    def test_a_model_whose_tokens_the_trainer_cannot_count_is_named(self):
        client, model = Fake(), Fit()
        model.main_input_name = "pixels"
        trainer = trainer_of(model, self.path("out"), max_steps=1,
                             include_num_input_tokens_seen="all")
        LonghaulCallback(client=client).attach(trainer)
        with self.assertRaisesRegex(errors.InvalidError, "counts no tokens .*tokens_per_step"):
            trainer.train()
        self.assertEqual(client.of("boundary"), [])

    def test_the_trainers_own_scheduler_is_said(self):
        for given, says in (({}, [("schedule", 2)]), ({"total_tokens": 9}, [("schedule", 1)])):
            client = Fake(dues=[longhaul.Due.CUT] * 2)
            self.trainer(LonghaulCallback(1, client, **given), max_steps=2).train()
            self.assertEqual(client.of("schedule")[:1], says)
            self.assertEqual({*client.of("schedule")}, {*says})

    def test_the_trainers_rate_follows_the_runs_clock(self):
        client, watch = Fake(), Watch()
        client.credits = 525  # half of the rest after the warm-up
        self.trainer(LonghaulCallback(1, client, total_tokens=1000), watch, max_steps=2,
                     learning_rate=0.1).train()
        self.assertEqual(len(watch.rates), 2)
        for rate in (*watch.rates, watch.logs[1]["learning_rate"]):
            self.assertAlmostEqual(rate, 0.1 * 0.51)

    def test_the_schedule_is_one_for_the_trainer_too(self):
        """The Trainer saves the schedule, and loads it."""
        client, watch = Fake(), Watch()
        client.credits = 525
        for resumed in (False, True):
            model = Fit()
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            trainer = trainer_of(model, self.path("out"), watch, max_steps=2 + resumed,
                                 save_strategy="steps", save_steps=2,
                                 optimizers=(optimizer, longhaul.schedule(optimizer, client, 1000)))
            LonghaulCallback(1, client).attach(trainer)
            trainer.train(resume_from_checkpoint=resumed)
        self.assertEqual(len(watch.rates), 3)
        for rate in watch.rates:
            self.assertAlmostEqual(rate, 0.1 * 0.51)

    def test_a_training_that_ended_with_an_error_is_left_before_another(self):
        class Interrupt(TrainerCallback):
            at = 2

            def on_step_end(self, args, state, control, **_):
                if state.global_step == self.at:
                    raise KeyboardInterrupt

        client, interrupt = Fake(), Interrupt()
        trainer = self.trainer(LonghaulCallback(1, client), interrupt, max_steps=3)
        with self.assertRaises(KeyboardInterrupt):
            trainer.train()
        interrupt.at = 0
        trainer.train()
        self.assertEqual([d[0] for d in client.of("connect", "boundary", "finish", "close")],
                         ["connect", *["boundary"] * 2, "close", "connect", *["boundary"] * 3,
                          "finish", "close"])

    def test_accelerates_steps_accumulate_until_they_are_one(self):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model, optimizer = accelerator.prepare(self.model, self.optimizer)
        client = Fake(dues=[2, 8])
        with LocalSGD(accelerator, model, 8, client=client) as local:
            while not local.finished:
                with accelerator.accumulate(model):
                    accelerator.backward(model(torch.ones(1, 2)).sum())
                    optimizer.step()
                    optimizer.zero_grad()
                    local.step(tokens=3)
        self.assertEqual(client.of("boundary"), [("boundary", 1, 6), ("boundary", 2, 6)])
        self.assertEqual(client.of("cut", "finish", "close"),
                         [("cut",), ("finish", 60), ("close",)])
        self.assertEqual([d[1] for d in client.of("report")], ["loss"])
        self.assertNotIn("backward", vars(accelerator))  # it is accelerate's own method again

    def test_the_optimizer_that_accelerate_wrapped_will_do(self):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model, optimizer = accelerator.prepare(self.model, self.optimizer)
        client = Fake()
        with longhaul.AsyncDiLoCo(client, model, optimizer, tokens_per_step=3):
            for _ in range(4):
                with accelerator.accumulate(model):
                    accelerator.backward(model(torch.ones(1, 2)).sum())
                    optimizer.step()
                    optimizer.zero_grad()
        self.assertEqual(client.of("boundary"), [("boundary", 1, 3), ("boundary", 2, 3)])

    def test_a_loop_of_accelerate_takes_units_of_the_run(self):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model, optimizer = accelerator.prepare(self.model, self.optimizer)
        client, seen = Scarce([longhaul.Unit(0, 0, 12)]), []
        client.over = ("trained", 0, 12)
        with LocalSGD(accelerator, model, client=client) as local:
            for batch in longhaul.LeasedDataLoader(local.run, self.units(12), batch_size=1,
                                                   sequence_length=4):
                seen.append(batch[0, 0].item())
                with accelerator.accumulate(model):
                    accelerator.backward(model(batch.float().view(2, 2)).sum())
                    optimizer.step()
                    optimizer.zero_grad()
                    local.step()
        self.assertEqual(seen, [0, 4, 8, 8])
        self.assertEqual(client.of("boundary"), [("boundary", 1, 8), ("boundary", 2, 4)])

    def test_accelerate_alone_and_sharded(self):
        accelerator = Accelerator(cpu=True)
        with LocalSGD(accelerator, self.model, enabled=False) as local:
            local.step()
        self.assertFalse(local.finished)
        for kind in ("DEEPSPEED", "MEGATRON_LM", "FSDP"):
            sharded = mock.Mock(distributed_type=DistributedType[kind], is_fsdp2=False)
            with self.assertRaisesRegex(errors.UnsupportedError, f"{kind}: .* take FSDP2"):
                LocalSGD(sharded, self.model)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
