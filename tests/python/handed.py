#!/usr/bin/env python3
"""Buffers that training changes, and the loops that get them: handed.py LIBRARY PACKAGE."""
import os
import unittest
from unittest import mock

import torch
from fake import Case, Fake
from safetensors.torch import load_file


class Buffers(Case):
    def setUp(self):
        super().setUp()
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        self.model.register_buffer("fixed", torch.ones(3))
        self.model.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, folder):
        with mock.patch.dict(os.environ, {"LONGHAUL_SOCKET": os.path.join(folder, "s")}), \
                self.assertLogs("longhaul", "WARNING") as said:
            with self.run_of(Fake(), tokens_per_step=1):
                self.model(torch.randn(8, 2)).sum().backward()
                self.model.scratch.add_(1)
                self.optimizer.step()
        return "\n".join(said.output)

    def test_those_that_changed_are_in_the_workers_directory(self):
        with open(self.path("identity"), "w", encoding="utf-8"):
            pass
        said = self.train(self.folder.name)
        self.assertIn("3 buffers that training changed (1.running_mean, 1.running_var and 1 more) "
                      "are this region's own: they are in", said)
        found = load_file(self.path("buffers.safetensors"))
        self.assertEqual(set(found), {"1.running_mean", "1.running_var", "1.num_batches_tracked"})
        for name, value in found.items():
            self.assertTrue(torch.equal(value, self.model.state_dict()[name]), name)
            self.assertEqual(value.dtype, self.model.state_dict()[name].dtype)

    def test_where_there_is_no_workers_directory_it_is_said(self):
        self.assertIn("`longhaul export --buffers` takes them from the model that you save",
                      self.train(self.folder.name))
        self.assertFalse(os.path.exists(self.path("buffers.safetensors")))

    def test_a_model_whose_buffers_stay_hands_nothing_over(self):
        with self.assertNoLogs("longhaul", "WARNING"), \
                self.run_of(Fake(), tokens_per_step=1):
            self.optimizer.step()


if __name__ == "__main__":
    unittest.main(argv=["handed.py"])
