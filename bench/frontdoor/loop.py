#!/usr/bin/env python3
"""The training loop of one region, which bench/frontdoor.py starts for each region and arm.

A step is modelled: forward and backward of the real model over a few bytes, then a pause up to
`--step-ms` from its beginning, in which a GPU would compute and the processor has nothing to do;
then the optimizer's step with the arm's work. With `--modelled` nothing is computed, and the step
moves a part of the parameters, whose time is subtracted from the pause. Every h steps are a window,
and a line of JSON gives its time. The last line is the arm's proof; the loop ends when its input
ends.
"""
import argparse
import ctypes
import json
import sys
import time

import arms
import model as models
import torch


def flags():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arm", choices=[*arms.ARMS, "lighthouse"])
    parser.add_argument("--size", choices=[*models.SIZES, "bytes"], default="15m")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--regions", type=int, default=2)
    parser.add_argument("--modelled", action="store_true")
    parser.add_argument("--h", type=int, default=30)
    parser.add_argument("--step-ms", type=float, default=400)
    parser.add_argument("--delay", type=int, default=5)
    parser.add_argument("--text", help="of the size bytes: what it learns")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--bare", action="store_true", help="no memcpy beside longhaul's copies")
    parser.add_argument("--windows", type=int, default=0, help="0: until the arm says so")
    parser.add_argument("--address", help="of this region")
    parser.add_argument("--first", help="address of the first region")
    parser.add_argument("--hub", help="address of the third place")
    parser.add_argument("--peers", nargs="*", help="hivemind's, of the first region")
    parser.add_argument("--shards", type=int, default=2, help="of --initial")
    parser.add_argument("--initial", help="writes what servers begin with into a folder, and ends")
    return parser.parse_args()


def over(given, arm, n):
    """Whether all windows are trained, or the arm has finished."""
    return arm.finished or (given.windows and n == given.windows * given.h)


def train(given, model, optimizer, arm, text):
    """`late`: steps whose computation took longer than a modelled step."""
    draw = torch.Generator().manual_seed(100 * given.seed + given.rank)
    lasts = optimizer.lasts if given.modelled else lambda: 0.0
    began, late, n = time.monotonic(), 0, 0
    while not over(given, arm, n):
        start = time.monotonic()
        batch = text.drawn(text.train, models.Bytes.batch, draw) if text else \
            torch.randint(256, (models.BATCH, models.LENGTH), generator=draw)
        if not given.modelled:
            model(batch).backward()
        arm.beside(n)
        rest = start + given.step_ms / 1e3 - lasts() - time.monotonic()
        late += rest < 0
        time.sleep(max(0.0, rest))
        optimizer.step()
        optimizer.zero_grad()
        n += 1
        arm.after_step(n)
        if n % given.h == 0:
            now = time.monotonic()
            print(json.dumps({"window": n // given.h, "seconds": now - began, "late": late,
                              **arm.spent()}), flush=True)
            began, late = now, 0


def main():
    given = flags()
    torch.set_num_threads(1)
    ctypes.CDLL(None).prctl(29, 1)  # PR_SET_TIMERSLACK: a pause ends in time, not 50 us later
    if given.arm == "lighthouse":
        with arms.lighthouse(given.address, given.regions):
            print("listening", flush=True)
            sys.stdin.read()
        return
    model = models.make(given.size, given.seed)
    if given.initial:
        import longhaul

        longhaul.save_initial(model, given.initial, shards=given.shards)
        return
    optimizer = models.Modelled(model.parameters(), given.h) if given.modelled else \
        torch.optim.AdamW(model.parameters(), lr=models.Bytes.rate if given.text else 1e-4)
    arm = arms.ARMS[given.arm](given, model, optimizer)
    arm.begin()
    text = models.Text(given.text) if given.text else None
    train(given, model, optimizer, arm, text)
    count = sum(parameter.numel() for parameter in model.parameters())
    said = {"proof": arm.proof(), "parameters": count}
    if text:
        said["loss"] = text.loss(model)
    print(json.dumps(said), flush=True)
    sys.stdin.read()  # no region exits while another still needs it
    arm.close()


if __name__ == "__main__":
    main()
