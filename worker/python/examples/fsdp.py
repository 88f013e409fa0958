#!/usr/bin/env python3
"""Fine-tunes a model that FSDP2 shares out over the ranks of this host, on a text of its own.

    torchrun --nproc-per-node 2 fsdp.py MODEL TEXT OUT [KEPT] [--offload]

LONGHAUL_SOCKET names the worker's socket. KEPT: where each rank keeps the optimizer's state of its
rows, for a loop that starts again. --offload: parameters, gradients and the optimizer's state stay
in the host's memory, and a layer is on the GPU only while it is used; AdamW steps on the CPU.

Each rank gives the worker its own rows; no rank gathers the model before the end. The text's bytes
are the tokens. No unit is leased: the run ends by `longhaul drain run --end`.
"""
import itertools
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from transformers import AutoModelForCausalLM

import longhaul

LENGTH, BATCH = 64, 4


def batches(path: str, rank: int, ranks: int):
    """Every rank's own pieces of the text, again and again."""
    with open(path, "rb") as file:
        data = file.read()
    size = LENGTH * BATCH
    for i in itertools.cycle(range(rank, len(data) // size, ranks)):
        yield torch.tensor(list(data[i * size:(i + 1) * size])).view(BATCH, LENGTH)


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--offload"]
    source, text, out, *kept = words
    device = "cuda" if torch.cuda.is_available() else "cpu"
    offload = (OffloadPolicy() if words == sys.argv[1:]
               else CPUOffloadPolicy(pin_memory=device == "cuda"))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank())
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).to(device)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, offload_policy=offload)
    fully_shard(model, mesh=mesh, offload_policy=offload)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer,
                              tokens_per_step=LENGTH * BATCH, keep=kept[0] if kept else None,
                              keep_every=1) as run:
        for batch in batches(text, dist.get_rank(), dist.get_world_size()):
            loss = model(input_ids=batch.to(device), labels=batch.to(device)).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if dist.get_rank() == 0:
                print(f"loss {loss.item():.4f}", flush=True)
            if run.finished:
                break
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True,
                                                                 cpu_offload=True))
    if dist.get_rank() == 0:
        model.save_pretrained(out, state_dict=state)
    dist.destroy_process_group()
    if device == "cpu":  # gloo's threads may yet release tensors: not after the interpreter ended
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
