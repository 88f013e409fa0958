#!/usr/bin/env python3
"""Fine-tunes with transformers' Trainer on a text of this region's own, in a run.

    trainer.py MODEL TEXT OUT [KEPT]        LONGHAUL_SOCKET names the worker's socket

The text's bytes are the tokens, as `longhaul data prepare` makes them. The lines with `longhaul`
are what a run adds. KEPT: where the optimizer's state is kept, for a script that starts again. No
unit is leased: the run ends with its budget, or by `longhaul drain run --end`.
"""
import os
import sys

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from longhaul.hf import LonghaulCallback

LENGTH, BATCH = 64, 4


class Bytes(torch.utils.data.Dataset):
    """Pieces of the text, each a sample."""

    def __init__(self, path: str):
        with open(path, "rb") as file:
            self.data = file.read()

    def __len__(self) -> int:
        return len(self.data) // LENGTH

    def __getitem__(self, i: int) -> dict:
        ids = torch.tensor(list(self.data[i * LENGTH:(i + 1) * LENGTH]))
        return {"input_ids": ids, "labels": ids}


def main() -> None:
    source, text, out, *kept = sys.argv[1:5]
    ranked = {"ddp_backend": "gloo"} if "LOCAL_RANK" in os.environ else {}  # under torchrun
    trainer = Trainer(
        AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32),
        TrainingArguments(out, per_device_train_batch_size=BATCH, learning_rate=1e-3,
                          max_steps=1_000_000, logging_steps=20, save_strategy="no",
                          report_to=[], use_cpu=True, disable_tqdm=True, **ranked),
        train_dataset=Bytes(text))
    LonghaulCallback(tokens_per_step=BATCH * LENGTH, keep=kept[0] if kept else None,
                     keep_every=1).attach(trainer)  # of longhaul: joins the run
    trainer.train()
    trainer.save_model(out)


if __name__ == "__main__":
    main()
