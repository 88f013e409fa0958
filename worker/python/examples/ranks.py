#!/usr/bin/env python3
"""Fine-tunes a model on several ranks of this host, on the units that the run leases to them.

    torchrun --nproc-per-node 2 ranks.py MODEL UNITS OUT

LONGHAUL_SOCKET names the worker's socket. The ranks share the leased units; each unit is credited
once. Lines with `longhaul` are what a run adds to an ordinary loop of DistributedDataParallel.
"""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

import longhaul


def main() -> None:
    source, units, out = sys.argv[1:4]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank())
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).to(device)
    replicas = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer) as run:
        for batch in longhaul.LeasedDataLoader(run, units, batch_size=4, sequence_length=64):
            batch = batch.to(device)
            loss = replicas(input_ids=batch, labels=batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if dist.get_rank() == 0:
                print(f"loss {loss.item():.4f}", flush=True)
    if dist.get_rank() == 0:
        model.save_pretrained(out)
    dist.destroy_process_group()
    if device == "cpu":  # gloo's threads may yet release tensors: not after the interpreter ended
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
