#!/usr/bin/env python3
"""Trains a small byte-level language model on the units that this region leases from the run.

    train.py UNITS OUT        `longhaul up` starts it, by the command in run.yaml

The lines with `longhaul` are the only ones that an ordinary loop lacks. You may change Model; then
make a new folder for the run (python3 -m longhaul.first).
"""
import sys

import torch

import longhaul


class Model(torch.nn.Module):
    """Predicts the next byte after each byte of a (sequences, bytes) tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(256, 64)
        self.memory = torch.nn.GRU(64, 128, batch_first=True)
        self.head = torch.nn.Linear(128, 256)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The mean loss, in nats a byte."""
        states, _ = self.memory(self.embedding(batch[:, :-1]))
        return torch.nn.functional.cross_entropy(self.head(states).transpose(1, 2), batch[:, 1:])


def main() -> None:
    units, out = sys.argv[1:]
    torch.set_num_threads(1)  # several regions share this machine
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer) as run:
        for batch in longhaul.LeasedDataLoader(run, units, batch_size=8, sequence_length=64):
            loss = model(batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"loss {loss.item():.4f}", flush=True)
            run.report(loss=loss)  # `longhaul up` and `longhaul top` show it
    torch.save(model.state_dict(), out)  # the run's final parameters, the same in every region


if __name__ == "__main__":
    main()
