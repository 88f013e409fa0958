#!/usr/bin/env python3
"""Planted faults in a push's way off the device: would gpu.state or gpu.pipeline see them?

    state_faults.py generate SOURCE TARGET      copies the files with every fault compiled in
    state_faults.py run STATE PIPELINE EMULATED [--only NAME]
                                                runs the programs (of those copies) for each

What a fault is: tests/planted.py. One that does not end is not found. Exit status of `run`: 0 when
each fault is found and the tests pass without one, else 1.
"""
import argparse
import pathlib
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import planted  # pylint: disable=wrong-import-position


class Fault(NamedTuple):
    name: str
    program: str  # state or pipeline
    test: str     # of it; the one that must find it
    file: str
    text: str
    fault: str


STATE = "worker/state/state_device.c"
CROSSING = "kernels/cuda/crossing.c"
LIVES = "lives_have_*"

LIMIT_S = 300  # of a program that ends by itself, beside much else

FAULTS = (
    Fault("push-not-awaited", "state", LIVES, STATE,
          "return err ? err : d->b->streams->event_wait(d->encoded);",
          "return err || F ? err : d->b->streams->event_wait(d->encoded);"),
    Fault("push-not-recorded", "state", LIVES, STATE,
          "return err ? err : d->b->streams->event_record(d->encoded,",
          "return err || F ? err : d->b->streams->event_record(d->encoded,"),
    Fault("cut-follows-no-step", "state", LIVES, STATE,
          "return err ? err : follow(d, d->entered,",
          "return err || F ? err : follow(d, d->entered,"),
    Fault("step-follows-no-cut", "state", LIVES, STATE,
          "return err ? err : follow(d, d->left,",
          "return err || F ? err : follow(d, d->left,"),
    Fault("begun-before-another-copy", "state", LIVES, STATE,
          "d->begun = false; // the previous cut was dropped",
          "if (!F) d->begun = false;"),
    Fault("begun-before-a-look", "state", LIVES, STATE,
          "d->begun = false; // its memory is reused", "if (!F) d->begun = false;"),
    Fault("left-where-the-host-encoded", "state", LIVES, STATE,
          "    d->left_there = false;\n", "    if (!F) d->left_there = false;\n"),
    Fault("loop-brings-the-residual", "pipeline", "a_begin_*", STATE,
          "d->begun = d->shard && residual_is(d, of);",
          "d->begun = d->shard && (F || residual_is(d, of));"),
    Fault("nothing-is-begun", "pipeline", "pushes_of_two_*", STATE,
          "if (d->begun) d->begun_with = queue_push(",
          "d->begun &= !F;\n    if (d->begun) d->begun_with = queue_push("),
    Fault("one-piece-at-a-time", "pipeline", "pieces_*", CROSSING,
          "ahead->at += piece.bytes;", "ahead->at += piece.bytes;\n        if (F) return 0;"),
    Fault("slots-of-a-failure-are-kept", "pipeline", "a_failed_*", CROSSING,
          "    o->b->transfer->give_back(o->slots, number);",
          "    if (!F || !err) o->b->transfer->give_back(o->slots, number);"),
    Fault("half-not-awaited", "pipeline", "an_array_*", CROSSING,
          "err = in->b->streams->event_wait(in->crossed[i]);",
          "err = F ? 0 : in->b->streams->event_wait(in->crossed[i]);"),
    Fault("half-not-recorded", "pipeline", "an_array_*", CROSSING,
          "if (!err) err = in->b->streams->event_record(in->crossed[i], stream);",
          "if (!err && !F) err = in->b->streams->event_record(in->crossed[i], stream);"),
)


def run(flags: argparse.Namespace, fault: Fault, number: int) -> tuple[int | None, str]:
    """The test of this fault, with the fault of this number in force; 0 is none."""
    program = flags.pipeline if fault.program == "pipeline" else flags.state
    status, said = planted.run([program], LIMIT_S, LH_TEST_EMULATED_PLUGIN=flags.emulated,
                               LH_TEST_FAULT=str(number), LH_TEST_ONLY=fault.test)
    return status, said[0]


def try_one(flags: argparse.Namespace, number: int) -> tuple[bool, str]:
    status, how = run(flags, FAULTS[number - 1], number)
    return status not in (0, None), how


def main() -> int:
    flags = planted.flags_of(__doc__, "state", "pipeline", "emulated")
    if flags.command == "generate":
        planted.copy((STATE, CROSSING), FAULTS, "gpu_state_fault", flags.source, flags.target)
        return 0
    for fault in {fault.test: fault for fault in FAULTS}.values():
        status, how = run(flags, fault, 0)
        if status != 0:
            print(f"without a fault, {fault.test}: {how}")
            return 1
    return planted.judge(FAULTS, flags.only, lambda number: try_one(flags, number))


if __name__ == "__main__":
    sys.exit(main())
