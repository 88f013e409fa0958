#!/usr/bin/env python3
"""loop.py's fine-tune in a run, by transformers' Trainer, on this region's own units.

    trainer.py join BASE UNITS OUT --budget N --region NAME     LONGHAUL_SOCKET names the worker

The Trainer brings its own data, so the run leases no unit (`coordinator.data: own`).
"""
import argparse

import torch
from transformers import Trainer, TrainingArguments

from longhaul.hf import LonghaulCallback
from loop import BATCH, load, own_sequences, say_peak


class Sequences(torch.utils.data.Dataset):
    """Each sequence is a sample."""

    def __init__(self, sequences: list[torch.Tensor]):
        self.sequences = sequences

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, i: int) -> dict:
        return {"input_ids": self.sequences[i], "labels": self.sequences[i]}


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("what", choices=("join",))
    flags.add_argument("base")
    flags.add_argument("units")
    flags.add_argument("out")
    flags.add_argument("--budget", type=int, required=True, help="tokens of the run")
    flags.add_argument("--region", required=True)
    flags.add_argument("--rate", type=float, default=2e-3)
    flags.add_argument("--length", type=int, default=256)
    flags.add_argument("--dtype", default="float32")
    given = flags.parse_args()
    arguments = TrainingArguments(
        given.out, per_device_train_batch_size=BATCH, learning_rate=given.rate, use_cpu=True,
        max_steps=1_000_000, logging_steps=4, save_strategy="no", report_to=[], disable_tqdm=True,
        dataloader_drop_last=True)
    trainer = Trainer(load(given.base, given.dtype), arguments, train_dataset=Sequences(
        own_sequences(given.units, given.region, given.length, given.budget)))
    # A restarted loop begins with the optimizer's state that it kept beside the worker's socket.
    LonghaulCallback(BATCH * given.length, total_tokens=given.budget, keep=True,
                     keep_every=1).attach(trainer)
    trainer.train()
    trainer.save_model(given.out)
    say_peak()


if __name__ == "__main__":
    main()
