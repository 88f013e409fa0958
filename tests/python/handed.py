#!/usr/bin/env python3
"""Buffers that training changes, and the loops that get them: handed.py LIBRARY PACKAGE."""
import os
import unittest
from unittest import mock

import torch
from fake import Case, Fake
from longhaul import buffers
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

    def test_where_the_file_can_not_be_written_it_is_said(self):
        with open(self.path("identity"), "w", encoding="utf-8"):
            pass
        os.makedirs(self.path("buffers.safetensors"))  # a folder in its place
        self.assertIn("buffers.safetensors can't be written", self.train(self.folder.name))

    def test_new_and_resized_buffers_have_changed(self):
        self.model.register_buffer("odd", torch.zeros(1, dtype=torch.complex64))
        handed = buffers.Handed(self.model)
        self.assertEqual(handed.changed(), {})
        self.model.register_buffer("late", torch.zeros(1))
        self.model.fixed = torch.ones(4)
        self.model.odd += 1  # of a kind that no file can hold
        self.assertEqual(set(handed.changed()), {"late", "fixed"})
        self.assertEqual(buffers.Handed(None).changed(), {})

    def test_each_kind_of_value_comes_back(self):
        kinds = buffers._kinds()  # pylint: disable=protected-access
        values = {str(kind): torch.tensor([[1, 0, 1]]).to(kind) for kind in kinds}
        values |= {"turned": torch.arange(6.0).reshape(2, 3).t(), "scalar": torch.tensor(7.0),
                   "none": torch.zeros(0)}
        buffers.write(self.path("file"), values)
        found = load_file(self.path("file"))
        self.assertEqual(set(found), set(values))
        for name, value in values.items():
            self.assertEqual(found[name].dtype, value.dtype)
            self.assertEqual(found[name].shape, value.shape)
            self.assertTrue(torch.equal(found[name], value), name)
        self.assertEqual(os.listdir(self.folder.name), ["file"])
        with open(self.path("file"), "rb") as file:
            self.assertEqual(int.from_bytes(file.read(8), "little") % 8, 0)  # values are aligned

    def test_a_model_whose_buffers_stay_hands_nothing_over(self):
        with self.assertNoLogs("longhaul", "WARNING"), \
                self.run_of(Fake(), tokens_per_step=1):
            self.optimizer.step()


if __name__ == "__main__":
    unittest.main(argv=["handed.py"])
