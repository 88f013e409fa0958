"""Writes the initial model of a run, which its servers load: model.json and weights.bin."""
from __future__ import annotations

import json
import os
import typing

from . import arguments, errors, parameters

if typing.TYPE_CHECKING:
    import numpy
    import torch

CHUNK = 4096
_SHARDS = 4096  # LH_SHARDS_MAX


def _refuse(name: str, why: str) -> typing.NoReturn:
    raise errors.ModelError(f"{name} {why}")


def _check_shape(name: str, shape: typing.Sequence[int]) -> None:
    if len(name.encode()) > 127:
        _refuse(name, f"is a name of {len(name.encode())} bytes: at most 127 can be trained")
    if len(shape) > 4:
        _refuse(name, f"has {len(shape)} dimensions: tensors of at most 4 can be trained; make the "
                "parameter one of 4 dimensions, and view() it as it was where it is used")
    if 0 in shape:
        _refuse(name, f"of shape {tuple(shape)} has no values, so nothing of it can be trained: "
                "leave it out (of a module: requires_grad_(False))")


def _check_array(name: str, a: "numpy.ndarray") -> None:
    _check_shape(name, a.shape)
    if a.dtype.kind != "f" and a.dtype.name != "bfloat16":
        _refuse(name, f"is {a.dtype}: arrays of real floats can be trained")


def _check_finite(name: str, a: "numpy.ndarray", values: "numpy.ndarray") -> None:
    """`values`: the values of `a` in fp32."""
    import numpy  # pylint: disable=import-outside-toplevel

    fine = numpy.isfinite(values)
    if fine.all():
        return
    at = int(numpy.argmin(fine.reshape(-1)))
    was = a.reshape(-1)[at]
    what = f"is {was}, which is too large for fp32" if numpy.isfinite(float(was)) else f"is {was}"
    _refuse(name, f"is not finite: value {at} of it {what}. No region could train it")


def _check_shards(sizes: typing.Iterable[int], shards: int) -> None:
    chunks = sum(-(-size // CHUNK) for size in sizes)
    if shards > min(chunks, _SHARDS):
        raise errors.ModelError(
            f"{shards} shards are too many: the model has {chunks} chunks of up to {CHUNK} values "
            f"of one tensor, and each shard wants one at least: shards={min(chunks, _SHARDS)} or "
            "fewer")


def save_arrays(arrays: "typing.Mapping[str, numpy.ndarray]", folder: str, shards: int = 1,
                model: dict[str, typing.Any] | None = None) -> int:
    """Writes arrays as fp32 to model.json and weights.bin. Gives the number of values.

    For frameworks other than PyTorch (:class:`longhaul.Functional`). If an array can't be trained
    in a run, a ModelError names it, and nothing is written.

    :param arrays: names and arrays.
    :param folder: folder of the two files; it is created if missing.
    :param shards: number of shards of the run.
    :param model: facts to store as "model" in model.json; None: none.
    """
    call = "save_arrays(arrays, folder)"
    arguments.must_have(call, "arrays", arrays, ("items", "values"),
                        "a mapping from names to arrays of NumPy")
    arguments.must_be_path(call, "folder", folder, "the folder that model.json is written into")
    arguments.must_be_number(call, "shards", shards, 1)
    rows, sizes = [], []
    for name, a in arrays.items():
        _check_array(name, a)
        _check_finite(name, a, _as_fp32(a))
        rows.append({"name": name, "shape": list(a.shape) or [1]})
        sizes.append(a.size)
    if not rows:
        raise errors.ModelError("there is nothing to train: no array was given")
    _check_shards(sizes, shards)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "weights.bin"), "wb") as out:
        for a in arrays.values():
            out.write(_as_fp32(a).tobytes())
    with open(os.path.join(folder, "model.json"), "w", encoding="utf-8") as out:
        json.dump({"schema": "longhaul.manifest/1", "model": model or {}, "chunk": CHUNK,
                   "shards": shards, "tensors": rows}, out, indent=1)
    return sum(sizes)


def _as_fp32(a: "numpy.ndarray") -> "numpy.ndarray":
    import numpy  # pylint: disable=import-outside-toplevel

    with numpy.errstate(over="ignore"):
        return a.astype("<f4")


def _check_parameter(name: str, p: "torch.nn.Parameter") -> None:
    """Refuses a parameter that parameters.describe() would refuse later."""
    import torch  # pylint: disable=import-outside-toplevel

    if isinstance(p, torch.nn.parameter.UninitializedTensorMixin):
        _refuse(name, "has no shape yet: call the model once, and then save_initial()")
    if p.is_meta:
        _refuse(name, "has no values yet (it is on the meta device): load the model first")
    _check_shape(name, p.shape)
    if p.is_complex():
        _refuse(name, f"is {p.dtype}: real values can be trained; store the parameter "
                "as torch.view_as_real() gives it, and use torch.view_as_complex() of it")
    if p.dtype not in (torch.float32, torch.bfloat16):
        _refuse(name, f"is {p.dtype}: fp32 and bf16 can be trained: model.float() or "
                "model.bfloat16(), here and in every loop")
    if not p.is_contiguous():
        _refuse(name, f"is not contiguous in memory (strides {p.stride()}): "
                "model.to(memory_format=torch.contiguous_format), here and in every loop; "
                "parameter.data = parameter.data.contiguous() for a transposed one")


def _check_memory(named: typing.Mapping[str, "torch.nn.Parameter"]) -> None:
    at = sorted((p.data_ptr(), p.data_ptr() + p.numel() * p.element_size(), n)
                for n, p in named.items())
    for (_, end, one), (begin, _, other) in zip(at, at[1:]):
        if begin < end:
            _refuse(other, f"shares memory with {one}, and is another parameter: make it the same "
                    "one (module.weight = other.weight), or clone its values")


class _Trained(typing.Mapping):
    """Maps names of trained parameters to arrays. Converts each at its use, to save memory."""

    def __init__(self, model: "torch.nn.Module"):
        self._named = dict(parameters.of_run(model, None))
        for name, p in self._named.items():
            _check_parameter(name, p)
        _check_memory(self._named)

    def __getitem__(self, name: str) -> "numpy.ndarray":
        return self._named[name].detach().float().cpu().contiguous().numpy()

    def __iter__(self) -> typing.Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)


def save_initial(model: "torch.nn.Module", folder: str, shards: int = 1) -> int:
    """Writes model.json and weights.bin, the initial model of a run. Gives the number of values.

    They hold only trained parameters (requires_grad), so this also begins a run of adapters (PEFT).
    model.json then has a digest of the frozen ones, and a loop with another base model is refused.

    Call this before fully_shard(). `longhaul model import` does the same for a Hugging Face folder.
    Names have at most 127 bytes, tensors at most 4 dimensions. If a parameter can't be trained in a
    run, a ModelError names it, and nothing is written.

    :param folder: folder of the two files; it is created if missing.
    :param shards: number of shards of the run.
    """
    arguments.must_be_model("save_initial(model, folder)", model)
    for name, p in model.named_parameters():
        if hasattr(p, "placements"):
            raise errors.UnsupportedError(f"{name} is shared out over ranks: save_initial() comes "
                                          "before fully_shard()")
    frozen = any(not p.requires_grad for p in model.parameters())
    return save_arrays(_Trained(model), folder, shards,
                       {"base": parameters.digest_of_frozen(model)} if frozen else None)
