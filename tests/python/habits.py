#!/usr/bin/env python3
"""Usual practices of Hugging Face users around a loop, with the real client: habits.py LIBRARY
PACKAGE EXTERNAL_WORKER CUDART.

transformers' Trainer trains beside a made-up worker (tests/external/worker.c), which takes every
cut and sends it back as corrections. DataLoader workers that fork, accumulated and clipped
gradients, bf16, torch.compile, tied and frozen weights, buffers, checkpoints and an interrupt.
Parameters on CUDA are in host memory, and the runtime is tests/external/cudart.c.
"""
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch
from fake import longhaul, parameters
from fits import IN, Fit, Watch, points, trainer_of
from longhaul.hf import LonghaulCallback
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback

WORKER, CUDART = sys.argv[3:5]


class Interrupt(TrainerCallback):
    """Ctrl-C in a notebook, after this many steps in all."""

    def __init__(self, at):
        self.at = at

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.at:
            raise KeyboardInterrupt


class Habits(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lh-habits-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        torch.manual_seed(1)

    def path(self, name):
        return os.path.join(self.folder, name)

    def worker(self, model, *how):
        """Starts a worker with as many values as the model trains; it ends by itself."""
        trained = [p for p in model.parameters() if p.requires_grad]
        socket = self.path("s")
        process = subprocess.Popen(  # pylint: disable=consider-using-with
            [WORKER, self.folder, socket, "1", "1", str(sum(p.numel() for p in trained)), *how])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        patched = mock.patch.dict(os.environ, {"LONGHAUL_SOCKET": socket})
        patched.start()
        self.addCleanup(patched.stop)
        return process

    def fits(self, model, watch, floor=0.2, **given):
        """A life of the Trainer from the first step to the last; gives the Trainer."""
        worker = self.worker(model)
        trainer = trainer_of(model, self.path("out"), watch, **{
            "max_steps": 250, "learning_rate": 0.1, "data": points(4096), **given})
        LonghaulCallback(4, timeout_s=60).attach(trainer)
        trainer.train()
        self.assertEqual(worker.wait(60), 0)
        losses = [one["loss"] for one in watch.logs if "loss" in one]
        self.assertLess(sum(losses[-10:]) / 10, floor)
        self.assertGreater(losses[0], 20 * floor)
        self.assertGreater(watch.logs[-2]["longhaul/cuts"], 1)  # their number depends on the disk
        self.assertEqual({one.get("longhaul/restarts", 0) for one in watch.logs}, {0})
        return trainer

    def test_data_workers_that_fork_and_gradients_that_are_accumulated_and_clipped(self):
        self.fits(Fit(), Watch(), dataloader_num_workers=2, gradient_accumulation_steps=2,
                  max_grad_norm=1.0)

    def test_another_run_of_this_process_hears_at_once_that_the_worker_is_taken(self):
        """And not after its timeout; once the first run has left, another one may begin."""
        model = Fit()
        self.worker(model)
        again = [longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model,
                                      torch.optim.SGD(model.parameters(), lr=0.1), timeout_s=250)
                 for _ in range(3)]
        with self.assertRaises(KeyError), again[0]:
            with self.assertRaisesRegex(longhaul.BusyError, "another client of this process is"):
                with again[1]:
                    self.fail("it began")
            raise KeyError
        with self.assertRaises(KeyError), again[2]:
            again[2].step()
            raise KeyError

    def on_cuda(self, **env):
        """From now on the client takes parameters for those of a GPU."""
        describe = longhaul.Client.parameter

        def on_device(client, *given, owner, dtype, **named):
            adder = parameters.Adder(owner) if dtype == 1 else None
            describe(client, *given, **{**named, "owner": owner, "dtype": dtype, "memory": 1,
                                        "add": adder})
        for patched in (mock.patch.object(longhaul.Client, "parameter", on_device),
                        mock.patch.dict(os.environ, {"LONGHAUL_CUDART": CUDART, **env})):
            patched.start()
            self.addCleanup(patched.stop)

    def test_cuts_of_a_gpu_go_on_beside_the_next_step(self):
        self.on_cuda()
        with self.assertLogs("longhaul", "WARNING") as said:
            self.fits(Fit(), Watch())
        self.assertNotIn("CUDA", "".join(said.output))

    def test_cuts_of_bf16_on_a_gpu(self):
        self.on_cuda()
        self.fits(Fit().bfloat16(), Watch(), floor=0.3)

    def test_bf16_of_a_gpu_keeps_the_bits_of_the_host(self):
        """Two equal parameters with equal gradients, one of them on the stand-in for a GPU."""
        twins = torch.nn.Module()
        start = (torch.randn(4500) * 3).bfloat16()  # a chunk and a part of one
        twins.host, twins.gpu = (torch.nn.Parameter(start.clone()) for _ in range(2))
        address, seen, moved = twins.gpu.data_ptr(), 0, 0
        self.worker(twins, "twins")
        with mock.patch.object(parameters, "_on_gpu", lambda data: data.data_ptr() == address), \
                mock.patch.dict(os.environ, {"LONGHAUL_CUDART": CUDART}), \
                self.assertLogs("longhaul", "WARNING") as said, self.assertRaises(KeyError):
            optimizer = torch.optim.SGD(twins.parameters(), lr=1.0)
            with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), twins, optimizer,
                                      tokens_per_step=1, timeout_s=60) as run:
                self.assertEqual(run.client.state().shadow_bytes, 4 * 4500)  # only the host's
                while seen < 8 and run.steps < 3000:
                    before = twins.host.detach().clone()
                    twins.host.grad = torch.randn(4500).mul(2.0 ** -(run.steps % 12)).bfloat16()
                    twins.gpu.grad = twins.host.grad.clone()
                    optimizer.step()
                    self.assertTrue(torch.equal(twins.host, twins.gpu))
                    step = (before - twins.host.grad).bfloat16()
                    moved += not torch.equal(step, twins.host)  # by a renewal
                    seen = min(run.client.state().cuts, run.client.state().renewals)
                shadow = next(d.shadow for d in run._described if d.shadow)  # pylint: disable=W0212
                self.assertFalse(torch.equal(shadow.kept, twins.gpu.float()))
                raise KeyError
        self.assertGreater(moved, 0)
        self.assertIn("MB of the GPU's memory hold fp32 copies", "".join(said.output))

    def test_cuts_of_a_gpu_that_pins_nothing(self):
        self.on_cuda(CUDART_PINS="nothing")
        with self.assertLogs("longhaul", "WARNING") as said:
            self.fits(Fit(), Watch())
        self.assertEqual(len([line for line in said.output if "CUDA can't pin" in line]), 1)

    def test_bf16(self):
        model = Fit().bfloat16()
        with self.assertLogs("longhaul", "WARNING") as said:
            self.fits(model, Watch(), floor=0.3)
        self.assertIn("hold fp32 copies of bf16 parameters", said.output[0])
        self.assertEqual({p.dtype for p in model.parameters()}, {torch.bfloat16})

    def test_fp32_masters_of_bf16(self):
        """Steps too small for bf16 are trained, and come back."""
        class Masters(torch.optim.SGD):
            """Steps on fp32 copies in its state."""

            @torch.no_grad()
            def step(self, closure=None):
                group = self.param_groups[0]
                for p in group["params"]:
                    master = self.state[p].setdefault("master_param", p.detach().float())
                    master.sub_(p.grad.float(), alpha=group["lr"])
                    p.copy_(master)

        model = Fit().bfloat16()
        worker, optimizer = self.worker(model), Masters(model.parameters(), lr=1.0)
        with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer, timeout_s=60,
                                  tokens_per_step=1) as run:
            for step in range(300):
                for p in model.parameters():
                    p.grad = torch.ones_like(p)
                optimizer.param_groups[0]["lr"] = 1.0 if step < 2 else 1e-5
                optimizer.step()
            self.assertEqual(run.restarts, 0)
            self.assertEqual(run.client.state().shadow_bytes, 0)
        self.assertEqual(worker.wait(60), 0)
        for p in model.parameters():  # they began at 0; the first step is dropped
            master = optimizer.state[p]["master_param"]
            self.assertTrue(torch.equal(p, torch.full_like(p, -1.0)))
            for value in master.flatten().tolist():
                self.assertAlmostEqual(value, -1.0 - 298e-5, places=5)

    def test_autocast(self):
        self.fits(Fit(), Watch(), floor=0.3, bf16=True)

    def test_a_compiled_model(self):
        self.addCleanup(torch._dynamo.reset)  # pylint: disable=protected-access
        trainer = self.fits(Fit(), Watch(), torch_compile=True, torch_compile_backend="eager")
        self.assertTrue(hasattr(trainer.model_wrapped, "_orig_mod"))

    def test_tied_and_frozen_weights_and_buffers(self):
        class Odd(Fit):
            """The line is used under two names, after a norm that has only buffers and a frozen
            layer that reverses the input."""

            def __init__(self):
                super().__init__()
                self.same = torch.nn.Linear(IN, 1)
                self.same.weight = self.line.weight
                self.turn = torch.nn.Linear(IN, IN, bias=False)
                self.norm = torch.nn.BatchNorm1d(IN, affine=False)
                with torch.no_grad():
                    self.turn.weight.copy_(torch.eye(IN).flip(0))
                self.turn.requires_grad_(False)

            def forward(self, x, labels):
                x = self.turn(x)
                self.norm(x)
                one = super().forward(x, labels)["loss"]
                return {"loss": (one + (self.same(x).squeeze(-1) - labels).square().mean()) / 2}

        model = Odd()
        self.fits(model, Watch())
        self.assertTrue(torch.equal(model.turn.weight, torch.eye(IN).flip(0)))
        self.assertIs(model.same.weight, model.line.weight)
        self.assertEqual(model.norm.num_batches_tracked, 250)
        for i, weight in enumerate(model.line.weight[0].flip(0).tolist()):
            self.assertAlmostEqual(weight, i, delta=0.4)

    def test_an_interrupt_and_another_train_from_a_checkpoint(self):
        model, watch, interrupt = Fit(), Watch(), Interrupt(200)
        worker = self.worker(model)
        trainer = trainer_of(model, self.path("out"), watch, interrupt, max_steps=250,
                             learning_rate=0.1, data=points(4096), save_strategy="steps",
                             save_steps=100)
        LonghaulCallback(4, timeout_s=60, keep=self.path("kept"), keep_every=4).attach(trainer)
        with self.assertRaises(KeyboardInterrupt):
            trainer.train()
        interrupt.at = 0
        before = [one["loss"] for one in watch.logs]
        other = self.path("out/checkpoint-100/model.safetensors")  # parameters come from the run
        save_file({n: v + 100 for n, v in load_file(other).items()}, other)
        with self.assertLogs("longhaul", "WARNING") as said:
            trainer.train(resume_from_checkpoint=self.path("out/checkpoint-100"))
        self.assertIn("goes on from", said.output[0])
        self.assertEqual(worker.wait(60), 0)
        after = [one["loss"] for one in watch.logs[len(before):] if "loss" in one]
        self.assertEqual(len(after), 150)
        self.assertGreater(before[0], 10)
        self.assertLess(sum(after[:10]) / 10, 1)
        self.assertLess(sum(after[-10:]) / 10, 0.2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
