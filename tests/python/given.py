#!/usr/bin/env python3
"""Error messages of the package's constructors for wrong arguments: given.py LIBRARY PACKAGE.

Each call is a likely mistake: arguments in another order, a missing one, a name in place of a
number. The error names the argument and the remedy, before anything is begun.
"""
import os
import unittest
from unittest import mock

import numpy
import torch
from accelerate import Accelerator
from fake import Case, Fake, errors, longhaul, model_of
from fits import Fit, trainer_of
from longhaul.accelerate import LocalSGD
from longhaul.hf import LonghaulCallback

INNER = r"AsyncDiLoCo\(client, model, inner_optimizer\): "


class Given(Case):
    def setUp(self):
        super().setUp()
        self.client = Fake()

    def says(self, kind, words, call, *given, **options):
        """The error comes before any call of the client."""
        with self.subTest(call=call, given=given, **options):
            with self.assertRaisesRegex(kind, words):
                call(*given, **options)
            self.assertEqual(self.client.done, [])

    def diloco(self, *given, **options):
        return longhaul.AsyncDiLoCo(*given, **options)

    def test_a_loop_without_its_optimizer(self):
        self.says(ValueError, INNER + r"inner_optimizer is None: pass the optimizer, .* or "
                  r"hook=False and call run.step\(\)", self.diloco, self.client, self.model, None)

    def test_a_model_without_anything_to_train(self):
        frozen = model_of((2, 2)).requires_grad_(False)
        self.manifest(**{"0_weight": [2, 2], "0_bias": [2]})
        for model in (frozen, torch.nn.ReLU()):
            for manifest in (None, self.path("model.json")):
                with self.assertRaisesRegex(errors.ModelError, "no parameter of the model is "
                                            "trained: it has none, or requires_grad is False"):
                    with self.diloco(self.client, model, None, hook=False, manifest=manifest):
                        self.fail("it began")
        self.assertEqual(self.client.of("connect"), [])

    def test_calls_outside_of_the_run(self):
        run = self.diloco(self.client, self.model, self.optimizer)
        for call in (run.step, run.idle, run.finish):
            self.says(errors.StateError, call.__name__ + r"\(\) comes within `with AsyncDiLoCo",
                      call)
        with self.assertRaises(KeyError):
            with run:
                self.optimizer.step()
                raise KeyError
        done = len(self.client.done)
        for call in (run.step, run.idle, run.finish):
            with self.assertRaisesRegex(errors.StateError, "after the end of this AsyncDiLoCo"):
                call()
        with self.assertRaisesRegex(errors.StateError, "was entered before: make a new one"):
            with run:
                self.fail("it began")
        self.assertEqual(len(self.client.done), done)
        with self.diloco(self.client, self.model, self.optimizer, tokens_per_step=1) as run:
            with self.assertRaisesRegex(errors.StateError, "was entered before"):
                with run:
                    self.fail("it began")
        self.assertFalse(run.step())  # a loop that goes on after finish() gets False

    def test_parts_of_a_loop_in_another_order_or_of_another_kind(self):
        for given, words in (
                ((self.model, self.client, self.optimizer),
                 r"client is a Sequential: pass longhaul.Client.from_env\(\)"),
                ((None, self.model, self.optimizer), "client is None: pass"),
                ((longhaul.Client, self.model, self.optimizer), "client is Client itself: pass"),
                ((self.client, self.optimizer, self.model),
                 "model is a SGD: pass the torch.nn.Module"),
                ((self.client, Fit, self.optimizer), "model is Fit itself: pass"),
                ((self.client, self.model, torch.optim.SGD),
                 "inner_optimizer is SGD itself: pass the torch.optim.Optimizer"),
                ((self.client, self.model, 0.1), "inner_optimizer is a float: pass")):
            self.says(TypeError, INNER + words, self.diloco, *given)

    def test_an_optimizer_that_cannot_be_hooked(self):
        class Own:
            param_groups = []

            def step(self):
                pass

        self.says(TypeError, INNER + r"inner_optimizer is a Own, whose step\(\) can't be hooked: "
                  "pass hook=False", self.diloco, self.client, self.model, Own())
        self.diloco(self.client, self.model, Own(), hook=False)

    def test_options_of_a_loop(self):
        for options, kind, words in (
                ({"tokens_per_step": -1}, ValueError, "tokens_per_step is -1: pass at least 0"),
                ({"tokens_per_step": 1.5}, TypeError, "tokens_per_step is a float: pass a whole"),
                ({"tokens_per_step": True}, TypeError, "tokens_per_step is a bool: pass a whole"),
                ({"timeout_s": "60"}, TypeError, "timeout_s is a str: pass a number"),
                ({"timeout_s": float("nan")}, ValueError, "timeout_s is nan: pass at least 0"),
                ({"keep": 7}, TypeError, "keep is a int: pass the path of a file, or True"),
                ({"keep": "k", "keep_every": 0}, ValueError, "keep_every is 0: pass at least 1"),
                ({"manifest": {}}, TypeError, "manifest is a dict: pass the path of the run's"),
                ({"masters": [1]}, TypeError, "masters is a list: pass a mapping or a function"),
                ({"schedule": "run"}, ValueError, 'schedule=.run.: "local", or None')):
            self.says(kind, "^AsyncDiLoCo: " + words, self.diloco, self.client, self.model,
                      self.optimizer, **options)
        self.diloco(self.client, self.model, self.optimizer, tokens_per_step=numpy.int64(3),
                    timeout_s=numpy.float32(1))

    def test_the_wrapped_optimizer(self):
        for given, words in (((None, self.client, self.model), "optimizer is None: pass"),
                             ((self.model, self.client, self.optimizer), "is a Sequential: pass")):
            self.says(TypeError, r"^Optimizer\(optimizer, client, model\): .*" + words,
                      longhaul.Optimizer, *given)

    def test_arrays_of_other_frameworks(self):
        words = r"^Functional\(client, arrays\): arrays is a list: pass a mapping"
        self.says(TypeError, words, longhaul.Functional, self.client, [numpy.zeros(2)])
        self.says(TypeError, r"^Functional\(client, arrays\): client is None: pass",
                  longhaul.Functional, None, {"a": numpy.zeros(2)})
        self.says(TypeError, r"^save_arrays\(arrays, folder\): arrays is a list",
                  longhaul.save_arrays, [numpy.zeros(2)], self.path("out"))
        self.says(TypeError, r"^save_initial\(model, folder\): model is a str: pass the torch",
                  longhaul.save_initial, "model", self.path("out"))
        self.says(ValueError, "shards is 0: pass at least 1", longhaul.save_initial, self.model,
                  self.path("out"), 0)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_a_loader(self):
        with self.diloco(self.client, self.model, self.optimizer) as run:
            self.client.done.clear()
            sizes = {"batch_size": 1, "sequence_length": 4}
            for given, options, kind, words in (
                    ((self.model, self.units(8)), {}, TypeError,
                     r"run is a Sequential: pass what `with AsyncDiLoCo\(...\) as run` gives"),
                    ((run, [1]), {}, TypeError, "units is a list: pass the path of the run's"),
                    ((run, ""), {}, TypeError, "units is empty: pass the path"),
                    ((run, "s3://b/units.json"), {}, ValueError,
                     "units is in a store, .* fetch them with `longhaul store pull`"),
                    ((run, self.units(8)), {"batch_size": 0}, ValueError, "batch_size is 0: pass"),
                    ((run, self.units(8)), {"sequence_length": 1}, ValueError,
                     "sequence_length is 1: pass at least 2"),
                    ((run, self.units(8)), {"window": 2.0}, TypeError, "window is a float: pass")):
                self.says(kind, r"^LeasedDataLoader\(run, units\): " + words,
                          longhaul.LeasedDataLoader, *given, **{**sizes, **options})
            for text in ("{}", "[]", "7", "{", '{"unit": []}', '{"units": [{"file": "a.bin"}]}',
                         '{"units": [7]}'):
                with open(self.path("other.json"), "w", encoding="utf-8") as file:
                    file.write(text)
                self.says(ValueError, "other.json is no units.json, which `longhaul data prepare`",
                          longhaul.LeasedDataLoader, run, self.path("other.json"), **sizes)

            with open(self.path("other.json"), "w", encoding="utf-8") as file:
                file.write('{"units": [{"file": "a", "from": 0, "tokens": "8", "sha256": ""}]}')
            self.says(ValueError, "other.json: tokens of unit 0 is '8'; `longhaul data prepare`",
                      longhaul.LeasedDataLoader, run, self.path("other.json"), **sizes)

    def test_counts_of_tokens(self):
        with self.diloco(self.client, self.model, self.optimizer, hook=False) as run:
            self.client.done.clear()
            call = r"^trained\(tokens\): tokens is "
            for given, kind, words in (
                    (-5, ValueError, "-5: pass at least 0"), (2**63, ValueError, "9223.*: pass"),
                    (512.0, TypeError, "a float: pass a whole number, or a tensor with one"),
                    ("512", TypeError, "a str: pass"),
                    (torch.ones(()), TypeError, "a Tensor: pass"),
                    (torch.ones(3, dtype=torch.int64), TypeError, "a Tensor: pass")):
                self.says(kind, call + words, run.trained, given)
                self.says(kind, call + words, run.step, given)
            for tokens in (7, numpy.int64(7), torch.ones(7, dtype=torch.int64).sum()):
                run.step(tokens)
            counted = [b[2] for b in self.client.of("boundary")]
            self.assertEqual([(c, type(c)) for c in counted], [(7, int)] * 3)

    def test_a_manifest(self):
        for text in ("", "{", "[]", '{"tensors": [{"name": "a"}]}'):
            with open(self.path("model.json"), "w", encoding="utf-8") as file:
                file.write(text)
            with self.assertRaisesRegex(errors.ModelError, "model.json is no model.json, which"):
                with self.diloco(Fake(), self.model, self.optimizer,
                                 manifest=self.path("model.json")):
                    self.fail("it began")

    def test_a_schedule(self):
        call = r"^schedule\(optimizer, client, total_tokens\): "
        for given, kind, words in (
                ((self.model, self.client, 9), TypeError, "optimizer is a Sequential: pass"),
                ((self.optimizer, None, 9), TypeError, "client is None: pass the Client"),
                ((self.optimizer, self.client, None), TypeError, "total_tokens, .* is None: pass"),
                ((self.optimizer, self.client, 0), ValueError, "total_tokens, .* is 0: pass"),
                ((self.optimizer, self.client, 9, 0.5), TypeError, "shape is a float: pass a")):
            self.says(kind, call + words, longhaul.schedule, *given)

    def test_the_trainers_callback(self):
        trainer = trainer_of(Fit(), self.path("out"))
        for given, options, kind, words in (
                ((trainer,), {}, TypeError, "tokens_per_step is a Trainer: pass a whole number"),
                ((0,), {}, ValueError, "tokens_per_step is 0: pass at least 1"),
                ((1, self.model), {}, TypeError, "client is a Fit|client is a Sequential: pass"),
                ((1,), {"total_tokens": 0}, ValueError, "total_tokens is 0: pass at least 1"),
                ((1,), {"hook": False}, TypeError, "it sets hook itself"),
                ((1,), {"keep_every": 0}, ValueError, "keep_every is 0: pass at least 1")):
            self.says(kind, r"^LonghaulCallback\(tokens_per_step\): " + words, LonghaulCallback,
                      *given, **options)
        self.says(TypeError, "compression is a setting of the run.*codec", LonghaulCallback, 1,
                  compression="fp16")
        self.says(TypeError, r"AsyncDiLoCo\(\) takes no model", LonghaulCallback, 1, model=1)
        self.says(TypeError, r"^attach\(trainer\): trainer is a Fit: pass the Trainer",
                  LonghaulCallback(1).attach, Fit())

    def test_accelerates_loop(self):
        accelerator = Accelerator(cpu=True)
        for given, options, kind, words in (
                ((self.model, accelerator), {}, TypeError, "accelerator is a Sequential: pass"),
                ((accelerator, None), {}, TypeError, "model is None: pass the torch.nn.Module"),
                ((accelerator, self.model), {"client": 1}, TypeError, "client is a int: pass"),
                ((accelerator, self.model), {"hook": True}, TypeError, "it sets hook itself"),
                ((accelerator, self.model), {"keep": 1.0}, TypeError, "keep is a float: pass")):
            self.says(kind, r"^LocalSGD\(accelerator, model\): " + words, LocalSGD, *given,
                      **options)
        self.says(TypeError, "outer_optimizer is a setting of the run", LocalSGD, accelerator,
                  self.model, outer_optimizer=None)

    def test_a_client(self):
        self.says(ValueError, "rank and ranks come together", longhaul.Client, 1)
        self.says(ValueError, "rank and ranks come together", longhaul.Client, ranks=2)
        self.says(TypeError, "^Client: rank is a str: pass a whole number", longhaul.Client, "1", 2)
        self.says(ValueError, "^Client: rank is -1: pass at least 0", longhaul.Client, -1, 2)
        self.says(ValueError, "^Client: ranks is 0: pass at least 1", longhaul.Client, 0, 0)
        self.says(ValueError, "^Client: threads is 0: pass at least 1", longhaul.Client, threads=0)
        with mock.patch.dict(os.environ, {"LONGHAUL_SOCKET": "/nowhere"}):
            self.says(TypeError, "^Client: threads is a str", longhaul.Client.from_env, "8")


if __name__ == "__main__":
    unittest.main(argv=["given.py"])
