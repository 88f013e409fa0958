#!/usr/bin/env python3
"""Fine-tunes with a loop of accelerate on a text of this region's own, in a run.

    accelerate_loop.py MODEL TEXT OUT [KEPT]         LONGHAUL_SOCKET names the worker's socket
    accelerate launch --use_fsdp --fsdp_version 2 ... accelerate_loop.py ...

One rank or several: replicas, or a model that FSDP2 shares out. KEPT: where the optimizer's state
is kept, for a loop that starts again. The text's bytes are the tokens. Lines with `local` are what
a run adds. No unit is leased: the run ends by `longhaul drain run --end`.
"""
import os
import sys

import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

from longhaul.accelerate import LocalSGD

LENGTH, BATCH = 64, 4


def pieces(path: str) -> torch.Tensor:
    """The text as samples of so many bytes."""
    with open(path, "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    return data[:len(data) // LENGTH * LENGTH].view(-1, LENGTH).long()


def main() -> None:
    source, text, out, *kept = sys.argv[1:5]
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=not torch.cuda.is_available())
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, batches = accelerator.prepare(
        model, optimizer, torch.utils.data.DataLoader(pieces(text), BATCH, shuffle=True))
    with LocalSGD(accelerator, model, keep=kept[0] if kept else None, keep_every=1) as local:
        while not local.finished:
            for batch in batches:
                with accelerator.accumulate(model):
                    loss = model(input_ids=batch, labels=batch).loss
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
                    local.step(tokens=batch.numel())
                if accelerator.sync_gradients:
                    accelerator.print(f"loss {loss.item():.4f}", flush=True)
                if local.finished:
                    break
    state = accelerator.get_state_dict(model)
    accelerator.unwrap_model(model).save_pretrained(
        out, state_dict=state, is_main_process=accelerator.is_main_process)
    accelerator.end_training()
    if accelerator.device.type == "cpu":  # gloo's threads may outlive the interpreter's end
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
