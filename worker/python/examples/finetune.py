#!/usr/bin/env python3
"""Fine-tunes a causal language model of Hugging Face's on a text: finetune.py MODEL DATA OUT.

An ordinary script, with nothing of a run in it; the text's bytes are the tokens. finetune.diff
brings it into a run: `patch finetune.py finetune.diff`. DATA is a text before, and the run's
units.json afterwards.
"""
import sys

import torch
from transformers import AutoModelForCausalLM


def main() -> None:
    source, data, out = sys.argv[1:4]
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with open(data, "rb") as file:
        tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    batches = torch.utils.data.DataLoader(tokens.unfold(0, 64, 64), batch_size=4, shuffle=True)
    for batch in batches:
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.4f}", flush=True)
    model.save_pretrained(out)


if __name__ == "__main__":
    main()
