#!/usr/bin/env python3
"""Models and optimizers under other libraries' wrappers, and models whose names differ from their
file's: wrapped.py LIBRARY PACKAGE."""
import unittest

import torch
from fake import Case, Fake, errors, longhaul, model_of, parameters
from longhaul import hooks


class Wrapped(torch.nn.Module):
    """As Opacus wraps a model."""

    def __init__(self, module):
        super().__init__()
        self._module = module


class Noisy(torch.optim.Optimizer):
    """As Opacus wraps an optimizer: a subclass that does not call Optimizer.__init__()."""

    def __init__(self, inner, name):  # pylint: disable=super-init-not-called
        setattr(self, name, inner)
        self.name, self.steps = name, 0

    param_groups = property(lambda self: getattr(self, self.name).param_groups)
    state = property(lambda self: getattr(self, self.name).state)
    defaults = property(lambda self: getattr(self, self.name).defaults)

    def step(self, closure=None):
        self.steps += 1
        return getattr(self, self.name).step(closure)


class Alone(torch.optim.Optimizer):
    """The same without an inner optimizer."""

    def __init__(self, params):  # pylint: disable=super-init-not-called
        self.param_groups, self.state, self.defaults = [{"params": list(params)}], {}, {}

    def step(self, closure=None):
        return closure


class Optimizers(Case):
    def boundaries(self, optimizer, **options):
        client = Fake(dues=[longhaul.Due.CUT] * 3)
        with longhaul.AsyncDiLoCo(client, self.model, optimizer, tokens_per_step=1,
                                  **options) as run:
            for _ in range(3):
                for p in self.model.parameters():
                    p.grad = torch.ones_like(p)
                optimizer.step()
                if options.get("hook") is False:
                    run.step()
        optimizer.step()  # the loop is over: this step has no effect
        return client

    def test_wrappers(self):
        for name in ("original_optimizer", "original", "optimizer"):
            for options in ({}, {"hook": False}):
                with self.subTest(name=name, **options):
                    inner = torch.optim.SGD(self.model.parameters(), lr=0.1)
                    client = self.boundaries(Noisy(inner, name), **options)
                    self.assertEqual(len(client.of("boundary")), 3)
                    self.assertEqual(len(client.of("before_step")), 2)  # no change during a copy

    def test_one_without_an_optimizer_inside(self):
        for options in ({}, {"hook": False}):
            client = self.boundaries(Alone(self.model.parameters()), **options)
            self.assertEqual(len(client.of("boundary")), 3)

    def test_the_state_that_is_kept_is_the_inner_ones(self):
        inner = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.boundaries(Noisy(inner, "original"), keep=self.path("kept"), keep_every=1)
        kept = torch.load(self.path("kept"), weights_only=True)
        self.assertEqual(len(kept["state"]), 2)


class Bare:  # pylint: disable=too-few-public-methods
    """A wrapper with attributes, whose own step() takes no hooks."""

    def __init__(self, **held):
        self.__dict__.update(held)
        self.calls = []

    def step(self, *given, **named):
        self.calls.append(("step", given, named))
        return 7


class Hooks(Case):
    def test_the_optimizer_inside(self):
        one = self.optimizer
        two = torch.optim.Adam(self.model.parameters())
        self.assertEqual(hooks.inside(None), (None, True))
        for given, found in ((one, (one, True)),
                             (Bare(optimizer=one, other=two), (one, True)),
                             (Bare(original_optimizer=one, other=two), (one, True)),
                             (Bare(base=one, name="a"), (one, False))):
            self.assertIs(hooks.inside(given)[0], found[0])
            self.assertEqual(hooks.inside(given)[1], found[1])
        for alone in (Bare(), Bare(base=one, other=two), (1, 2)):
            self.assertEqual(hooks.inside(alone), (alone, False))

    def test_a_step_with_calls_around_it(self):
        bare = Bare()
        stepped = hooks.Stepped(bare, lambda: bare.calls.append("before"),
                                lambda: bare.calls.append("after"))
        self.assertEqual(bare.step(1, a=2), 7)
        self.assertEqual(bare.calls, ["before", ("step", (1,), {"a": 2}), "after"])
        stepped.remove()
        bare.step()
        self.assertEqual(bare.calls[3:], [("step", (), {})])


class Names(Case):
    def of_run(self, model, **tensors):
        return parameters.of_run(model, self.manifest(**tensors))

    def test_prefixes_of_wrappers_are_ignored(self):
        wanted = {"0_weight": [2, 2], "0_bias": [2]}
        for model in (self.model, Wrapped(self.model), Wrapped(torch.compile(self.model)),
                      torch.nn.ModuleDict({"net": self.model}),
                      torch.nn.ModuleDict({"a": torch.nn.ModuleDict({"b": self.model})})):
            found = self.of_run(model, **wanted)
            self.assertEqual([n for n, _ in found], ["0.weight", "0.bias"])
            self.assertIs(found[0][1], self.model[0].weight)
        longhaul.save_initial(Wrapped(self.model), self.path("out"))
        with self.run_of(Fake(), manifest=self.path("out/model.json"), tokens_per_step=1):
            self.optimizer.step()

    def test_a_prefix_of_the_file_alone_is_accepted(self):
        found = self.of_run(self.model, model_0_weight=[2, 2], model_0_bias=[2])
        self.assertEqual([n for n, _ in found], ["model.0.weight", "model.0.bias"])

    def test_a_file_without_a_head(self):
        """GPT-2 of the hub: the file has wte.weight, the model transformer.wte.weight, and a head
        that is tied to it."""
        model = torch.nn.ModuleDict({"transformer": torch.nn.ModuleDict(
            {"wte": torch.nn.Embedding(3, 2), "ln": torch.nn.LayerNorm(2)}),
            "head": torch.nn.Linear(2, 3, bias=False)})
        model["head"].weight = model["transformer"]["wte"].weight
        found = self.of_run(model, wte_weight=[3, 2], ln_weight=[2], ln_bias=[2])
        self.assertIs(found[0][1], model["transformer"]["wte"].weight)

    def test_a_buffer_that_the_manifest_names(self):
        model = torch.nn.Sequential(torch.nn.BatchNorm1d(2))
        with self.assertRaisesRegex(errors.ModelError, "0.running.mean is a buffer of the model "
                                    "and no parameter.*--leave-out '0.running"):
            with open(self.path("model.json"), "w", encoding="utf-8") as file:
                file.write('{"tensors": [{"name": "0.weight", "shape": [2]}, {"name": "0.bias", '
                           '"shape": [2]}, {"name": "0.running_mean", "shape": [2]}]}')
            parameters.of_run(model, self.path("model.json"))

    def test_a_tied_head_that_the_manifest_names(self):
        model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(2, 2),
                                     "lm-head": torch.nn.Linear(2, 2, bias=False)})
        model["lm-head"].weight = model["embed"].weight
        with self.assertRaisesRegex(errors.ModelError, "are one parameter of the model .tied.*"
                                    "--leave-out 'lm-head.weight'"):
            self.of_run(model, **{"embed_weight": [2, 2], "lm-head_weight": [2, 2]})

    def test_names_that_nothing_explains(self):
        with self.assertRaisesRegex(errors.ModelError, "no parameter experts.0.w1.* which .*: if "
                                    "the model has other names than its file.*save_initial"):
            self.of_run(self.model, **{"experts_0_w1": [2, 2], "0_bias": [2]})

    def test_a_parameter_without_values_is_nobodys(self):
        self.model.append(torch.nn.Linear(2, 0))
        self.of_run(self.model, **{"0_weight": [2, 2], "0_bias": [2]})


if __name__ == "__main__":
    unittest.main(argv=["wrapped.py"])
