"""Compares the parameters that a loop leaves with to the run's final ones, which the worker wrote
(final.weights), by name."""
from __future__ import annotations

import logging
import os
import time
import typing

from . import errors, parameters

if typing.TYPE_CHECKING:
    import torch

_log = logging.getLogger("longhaul")
FILE = "final.weights"
_PATIENCE_S = 60.0
_PIECE = 1 << 22  # values compared at once


def _age(path: str) -> float | None:
    """Gives the time of the file's last write; None: the file does not exist."""
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return None


def _differs(file: typing.BinaryIO, at: int, values: "torch.Tensor") -> bool:
    """Does one of the values differ from the file, where they begin at `at`?"""
    import torch  # pylint: disable=import-outside-toplevel

    file.seek(4 * at)
    for first in range(0, values.numel(), _PIECE):
        part = values[first:first + _PIECE]
        bytes_ = bytearray(file.read(4 * part.numel()))
        if len(bytes_) != 4 * part.numel():
            return True
        theirs = torch.frombuffer(bytes_, dtype=torch.float32).to(part.dtype)
        mine = part.contiguous()
        if not torch.equal(mine.view(torch.uint8), theirs.view(torch.uint8)) and \
                not torch.equal(mine, theirs):  # -0 equals 0
            return True
    return False


def differing(path: str, described: typing.Sequence[parameters.Described]) -> list[str]:
    """Names the parameters that differ from the file, in the order of the run."""
    found = []
    with open(path, "rb") as file:
        at = 0
        for d in described:
            p = d.parameter if d.copy is None else d.copy
            local = getattr(p, "_local_tensor", p).detach()
            first = parameters.held(d.name, p).first or 0
            if local.numel() and _differs(file, at + first, local.cpu().reshape(-1)):
                found.append(d.name)
            at += p.numel()  # the whole parameter, if sharded, too
    return found


def check(described: typing.Sequence[parameters.Described], since: float) -> None:
    """Raises if parameters differ from the run's final ones, and names them. `since`: when the loop
    began. Skips a loop without a worker's directory beside it (ranks on another host)."""
    folder = os.path.dirname(os.environ.get("LONGHAUL_SOCKET", ""))
    path = os.path.join(folder, FILE)
    if not described or not os.path.isfile(os.path.join(folder, "identity")):
        return
    until = time.monotonic() + _PATIENCE_S
    while True:  # the worker writes the file at the end; an older one is of an earlier end
        written = _age(path)
        names = differing(path, described) if written else []
        if written and (not names or written >= since - 1):
            break
        if time.monotonic() > until:
            _log.warning("longhaul: the worker did not write %s, so the parameters are not "
                         "compared with it", path)
            return
        time.sleep(0.1)
    if names:
        raise errors.StateError(
            f"{parameters.some(names)} of the model is not what the run ended with ({path}): it "
            "was changed while the loop left the run. Save what `longhaul export` makes of the "
            "run, and look for what else writes to the parameters")
