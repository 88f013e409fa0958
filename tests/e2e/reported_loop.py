#!/usr/bin/env python3
"""A loop that makes its own training private: reported_loop.py SIGMA RATE CLIP, with
LONGHAUL_SOCKET.

The model of worker/client/examples/line.c in plain Python. Each step draws records, clips the
gradient of each, adds Gaussian noise, and ends with a boundary, as Opacus would do it.
"""
import array
import math
import random
import sys
import time

import longhaul

IN, OUT, RECORDS = 8, 4, 60


def gradient(values, record):
    """Gradient of one record, unclipped. The target line is weight[o, i] = i - o, bias[o] = o."""
    draw = random.Random(record)
    x = [draw.uniform(-1, 1) for _ in range(IN)]
    out = array.array("d", [0.0] * len(values))
    for o in range(OUT):
        row = o * IN
        error = sum((values[row + i] - (i - o)) * x[i] for i in range(IN))
        error += values[OUT * IN + o] - o
        for i in range(IN):
            out[row + i] = error * x[i]
        out[OUT * IN + o] = error
    return out


def train(values, sigma, rate, clip):
    total = array.array("d", [0.0] * len(values))
    for record in range(RECORDS):
        if random.random() >= rate:
            continue
        one = gradient(values, record)
        norm = math.sqrt(sum(g * g for g in one))
        scale = min(1.0, clip / norm) if norm else 0.0
        for i, g in enumerate(one):
            total[i] += g * scale
    for i, g in enumerate(total):
        values[i] -= 0.01 * (g + random.gauss(0, sigma * clip)) / (rate * RECORDS)


def main():
    sigma, rate, clip = map(float, sys.argv[1:4])
    values = array.array("f", [0.0] * (IN * OUT + OUT))
    at, bias = values.buffer_info()[0], 4 * IN * OUT
    with longhaul.Client.from_env() as c:
        c.parameter("weight", (OUT, IN), at, owner=values)
        c.parameter("bias", (OUT,), at + bias, owner=values)
        while True:
            try:
                c.connect(60)
                c.start()
                c.noise(sigma, rate, clip)
                step, due = 0, longhaul.Due(0)
                while not due & longhaul.Due.DRAIN:
                    train(values, sigma, rate, clip)
                    time.sleep(0.02)  # about 50 steps a second
                    step += 1
                    due = c.boundary(step, 16)
                    if due & longhaul.Due.RENEW:
                        c.renew()
                    if due & longhaul.Due.CUT:
                        c.cut()
                    if due & longhaul.Due.WAIT:
                        c.wait(1)
                c.finish(240)
                return
            except longhaul.RestartError:
                continue


if __name__ == "__main__":
    main()
