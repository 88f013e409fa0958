#!/usr/bin/env python3
"""Loops whose values become NaN or infinite: finite.py LIBRARY PACKAGE.

The client is a stand-in that ends a life as the worker does: its next boundary reports it, and
start() restores the run's parameters.
"""
import os
import unittest

import torch
from fake import Case, Fake, errors, longhaul

finite = longhaul.finite

CUT = longhaul.Due.CUT


class Worker(Fake):
    """Refuses a cut that is not finite at the next boundary. `kept`: number of cuts of a life that
    were committed by then."""

    def __init__(self, model, **given):
        super().__init__(**given)
        self.model, self.kept, self.spoilt = model, 0, False
        self.good = {n: v.clone() for n, v in model.state_dict().items()}

    def start(self):
        self.done.append(("start",))
        self.model.load_state_dict(self.good)

    def cut(self):
        self.spoilt = not all(p.isfinite().all() for p in self.model.parameters())
        self.kept += not self.spoilt

    def boundary(self, step, tokens):
        if self.spoilt:
            self.spoilt = False
            raise errors.RestartError(
                "LONGHAUL_E_RESTART: this life is over: parameter 0.weight is not finite; "
                "longhaul_connect() and longhaul_start() begin another")
        return super().boundary(step, tokens)

    def state(self):
        return super().state()._replace(committed=self.kept)


class Finite(Case):
    def step(self, value=1.0):
        for p in self.model.parameters():
            p.grad = torch.full_like(p, value)
        self.optimizer.step()

    def adam(self, **given):
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1, **given)

    def train(self, values, **options):
        client = Worker(self.model, dues=[CUT] * 100)
        with self.run_of(client, tokens_per_step=1, **options) as run:
            for value in values:
                self.step(value)
        return client, run

    def all_finite(self):
        return finite.state_is_finite(self.optimizer) and \
            all(p.isfinite().all() for p in self.model.parameters())

    def test_one_bad_step_costs_one_life(self):
        for make in (torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad,
                     lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
                     lambda p, lr: torch.optim.SGD(p, lr=lr)):
            self.setUp()
            self.optimizer = make(self.model.parameters(), lr=0.1)
            with self.assertLogs("longhaul", "WARNING") as said:
                _, run = self.train([1, 1, float("nan"), 1, 1, 1, 1])
            self.assertEqual(run.restarts, 1)
            self.assertTrue(self.all_finite())
            self.assertIn("0.weight is not finite", said.output[0])
            plain = isinstance(self.optimizer, torch.optim.SGD) and \
                not self.optimizer.defaults["momentum"]
            self.assertEqual(any("is dropped, and the optimizer warms up" in s
                                 for s in said.output), not plain)

    def test_the_end_of_a_life_is_told_in_words_of_this_package(self):
        self.adam()
        with self.assertLogs("longhaul", "WARNING") as said:
            self.train([1, float("nan"), 1, 1])
        self.assertIn("WARNING:longhaul:longhaul: parameter 0.weight is not finite: the progress "
                      "since the last cut is lost, and the loop goes on from the run's parameters",
                      said.output)

    def test_the_state_that_was_kept_comes_back(self):
        self.adam()
        with self.assertLogs("longhaul", "WARNING") as said:
            _, run = self.train([1, 1, float("inf"), 1], keep=self.path("kept"), keep_every=1)
        self.assertEqual(run.restarts, 1)
        text = "\n".join(said.output)
        self.assertIn("0.weight, 0.bias is not finite: the optimizer's state that was kept before "
                      "stays", text)
        self.assertIn("goes on from", text)
        self.assertNotIn("is dropped", text)
        # two kept steps; the fourth step's boundary ended the life after it
        steps = {float(s["step"]) for s in self.optimizer.state.values()}
        self.assertEqual(steps, {2.0})
        self.assertTrue(self.all_finite())

    def test_a_state_that_is_not_finite_is_never_kept(self):
        self.adam()
        with self.assertLogs("longhaul", "WARNING"):
            with self.run_of(Worker(self.model, dues=[0, CUT]), tokens_per_step=1,
                             keep=self.path("kept"), keep_every=1):
                self.step()
                for s in self.optimizer.state.values():
                    s["exp_avg"].fill_(float("nan"))
                for p in self.model.parameters():
                    p.grad = None  # so the parameters do not change
                self.optimizer.step()
        self.assertFalse(os.path.exists(self.path("kept")))

    def test_a_kept_state_that_is_not_finite_is_left_aside(self):
        self.adam()
        self.train([1, 1], keep=self.path("kept"), keep_every=1)
        kept = torch.load(self.path("kept"), weights_only=True)
        kept["state"][0]["exp_avg"][0] = float("nan")
        torch.save(kept, self.path("kept"))
        self.adam()
        with self.assertLogs("longhaul", "WARNING") as said:
            self.train([], keep=self.path("kept"))
        self.assertIn("holds values that are not finite: it is left aside; the optimizer warms up",
                      said.output[0])
        self.assertEqual(len(self.optimizer.state), 0)

    def test_a_state_is_left_aside_for_one_life_on_request(self):
        self.adam()
        self.train([1, 1], keep=self.path("kept"), keep_every=1)
        self.adam()
        self.train([1], keep=self.path("kept"), reset_optimizer=True)
        self.assertEqual({float(s["step"]) for s in self.optimizer.state.values()}, {1.0})
        with self.assertRaisesRegex(TypeError, "reset_optimizer is a int: pass True or False"):
            self.run_of(Fake(), reset_optimizer=1)

    def test_a_loop_that_spoils_every_life_is_told_which_parameter(self):
        self.adam()
        with self.assertLogs("longhaul", "WARNING"), \
                self.assertRaisesRegex(errors.NonFiniteError,
                                       "^0.weight, 0.bias are not finite .*, for the 3rd time in "
                                       "a row before a cut was taken.*"
                                       "error_if_nonfinite=True.*reset_optimizer"):
            self.train([float("nan")] * 20)

    def test_lives_that_came_to_something_are_not_in_a_row(self):
        self.adam()
        with self.assertLogs("longhaul", "WARNING"):
            _, run = self.train([1, 1, float("nan"), 0] * 6)
        self.assertEqual(run.restarts, 6)

    def test_another_end_of_a_life_keeps_the_optimizer(self):
        self.adam()
        client = Worker(self.model, dues=[0, 0, "over", 0])
        with self.assertLogs("longhaul", "WARNING") as said:
            with self.run_of(client, tokens_per_step=1):
                for _ in range(4):
                    self.step()
        self.assertEqual(len(said.output), 1)
        self.assertEqual({float(s["step"]) for s in self.optimizer.state.values()}, {4.0})

    def test_a_buffer_that_is_not_finite_is_named(self):
        self.model.register_buffer("mean", torch.tensor([float("nan")]))
        self.adam()
        with self.assertLogs("longhaul", "WARNING") as said:
            self.train([1, float("nan"), 1, 1])
        self.assertTrue(any("mean, which the run does not hold, is not finite" in s
                            for s in said.output))

    def test_kinds_of_values(self):
        for value, fine in ((torch.tensor([1, 2]), True), (torch.tensor([float("inf")]), False),
                            (torch.zeros(0), True), (3, True), (None, True),
                            (torch.tensor([1 + 1j]), True), ("s", True),
                            (torch.tensor(float("nan"), dtype=torch.bfloat16), False)):
            self.assertEqual(finite.is_finite(value), fine, value)


if __name__ == "__main__":
    unittest.main(argv=["finite.py"])
