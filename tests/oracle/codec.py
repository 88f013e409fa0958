#!/usr/bin/env python3
"""Compares every codec with PyTorch: selected values, their coded values, and the residual.

    codec.py [--tool PATH] [--values 100003] [--seed 1]

Selection by torch.topk; halves, rounding and sums in fp64 by torch. Levels, halves and fp32 must
agree in every bit, centroids to the last place of an fp16: their sums may be added in another
order. Exit code 1 if a value differs, or if a quantisation error is larger than theory says.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHUNK = 4096
CODECS = ("topk-sign", "topk-q4", "topk-fp16", "topk-fp32", "dense-sign", "dense-q4", "dense-fp32")
# Of gaussian values, squared error over squared norm: 1 - 2/pi for a sign and one centroid;
# step^2/12 for uniform levels up to a chunk's largest value, 3.3 to 4.8 deviations.
THEORY = {"sign": (0.35, 0.37), "q4": (0.015, 0.05), "fp16": (1e-9, 1e-6), "fp32": (0, 0)}


def deltas(n: int, seed: int) -> np.ndarray:
    """Gaussian, a different scale for each chunk, as layers have; in fp16's normal range."""
    rng = np.random.default_rng(seed)
    scale = np.repeat(rng.uniform(0.5, 2, n // CHUNK + 1), CHUNK)[:n]
    return (rng.standard_normal(n) * scale).astype("f4")


def largest(x: torch.Tensor, p: float) -> torch.Tensor:
    k = max(1, round(float(np.float32(p)) * len(x)))
    mask = torch.zeros(len(x), dtype=torch.bool)
    mask[x.abs().topk(k).indices] = True
    return mask


def half(x: float) -> float:
    return float(torch.tensor(x, dtype=torch.float64).clamp(max=65504).half())


def quantise(value: str, x: torch.Tensor) -> torch.Tensor:
    """x: the carried values of one chunk."""
    size, sign = x.abs(), torch.where(x < 0, -1.0, 1.0)
    mean = half(size.double().mean().item())
    if value == "sign":
        return sign * mean
    if value == "q4":
        scale = torch.tensor(half(size.max().item() / 7))
        return torch.clamp(torch.round(x / scale), -7, 7) * scale
    return x.half().float() if value == "fp16" else x


def reference(choice: str, value: str, p: float, x: torch.Tensor):
    carried = torch.ones(len(x), dtype=torch.bool)
    q = torch.zeros_like(x)
    for at in range(0, len(x), CHUNK):
        part = slice(at, at + CHUNK)
        if choice == "topk":
            carried[part] = largest(x[part], p)
        mine = carried[part]
        if mine.any():
            q[part][mine] = quantise(value, x[part][mine])
    return carried, q


def ask(tool, name: str, p: float, x: np.ndarray):
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        (where / "in").write_bytes(x.tobytes())
        subprocess.run([tool, "codec", name, repr(p), where / "in", where / "out"], check=True)
        answer = np.frombuffer((where / "out").read_bytes(), "<f4")
    return torch.tensor(answer[:len(x)]), torch.tensor(answer[len(x):])


def check(tool, choice: str, value: str, p: float, x: np.ndarray) -> bool:
    t = torch.tensor(x)
    carried, want = reference(choice, value, p, t)
    q, left = ask(tool, f"{choice}-{value}", p, x)
    if value == "sign":
        same = bool(torch.all((q - want).abs() <= want.abs() * 2.0 ** -10))
    else:
        same = bool(torch.equal(q, want))
    rest = bool(torch.equal(left, torch.where(carried, t - q, t)))
    sent = t[carried].double()
    error = float(((sent - q[carried].double()) ** 2).sum() / (sent ** 2).sum())
    low, high = THEORY[value]
    good = same and rest and error <= high and (choice != "dense" or error >= low)
    print(f"{'ok' if good else 'FAILED'}: {choice}-{value}, {int(carried.sum())} of {len(x)} "
          f"carried, relative squared error {error:.2e}"
          + ("" if same else ", other values than PyTorch's")
          + ("" if rest else ", the residual is not what was not sent"))
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default=ROOT / "build/release/tests/oracle/oracle_answer")
    parser.add_argument("--values", type=int, default=100003)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    x = deltas(args.values, args.seed)
    cases = [(*name.split("-"), 1.0 if name.startswith("dense") else 1 / 64) for name in CODECS]
    return 0 if all([check(args.tool, *case, x) for case in cases]) else 1


if __name__ == "__main__":
    sys.exit(main())
