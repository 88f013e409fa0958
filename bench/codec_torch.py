#!/usr/bin/env python3
"""The codec's encode as a chain of PyTorch operations: `codec_torch.py PARAMETERS REPEATS`.

Prints the median of its seconds. Feedback, the 64 largest magnitudes of each 4096, their centroid,
and the residual; indices and signs are left as tensors, so the packing that our codec does is not
counted. One thread, as in bench/codec.c.
"""
import statistics
import sys
import time

import torch

CHUNK, CARRIED, BETA = 4096, 64, 0.95


def encode(e: torch.Tensor, d: torch.Tensor):
    e.mul_(BETA).add_(d)
    chunks = e.view(-1, CHUNK)
    index = chunks.abs().topk(CARRIED, dim=1, sorted=False).indices
    value = chunks.gather(1, index)
    centroid = value.abs().mean(1, keepdim=True).half()
    negative = value < 0
    sent = torch.where(negative, -centroid.float(), centroid.float())
    chunks.scatter_add_(1, index, -sent)
    return index.to(torch.int16), negative, centroid


def main() -> None:
    parameters, repeats = (int(x) for x in sys.argv[1:])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    parameters -= parameters % CHUNK
    e, d = (1e-3 * torch.randn(parameters) for _ in range(2))
    seconds = []
    with torch.inference_mode():
        for i in range(repeats + 1):
            d = d.roll(4099)  # another delta, outside the clock
            start = time.thread_time()
            encode(e, d)
            seconds.append(time.thread_time() - start)
    print(statistics.median(seconds[1:]))


if __name__ == "__main__":
    main()
