#!/usr/bin/env python3
"""Ranks on two hosts, and masters: every step is in the run exactly once.

    hosts.py LIBRARY PACKAGE EXTERNAL_WORKER

Four ranks with gloo between them, two of which have the worker's socket; the real library beside
the made-up worker (tests/external/worker.c). Its judge recomputes the sum of all steps and records
in integers. The same for a model of bf16 whose optimizer has fp32 masters: bf16 could not hold
these numbers.
"""
import array
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import torch
import torch.distributed as dist
from fake import errors, longhaul, parameters
from ranked import of_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORKER = sys.argv[3]
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "external"))
from judge import State, judge  # noqa: E402  pylint: disable=wrong-import-position

SHAPES = {"embed": (40, 50), "odd": (7, 11, 13), "rows": (60, 100), "scalar": (1,)}  # of world.h
RANKS, NEAR, STEPS, TOKENS = 4, 2, 60, 8


class Odd(torch.nn.Module):
    """The model of world.h; the last rank has one row less of one tensor, and none of another."""

    def __init__(self):
        super().__init__()
        for name, shape in SHAPES.items():
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape)))

    def train_step(self, step):
        """Adds the values of this step, in the rows that this rank holds."""
        at = 0
        for name, p in self.named_parameters():
            mine = parameters.held(name, p)
            self.add(mine.data.view(-1), at + mine.first, step)
            at += p.numel()

    @staticmethod
    def add(values, first, step):
        """`first`: the number of the first value in the model."""
        values.add_((1 + (first + torch.arange(values.numel()) + step) % 4).float())


def placed(rank, near, socket):
    """Sets the environment of a rank under torchrun on its host."""
    os.environ.update(LOCAL_RANK=str(rank % near), LOCAL_WORLD_SIZE=str(near),
                      GROUP_RANK=str(rank // near))
    os.environ.pop("LONGHAUL_SOCKET", None)
    if socket:
        os.environ["LONGHAUL_SOCKET"] = socket


def whole(model):
    return [v for p in model.parameters()
            for v in getattr(p, "full_tensor", lambda p=p: p)().flatten().tolist()]


def loop(rank, ranks, socket, fsdp, near):
    placed(rank, near, socket if rank < near else None)
    model = Odd()
    if fsdp:
        fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    rates, equal = [], True
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    client = longhaul.Client.from_env()
    with longhaul.AsyncDiLoCo(client, model, optimizer, hook=False, tokens_per_step=TOKENS,
                              timeout_s=60) as run:
        rate = longhaul.schedule(optimizer, client, 1000)
        for _ in range(STEPS):
            model.train_step(run.steps + 1)
            time.sleep(0.005)
            run.step()
            time.sleep(0.002 * rank)  # the worker's own clock advances meanwhile
            rate.step()
            rates.append(rate.get_last_lr()[0])
            if not fsdp:
                both = [torch.zeros_like(model.rows) for _ in range(ranks)]
                dist.all_gather(both, model.rows.detach())
                equal = equal and all(torch.equal(both[0], b) for b in both)
    return {"whole": whole(model), "rates": rates, "equal": equal, "restarts": run.restarts}


def refused(rank, _ranks, socket):
    """Workers on both hosts are refused."""
    placed(rank, NEAR, socket)
    try:
        longhaul.AsyncDiLoCo(longhaul.Client.from_env(), Odd(), None, hook=False)
        return "it began"
    except errors.UnsupportedError as error:
        return str(error)


def differs(rank, ranks, socket, wrong):
    """The last rank has another model."""
    placed(rank, NEAR, socket if rank < NEAR else None)
    model = Odd()
    if rank == ranks - 1:
        model = model.bfloat16() if wrong == "type" else model
        if wrong == "less":
            del model.scalar
    try:
        with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, None, hook=False):
            return "it began"
    except errors.ModelError as error:
        return str(error)


def leases(rank, _ranks, socket, units):
    """A loader over both hosts."""
    placed(rank, NEAR, socket if rank < NEAR else None)
    model, tokens, drained = Odd(), 0, False
    with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, None, hook=False,
                              timeout_s=60) as run:
        loader = longhaul.LeasedDataLoader(run, units, batch_size=1, sequence_length=TOKENS)
        for batch, _ in zip(loader, range(STEPS)):
            tokens += batch.numel()
            model.train_step(run.steps + 1)
            run.step()
        drained = run.finished
    return {"whole": whole(model), "tokens": tokens, "drained": drained}


class Masters(torch.optim.SGD):
    """Adds a step's numbers to fp32 copies of the parameters, made in the first step."""

    def __init__(self, model):
        super().__init__(model.parameters(), lr=1.0)
        self.number = None  # the step's number

    @torch.no_grad()
    def step(self, closure=None):
        at = 0
        for p in self.param_groups[0]["params"]:
            master = self.state[p].setdefault("master_param", p.detach().float())
            Odd.add(master.view(-1), at, self.number())
            p.copy_(master)
            at += p.numel()


class Judged(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lh-hosts-")
        self.addCleanup(folder.cleanup)
        self.folder, self.socket = folder.name, os.path.join(folder.name, "s")

    def path(self, name):
        return os.path.join(self.folder, name)

    def worker(self, near=NEAR, *values):
        process = subprocess.Popen(  # pylint: disable=consider-using-with
            [WORKER, self.folder, self.socket, "2", str(near), *values])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def judged(self, worker, found, tokens):
        """Every rank ends with the run's parameters, and no step is missing from them."""
        self.assertEqual(worker.wait(60), 0)
        for one in found:
            self.assertEqual(one["whole"], found[0]["whole"])
        with open(self.path("final"), "wb") as file:
            array.array("f", found[0]["whole"]).tofile(file)
        self.assertEqual(judge(self.path("state"), self.path("final")), [])
        state = State(self.path("state"))
        self.assertGreater(state.cuts, 6)
        self.assertGreater(min(state.records[:2]), 6)
        for part in range(2):
            self.assertEqual(sum(life[2][part] for life in state.lives), tokens)

    def test_rows_and_replicas_of_the_other_host_are_trained(self):
        for fsdp in (False, True):
            with self.subTest(fsdp=fsdp):
                worker = self.worker()
                found = of_ranks(RANKS, loop, self.socket, fsdp, NEAR)
                self.judged(worker, found, RANKS * TOKENS * STEPS)
                self.same(found)
                os.remove(self.path("state"))

    def same(self, found):
        """All ranks had the same rates and parameters at each step."""
        for one in found:
            self.assertEqual((one["restarts"], one["equal"]), (0, True))
            self.assertEqual(one["rates"], found[0]["rates"])
        self.assertGreater(len(set(found[0]["rates"])), 3)

    def test_ranks_of_one_host_have_the_same_rates(self):
        worker = self.worker()
        found = of_ranks(NEAR, loop, self.socket, False, NEAR)
        self.judged(worker, found, NEAR * TOKENS * STEPS)
        self.same(found)

    def test_rows_of_the_other_host_are_cut_where_nothing_is_renewed(self):
        """No record arrives between two cuts, nor before the last one."""
        count = sum(math.prod(shape) for shape in SHAPES.values())
        worker = self.worker(NEAR, str(count))
        found = of_ranks(RANKS, loop, self.socket, True, NEAR)
        self.assertEqual(worker.wait(60), 0)
        wanted = [sum(1 + (i + step) % 4 for step in range(1, STEPS + 1)) for i in range(count)]
        for one in found:
            self.assertEqual(one["whole"], wanted)

    def test_units_are_shared_by_both_hosts(self):
        tokens = 512  # EX_UNIT_TOKENS
        with open(self.path("a.bin"), "wb") as file:
            array.array("i", [20240520, 1, tokens, *[0] * 253]).tofile(file)
            array.array("H", [1] * tokens).tofile(file)
        with open(self.path("units.json"), "w", encoding="utf-8") as file:
            digest = hashlib.sha256(array.array("H", [1] * tokens).tobytes()).hexdigest()
            json.dump({"units": [{"id": 0, "file": "a.bin", "from": 0, "tokens": tokens,
                                  "sha256": digest}]}, file)
        worker = self.worker()
        found = of_ranks(RANKS, leases, self.socket, self.path("units.json"))
        self.judged(worker, found, sum(one["tokens"] for one in found))
        state = State(self.path("state"))
        self.assertEqual([sum(state.place[part]) for part in range(2)],
                         [sum(one["tokens"] for one in found)] * 2)
        self.assertGreater(min(one["tokens"] for one in found), 0)

    def test_masters_hold_what_their_parameters_cannot(self):
        worker, model = self.worker(near=1), Odd().bfloat16()
        optimizer = Masters(model)
        with mock.patch.dict(os.environ, {"LONGHAUL_SOCKET": self.socket}):
            with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer,
                                      tokens_per_step=TOKENS, timeout_s=60) as run:
                optimizer.number = lambda: run.steps + 1
                for _ in range(STEPS):
                    optimizer.step()
                    time.sleep(0.005)
                figures = run.figures()
        masters = [optimizer.state[p]["master_param"] for p in model.parameters()]
        for p, master in zip(model.parameters(), masters):
            self.assertTrue(torch.equal(p, master.bfloat16()))
        found = {"whole": [v for master in masters for v in master.flatten().tolist()]}
        self.judged(worker, [found], TOKENS * (STEPS - 1))  # the first step is dropped
        self.assertGreater(figures["longhaul/renewals"], 3)

    def test_another_model_on_another_host_is_refused(self):
        for wrong, says in (("type", "first .'embed', .40, 50., 2. in place of .'embed', .40, 50."),
                            ("less", "first nothing in place of .'scalar'")):
            for text in of_ranks(RANKS, differs, self.socket, wrong):
                self.assertRegex(text, f"^rank 3 trains other .*{says}.*LONGHAUL_MANIFEST")

    def test_a_worker_on_each_host_is_refused(self):
        for text in of_ranks(RANKS, refused, self.socket):
            self.assertRegex(text, "first host, and no others, have LONGHAUL_SOCKET")
            self.assertRegex(text, "LOCAL_WORLD_SIZE, which torchrun sets: here these are")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
