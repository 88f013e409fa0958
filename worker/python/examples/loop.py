#!/usr/bin/env python3
"""Fine-tunes a causal language model of Hugging Face's on the units that the run leases here.

    loop.py MODEL UNITS OUT        LONGHAUL_SOCKET names the worker's socket

MODEL is the folder that the run began from, UNITS the run's units.json; OUT gets the final model.
Lines with `longhaul` are what a run adds to an ordinary loop.
"""
import argparse

import torch
from transformers import AutoModelForCausalLM

import longhaul


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("model")
    flags.add_argument("units")
    flags.add_argument("out")
    flags.add_argument("--rate", type=float, default=1e-3)
    flags.add_argument("--batch", type=int, default=4)
    flags.add_argument("--length", type=int, default=64)
    flags.add_argument("--accumulate", type=int, default=1, help="batches of a step")
    flags.add_argument("--keep", nargs="?", const=True, help="keep the optimizer's state for a "
                       "loop that starts again: in this file, or in the worker's directory")
    given = flags.parse_args()

    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.rate)
    with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer,
                              keep=given.keep, keep_every=1) as run:
        batches = longhaul.LeasedDataLoader(run, given.units, batch_size=given.batch,
                                            sequence_length=given.length)
        for i, batch in enumerate(batches, 1):
            loss = model(input_ids=batch, labels=batch).loss
            (loss / given.accumulate).backward()
            if i % given.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
            print(f"loss {loss.item():.4f}", flush=True)
    model.save_pretrained(given.out)


if __name__ == "__main__":
    main()
