#!/usr/bin/env python3
"""Compares the built-in trainer with PyTorch, and makes the committed fixtures.

    oracle.py check  [--tool PATH] [--dim 96 --layers 4 ... --seed 1]   any shape
    oracle.py init   [--tool PATH] [shape] [--seed 1]                   initial values, bit for bit
    oracle.py fixtures [--out tests/fixtures/trainer]                   regenerate

Exit code 1 when something differs by more than the bound.
"""
import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch

import reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOUND = 1e-5  # relative, norm-wise per tensor

SIZES = {"vocab": 256, "dim": 96, "layers": 4, "heads": 4, "kv_heads": 2, "ffn": 256,
         "context": 128}


# ---- cases --------------------------------------------------------------------------------------

def random_parameters(shape: dict, rng: np.random.Generator) -> np.ndarray:
    """Larger than a model's initial values, so that attention is far from uniform and every
    gradient matters."""
    parts = []
    for name, size in reference.tensors(shape):
        x = rng.standard_normal(math.prod(size))
        if "norm" in name:
            x = 1 + 0.2 * x
        elif name.endswith("bias"):
            x *= 0.5
        elif "embed" not in name:
            x /= math.sqrt(size[1])
        parts.append(x.astype("<f4"))
    return np.concatenate(parts)


def make_case(shape: dict, sequences: int, length: int, seed: int):
    rng = np.random.default_rng(seed)
    flat = random_parameters(shape, rng)
    ids = rng.integers(0, shape["vocab"], (sequences, length + 1)).astype("<u4")
    text = json.dumps({"model": {"architecture": "transformer", **shape}, "sequences": sequences,
                       "length": length}).encode()
    head = b"LKCASE1\n" + struct.pack("<I", len(text)) + text
    return flat, ids, head + ids.tobytes() + flat.tobytes()


def pack_answer(logits, nll: float, gradient) -> bytes:
    return (logits.astype("<f4").tobytes() + struct.pack("<d", nll)
            + gradient.astype("<f4").tobytes())


def distance(a: np.ndarray, b: np.ndarray) -> float:
    norm = np.linalg.norm(b)
    return float(np.linalg.norm(a.astype("f8") - b) / (norm if norm > 0 else 1))


# ---- commands -----------------------------------------------------------------------------------

def check(args: argparse.Namespace) -> bool:
    shape = shape_of(args)
    flat, ids, case = make_case(shape, args.sequences, args.length, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        (where / "case").write_bytes(case)
        subprocess.run([args.tool, "case", where / "case", where / "answer"], check=True)
        answer = (where / "answer").read_bytes()
    rows = args.sequences * args.length
    n = rows * shape["vocab"]
    logits = np.frombuffer(answer, "<f4", n)
    nll = struct.unpack_from("<d", answer, 4 * n)[0]
    gradient = np.frombuffer(answer, "<f4", len(flat), 4 * n + 8)

    solve = reference.solve_by_transformers if args.transformers else reference.solve
    want_logits, want_nll, want_gradient = solve(shape, flat, ids)
    distances = {"logits": distance(logits, want_logits.ravel()),
                 "nll": abs(nll - want_nll) / want_nll}
    at = 0
    for name, size in reference.tensors(shape):
        n = math.prod(size)
        distances[name] = distance(gradient[at:at + n], want_gradient[at:at + n])
        at += n
    worst = max(distances, key=distances.get)
    for name, value in distances.items():
        if value > BOUND or args.verbose:
            print(f"{value:.2e}  {name}")
    good = distances[worst] <= BOUND
    print(f"{'ok' if good else 'FAILED'}: {len(flat)} parameters, {rows} tokens, "
          f"logits {distances['logits']:.1e}, worst {distances[worst]:.1e} ({worst})")
    return good


GOLDEN = 0x9E3779B97F4A7C15


def mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def normal(seed: int, stream: int, std: float, n: int) -> np.ndarray:
    """kernels/layers/normal.c from its comment: the same operations and order, in numpy's fp64."""
    with np.errstate(over="ignore"):
        one = lambda x: mix(np.array([x % 2 ** 64], dtype=np.uint64))
        key = mix(np.uint64(seed) + one(stream + GOLDEN))
        counter = np.arange(n + n % 2, dtype=np.uint64)
        word = mix(key + (counter + np.uint64(1)) * np.uint64(GOLDEN)) >> np.uint64(11)
    u = (word[0::2] + np.uint64(1)).astype("f8") * 2.0 ** -53
    w = word[1::2].astype("f8") * 2.0 ** -53

    f, e = np.frexp(u)
    low = f < 0.70710678118654752
    f, e = np.where(low, f * 2, f), np.where(low, e - 1, e)
    t = (f - 1) / (f + 1)
    t2, s = t * t, np.zeros_like(t)
    for k in range(21, 2, -2):
        s = (s + 1.0 / k) * t2
    radius = np.sqrt(-2.0 * (2.0 * (t + t * s) + e * 0.69314718055994531))

    quarter = (4.0 * w + 0.5).astype("i8")
    x = (w - 0.25 * quarter) * 6.2831853071795865
    x2, c, s = x * x, np.zeros_like(x), np.zeros_like(x)
    for k in range(18, 1, -2):
        c = (1 - c) * (x2 / (k * (k - 1)))
    for k in range(17, 2, -2):
        s = (1 - s) * (x2 / (k * (k - 1)))
    c, s = 1 - c, x * (1 - s)
    q = quarter & 3
    cosine = np.choose(q, [c, -s, -c, s])
    sine = np.choose(q, [s, c, -s, -c])
    out = np.empty(n + n % 2)
    out[0::2], out[1::2] = std * (radius * cosine), std * (radius * sine)
    return out[:n].astype("f4")


def initial(shape: dict, seed: int) -> np.ndarray:
    parts = []
    for i, (name, size) in enumerate(reference.tensors(shape)):
        n = math.prod(size)
        if "norm" in name or name.endswith("bias"):
            parts.append(np.full(n, 1 if "norm" in name else 0, "f4"))
            continue
        out_of_half = "o_proj" in name or "down_proj" in name
        std = 0.02 / math.sqrt(2.0 * shape["layers"]) if out_of_half else 0.02
        parts.append(normal(seed, i, std, n))
    return np.concatenate(parts)


def init(args: argparse.Namespace) -> bool:
    shape = shape_of(args)
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        text = json.dumps({"architecture": "transformer", **shape})
        subprocess.run([args.tool, "init", text, str(args.seed), out], check=True)
        ours = np.frombuffer(out.read_bytes(), "<f4")
    want = initial(shape, args.seed)
    good = ours.tobytes() == want.tobytes()
    draws = normal(args.seed, 0, 1.0, 1 << 20).astype("f8")
    print(f"{'ok' if good else 'FAILED'}: {len(want)} initial values, bit for bit; of 2^20 draws "
          f"mean {draws.mean():+.4f}, variance {draws.var():.4f}, "
          f"kurtosis {np.mean(draws ** 4) / draws.var() ** 2:.4f}")
    return good


# ---- fixtures -----------------------------------------------------------------------------------

CASES = {  # name: shape, sequences, length, seed
    "mha-untied": ({"vocab": 61, "dim": 32, "layers": 2, "heads": 4, "kv_heads": 4, "ffn": 48,
                    "context": 24, "rope_theta": 10000.0, "rms_eps": 1e-6, "qkv_bias": False,
                    "tied": False}, 2, 19, 11),
    "gqa-bias-untied": ({"vocab": 50, "dim": 48, "layers": 2, "heads": 6, "kv_heads": 2, "ffn": 40,
                         "context": 32, "rope_theta": 1e6, "rms_eps": 1e-5, "qkv_bias": True,
                         "tied": False}, 3, 13, 12),
    "mqa-bias-tied": ({"vocab": 40, "dim": 24, "layers": 3, "heads": 3, "kv_heads": 1, "ffn": 56,
                       "context": 160, "rope_theta": 10000.0, "rms_eps": 1e-6, "qkv_bias": True,
                       "tied": True}, 1, 150, 13),
}


def optimizer_fixture(out: pathlib.Path) -> None:
    """Text: a header line, then per step the gradient's norm before clipping and p after the step.
    The test makes the same start and gradients by itself: x[i] = ((i * 7919 + step * 104729) % 2003
    - 1001) / 1001 with i from 0, step 0 for the parameters."""
    n, steps, matrix = 24, 20, 16  # the first 16 values decay, the others do not
    make = lambda step: torch.tensor(
        [((i * 7919 + step * 104729) % 2003 - 1001) / 1001 for i in range(n)], dtype=torch.float64)
    start = make(0).float().double()
    parts = [start[:matrix].clone().requires_grad_(), start[matrix:].clone().requires_grad_()]
    rate = lambda step: 0.01 / (1 + 0.1 * step)
    optimizer = torch.optim.AdamW(
        [{"params": [parts[0]], "weight_decay": 0.1}, {"params": [parts[1]], "weight_decay": 0.0}],
        lr=rate(1), betas=(0.9, 0.95), eps=1e-8)
    lines = [f"{n} {matrix} {steps} 0.9 0.95 1e-8 0.1 2.0"]
    for step in range(1, steps + 1):
        gradient = (make(step).float() * (1.0 if step % 3 else 0.1)).double()
        parts[0].grad, parts[1].grad = gradient[:matrix].clone(), gradient[matrix:].clone()
        norm = torch.nn.utils.clip_grad_norm_(parts, 2.0)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        values = torch.cat(parts).tolist()
        lines.append(" ".join(f"{x:.9g}" for x in [norm.item(), *values]))
    out.write_text("\n".join(lines) + "\n")


def schedule_fixture(out: pathlib.Path) -> None:
    """Lines: budget warmup peak min_ratio credited rate, from torch's own schedulers; one of their
    steps stands for 1,000 tokens."""
    lines = []
    for total, warm, peak, floor in ((200, 20, 3e-3, 0.1), (90, 0, 1e-3, 0.0), (100, 50, 1.0, 0.0)):
        p = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([p], lr=peak)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - warm, peak * floor)
        scheduler = cosine
        if warm:
            optimizer = torch.optim.SGD([p], lr=peak)
            linear = torch.optim.lr_scheduler.LinearLR(optimizer, max(floor, 0.01), 1.0, warm)
            cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - warm,
                                                                peak * floor)
            scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [linear, cosine], [warm])
        for step in range(total + 1):
            if step % 7 == 0 or step in (warm, total):
                lines.append(f"{total * 1000} {warm / total!r} {peak} {floor} {step * 1000} "
                             f"{optimizer.param_groups[0]['lr']:.17g}")
            optimizer.step()
            scheduler.step()
    out.write_text("\n".join(lines) + "\n")


def fixtures(args: argparse.Namespace) -> bool:
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    for name, (shape, sequences, length, seed) in CASES.items():
        flat, ids, case = make_case(shape, sequences, length, seed)
        (out / f"{name}.case").write_bytes(case + pack_answer(*reference.solve(shape, flat, ids)))
    optimizer_fixture(out / "adamw.txt")
    schedule_fixture(out / "schedule.txt")
    total = sum(f.stat().st_size for f in out.iterdir())
    print(f"{out}: {total / 1024:.0f} KiB")
    return total < 2 << 20


def shape_of(args: argparse.Namespace) -> dict:
    shape = {key: getattr(args, key) for key in SIZES}
    return {**shape, "rope_theta": args.rope_theta, "rms_eps": args.rms_eps,
            "qkv_bias": not args.no_qkv_bias, "tied": not args.untied}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("check", "init", "fixtures"))
    parser.add_argument("--tool", default=ROOT / "build/release/tests/oracle/oracle_answer")
    parser.add_argument("--out", default=ROOT / "tests/fixtures/trainer")
    for key, value in SIZES.items():
        parser.add_argument("--" + key.replace("_", "-"), type=int, default=value)
    parser.add_argument("--rope-theta", type=float, default=10000.0)
    parser.add_argument("--rms-eps", type=float, default=1e-6)
    parser.add_argument("--no-qkv-bias", action="store_true")
    parser.add_argument("--untied", action="store_true")
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transformers", action="store_true",
                        help="compare with Hugging Face's Qwen2 or Llama (needs transformers)")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    return 0 if {"check": check, "init": init, "fixtures": fixtures}[args.command](args) else 1


if __name__ == "__main__":
    sys.exit(main())
