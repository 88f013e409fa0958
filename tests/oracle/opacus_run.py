#!/usr/bin/env python3
"""Three regions whose loops are made private by Opacus: `opacus_run.py --build BUILD`.

Each loop trains with Opacus' engine, loader and optimizer, and reports their noise, rate and clip.
The workers charge the steps and end the loops at the budget. Charged steps equal the count of
Opacus' own accountant, epsilon equals that accountant's to 0.005, and the statement says that the
parameters were reported by the trainer.
"""
import argparse
import functools
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import warnings

import torch
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant, RDPAccountant

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "worker/python")]
import longhaul  # noqa: E402
import private  # noqa: E402
from world import World, check  # noqa: E402

RECORDS, STEPS, LOCAL_STEPS = 200, 150, 4
BLOCK = 16          # steps that are charged at once: a sixteenth of the steps charged ahead
LEAD = 40          # steps that a loop may be ahead of its last cut
TOLERANCE = 0.005  # of epsilon, which Opacus computes to 0.001
FORK = multiprocessing.get_context("fork")  # so that PyTorch is imported once


def train(terms, out):
    """A script as in Opacus' documentation, with three lines for the run."""
    torch.manual_seed(1)
    x = torch.rand(RECORDS, private.IN)
    data = torch.utils.data.TensorDataset(x, x @ torch.rand(private.IN, private.OUT))
    model = torch.nn.Linear(private.IN, private.OUT)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data_loader=torch.utils.data.DataLoader(data, round(RECORDS * terms["rate"])),
        noise_multiplier=terms["sigma"], max_grad_norm=terms["clip"])
    with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer,
                              tokens_per_step=16) as run:
        run.client.noise(optimizer.noise_multiplier, loader.sample_rate, optimizer.max_grad_norm)
        cuts = seen = steps = 0
        while not run.finished:
            for inputs, wanted in loader:
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(inputs), wanted).backward()
                optimizer.step()
                steps += 1
                while not run.finished and steps - seen > LEAD:
                    run.idle(0.1)
                    if run.client.state().cuts > cuts:
                        cuts, seen = run.client.state().cuts, steps
                if run.finished:
                    break
    with open(out, "w", encoding="utf-8") as file:
        json.dump(engine.accountant.history, file)


class Forked:
    """A fork of this process, with the methods that tests/e2e expects of a process."""

    def __init__(self, run):
        self.process = FORK.Process(target=run)
        self.process.start()

    @property
    def returncode(self):
        return self.process.exitcode

    def poll(self):
        return self.process.exitcode

    def wait(self, patience):
        self.process.join(patience)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("opacus", patience)
        return self.process.exitcode

    def send_signal(self, _):
        self.process.kill()


class Opacus(private.Line):
    def start(self):
        self.process = Forked(self.run)
        return self

    def run(self):
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["LONGHAUL_LIBRARY"] = os.path.join(self.world.build, "worker", "client",
                                                      "liblonghaul.so.1")
        os.environ["LONGHAUL_SOCKET"] = os.path.join(self.worker.dir, "trainer.sock")
        warnings.simplefilter("ignore")
        train(self.world.terms, self.out)


@functools.lru_cache
def epsilons_of(sigma, rate, steps, delta):
    """Epsilon from Opacus' two accountants: close to the truth, and an upper bound."""
    prv, rdp = PRVAccountant(), RDPAccountant()
    prv.history = rdp.history = [(sigma, rate, steps)]
    return prv.get_epsilon(delta, eps_error=0.001), rdp.get_epsilon(delta)


def compare(play, loop):
    """Compares the worker's report of its region with Opacus' accountant."""
    terms, said = play.world.terms, loop.worker.last("privacy")
    with open(loop.out, encoding="utf-8") as file:
        (sigma, rate, counted), = json.load(file)
    check((sigma, rate) == (terms["sigma"], terms["rate"]), f"Opacus used {sigma}, {rate}: {terms}")
    charged = said["charged"]
    check(min(counted, STEPS) <= charged <= min(counted + LOCAL_STEPS + BLOCK, STEPS),
          f"Opacus counted {counted} steps, the worker charged {charged} of {STEPS}")
    prv, rdp = epsilons_of(sigma, rate, charged, terms["delta"])
    print(f"{loop.worker.name}: Opacus counted {counted} steps; charged {charged}: epsilon "
          f"{said['epsilon']:.4f}, by Opacus {prv:.4f} (PRV), {rdp:.4f} (RDP)")
    check(abs(said["epsilon"] - prv) <= TOLERANCE and said["epsilon"] < rdp, f"{said}")
    return counted


def main():
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--build", required=True, help="the build tree")
    given = flags.parse_args()
    torch.set_num_threads(1)
    with World(given.build, units=6, shards=private.SHARDS) as world:
        private.write_model(world)
        play = private.Play(world, "reported", STEPS, 3, Opacus)
        try:
            play.spend()
            spent = [compare(play, loop) for loop in play.loops]
        finally:
            play.close()
        check(max(spent) > STEPS // 2, "no loop came near its budget")
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
