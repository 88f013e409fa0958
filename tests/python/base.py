#!/usr/bin/env python3
"""The digest of a frozen base that is quantised: base.py LIBRARY PACKAGE.

The layers are built in the forms that quantisers use: integers and scales as buffers (GPTQ, AWQ),
scales that only a checkpoint shows (bitsandbytes), a tensor of several parts (torchao).
"""
import unittest

import torch
from fake import Case, Fake, errors, longhaul, parameters
from torch.utils import _pytree

SIZE = 4


class Scaled(torch.Tensor):
    """Integers and a scale that look like one tensor."""

    @staticmethod
    def __new__(cls, integers, scale):
        return torch.Tensor._make_wrapper_subclass(cls, integers.shape, dtype=torch.float32)

    def __init__(self, integers, scale):
        self.integers, self.scale = integers, scale

    def __tensor_flatten__(self):
        return ["integers", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, call, types, given=(), named=None):
        if call is torch.ops.aten.detach.default:
            return cls(given[0].integers, given[0].scale)
        plain = _pytree.tree_map_only(cls, lambda t: t.integers * t.scale, (given, named or {}))
        return call(*plain[0], **plain[1])


class Layer(torch.nn.Module):
    """A quantised layer under an adapter. `how` says where the scale is."""

    def __init__(self, how, scale=0.5, integers=0):
        super().__init__()
        torch.manual_seed(integers)
        values = torch.randint(-8, 8, (SIZE, SIZE), dtype=torch.int8)
        self.how, self.scale = how, torch.tensor(scale)
        if how == "tensor":
            self.base = torch.nn.Parameter(Scaled(values, self.scale), requires_grad=False)
        else:
            self.base = torch.nn.Parameter(values, requires_grad=False)
        if how == "buffer":
            self.register_buffer("factor", self.scale)
        self.adapter = torch.nn.Parameter(torch.zeros(SIZE, SIZE))

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.how == "checkpoint":
            destination[prefix + "base.absmax"] = self.scale


class Bases(Case):
    def test_integers_and_scales_are_the_base(self):
        for how in ("buffer", "checkpoint", "tensor"):
            one = parameters.digest_of_frozen(Layer(how))
            trained = Layer(how)
            with torch.no_grad():
                trained.adapter.add_(1)
            self.assertEqual(parameters.digest_of_frozen(trained), one, how)
            others = {parameters.digest_of_frozen(Layer(how, scale=0.25)),
                      parameters.digest_of_frozen(Layer(how, integers=1))}
            self.assertEqual(len(others | {one}), 3, how)

    def test_a_region_with_other_scales_is_refused(self):
        longhaul.save_initial(Layer("checkpoint"), self.path("out"))
        manifest = self.path("out") + "/model.json"

        def run_of(client, model):
            return longhaul.AsyncDiLoCo(client, model, torch.optim.SGD([model.adapter], lr=0.1),
                                        manifest=manifest)
        with run_of(Fake(dues=[8]), Layer("checkpoint")) as run:
            run.step()
        with self.assertRaisesRegex(errors.ModelError, "parameters or buffers are others"):
            with run_of(Fake(), Layer("checkpoint", scale=0.25)):
                self.fail("it began")


if __name__ == "__main__":
    unittest.main(argv=["base.py"])
