"""The parameters of a PyTorch model, by their names in the run's manifest."""
from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import typing

from . import client as _client
from . import errors, lanes

if typing.TYPE_CHECKING:
    import torch

_Value = typing.TypeVar("_Value")
# An optimizer's fp32 copies, by parameter. None, or no entry: the optimizer has none.
Masters = typing.Union[None, typing.Mapping[typing.Any, typing.Any],
                       typing.Callable[[typing.Any], typing.Any]]


def bare(pairs: typing.Iterable[tuple[str, _Value]]) -> dict[str, _Value]:
    """Removes from names the parts that wrappers add: DistributedDataParallel (module.) and Opacus
    (_module.) before all names, torch.compile (_orig_mod.) and activation checkpointing inside."""
    named = {}
    for name, value in pairs:
        for wrapper in ("_orig_mod.", "_checkpoint_wrapped_module."):
            name = name.replace(wrapper, "")
        named[name] = value
    for wrapper in ("module.", "_module."):
        while named and all(n.startswith(wrapper) for n in named):
            named = {n[len(wrapper):]: value for n, value in named.items()}
    return named


def _names(model: "torch.nn.Module", ties: bool) -> dict[str, "torch.nn.Parameter"]:
    """Gives parameters by name. `ties`: tied ones under each of their names."""
    return bare(model.named_parameters(remove_duplicate=not ties))


def names_of(model: "torch.nn.Module") -> dict[str, "torch.nn.Parameter"]:
    """Gives parameters by name, without the parts that wrappers add. Tied ones have all names."""
    return _names(model, ties=True)


def shapes_of(manifest: dict[str, typing.Any]) -> dict[str, tuple[int, ...]]:
    """Gives the names and shapes of the tensors of a model.json, in its order."""
    return {t["name"]: tuple(t["shape"]) for t in manifest["tensors"]}


def read_manifest(path: str) -> dict[str, typing.Any]:
    """Reads a run's model.json."""
    with open(path, encoding="utf-8") as file:
        try:
            document = json.load(file)
            shapes_of(document)
        except (ValueError, KeyError, TypeError) as why:
            raise errors.ModelError(
                f"{path} is no model.json, which `longhaul model import` and save_initial() write "
                f"({type(why).__name__}: {why})") from why
    return document


def _prefixes(wanted: typing.Iterable[str], named: typing.Container[str],
              names: typing.Iterable[str]) -> typing.Iterator[tuple[str, str]]:
    """Gives pairs of prefixes: one that the model's names may have in addition, and one that the
    manifest's may. A wrapper adds the first; a file without a head lacks a part of the names."""
    first = next((n for n in wanted if n not in named), None)
    if first is None:
        return
    yield from ((n[:-len(first)], "") for n in names if n.endswith("." + first))
    parts = first.split(".")
    for i in range(1, len(parts)):
        yield "", ".".join(parts[:i]) + "."


def matched(wanted: typing.Iterable[str], named: typing.Mapping[str, _Value]) -> dict[str, str]:
    """Gives the model's name for each name of the manifest, if the model has one."""
    wanted = list(wanted)
    for more, less in [("", ""), *_prefixes(wanted, named, named)]:
        found = {}
        for n in wanted:
            bare = n[len(less):] if less and n.startswith(less) else n
            name = n if n in named else more + bare
            if name in named:
                found[n] = name
        if len(found) == len(wanted):
            return found
    return {n: n for n in wanted if n in named}


def _refuse(what: str, way: str) -> typing.NoReturn:
    raise errors.UnsupportedError(
        f"{what}: a model under {way} can't be trained in a run yet: take fully_shard() over one "
        "mesh of all ranks (Shard(0)), or whole parameters (DistributedDataParallel, "
        "one rank)")


def _by_fully_shard(model: "torch.nn.Module", name: str) -> bool:
    """Did fully_shard() (FSDP2) shard this parameter, as a part of one of its modules?"""
    modules = [model]
    for part in name.split(".")[:-1]:
        modules.append(getattr(modules[-1], part))
    return any(kind.__name__ == "FSDPModule" for m in modules for kind in type(m).__mro__)


def check_ways(model: "torch.nn.Module") -> None:
    """Refuses ways of sharding that the run can't train, and names them. held() refuses those that
    differ only in their meshes and placements."""
    for name, p in model.named_parameters():
        if hasattr(p, "ds_id"):
            _refuse(f"{name} is partitioned by DeepSpeed", "ZeRO-3")
        if getattr(p, "tensor_model_parallel", False):
            _refuse(f"{name} is a part of a tensor of Megatron's", "tensor parallel")
        if "_fsdp_wrapped_module." in name or getattr(p, "_is_flat_param", False) or \
                getattr(p, "_fsdp_flattened", False):
            _refuse(f"{name} is wrapped by FullyShardedDataParallel", "FSDP1")
        if hasattr(p, "placements") and not _by_fully_shard(model, name):
            _refuse(f"{name} is placed {p.placements}, and not by fully_shard()", "tensor parallel")


def check_optimizer(optimizer: "torch.optim.Optimizer | None") -> None:
    """Refuses an optimizer that changes parameters outside its step(): a boundary would come before
    the change. Otherwise ZeroRedundancyOptimizer works, as each rank holds all parameters."""
    if getattr(optimizer, "_overlap_with_ddp", False):
        raise errors.UnsupportedError(
            "ZeroRedundancyOptimizer(overlap_with_ddp=True) steps within the backward pass, where "
            "no boundary can be: leave overlap_with_ddp out")


def _kept_masters(optimizer: typing.Any) -> dict[int, "torch.Tensor"]:
    """Gives the masters that the optimizer itself keeps, by the parameter's id: apex keeps them in
    separate groups, Transformer Engine in the state."""
    found = {}
    groups = getattr(optimizer, "param_groups_master", None) or []
    for group, theirs in zip(getattr(optimizer, "param_groups", []), groups):
        for p, master in zip(group["params"], theirs["params"]):
            found[id(p)] = master
    for p, of in (getattr(optimizer, "state", None) or {}).items():
        for name, value in of.items() if isinstance(of, dict) else ():
            if "master" in str(name) and getattr(value, "ndim", 0):
                found[id(p)] = value
    return found


def masters_of(model: "torch.nn.Module", optimizer: "torch.optim.Optimizer | None",
               given: Masters = None) -> dict[int, "torch.Tensor"]:
    """Gives the fp32 copies that an optimizer steps on instead of parameters, by their ids.

    `given` names them. Otherwise they are searched where optimizers keep them: at the parameter
    (Megatron's `main_param`), in separate groups, in the optimizer's state.
    """
    if optimizer is None and given is None:
        return {}
    named: typing.Callable[[typing.Any], typing.Any]
    if given is not None:
        named = given if callable(given) else given.get
    else:
        kept = _kept_masters(optimizer)

        def named(p: typing.Any) -> typing.Any:
            own = getattr(p, "main_param", None)
            return kept.get(id(p)) if own is None else own
    return {id(p): master for p in model.parameters()
            if (master := named(p)) is not None and master is not p}


def check_masters(model: "torch.nn.Module", optimizer: "torch.optim.Optimizer | None",
                  masters: dict[int, "torch.Tensor"]) -> None:
    """Refuses an optimizer of tensors that are neither parameters of the model nor known masters,
    such as parameters from before fully_shard(). Other regions' updates would not reach them, and
    the optimizer's next step would overwrite the updates."""
    if optimizer is None:
        return
    known = {id(p) for p in model.parameters()} | {id(m) for m in masters.values()}
    others = [p for group in optimizer.param_groups for p in group["params"]
              if p.requires_grad and id(p) not in known]  # a layer-wise optimizer has a dummy
    if others:
        raise errors.ModelError(
            f"{len(others)} tensors of the optimizer are no parameters of the model, the first of "
            f"shape {tuple(others[0].shape)}: if they are fp32 masters, AsyncDiLoCo(masters=...) "
            "says of which parameter; else make the optimizer of the model's own parameters, and "
            "after fully_shard()")


def _check_master(name: str, parameter: "torch.nn.Parameter", master: "torch.Tensor") -> None:
    import torch  # pylint: disable=import-outside-toplevel

    mine = getattr(parameter, "placements", None)
    theirs = getattr(master, "placements", None)
    if master.dtype != torch.float32 or master.shape != parameter.shape or mine != theirs:
        raise errors.UnsupportedError(
            f"{name}: the optimizer's master of it is {master.dtype} of shape "
            f"{tuple(master.shape)}, and the parameter's shape is {tuple(parameter.shape)}: fp32 "
            "masters that are shared out as their parameters can be trained; leave the "
            "optimizer's master weights out")


def of_run(model: "torch.nn.Module",
           manifest: str | None) -> list[tuple[str, "torch.nn.Parameter"]]:
    """Gives the names and parameters of the run, in the manifest's order.

    Without a manifest: the trained parameters (requires_grad) in the model's order, tied ones once.
    With a manifest: the parameters that it names. A trained parameter that it does not name is an
    error. If it has a digest of the frozen parameters, other frozen values are an error.
    """
    check_ways(model)
    if not any(p.requires_grad for p in model.parameters()):
        raise errors.ModelError(
            "no parameter of the model is trained: it has none, or requires_grad is False for all "
            "of them (an adapter that is not active, a model under requires_grad_(False))")
    if manifest is None:
        return [(n, p) for n, p in _names(model, ties=False).items() if p.requires_grad]
    named = _names(model, ties=True)
    document = read_manifest(manifest)
    wanted = shapes_of(document)
    mine = matched(wanted, named)
    _check_all_there(model, wanted, mine, manifest)
    named = {**named, **{n: named[name] for n, name in mine.items()}}
    _check_ties({n: named[n] for n in wanted}, manifest)
    taken = {id(named[n]) for n in wanted}
    left = [n for n, p in named.items() if p.requires_grad and id(p) not in taken and p.numel()]
    if left:
        raise errors.ModelError(
            f"{some(left)} would be trained here and nowhere else: {manifest} does not name it; "
            "freeze it (requires_grad_(False)), or import the model anew")
    for name, shape in wanted.items():
        is_here = tuple(named[name].shape) or (1,)
        if is_here != shape:
            raise errors.ModelError(f"{name} is {is_here} in the model and {shape} in {manifest}")
    base = document.get("model", {}).get("base")
    if base is not None and base != digest_of_frozen(model):
        raise errors.ModelError(
            f"the model's frozen parameters or buffers are others than those that {manifest} was "
            "made with: every region loads the same base, of the same type")
    return [(n, named[n]) for n in wanted]


def _check_all_there(model: "torch.nn.Module", wanted: typing.Iterable[str],
                     mine: typing.Container[str], manifest: str) -> None:
    missing = [n for n in wanted if n not in mine]
    if not missing:
        return
    buffers = bare(model.named_buffers())
    ours = [n for n in missing if n in buffers]
    if ours:
        raise errors.ModelError(
            f"{some(ours)} is a buffer of the model and no parameter, and {manifest} names it: "
            "import the model again with --leave-out '" + "' --leave-out '".join(ours[:5]) + "'")
    raise errors.ModelError(
        f"the model has no parameter {some(missing)}, which {manifest} names: if the model "
        "has other names than its file, begin the run with longhaul.save_initial(model, "
        "folder)")


def _check_ties(named: dict[str, "torch.nn.Parameter"], manifest: str) -> None:
    """Refuses two tensors of the manifest that are one parameter here (tied): one of them would be
    lost."""
    first: dict[int, str] = {}
    for name, p in named.items():
        other = first.setdefault(id(p), name)
        if other != name:
            head = max(name, other, key=lambda n: ("head" in n, n == name))
            raise errors.ModelError(
                f"{name} and {other} are one parameter of the model (tied), and {manifest} names "
                f"both: import the model again with --leave-out '{head}'")


def digest_of_frozen(model: "torch.nn.Module") -> str:
    """Gives the BLAKE2b-256 of all untrained tensors in a checkpoint of the model, by name: a line
    of name, type and shape, then the values as in memory. Takes about a second per gigabyte.

    These are frozen parameters, persistent buffers, and the scales and code books of quantised
    layers: two bases with the same integers and other scales differ.
    """
    import torch  # pylint: disable=import-outside-toplevel

    digest = hashlib.blake2b(digest_size=32)
    trained = {n for n, p in _names(model, ties=True).items() if p.requires_grad}
    for name, value in sorted(bare(model.state_dict(keep_vars=True).items()).items()):
        if name in trained or not isinstance(value, torch.Tensor):
            continue
        for part, plain in _plain(name, value):
            digest.update(f"{part} {plain.dtype} {tuple(plain.shape)}\n".encode())
            digest.update(plain.cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _plain(name: str, value: "torch.Tensor") -> typing.Iterator[tuple[str, "torch.Tensor"]]:
    """Gives the plain tensors of a tensor: the tensor itself, or the parts of a quantised one."""
    value = value.detach()
    if hasattr(value, "full_tensor"):
        value = value.full_tensor()
    if not hasattr(value, "__tensor_flatten__"):
        yield name, value
        return
    for part in value.__tensor_flatten__()[0]:
        yield from _plain(f"{name}.{part}", getattr(value, part))


def some(names: typing.Sequence[str], most: int = 5) -> str:
    """Gives the first of these names, and the count of the others, as text."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def some_are(names: typing.Sequence[str]) -> str:
    """The same with its verb: "a is", "a, b are"."""
    return some(names) + (" is" if len(names) == 1 else " are")


class Held(typing.NamedTuple):
    """The part of a parameter that this rank holds: values `first` to `first` + `count`. Both 0:
    all of it. A count of 0 and `first` behind the last value: none."""

    data: "torch.Tensor"
    shape: tuple[int, ...]  # shape of the whole parameter
    first: int
    count: int


def held(name: str, parameter: "torch.Tensor") -> Held:
    """Gives this rank's part: all values, or the rows that FSDP2 (fully_shard) gave it."""
    data = parameter.detach()
    if not hasattr(data, "placements"):
        return Held(data, tuple(data.shape), 0, 0)
    from torch.distributed.tensor import Replicate, Shard  # pylint: disable=C0415

    names = tuple(data.device_mesh.mesh_dim_names or ())
    if "tp" in names or data.device_mesh.ndim != 1 or \
            type(data.placements[0]) not in (Replicate, Shard) or \
            (data.placements[0].is_shard() and data.placements[0].dim != 0):
        # fully_shard() has the mesh dimension of replicas first, and tensor parallel last
        hybrid = data.device_mesh.ndim == 2 and "tp" not in names and \
            data.placements[0].is_replicate() and type(data.placements[1]) is Shard
        _refuse(f"{name} is placed {data.placements} on a mesh of {data.device_mesh.ndim} "
                "dimensions", "hybrid sharding (HSDP)" if hybrid else "tensor parallel")
    shape, local = tuple(data.shape), data.to_local()
    if data.placements[0].is_replicate():
        return Held(local, shape, 0, 0)
    rows = -(-shape[0] // data.device_mesh.size())  # like torch.chunk
    row = math.prod(shape[1:])
    return Held(local, shape, min(shape[0], rows * data.device_mesh.get_local_rank()) * row,
                local.numel())


def _place(name: str, parameter: "torch.Tensor") -> tuple[typing.Any, ...]:
    data = held(name, parameter).data
    return data.data_ptr(), data.dtype, data.device


class Adder:
    """Adds corrections to a tensor on its device, on the stream that was current when the Adder was
    made. Only the corrections cross the bus, and no thread waits (lanes.py). The last call of a
    renewal has no values and queues the deferred additions."""

    def __init__(self, data: "torch.Tensor", lane: lanes.Lane | None = None):
        import torch  # pylint: disable=import-outside-toplevel

        self._torch, self._flat = torch, data.view(-1)
        self._lane = lane or (lanes.lane_of(data.device) if data.is_cuda else None)

    def __call__(self, first: int, count: int, entries: int, value: int, index: int) -> None:
        with self._torch.no_grad():
            if count:
                self._take(first, count, entries, value, index)
            elif self._lane:
                self._lane.flush()

    def _take(self, first: int, count: int, entries: int, value: int, index: int) -> None:
        to, values = self._flat[first:first + count], lanes.floats(value, entries)
        where = lanes.integers(index, entries) if index else None
        if self._lane is None:
            if where is None:
                to.add_(values)
            else:
                lanes.add_entries(to, where, values)
        elif where is None:
            self._lane.add_dense(to, values)
        else:
            self._lane.add_sparse(to, values, where)


class Shadow(Adder):
    """The fp32 shadow of a bf16 parameter, on the same GPU. The client reads and writes the shadow.
    worker/docs/0001-boundary.md#arithmetic has the rules. The results are bit by bit those of the
    client's pieces.c on the host."""

    def __init__(self, data: "torch.Tensor", lane: lanes.Lane | None = None):
        self.kept = data.float().view(-1)
        self._narrow = data.view(-1)
        super().__init__(self.kept, lane)

    def fill(self) -> None:
        """Rounds the shadow to the bf16 parameter, after the client wrote the shadow."""
        with self._torch.no_grad():
            self._narrow.copy_(self.kept)

    def _now(self, first: int, count: int) -> "torch.Tensor":
        """Gives the shadow plus the training since the last renewal."""
        kept, narrow = (of[first:first + count] for of in (self.kept, self._narrow))
        return kept + (narrow.float() - kept.to(narrow.dtype).float())

    def _keep(self, first: int, count: int) -> None:
        self.kept[first:first + count] = self._now(first, count)

    def _round(self, first: int, count: int) -> None:
        self._narrow[first:first + count] = self.kept[first:first + count]

    def _take(self, first: int, count: int, entries: int, value: int, index: int) -> None:
        act = self._lane.act if self._lane else lambda call: call()
        act(lambda: self._keep(first, count))
        if entries:
            super()._take(first, count, entries, value, index)
        act(lambda: self._round(first, count))

    def take(self, first: int, count: int, to: int, stream: int) -> None:
        """Copies the values for a cut, and changes nothing here."""
        on = self._torch.cuda.ExternalStream(stream, self.kept.device) if self._lane else None
        with self._torch.no_grad(), self._torch.cuda.stream(on):
            lanes.floats(to, count).copy_(self._now(first, count), non_blocking=True)


class Described(typing.NamedTuple):
    """A tensor that the client reads and writes, and its place when the client was told of it. It
    is a parameter of the model; or an fp32 master, with the parameter as its copy; or a shadow."""

    name: str
    parameter: "torch.Tensor"
    place: tuple[typing.Any, ...]
    copy: "torch.Tensor | None" = None
    shadow: Shadow | None = None


def copy_masters(described: typing.Iterable[Described]) -> None:
    """Copies masters to their parameters, like their optimizer, after the client wrote masters."""
    for d in described:
        if d.copy is not None:
            d.copy.detach().copy_(d.parameter.detach())


def fill_shadows(described: typing.Iterable[Described]) -> None:
    """Fills parameters from shadows, after the client wrote all values (beginning and end)."""
    for d in described:
        if d.shadow is not None:
            d.shadow.fill()


def check_places(described: typing.Iterable[Described]) -> None:
    """Refuses parameters that have moved, because the client reads and writes by address.
    model.to(), model.half() and parameter.data = ... move them."""
    moved = [d.name for d in described if _place(d.name, d.parameter) != d.place]
    if moved:
        raise errors.StateError(
            f"{some(moved)} lies elsewhere than when the run began, or has another type: move "
            "and cast the model before AsyncDiLoCo, and change parameters in place afterwards")


def describe(client: _client.Client, name: str, parameter: "torch.Tensor",
             master: "torch.Tensor | None" = None) -> Described:
    """Describes one parameter of the model, or its master, to the client, which keeps its memory
    until close()."""
    import torch  # pylint: disable=import-outside-toplevel

    if master is not None:
        _check_master(name, parameter, master)
        return describe(client, name, master)._replace(copy=parameter)
    mine = held(name, parameter)
    data = mine.data
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is not None and mesh.size() != client.ranks:
        raise errors.UnsupportedError(
            f"{name} is shared out over a mesh of {mesh.size()} ranks, and {client.ranks} train "
            "together: fully_shard() over all of them can be trained")
    kinds = {torch.float32: _client.FP32, torch.bfloat16: _client.BF16}
    if data.dtype not in kinds or not data.is_contiguous() or math.prod(mine.shape) == 0:
        raise errors.UnsupportedError(
            f"{name} is {data.dtype}, {'' if data.is_contiguous() else 'not '}contiguous, "
            f"{data.numel()} values: fp32 or bf16 values that lie contiguous can be trained")
    if data.device.type not in ("cpu", "cuda"):
        raise errors.UnsupportedError(f"{name} lies on {data.device}: cpu and cuda can be trained")
    cuda = _on_gpu(data)
    shadow = Shadow(data) if cuda and data.dtype == torch.bfloat16 and data.numel() and \
        client.takes is True else None
    if shadow is not None:
        data = shadow.kept
    client.parameter(name, mine.shape, data.data_ptr(), dtype=kinds[data.dtype],
                     memory=_client.CUDA if cuda else _client.HOST, first=mine.first,
                     count=mine.count, owner=data,
                     stream=torch.cuda.current_stream(data.device).cuda_stream if data.is_cuda
                     else 0,
                     **_ways(data, shadow, cuda))
    return Described(name, parameter, _place(name, parameter), shadow=shadow)


def _on_gpu(data: "torch.Tensor") -> bool:
    return data.device.type == "cuda"


def _ways(data: "torch.Tensor", shadow: Shadow | None, cuda: bool) -> dict[str, typing.Any]:
    """Gives the operations that PyTorch does instead of the library."""
    if shadow is not None:
        return {"add": shadow, "take": shadow.take}
    import torch  # pylint: disable=import-outside-toplevel

    return {"add": Adder(data) if cuda and data.dtype == torch.float32 else None}
