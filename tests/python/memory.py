#!/usr/bin/env python3
"""The memory that a loop of the package takes on its host: memory.py BUILD PACKAGE.

One region trains 10.2 million parameters in real programs until every state was copied, sent and
renewed. The worker's peak, and the memory of the loop's process beyond its own model, must stay
within worker/python/README.md#memory; both are printed.
"""
import os
import re
import subprocess
import sys

BUILD, PACKAGE = sys.argv[1:3]
sys.path.insert(0, PACKAGE)
os.environ["LONGHAUL_LIBRARY"] = os.path.join(BUILD, "worker", "client", "liblonghaul.so.1")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "tests", "e2e"))
import torch  # noqa: E402
from world import World, check, until  # noqa: E402

import longhaul  # noqa: E402

WIDTH = 3200
VALUES = WIDTH * WIDTH
PAGE = "worker/python/README.md"
FIXED = 48 << 20  # in the worker: code, libraries, the transport
LOOP = """
import os, sys, torch, longhaul
model = torch.nn.Linear({width}, {width}, bias=False, dtype=torch.{dtype})
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
draw = torch.randn_like(model.weight)
with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer, tokens_per_step=64) as run:
    state = run.client.state()
    print("shared", state.memory_bytes, "shadow", state.shadow_bytes, flush=True)
    while not run.finished:
        model.weight.grad = draw
        optimizer.step()
"""


def promised():
    """Bytes per parameter from the page: the worker's, shared, and in the loop for bf16."""
    with open(os.path.join(ROOT, PAGE), encoding="utf-8") as file:
        said = re.search(r"\| the worker \|[^|]*\| (\d+) \|\n\| of it, shared with the loop \|"
                         r"[^|]*\| (\d+) \|\n\| the loop, [^|]*\|[^|]*\| (\d+) \|", file.read())
    check(said, f"{PAGE} says nothing of memory")
    return [int(n) for n in said.groups()]


def run(dtype):
    """Gives the worker's peak, shared bytes and shadow bytes."""
    with World(BUILD) as world:
        longhaul.save_initial(torch.nn.Linear(WIDTH, WIDTH, bias=False), world.dir, shards=2)
        coordinator = world.coordinator(1, **{
            "coordinator.h_base": 4, "coordinator.data": "own"}).start().listening()
        servers = [world.server(i, coordinator).start().listening() for i in range(2)]
        worker = world.worker("asia", coordinator, **{
            "trainer.kind": "external"}).start()
        said = world.path("loop.log")
        with open(said, "wb") as log, subprocess.Popen(
                [world.program("longhaul"), "run", "--config", world.path(worker.name + ".yaml"),
                 "--", sys.executable, "-c", LOOP.format(width=WIDTH, dtype=dtype)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": PACKAGE}) as loop:
            try:
                until("cuts and snapshots come", lambda: loop.poll() is not None or (
                    worker.status().get("trainer", {}).get("cuts", 0) > 12 and
                    worker.status().get("snapshots", 0) > 1), 120)
                world.tool("drain", "run", "--end", *world.admin(coordinator))
                loop.wait(120)
            finally:
                loop.kill()
        with open(said, encoding="utf-8") as file:
            text = file.read()
        check(loop.returncode == 0, f"the loop ended with {loop.returncode}:\n{text[-3000:]}")
        worker.must_end(120)
        peak = worker.status()["peak_bytes"]
        for node in (coordinator, *servers):
            node.must_stop()
    shared, shadow = map(int, re.search(r"shared (\d+) shadow (\d+)", text).groups())
    return peak, shared, shadow


def main():
    worker, shared, beside = promised()
    for dtype in ("float32", "bfloat16"):
        peak, mapped, shadow = run(dtype)
        print(f"{dtype}: the worker's peak {peak / VALUES:.1f} bytes a parameter "
              f"({(peak - FIXED) / VALUES:.1f} over {FIXED >> 20} MiB), of it shared "
              f"{mapped / VALUES:.2f}; the loop's {shadow / VALUES:.1f}")
        check(peak <= worker * VALUES + FIXED, f"{peak} bytes, {worker} a parameter promised")
        check(peak > mapped > 12 * VALUES, f"{mapped} bytes shared can't be")
        check(mapped <= shared * VALUES + (1 << 20), f"{mapped} bytes shared, {shared} a parameter "
              "promised")
        check(shadow == (beside * VALUES if dtype == "bfloat16" else 0), f"{shadow} bytes")
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
