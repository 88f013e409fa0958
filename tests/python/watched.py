#!/usr/bin/env python3
"""Loops that train without boundaries, or other parameters than the run's: watched.py LIBRARY
PACKAGE."""
import unittest
from unittest import mock

import torch
from fake import Case, Fake, errors, longhaul, model_of


class Held(Fake):
    """Its units are all there are, and no other worker has any."""

    def lease(self):
        return self.leases.pop(0) if self.leases else None

    def wait(self, *_):
        return False


class Halves(torch.optim.Optimizer):
    """Steps in two halves, with an inner optimizer."""

    def __init__(self, params):
        super().__init__(params, {})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1)

    def second_step(self):
        self.base.step()


class NoBoundary(Case):
    def loop(self, train, tokens=4096, **options):
        client, batches = Held([longhaul.Unit(0, 0, tokens)]), 0
        with self.assertRaises(errors.StateError) as said:
            with self.run_of(client, **options) as run:
                for _ in longhaul.LeasedDataLoader(run, self.units(tokens), batch_size=1,
                                                   sequence_length=4):
                    batches += 1
                    train()
        self.assertEqual(client.of("finish", "trained"), [])
        return batches, str(said.exception)

    def test_a_loop_of_no_optimizer_that_the_run_knows(self):
        batches, said = self.loop(lambda: None)
        self.assertEqual(batches, 256)
        self.assertRegex(said, r"^257 batches and no boundary: step\(\) of the SGD that "
                         r"AsyncDiLoCo was given was never called: pass the optimizer that steps, "
                         r"or hook=False and call run.step\(\) after each step.*batches_per_step=N")

    def test_an_optimizer_that_was_made_anew(self):
        anew = torch.optim.AdamW(self.model.parameters())
        _, said = self.loop(anew.step)
        self.assertIn(r"never called, and another optimizer (AdamW) steps on the model's", said)

    def test_an_optimizer_of_two_halves(self):
        self.optimizer = Halves(self.model.parameters())
        _, said = self.loop(self.optimizer.second_step)
        self.assertIn("step() of the Halves that AsyncDiLoCo was given was never called, and "
                      "another optimizer (SGD)", said)

    def test_updates_by_hand_without_the_call_that_they_want(self):
        _, said = self.loop(lambda: None, hook=False)
        self.assertIn("no boundary: call run.step() after each step of the optimizer.", said)

    def test_nothing_new_to_give_is_heard_of_sooner(self):
        batches, said = self.loop(lambda: None, tokens=80)
        self.assertEqual(batches, 64)
        self.assertIn("65 batches and no boundary", said)

    def test_steps_that_stop_in_the_middle(self):
        steps = [1] * 5

        def some():
            if steps:
                steps.pop()
                self.optimizer.step()
        client = Held([longhaul.Unit(0, 0, 4096)])
        with self.assertRaisesRegex(errors.StateError, r"257 batches.* was not called since"):
            with self.run_of(client) as run:
                for _ in longhaul.LeasedDataLoader(run, self.units(4096), batch_size=1,
                                                   sequence_length=4):
                    some()

    def test_a_boundary_while_the_first_unit_is_waited_for_is_no_step(self):
        client = Held([None, longhaul.Unit(0, 0, 80)])
        with self.assertRaisesRegex(errors.StateError, "was never called"):
            with self.run_of(client) as run:
                for _ in longhaul.LeasedDataLoader(run, self.units(80), batch_size=1,
                                                   sequence_length=4):
                    pass
        self.assertEqual(client.of("boundary"), [("boundary", 1, 0)])

    def test_many_batches_of_one_step_are_said(self):
        client, seen = Fake([longhaul.Unit(0, 0, 4096)]), 0
        with self.run_of(client, batches_per_step=512) as run:
            for _ in longhaul.LeasedDataLoader(run, self.units(4096), batch_size=1,
                                               sequence_length=4):
                seen += 1
                if seen % 512 == 0:
                    self.optimizer.step()
        self.assertEqual(client.of("boundary"), [("boundary", i, 2048) for i in (1, 2)])

    def test_data_of_its_own(self):
        other = torch.optim.Adam(self.model.parameters())
        for option, call, words in (
                ({}, lambda run: run.trained(1), r"257 calls of trained\(\) and no boundary"),
                ({"tokens_per_step": 1}, lambda run: run.finished, "4097 looks at run.finished"),
                ({"tokens_per_step": 1}, lambda run: other.step(),
                 "257 steps of another optimizer")):
            with self.assertRaisesRegex(errors.StateError, words):
                with self.run_of(Fake(), **option) as run:
                    for _ in range(10000):
                        call(run)

    def test_a_loop_that_goes_on_after_the_end_is_told_so(self):
        with self.assertRaisesRegex(errors.StateError, r"257 calls of trained\(\) since the run "
                                    r"needs no more steps: leave the loop once run.finished"):
            with self.run_of(Fake(), hook=True) as run:
                for step in range(300):
                    run.finished = step >= 2
                    self.optimizer.step()
                    run.trained(1)

    def test_an_optimizer_for_each_parameter_within_the_backward_pass(self):
        """As layer-wise optimizers do; the boundary is the step of the given one."""
        self.model = model_of(*[(2, 2)] * 200)
        each = [torch.optim.SGD([p], lr=0.1) for p in self.model.parameters()]
        self.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))] +
                                         list(self.model.parameters()), lr=0.1)
        with mock.patch.object(longhaul.parameters, "check_masters"), \
                self.run_of(Fake(), tokens_per_step=1) as run:
            for _ in range(3):
                for one in each:
                    one.step()
                self.optimizer.step()
        self.assertEqual(run.steps, 3)

    def test_optimizers_of_other_models_are_nobodys_business(self):
        other = torch.optim.SGD(model_of((2, 2)).parameters(), lr=0.1)
        with self.run_of(Fake(), tokens_per_step=1):
            for _ in range(1000):
                other.step()


class Replaced(Case):
    def after(self, change, kind=errors.StateError):
        """The error of a loop that changes its model after the second step."""
        client = Fake()
        with self.assertRaises(kind) as said:
            with self.run_of(client, tokens_per_step=1,
                             manifest=self.manifest(**self.manifest_of)):
                self.optimizer.step()
                self.optimizer.step()
                change()
                self.optimizer.step()
        self.assertEqual(client.of("finish"), [])
        self.assertEqual(len(client.of("boundary")), 2)
        return str(said.exception)

    def setUp(self):
        super().setUp()
        self.model = model_of((2, 2), (2, 2))
        self.model[1].requires_grad_(False)
        self.optimizer = torch.optim.SGD(self.model[0].parameters(), lr=0.1)
        self.manifest_of = {"0_weight": [2, 2], "0_bias": [2]}

    def test_a_state_that_is_assigned(self):
        other = model_of((2, 2), (2, 2)).state_dict()
        said = self.after(lambda: self.model.load_state_dict(other, assign=True))
        self.assertRegex(said, "^0.weight, 0.bias of the model is no longer the parameter")

    def test_a_layer_in_the_place_of_another(self):
        def head():
            self.model[0] = torch.nn.Linear(2, 2)
        self.assertIn("0.weight, 0.bias of the model is no longer", self.after(head))

    def test_a_layer_that_goes_and_one_that_comes(self):
        def gone():
            del self.model[0].bias
        self.assertIn("0.bias of the model is no longer", self.after(gone))
        self.setUp()

        def came():
            self.model.append(torch.nn.Linear(2, 2, bias=False))
        self.assertIn("2.weight is trained since the run began", self.after(came))

    def test_a_parameter_that_is_another_layers_now(self):
        """All names and all parameters, in their order, are as before."""
        self.model[1] = torch.nn.Linear(2, 2, bias=False).requires_grad_(False)

        def moves():
            bias = self.model[0]._parameters.pop("bias")
            of = self.model[1]._parameters
            of.update({"bias": bias, "weight": of.pop("weight")})
        self.assertIn("0.bias of the model is no longer the parameter", self.after(moves))

    def test_another_of_the_same_value(self):
        """It is another parameter, though the two compare as equal."""
        self.model[0].scale = torch.nn.Parameter(torch.ones(1))
        self.optimizer = torch.optim.SGD(self.model[0].parameters(), lr=0.0)
        self.manifest_of = {**self.manifest_of, "0_scale": [1]}

        def anew():
            self.model[0].scale = torch.nn.Parameter(torch.ones(1))
        self.assertIn("0.scale of the model is no longer the parameter", self.after(anew))

    def test_a_layer_that_is_unfrozen(self):
        said = self.after(lambda: self.model[1].requires_grad_(True))
        self.assertIn("1.weight, 1.bias is trained since the run began (requires_grad)", said)

    def test_memory_of_another(self):
        def data():
            self.model[0].bias.data = torch.zeros(2)
        self.assertIn("0.bias lies elsewhere", self.after(data))

    def test_after_the_last_step(self):
        client = Fake()
        with self.assertRaisesRegex(errors.StateError, "0.bias of the model is no longer"):
            with self.run_of(client, tokens_per_step=1,
                             manifest=self.manifest(**{"0_weight": [2, 2], "0_bias": [2]})):
                self.optimizer.step()
                self.model[0] = torch.nn.Linear(2, 2)
        self.assertEqual(client.of("finish"), [])

    def test_harmless_changes_are_accepted(self):
        """A wrapper around a layer, a frozen layer replaced, a trained one frozen: no error."""
        with self.run_of(Fake(), tokens_per_step=1,
                         manifest=self.manifest(**{"0_weight": [2, 2], "0_bias": [2]})):
            self.optimizer.step()
            self.model[0] = torch.compile(self.model[0])
            self.optimizer.step()
            self.model[1] = torch.nn.Linear(2, 2).requires_grad_(False)
            self.optimizer.step()
            self.model[0].requires_grad_(False)
            self.optimizer.step()
            self.model.load_state_dict(model_of((2, 2), (2, 2)).state_dict(), strict=False)
            self.optimizer.step()


if __name__ == "__main__":
    unittest.main(argv=["watched.py"])
