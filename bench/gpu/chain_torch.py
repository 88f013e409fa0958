#!/usr/bin/env python3
"""The codec's encode as a chain of PyTorch operations on a GPU: `chain_torch.py PARAMETERS`.

The peer is the compiled chain (torch.compile), beside the eager one. Prints "compiled N GB/s, eager
M GB/s", counting 12 bytes a parameter as bench/gpu/main.c does; if torch.compile fails, "not
compiled" and the reason. Status 77 without PyTorch, or without a device that it sees. Values that
our kernel packs remain tensors here.
"""
import argparse
import statistics
import sys
import time

CHUNK, CARRIED, BETA = 4096, 64, 0.95


def rate(torch, encode, device, n):
    """The median of GB/s; two calls before the first are not counted (torch.compile compiles)."""
    e, d = (1e-3 * torch.randn(n, device=device) for _ in range(2))
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    rates = []
    for _ in range(10):
        wait()
        start = time.perf_counter()
        encode(torch, e, d)
        wait()
        rates.append(12e-9 * n / (time.perf_counter() - start))
    return statistics.median(rates[2:])


def encode_chain(torch, e, d):
    e.mul_(BETA).add_(d)
    chunks = e.view(-1, CHUNK)
    index = chunks.abs().topk(CARRIED, dim=1, sorted=False).indices
    value = chunks.gather(1, index)
    centroid = value.abs().mean(1, keepdim=True).half().float()
    sent = torch.where(value < 0, -centroid, centroid)
    chunks.scatter_add_(1, index, -sent)
    return index.to(torch.int16)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parameters", type=int)
    parser.add_argument("--device", default="cuda", help="cpu: to try this program")
    parser.add_argument("--compiler", default="inductor", help="torch.compile's backend")
    flags = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("no PyTorch")
        return 77
    if flags.device == "cuda" and not torch.cuda.is_available():
        print("PyTorch sees no device")
        return 77
    n = max(flags.parameters // CHUNK, 1) * CHUNK
    with torch.inference_mode():
        eager = rate(torch, encode_chain, flags.device, n)
        try:
            chain = torch.compile(encode_chain, backend=flags.compiler)
            compiled = f"compiled {rate(torch, chain, flags.device, n):.1f} GB/s"
        except Exception as err:  # pylint: disable=broad-exception-caught
            word = str(err).strip().splitlines()
            compiled = f"not compiled ({type(err).__name__}: {word[0] if word else ''})"
    print(f"{compiled}, eager {eager:.1f} GB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
