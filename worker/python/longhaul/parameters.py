"""A PyTorch model's parameters, as the run's manifest names them."""
from __future__ import annotations

import json
import os
import sys
import typing

from . import client as _client
from . import errors

if typing.TYPE_CHECKING:
    import torch

CHUNK = 4096
_WRAPPERS = ("module.", "_orig_mod.")  # DistributedDataParallel, torch.compile


def plain_name(name: str) -> str:
    """The name without what wrappers put before or into it."""
    for word in _WRAPPERS:
        name = name.replace(word, "") if word == "_orig_mod." else name
        while name.startswith(word):
            name = name[len(word):]
    return name


def _named(model: "torch.nn.Module") -> dict[str, "torch.nn.Parameter"]:
    return {plain_name(n): p for n, p in model.named_parameters(remove_duplicate=False)}


def _read_manifest(path: str) -> dict[str, tuple[int, ...]]:
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    return {t["name"]: tuple(t["shape"]) for t in document["tensors"]}


def of_run(model: "torch.nn.Module",
           manifest: str | None) -> list[tuple[str, "torch.nn.Parameter"]]:
    """Names and parameters in the manifest's order.

    Without a manifest: those that are trained (requires_grad), in the model's order, tied ones
    once. With one: those that it names; a trained parameter that it does not name is an error.
    """
    named = _named(model)
    if manifest is None:
        return [(plain_name(n), p) for n, p in model.named_parameters() if p.requires_grad]
    wanted = _read_manifest(manifest)
    missing = [n for n in wanted if n not in named]
    if missing:
        raise errors.ModelError(f"the model has no parameter {_some(missing)}, which {manifest} "
                                "names", errors.ModelError.code)
    held = {id(named[n]) for n in wanted}
    left = [n for n, p in named.items() if p.requires_grad and id(p) not in held]
    if left:
        raise errors.ModelError(
            f"{_some(left)} would be trained here and nowhere else: {manifest} does not name it; "
            "freeze it (requires_grad_(False)), or import the model anew", errors.ModelError.code)
    for name, shape in wanted.items():
        mine = tuple(named[name].shape) or (1,)
        if mine != shape:
            raise errors.ModelError(f"{name} is {mine} in the model and {shape} in {manifest}",
                                    errors.ModelError.code)
    return [(n, named[n]) for n in wanted]


def _some(names: typing.Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _place(parameter: "torch.nn.Parameter") -> tuple[typing.Any, ...]:
    return parameter.data_ptr(), parameter.dtype, parameter.device


class Described(typing.NamedTuple):
    """A parameter of the model, and where it lay when the client heard of it."""

    name: str
    parameter: "torch.nn.Parameter"
    place: tuple[typing.Any, ...]


def check_places(described: typing.Iterable[Described]) -> None:
    """The client reads and writes by address: a parameter that lies elsewhere by now is an error.
    model.to(), model.half() and parameter.data = ... move it."""
    moved = [d.name for d in described if _place(d.parameter) != d.place]
    if moved:
        raise errors.StateError(
            f"{_some(moved)} lies elsewhere than when the run began, or has another type: move and "
            "cast the model before AsyncDiLoCo, and change parameters in place afterwards",
            errors.StateError.code)


def describe(client: _client.Client, name: str,
             parameter: "torch.nn.Parameter") -> Described:
    """Describes one parameter of the model to the client, which keeps its memory until close()."""
    import torch  # pylint: disable=import-outside-toplevel

    if hasattr(parameter, "placements"):
        raise errors.UnsupportedError(
            f"{name} is a DTensor: sharded parameters (FSDP2, tensor parallel) can't be described "
            "yet; take DistributedDataParallel", errors.UnsupportedError.code)
    kinds = {torch.float32: _client.FP32, torch.bfloat16: _client.BF16}
    data = parameter.data
    if data.dtype not in kinds or not data.is_contiguous() or data.numel() == 0:
        raise errors.UnsupportedError(
            f"{name} is {data.dtype}, {'' if data.is_contiguous() else 'not '}contiguous, "
            f"{data.numel()} values: fp32 or bf16 values that lie contiguous can be trained",
            errors.UnsupportedError.code)
    if data.device.type not in ("cpu", "cuda"):
        raise errors.UnsupportedError(f"{name} lies on {data.device}: cpu and cuda can be trained",
                                      errors.UnsupportedError.code)
    cuda = data.device.type == "cuda"
    stream = torch.cuda.current_stream(data.device).cuda_stream if cuda else 0
    client.parameter(name, tuple(data.shape), data.data_ptr(), dtype=kinds[data.dtype],
                     memory=_client.CUDA if cuda else _client.HOST, stream=stream, owner=data)
    return Described(name, parameter, _place(parameter))


def save_initial(model: "torch.nn.Module", folder: str, shards: int = 1) -> int:
    """Writes model.json and weights.bin, with which the servers of a run begin; gives the values.

    They hold the parameters that are trained (requires_grad), so this also begins a run of
    adapters (PEFT). A model with a Hugging Face folder can be imported by `longhaul model import`
    instead. Names are at most 127 bytes long, tensors have at most 4 dimensions.
    """
    tensors = of_run(model, None)
    rows = []
    for name, p in tensors:
        if p.dim() > 4 or len(name.encode()) > 127:
            raise errors.ModelError(f"{name} has {p.dim()} dimensions: at most 4, and names of at "
                                    "most 127 bytes", errors.ModelError.code)
        rows.append({"name": name, "shape": list(p.shape) or [1]})
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "weights.bin"), "wb") as out:
        for _, p in tensors:
            values = p.detach().float().cpu().contiguous().view(-1).numpy()
            out.write((values if sys.byteorder == "little" else values.byteswap()).tobytes())
    with open(os.path.join(folder, "model.json"), "w", encoding="utf-8") as out:
        json.dump({"schema": "longhaul.manifest/1", "model": {}, "chunk": CHUNK,
                   "shards": shards, "tensors": rows}, out, indent=1)
    return sum(p.numel() for _, p in tensors)
