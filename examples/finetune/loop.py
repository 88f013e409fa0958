#!/usr/bin/env python3
"""Fine-tunes a model of Hugging Face's, in a run or alone: adapters (LoRA), or all of it (--full).

    loop.py join BASE UNITS OUT --budget N                  in a run, beside a worker
    loop.py alone BASE UNITS OUT --budget N --region NAME   by itself, on one region's units

UNITS is units.json of the data; LONGHAUL_SOCKET names the worker. Lines with `longhaul` are what a
run adds to an ordinary loop. Rates fall from --rate by a cosine over the budget: the run's, or the
loop's own.
"""
import argparse
import json
import os
import random
import resource

import peft
import torch
from transformers import AutoModelForCausalLM

import longhaul
from longhaul.data import read_tokens

BATCH = 2  # sequences of a step


def load(base: str, dtype: str = "float32", full: bool = False) -> torch.nn.Module:
    """The base in `dtype`, with fresh adapters in fp32: the same values in every region. `full`:
    the base alone, in fp32 and trained; its layers multiply in `dtype`."""
    torch.manual_seed(7)
    if full:
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        model.forward = torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16")(
            model.forward)
        return model
    model = AutoModelForCausalLM.from_pretrained(base, dtype=getattr(torch, dtype))
    return peft.get_peft_model(model, peft.LoraConfig(
        r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))


def own_sequences(units: str, region: str, length: int, tokens: int) -> list[torch.Tensor]:
    """Sequences of the region's own units, its languages by turns; of `tokens` tokens in all, or
    as many as there are."""
    with open(units, encoding="utf-8") as file:
        rows = [row for row in json.load(file)["units"] if row["home"] == region]
    by_language: dict[str, list] = {}
    for row in rows:
        by_language.setdefault(row["language"], []).append(row)
    turns = [row for several in zip(*by_language.values()) for row in several]
    found = []
    for row in turns:
        ids = torch.tensor(list(read_tokens(os.path.join(os.path.dirname(units), row["file"]),
                                            row["from"], row["tokens"])))
        found += ids[:len(ids) // length * length].view(-1, length).unbind()
        if len(found) * length >= tokens:
            break
    return found[:-(-tokens // length)]


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> float:
    """One ordinary step; its loss."""
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.4f}", flush=True)
    return loss.item()


def join(given: argparse.Namespace, model: torch.nn.Module,
         optimizer: torch.optim.Optimizer) -> None:
    """Trains the units that the run leases, until its budget is met."""
    client = longhaul.Client.from_env()
    rates = longhaul.schedule(optimizer, client, given.budget)
    # Adapters' moments are 20 MB a cut, those of the whole model 1.1 GB.
    with longhaul.AsyncDiLoCo(client, model, optimizer, keep=True,
                              keep_every=4 if given.full else 1) as run:
        for batch in longhaul.LeasedDataLoader(run, given.units, batch_size=BATCH,
                                               sequence_length=given.length):
            rates.step()
            run.report(loss=step(model, optimizer, batch))


def alone(given: argparse.Namespace, model: torch.nn.Module,
          optimizer: torch.optim.Optimizer) -> None:
    """Trains the budget's tokens of one region's units, each once."""
    sequences = own_sequences(given.units, given.region, given.length, given.budget)
    random.Random(0).shuffle(sequences)
    done = 0
    for at in range(0, len(sequences) - BATCH + 1, BATCH):
        batch = torch.stack(sequences[at:at + BATCH])
        for group in optimizer.param_groups:
            group["lr"] = given.rate * longhaul.cosine(done, given.budget)
        step(model, optimizer, batch)
        done += batch.numel()


def say_peak() -> None:
    """The last line of a loop's log, which finetune.py reads."""
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} KiB", flush=True)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("what", choices=("join", "alone"))
    flags.add_argument("base")
    flags.add_argument("units")
    flags.add_argument("out")
    flags.add_argument("--budget", type=int, required=True, help="tokens")
    flags.add_argument("--region")
    flags.add_argument("--rate", type=float, default=2e-3)
    flags.add_argument("--length", type=int, default=256)
    flags.add_argument("--dtype", default="float32", help="of the frozen base, everywhere")
    flags.add_argument("--full", action="store_true", help="train all of the model, not adapters")
    given = flags.parse_args()
    model = load(given.base, given.dtype, given.full)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=given.rate)
    (join if given.what == "join" else alone)(given, model, optimizer)
    model.save_pretrained(given.out)
    say_peak()


if __name__ == "__main__":
    main()
