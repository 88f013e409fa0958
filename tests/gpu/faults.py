#!/usr/bin/env python3
"""Planted faults in what ranks on devices do together: would gpu.ranks_* see them?

    faults.py generate SOURCE TARGET            copies the files with every fault compiled in
    faults.py run PROGRAM EMULATED NCCL [--only NAME]
                                                runs PROGRAM (gpu_ranks, of those copies) for each

What a fault is: tests/planted.py. A test finds one by failing. Each is tried with devices whose
work is as late as it may be, which shows what is not waited for every time; then, if that found
nothing, with devices whose work comes in a random order. A rank that waits for ever shows only by
the time: a fault of which that is expected says so, and any other one that does not end is not
found. Exit status of `run`: 0 when each fault is found, 1 when one is not.
"""
import argparse
import pathlib
import sys
import time
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import planted  # pylint: disable=wrong-import-position


class Fault(NamedTuple):
    name: str
    over: str  # tcp or nccl
    test: str  # of gpu_ranks; the one that must find it
    file: str
    text: str
    fault: str
    hangs: bool = False  # it may show by a rank that waits for ever


COMM = "worker/ranks/comm/comm.c"
NCCL = "worker/ranks/comm/comm_nccl.c"
HOST = "worker/ranks/comm/comm_host.c"
PEER = "worker/ranks/peer.c"
LEADER = "worker/ranks/reduce_peers.c"
DEVICE = "worker/train/device.c"
READY = "worker/ranks/comm/ready.c"
FILES = (COMM, NCCL, HOST, PEER, LEADER, DEVICE, READY)

ORDERS = {"late": "1", "random": "0"}  # of what runs on a device: LH_SIMT_LATE (tests/simt)
LIMIT_S = 600  # of a program that ends by itself, beside much else

FAULTS = (
    Fault("sum-follows-nothing", "nccl", "buckets_*", NCCL,
          "device_err(d, wk_ready_follow(", "device_err(d, F ? 0 : wk_ready_follow("),
    Fault("copy-follows-nothing", "tcp", "buckets_*", HOST,
          "device_err(d, wk_ready_follow(", "device_err(d, F ? 0 : wk_ready_follow("),
    Fault("any-event-covers", "nccl", "buckets_*", READY,
          "while (r->final[at % WK_READY_EVENTS] < needed &&",
          "while (!F && r->final[at % WK_READY_EVENTS] < needed &&"),
    Fault("old-events-count", "nccl", "buckets_*", READY,
          "    r->first = r->next;\n", "    if (!F) r->first = r->next;\n"),
    Fault("final-not-recorded", "nccl", "buckets_*", DEVICE,
          "if (!t->err) t->err = wk_ready_record(",
          "if (!t->err) t->err = F ? 0 : wk_ready_record("),
    Fault("zeros-not-settled", "nccl", "empty_*", PEER,
          "if (p->conf.device) LH_TRY(wk_device_settle(",
          "if (p->conf.device && !F) LH_TRY(wk_device_settle("),
    Fault("bucket-one-off", "nccl", "fp32_*", COMM,
          "float *at = c->arrays.sum + from;",
          "float *at = c->arrays.sum + (F && from ? from - 1 : from);"),
    Fault("bucket-too-early", "nccl", "buckets_*", COMM,
          "bool is = c->final >= needed;", "bool is = F || c->final >= needed;", hangs=True),
    Fault("update-before-the-sum", "nccl", "fp32_*", NCCL,
          "if (done) break;", "if (done || F) break;"),
    Fault("sum-stays-on-the-host", "tcp", "fp32_*", COMM,
          "return crossed ? wk_comm_host_return(",
          "return crossed && !F ? wk_comm_host_return("),
    Fault("bf16-not-widened", "nccl", "bf16_*", NCCL,
          "    return convert(d, LK_GPU_FP32_OF_BF16,",
          "    return F ? LH_OK : convert(d, LK_GPU_FP32_OF_BF16,"),
    Fault("bf16-not-narrowed", "nccl", "bf16_*", NCCL,
          "LH_TRY(convert(d, LK_GPU_BF16_OF_FP32, bucket, narrow,",
          "if (!F) LH_TRY(convert(d, LK_GPU_BF16_OF_FP32, bucket, narrow,"),
    Fault("moments-not-given", "nccl", "a_killed_*", COMM,
          "if (!(a->there >> i & 1))",
          "if (F && i > 1) continue;\n        if (!(a->there >> i & 1))"),
    Fault("corrections-not-given", "nccl", "fp32_*", COMM,
          "if (!a->device) return c->ops->share(",
          "if (F && parts == 1) return LH_OK;\n    if (!a->device) return c->ops->share("),
    Fault("given-stays-on-the-host", "tcp", "fp32_*", HOST,
          "return c->rank ? copy_in(", "return c->rank && !F ? copy_in("),
    Fault("leader-not-cleared", "nccl", "a_killed_*", LEADER,
          "if (l->state.device) return wk_device_clear(",
          "if (l->state.device) return F ? LH_OK : wk_device_clear("),
    Fault("peer-not-cleared", "nccl", "fp32_*", PEER,
          "if (p->conf.device) return wk_device_clear(",
          "if (p->conf.device) return F ? LH_OK : wk_device_clear("),
    Fault("peer-not-updated", "nccl", "fp32_*", PEER,
          "return wk_device_apply(", "return F ? LH_OK : wk_device_apply("),
)


def run(flags: argparse.Namespace, fault: Fault, number: int, order: str,
        limit_s: float = LIMIT_S) -> tuple[int | None, str]:
    """The test of this fault with the fault of this number in force; 0 is none. Its exit status,
    None where it has not ended by then, and what it said."""
    over = {"LH_TEST_NCCL": flags.nccl} if fault.over == "nccl" else {}
    status, said = planted.run(
        [flags.program], limit_s, LH_TEST_FAULT=str(number), LH_TEST_ONLY=fault.test,
        LH_TEST_EMULATED_PLUGIN=over.get("LH_TEST_NCCL", flags.emulated),
        LH_SIMT_LATE=ORDERS[order], **over)
    errors = [line for line in said if line.startswith("ERROR")]
    return status, errors[0] if errors else said[0] if status is None else f"status {status}"


def try_one(flags: argparse.Namespace, number: int, order: str) -> tuple[bool, str]:
    """Was it found with its work in this order, and how?"""
    fault = FAULTS[number - 1]
    if not fault.hangs:
        status, how = run(flags, fault, number, order)
        return status not in (0, None), how
    began = time.monotonic()
    status, how = run(flags, fault, 0, order)
    if status != 0:
        return False, f"without a fault: {how}"
    # Much longer than it takes without the fault, however slow this machine is.
    status, how = run(flags, fault, number, order, max(20.0, 4 * (time.monotonic() - began)))
    return status != 0, how


def try_orders(flags: argparse.Namespace, number: int) -> tuple[bool, str]:
    """The same in each order until one finds it."""
    how = ""
    for order in ORDERS:
        found, how = try_one(flags, number, order)
        if found:
            return True, f"{order}: {how}"
    return False, how


def main() -> int:
    flags = planted.flags_of(__doc__, "program", "emulated", "nccl")
    if flags.command == "generate":
        planted.copy(FILES, FAULTS, "gpu_ranks_fault", flags.source, flags.target)
        return 0
    for fault in FAULTS[:2]:  # over NCCL and over TCP
        for order in ORDERS:
            status, how = run(flags, fault, 0, order)
            if status != 0:
                print(f"without a fault, {order}, over {fault.over}: {how}")
                return 1
    return planted.judge(FAULTS, flags.only, lambda number: try_orders(flags, number))


if __name__ == "__main__":
    sys.exit(main())
