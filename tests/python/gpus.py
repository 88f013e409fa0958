#!/usr/bin/env python3
"""accelerate shards a model (FSDP) only if it finds GPUs. As a program, gpus.py SCRIPT WORD... runs
a script whose accelerate takes each rank's CPU for one."""
import contextlib
import runpy
import sys
from unittest import mock

import torch
from accelerate import DistributedType, PartialState


def _the_cpu(state):
    state.device = torch.device("cpu")


@contextlib.contextmanager
def as_if_there_were_gpus():
    """The two places in which accelerate looks for GPUs find some; the rest is unchanged."""
    with mock.patch.object(PartialState, "_prepare_backend",
                           lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)), \
            mock.patch.object(PartialState, "set_device", _the_cpu):
        yield


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    torch.distributed.init_process_group("gloo")
    with as_if_there_were_gpus():
        runpy.run_path(sys.argv[0], run_name="__main__")
