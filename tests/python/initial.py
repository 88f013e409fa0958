#!/usr/bin/env python3
"""Models refused by save_initial() and save_arrays() before a run: initial.py LIBRARY PACKAGE.

Each would be refused by describe(), the library or a server in the run, where every region would
meet the error at the same time.
"""
import json
import os
import unittest

import numpy
import torch
from fake import Case, errors, longhaul, model_of


class With(torch.nn.Module):
    def __init__(self, *values):
        super().__init__()
        self.w = torch.nn.ParameterList(torch.nn.Parameter(v) for v in values)


class Initial(Case):
    def refuses(self, words, model, **options):
        with self.subTest(words=words):
            with self.assertRaisesRegex(errors.ModelError, words):
                longhaul.save_initial(model, self.path("out"), **options)
            self.assertFalse(os.path.exists(self.path("out")))

    def test_untrainable_models_are_refused(self):
        tied = model_of((4, 4), (4, 4))
        tied[1].weight = torch.nn.Parameter(tied[0].weight.data)
        transposed = model_of((4, 3))
        transposed[0].weight = torch.nn.Parameter(torch.zeros(4, 3).t())
        for words, model, options in (
                ("^1.weight of shape .* has no values.*requires_grad_.False",
                 model_of((8, 8), (8, 0)), {}),
                ("^w.0 is not finite: value 1 of it is nan",
                 With(torch.tensor([1., torch.nan])), {}),
                ("^w.0 is not finite: value 0 of it is -inf",
                 With(torch.tensor([-torch.inf], dtype=torch.bfloat16)), {}),
                ("^weight is not contiguous.*memory_format=torch.contiguous_format",
                 torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), {}),
                ("^0.weight is not contiguous", transposed, {}),
                ("^weight is torch.float16: fp32 and bf16 can", torch.nn.Linear(4, 4).half(), {}),
                ("^w.0 is torch.float64: fp32",
                 With(torch.full((3,), 1e300, dtype=torch.float64)), {}),
                ("^w.0 is torch.complex64: real values.*view_as_real",
                 With(torch.zeros(3, dtype=torch.complex64)), {}),
                ("9 shards are too many: the model has 2 chunks .* shards=2 or fewer",
                 torch.nn.Linear(2, 2), {"shards": 9}),
                ("^weight has 5 dimensions: tensors of at most 4 can be trained; make the "
                 "parameter one of 4", torch.nn.Conv3d(1, 4, 3), {}),
                ("is on the meta device", torch.nn.Linear(2, 2, device="meta"), {}),
                ("^weight has no shape yet", torch.nn.LazyLinear(4), {}),
                ("^1.weight shares memory with 0.weight, and is another parameter", tied, {}),
                ("^" + 128 * "n" + " is a name of 128 bytes",
                 torch.nn.ParameterDict({128 * "n": torch.zeros(1)}), {})):
            self.refuses(words, model, **options)

    def test_arrays(self):
        for words, array in (("^a is not finite: value 1 of it is 1e.300, which is too large",
                              numpy.array([1, 1e300])),
                             ("^a is int64: arrays of real floats", numpy.array([1])),
                             ("^a is complex64", numpy.zeros(2, numpy.complex64)),
                             ("^a is object", numpy.array([None])),
                             ("^a has 5 dimensions", numpy.zeros((1, 1, 1, 1, 2))),
                             (r"^a of shape \(0, 2\) has no values", numpy.zeros((0, 2)))):
            with self.subTest(words=words), self.assertRaisesRegex(errors.ModelError, words):
                longhaul.save_arrays({"a": array}, self.path("out"))
        with self.assertRaisesRegex(errors.ModelError, "nothing to train"):
            longhaul.save_arrays({}, self.path("out"))
        self.assertFalse(os.path.exists(self.path("out")))

    def test_scalars_bf16_and_empty_frozen_tensors_are_accepted(self):
        model = With(torch.tensor(2.5), torch.zeros(2, 3, 4, 5, dtype=torch.bfloat16),
                     torch.zeros(9000))
        model.w.append(torch.nn.Parameter(torch.zeros(0), requires_grad=False))
        self.assertEqual(longhaul.save_initial(model, self.path("out"), shards=5), 9121)
        with open(self.path("out/model.json"), encoding="utf-8") as file:
            rows = json.load(file)["tensors"]
        self.assertEqual([r["shape"] for r in rows], [[1], [2, 3, 4, 5], [9000]])


if __name__ == "__main__":
    unittest.main(argv=["initial.py"])
