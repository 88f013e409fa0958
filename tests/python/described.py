#!/usr/bin/env python3
"""The description of a model's parameters to a run, and additions to them: described.py LIBRARY
PACKAGE.
"""
import ctypes
import json
import os
import struct
import sys
import unittest
from unittest import mock

import torch
from fake import Case, Fake, errors, longhaul, model_of, parameters
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper


class Parameters(Case):
    def test_the_manifest_orders_and_chooses(self):
        path = self.manifest(**{"0_bias": [2], "0_weight": [2, 2]})
        found = parameters.of_run(self.model, path)
        self.assertEqual([n for n, _ in found], ["0.bias", "0.weight"])
        with self.assertRaisesRegex(errors.ModelError, "0.bias would be trained here"):
            parameters.of_run(self.model, self.manifest(**{"0_weight": [2, 2]}))
        self.model[0].bias.requires_grad_(False)
        self.assertEqual(len(parameters.of_run(self.model, self.manifest(**{"0_weight": [2, 2]}))),
                         1)
        with self.assertRaisesRegex(errors.ModelError, "no parameter 1.weight"):
            parameters.of_run(self.model, self.manifest(**{"1_weight": [2, 2]}))
        with self.assertRaisesRegex(errors.ModelError, r"\(2, 2\) in the model and \(4,\)"):
            parameters.of_run(self.model, self.manifest(**{"0_weight": [4]}))

    def test_tied_weights_are_one(self):
        model = model_of((2, 2), (2, 2))
        model[1].weight = model[0].weight
        names = [n for n, _ in parameters.of_run(model, None)]
        self.assertEqual(names, ["0.weight", "0.bias", "1.bias"])
        path = self.manifest(**{"1_weight": [2, 2], "0_bias": [2], "1_bias": [2]})
        self.assertIs(parameters.of_run(model, path)[0][1], model[0].weight)

    def test_wrappers_have_no_name_and_a_module_of_that_name_keeps_its_own(self):
        class Wrapped(torch.nn.Module):
            def __init__(self, **children):
                super().__init__()
                for name, child in children.items():
                    self.add_module(name, child)

        inner = Wrapped(_orig_mod=self.model)
        self.assertEqual([n for n, _ in parameters.of_run(Wrapped(module=inner), None)],
                         ["0.weight", "0.bias"])
        recomputed = checkpoint_wrapper(torch.nn.Linear(2, 2))
        self.assertEqual([n for n, _ in parameters.of_run(Wrapped(layer=recomputed), None)],
                         ["layer.weight", "layer.bias"])
        both = Wrapped(module=Wrapped(x=torch.nn.Linear(2, 2)), x=torch.nn.Linear(2, 2))
        self.assertEqual([n for n, _ in parameters.of_run(both, None)],
                         ["module.x.weight", "module.x.bias", "x.weight", "x.bias"])

    def test_another_base_under_the_adapters_is_refused(self):
        model = model_of((2, 2), (2, 2))
        model[0].requires_grad_(False)
        self.assertEqual(longhaul.save_initial(model, self.path("out")), 6)
        manifest = self.path("out/model.json")
        self.assertEqual([n for n, _ in parameters.of_run(model, manifest)],
                         ["1.weight", "1.bias"])
        for change in (lambda p: p.add_(1), lambda p: p.view(-1)[:1].neg_()):
            with torch.no_grad():
                change(model[0].weight)
            with self.assertRaisesRegex(errors.ModelError, "parameters or buffers are others"):
                parameters.of_run(model, manifest)
        whole = model_of((2, 2))
        longhaul.save_initial(whole, self.path("whole"))
        self.assertEqual(parameters.read_manifest(self.path("whole/model.json"))["model"], {})

    def test_the_base_is_the_frozen_parameters_and_their_types(self):
        model = model_of((2, 2), (2, 2))
        model[0].requires_grad_(False)
        before = parameters.digest_of_frozen(model)
        with torch.no_grad():
            model[1].weight.add_(1)  # training goes on
        self.assertEqual(parameters.digest_of_frozen(model), before)
        with torch.no_grad():
            model[0].weight.zero_()
            model[0].bias.zero_()
        kinds = {parameters.digest_of_frozen(model.to(kind))
                 for kind in (torch.float16, torch.bfloat16)}
        self.assertEqual(len(kinds), 2)  # the same bytes

    def test_a_model_that_is_shared_out_begins_no_run(self):
        shared = mock.Mock(placements=("Shard(0)",), requires_grad=True)
        model = mock.Mock(named_parameters=lambda **_: [("w", shared)])
        with self.assertRaisesRegex(errors.UnsupportedError, r"w is shared out .* fully_shard"):
            longhaul.save_initial(model, self.path("out"))

    def test_untrainable_parameters_are_refused_by_name(self):
        client = Fake()
        half = torch.nn.Parameter(torch.zeros(2, dtype=torch.float16))
        with self.assertRaisesRegex(errors.UnsupportedError, "x is torch.float16"):
            parameters.describe(client, "x", half)
        with self.assertRaisesRegex(errors.UnsupportedError, "not contiguous"):
            parameters.describe(client, "x", torch.nn.Parameter(torch.zeros(2, 3).t()))
        parameters.describe(client, "x", torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16)))
        self.assertEqual((client.of("parameter"), client.kinds), ([("parameter", "x")], [2]))

    def test_a_run_begins_from_any_model(self):
        self.model[0].bias.requires_grad_(False)
        values = longhaul.save_initial(self.model, self.path("out"), shards=1)
        with open(os.path.join(self.path("out"), "model.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), {
                "schema": "longhaul.manifest/1", "chunk": 4096, "shards": 1,
                "model": {"base": parameters.digest_of_frozen(self.model)},
                "tensors": [{"name": "0.weight", "shape": [2, 2]}]})
        with open(os.path.join(self.path("out"), "weights.bin"), "rb") as file:
            kept = torch.tensor(struct.unpack("<4f", file.read())).view(2, 2)
        self.assertEqual(values, 4)
        self.assertTrue(torch.equal(kept, self.model[0].weight))


class Rows(Case):
    """The tensors that fully_shard() gives a rank: stand-ins with its placements."""

    def held(self, shape, rank, ranks, placements=None, dimensions=1, names=None):
        from torch.distributed.tensor import Shard  # pylint: disable=import-outside-toplevel

        whole = torch.arange(float(torch.Size(shape).numel())).view(shape)
        rows = list(torch.chunk(whole, ranks)) + [whole[:0]] * ranks
        mesh = mock.Mock(ndim=dimensions, size=lambda: ranks, get_local_rank=lambda: rank,
                         mesh_dim_names=names)
        part = mock.Mock(placements=placements or (Shard(0),), device_mesh=mesh,
                         shape=torch.Size(shape), to_local=lambda: rows[rank])
        return parameters.held("w", mock.Mock(detach=lambda: part))

    def test_rows_make_a_whole(self):
        for shape, ranks in (((5, 3), 2), ((7,), 4), ((2, 2), 4), ((9, 2, 2), 3)):
            at, values = 0, torch.Size(shape).numel()
            for rank in range(ranks):
                mine = self.held(shape, rank, ranks)
                self.assertEqual((mine.shape, mine.first), (shape, at))
                self.assertEqual(mine.data.flatten().tolist(), list(range(at, at + mine.count)))
                at += mine.count
            self.assertEqual(at, values)

    def test_other_placements_are_refused(self):
        from torch.distributed.tensor import Replicate, Shard  # pylint: disable=C0415

        for placements, names, way in (
                ((Shard(1),), None, "tensor parallel"),
                ((Shard(0),), ("tp",), "tensor parallel"),
                ((Shard(0), Shard(0)), None, "tensor parallel"),
                ((Shard(0), Replicate()), ("fsdp", "tp"), "tensor parallel"),
                ((Replicate(), Shard(0)), None, r"hybrid sharding \(HSDP\)")):
            with self.assertRaisesRegex(errors.UnsupportedError, f"w is placed .* under {way} "):
                self.held((4, 4), 0, 2, placements, len(placements), names)

    def test_ways_that_leave_no_parameter_whole_are_refused_by_name(self):
        for mark, way in (("ds_id", "ZeRO-3"), ("tensor_model_parallel", "tensor parallel"),
                          ("_is_flat_param", "FSDP1")):
            model = model_of((2, 2))
            setattr(model[0].weight, mark, 1)
            with self.assertRaisesRegex(errors.UnsupportedError, f"0.weight .* under {way} "):
                parameters.of_run(model, None)
        wrapped = torch.nn.Module()
        wrapped.add_module("_fsdp_wrapped_module", model_of((2, 2)))
        with self.assertRaisesRegex(errors.UnsupportedError, "under FSDP1 "):
            parameters.of_run(wrapped, None)


class Additions(Case):
    """Corrections of parameters on a GPU, with memory of the host's."""

    def test_a_correction_is_added_to_the_bit(self):
        draw = torch.Generator().manual_seed(1)
        whole = torch.randn(30, 7, generator=draw)
        before, add = whole.clone().view(-1), parameters.Adder(whole)
        values = torch.randn(20, generator=draw)
        where = torch.randperm(90, generator=draw)[:20].to(torch.int32)
        add(100, 90, 20, values.data_ptr(), where.data_ptr())
        before[100 + where.long()] += values
        self.assertTrue(torch.equal(whole.view(-1), before))
        add(3, 20, 20, values.data_ptr(), 0)
        before[3:23] += values
        self.assertTrue(torch.equal(whole.view(-1), before))

    def test_a_shadow_is_renewed_as_the_library_does_it(self):
        """s + (p - bf16(s)) + correction in fp32, each rounded once; then p is bf16 of it."""
        draw = torch.Generator().manual_seed(1)
        p = (torch.randn(50, generator=draw) * 3).bfloat16()
        shadow = parameters.Shadow(p)
        shadow.kept += torch.randn(50, generator=draw) / 500  # a part that bf16 can't hold
        shadow.fill()
        p += torch.randn(50, generator=draw).bfloat16()
        s = shadow.kept.clone()
        held = torch.zeros(50)
        shadow.take(10, 40, held.data_ptr() + 40, 0)
        s[10:] += p[10:].float() - s[10:].bfloat16().float()
        self.assertTrue(torch.equal(held[10:], s[10:]))
        values = torch.randn(5, generator=draw)
        where = torch.tensor([1, 30, 2, 7, 39], dtype=torch.int32)
        shadow(10, 40, 5, values.data_ptr(), where.data_ptr())
        s[10 + where.long()] += values
        self.assertTrue(torch.equal(shadow.kept, s))
        self.assertTrue(torch.equal(p[10:], s[10:].bfloat16()))
        shadow(10, 40, 0, values.data_ptr(), where.data_ptr())  # no entry in that range
        self.assertTrue(torch.equal(shadow.kept, s))

    def test_an_error_of_take_is_raised_by_cut(self):
        def take(*_):
            raise MemoryError("of the GPU")

        client = longhaul.Client(0, 1)
        called = client._taker(take)  # pylint: disable=protected-access
        one = longhaul.library.Taking(0, 1, 0, 0)
        for name in ("longhaul_cut", "longhaul_cut_piece"):
            setattr(client._lib, name,  # pylint: disable=protected-access
                    lambda *_: 6 if called(None, ctypes.byref(one)) else 0)
        with self.assertRaisesRegex(MemoryError, "of the GPU"):
            client.cut()

    def test_an_error_of_add_is_raised_by_renew(self):
        def add(*_):
            raise MemoryError("of the GPU")

        client = longhaul.Client(0, 1)
        called = client._adder(add)  # pylint: disable=protected-access
        one = longhaul.library.Addition(0, 1, 1, 0, 0)
        for name in ("longhaul_renew", "longhaul_renew_piece"):
            setattr(client._lib, name,  # pylint: disable=protected-access
                    lambda *_: 6 if called(None, ctypes.byref(one)) else 0)
        with self.assertRaisesRegex(MemoryError, "of the GPU"):
            client.renew()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
