#!/usr/bin/env python3
"""Trains a small model of JAX on a text of this region's own, in a run.

    jax_loop.py --initial DIR       writes model.json and weights.bin, with which servers begin
    jax_loop.py TEXT OUT            trains; LONGHAUL_SOCKET names the worker's socket

The model guesses a byte from the eight before it. No unit is leased: the run ends by
`longhaul drain run --end`; OUT gets the final parameters (npz).
"""
import sys

import jax
import jax.numpy as jnp
import numpy as np

import longhaul

SEEN, WIDTH, BATCH = 8, 32, 64


def initial() -> dict:
    """The parameters that the run begins with, by name."""
    a, b, c = jax.random.split(jax.random.key(7), 3)
    return {"embedding": jax.random.normal(a, (256, WIDTH)) * 0.1,
            "hidden.weight": jax.random.normal(b, (SEEN * WIDTH, 2 * WIDTH)) * 0.05,
            "hidden.bias": jnp.zeros(2 * WIDTH),
            "out.weight": jax.random.normal(c, (2 * WIDTH, 256)) * 0.05}


def loss_of(p: dict, batch: jax.Array) -> jax.Array:
    """Mean nats per byte; a batch is (BATCH, SEEN + 1)."""
    x = p["embedding"][batch[:, :SEEN]].reshape(len(batch), -1)
    h = jax.nn.gelu(x @ p["hidden.weight"] + p["hidden.bias"])
    logits = jax.nn.log_softmax(h @ p["out.weight"])
    return -jnp.mean(jnp.take_along_axis(logits, batch[:, SEEN:], axis=1))


@jax.jit
def update(p: dict, batch: jax.Array) -> tuple:
    """One step of SGD."""
    loss, grad = jax.value_and_grad(loss_of)(p, batch)
    return {n: p[n] - 0.5 * grad[n] for n in p}, loss


def train(text: str, out: str) -> None:
    """Trains until the run ends."""
    data = np.fromfile(text, dtype=np.uint8)
    draw = np.random.default_rng()
    with longhaul.Functional(longhaul.Client.from_env(), initial()) as run:
        params, step = run.arrays, 0
        while not run.finished:
            at = draw.integers(0, len(data) - SEEN, BATCH)
            params, loss = update(params, data[at[:, None] + np.arange(SEEN + 1)].astype(np.int32))
            params = run.step(params, tokens=BATCH)
            step += 1
            if step % 50 == 0:
                print(f"loss {loss:.4f}", flush=True)
    np.savez(out, **run.arrays)


if __name__ == "__main__":
    if sys.argv[1] == "--initial":
        longhaul.save_arrays({n: np.asarray(a) for n, a in initial().items()}, sys.argv[2], 2)
    else:
        train(*sys.argv[1:3])
