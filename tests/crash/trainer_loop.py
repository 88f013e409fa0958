#!/usr/bin/env python3
"""Training loops in fixed point over the Python package: a process that forks one for each line.

    trainer_loop.py        lines of JSON: {"start": {...}} gives a process id, {"wait": ID} how it
                           ended, once it has

PyTorch is imported once, so that a killed loop restarts at once; each loop is a process of its own.
A step lowers parameter i by its tokens times the mass of exact.h, so that mass.c knows the
contribution of the credited tokens.
"""
import ctypes
import json
import os
import signal
import sys
import time
import traceback

import longhaul
import numpy
import torch

SEQUENCE = 64


def mass(first, values):
    """exact_mass() of exact.h for parameters in their flat order."""
    at = numpy.arange(first, first + values, dtype=numpy.uint64)
    with numpy.errstate(over="ignore"):
        high = (at * numpy.uint64(0x9e3779b97f4a7c15)) >> numpy.uint64(61)
    return torch.from_numpy((1 + high).astype(numpy.float32) / 128)


class Model(torch.nn.Module):
    """Parameters with the names of a manifest, in its order."""

    def __init__(self, manifest):
        super().__init__()
        with open(manifest, encoding="utf-8") as file:
            rows = json.load(file)["tensors"]
        self.rows = [(row["name"], tuple(row["shape"])) for row in rows]
        for name, shape in self.rows:
            *path, last = name.split(".")
            owner = self
            for part in path:
                if not hasattr(owner, part):
                    owner.add_module(part, torch.nn.Module())
                owner = getattr(owner, part)
            owner.register_parameter(last, torch.nn.Parameter(torch.zeros(shape)))

    def in_order(self):
        """The parameters in the manifest's order."""
        return [self.get_parameter(name) for name, _ in self.rows]


class Exact(torch.optim.Optimizer):
    """Steps by the number of tokens, without a gradient. No sum in it is rounded."""

    def __init__(self, model):
        super().__init__(model.in_order(), {})
        self.tokens, self.masses, first = 0, [], 0
        for parameter in model.in_order():
            self.masses.append(mass(first, parameter.numel()).view_as(parameter))
            first += parameter.numel()

    @torch.no_grad()
    def step(self, closure=None):
        for parameter, lowered in zip(self.param_groups[0]["params"], self.masses):
            parameter.sub_(lowered * self.tokens)
        self.tokens = 0


def train(given):
    """Runs one process of a loop, to the end of the run."""
    model = Model(given["manifest"])
    optimizer = Exact(model)
    with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer) as run:
        for batch in longhaul.LeasedDataLoader(run, given["units"], batch_size=1,
                                               sequence_length=SEQUENCE):
            optimizer.tokens = batch.numel()
            optimizer.step()
            if not os.path.exists(given["fast"]):
                time.sleep(batch.numel() / given["speed"])
    with open(given["out"] + ".new", "wb") as file:
        for parameter in model.in_order():
            file.write(parameter.detach().numpy().tobytes())
    os.rename(given["out"] + ".new", given["out"])


def live(given):
    """Runs in the forked process; never returns."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # dies with the forking process
        for to, path, how in ((0, os.devnull, os.O_RDONLY),
                              (1, given["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)):
            os.dup2(os.open(path, how, 0o644), to)
        os.dup2(1, 2)
        os.environ.update(given["env"])
        train(given)
        code = 0
    except BaseException:  # pylint: disable=broad-exception-caught
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # pylint: disable=protected-access


def main():
    torch.set_num_threads(1)
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        if "start" in asked:
            answer = os.fork()
            if not answer:
                live(asked["start"])
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1])
        print(answer, flush=True)


if __name__ == "__main__":
    main()
