#!/usr/bin/env python3
"""Fine-tunes adapters of PEFT (LoRA) on the units that the run leases here; the base is frozen.

    lora.py --initial DIR BASE      writes model.json and weights.bin, with which servers begin
    lora.py BASE UNITS OUT          trains; LONGHAUL_SOCKET names the worker's socket

Only adapters travel. model.json knows the base by a digest: a region with another is refused.
"""
import sys

import peft
import torch
from transformers import AutoModelForCausalLM

import longhaul


def load(base: str) -> torch.nn.Module:
    """The base with fresh adapters, of which the run's take the place."""
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return peft.get_peft_model(model, peft.LoraConfig(
        r=8, lora_alpha=16, target_modules="all-linear",
        task_type="CAUSAL_LM"))


def train(base: str, units: str, out: str) -> None:
    """Trains until the run's budget is met."""
    model = load(base)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer) as run:
        for batch in longhaul.LeasedDataLoader(run, units, batch_size=4, sequence_length=64):
            loss = model(input_ids=batch, labels=batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"loss {loss.item():.4f}", flush=True)
    model.save_pretrained(out)


if __name__ == "__main__":
    if sys.argv[1] == "--initial":
        longhaul.save_initial(load(sys.argv[3]), sys.argv[2], shards=2)
    else:
        train(*sys.argv[1:4])
