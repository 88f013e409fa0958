"""Saves a model's buffers, such as BatchNorm's statistics. The run holds only parameters, so a loop
writes its buffers at the end, and `longhaul export` reads them."""
from __future__ import annotations

import json
import logging
import os
import typing

from . import parameters

if typing.TYPE_CHECKING:
    import torch

_log = logging.getLogger("longhaul")
FILE = "buffers.safetensors"


def _persistent(model: "torch.nn.Module") -> dict[str, "torch.Tensor"]:
    """Gives the buffers that the model's state_dict() contains."""
    mine = {id(b) for b in model.buffers()}
    return {n: b for n, b in parameters.bare(model.state_dict(keep_vars=True).items()).items()
            if id(b) in mine}


def _kinds() -> dict[typing.Any, str]:
    import torch  # pylint: disable=import-outside-toplevel

    return {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16",
            torch.float16: "F16", torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8",
            torch.bool: "BOOL"}


def write(path: str, tensors: typing.Mapping[str, "torch.Tensor"]) -> None:
    """Writes tensors in the safetensors format. Replaces an existing file atomically."""
    import torch  # pylint: disable=import-outside-toplevel

    kinds, head, at = _kinds(), {}, 0
    plain = {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
    for name, t in plain.items():
        end = at + t.numel() * t.element_size()
        head[name] = {"dtype": kinds[t.dtype], "shape": list(t.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".tmp", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for t in plain.values():
            file.write(t.reshape(-1).view(torch.uint8).numpy().tobytes())
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


class Handed:
    """Finds the buffers that a loop changed since its beginning."""

    def __init__(self, model: "torch.nn.Module | None"):
        self._model = model
        self._before = {} if model is None else {
            n: b.detach().clone().cpu() for n, b in _persistent(model).items()}

    def changed(self) -> dict[str, "torch.Tensor"]:
        """Gives the buffers that differ from the beginning."""
        if self._model is None:
            return {}
        now = {n: b.detach().cpu() for n, b in _persistent(self._model).items()
               if b.dtype in _kinds()}
        return {n: b for n, b in now.items() if n not in self._before or
                self._before[n].shape != b.shape or not self._before[n].equal(b)}

    def hand_over(self) -> None:
        """Writes the changed buffers into the worker's directory at the end of the run."""
        changed = self.changed()
        folder = os.path.dirname(os.environ.get("LONGHAUL_SOCKET", ""))
        if not changed:
            return
        what = (f"{len(changed)} buffers that training changed ({parameters.some(list(changed), 2)}"
                ") are this region's own")
        path = os.path.join(folder, FILE)
        if not os.path.isfile(os.path.join(folder, "identity")):
            _log.warning("longhaul: %s: `longhaul export --buffers` takes them from the model that "
                         "you save", what)
            return
        try:
            write(path, changed)
        except OSError as why:
            _log.warning("longhaul: %s, and %s can't be written (%s)", what, path, why)
            return
        _log.warning("longhaul: %s: they are in %s, where `longhaul export` finds them", what, path)
