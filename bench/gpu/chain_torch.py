#!/usr/bin/env python3
"""The codec's encode as a chain of PyTorch operations on a GPU: `chain_torch.py PARAMETERS`.

Prints GB/s, 12 bytes a parameter counted as bench/gpu/main.c does; status 77 where there is no
PyTorch, or none that sees a device. What is packed by our kernel stays tensors here.
"""
import statistics
import sys
import time

CHUNK, CARRIED, BETA = 4096, 64, 0.95


def main():
    try:
        import torch
    except ImportError:
        print("no PyTorch")
        return 77
    if not torch.cuda.is_available():
        print("PyTorch sees no device")
        return 77
    n = int(sys.argv[1]) // CHUNK * CHUNK
    e, d = (1e-3 * torch.randn(n, device="cuda") for _ in range(2))

    def encode():
        e.mul_(BETA).add_(d)
        chunks = e.view(-1, CHUNK)
        index = chunks.abs().topk(CARRIED, dim=1, sorted=False).indices
        value = chunks.gather(1, index)
        centroid = value.abs().mean(1, keepdim=True).half().float()
        sent = torch.where(value < 0, -centroid, centroid)
        chunks.scatter_add_(1, index, -sent)
        return index.to(torch.int16)

    rates = []
    with torch.inference_mode():
        for _ in range(10):
            torch.cuda.synchronize()
            start = time.perf_counter()
            encode()
            torch.cuda.synchronize()
            rates.append(12e-9 * n / (time.perf_counter() - start))
    print(f"{statistics.median(rates[2:]):.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
