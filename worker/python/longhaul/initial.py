"""What the servers of a run begin with: model.json and weights.bin."""
from __future__ import annotations

import json
import os
import typing

from . import arguments, errors, parameters

if typing.TYPE_CHECKING:
    import numpy
    import torch

CHUNK = 4096


def _check(name: str, dimensions: int) -> None:
    if dimensions > 4 or len(name.encode()) > 127:
        raise errors.ModelError(f"{name} has {dimensions} dimensions: at most 4, and names of at "
                                "most 127 bytes", errors.ModelError.code)


def save_arrays(arrays: "typing.Mapping[str, numpy.ndarray]", folder: str, shards: int = 1,
                model: dict[str, typing.Any] | None = None) -> int:
    """Writes model.json and weights.bin from arrays by name, as fp32; gives the number of values.

    For frameworks other than PyTorch (:class:`longhaul.Functional`). `model` is whatever should
    stand in model.json beside the tensors.
    """
    call = "save_arrays(arrays, folder)"
    arguments.must_have(call, "arrays", arrays, ("items", "values"),
                        "a mapping from names to arrays of NumPy")
    arguments.must_be_path(call, "folder", folder, "the folder that model.json is written into")
    arguments.must_be_number(call, "shards", shards, 1)
    rows, values = [], 0
    for name, a in arrays.items():
        _check(name, a.ndim)
        rows.append({"name": name, "shape": list(a.shape) or [1]})
        values += a.size
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "weights.bin"), "wb") as out:
        for a in arrays.values():
            out.write(a.astype("<f4").tobytes())
    with open(os.path.join(folder, "model.json"), "w", encoding="utf-8") as out:
        json.dump({"schema": "longhaul.manifest/1", "model": model or {}, "chunk": CHUNK,
                   "shards": shards, "tensors": rows}, out, indent=1)
    return values


class _Trained(typing.Mapping):
    """The trained parameters as arrays, one at a time in memory."""

    def __init__(self, model: "torch.nn.Module"):
        self._named = dict(parameters.of_run(model, None))

    def __getitem__(self, name: str) -> "numpy.ndarray":
        return self._named[name].detach().float().cpu().contiguous().numpy()

    def __iter__(self) -> typing.Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)


def save_initial(model: "torch.nn.Module", folder: str, shards: int = 1) -> int:
    """Writes model.json and weights.bin, with which the servers of a run begin; gives the values.

    They hold the parameters that are trained (requires_grad), so this also begins a run of
    adapters (PEFT); model.json then knows the frozen ones by a digest, and a loop with another base
    is refused. Before fully_shard(). A model with a Hugging Face folder can be imported by
    `longhaul model import` instead. Names are at most 127 bytes long, tensors have at most 4
    dimensions.
    """
    arguments.must_be_model("save_initial(model, folder)", model)
    for name, p in model.named_parameters():
        if hasattr(p, "placements"):
            raise errors.UnsupportedError(f"{name} is shared out over ranks: save_initial() comes "
                                          "before fully_shard()", errors.UnsupportedError.code)
    frozen = any(not p.requires_grad for p in model.parameters())
    return save_arrays(_Trained(model), folder, shards,
                       {"base": parameters.digest_of_frozen(model)} if frozen else None)
