"""KeptState: keeps an optimizer's state in files, so that a restarted loop needs no warm-up.

The state holds no progress of the run, so it is not committed with a cut:
worker/docs/0001-boundary.md#state explains why that is enough.

 1. A file is replaced durably and as a whole: a kill leaves the old state or the new one.
 2. Several ranks continue from states of the same boundary, or all of them warm up: with different
    moments their replicas would differ. A kill may come after some ranks have written a state and
    before others have, so each of several ranks also keeps its previous state.
 3. A state is not kept if it, or a parameter, has a value that is not finite. The previous state
    stays. A kept state with such a value is not used.
 4. A rank keeps the values that it holds. If ranks hold other values at the restart (another number
    of ranks, another sharding), they warm up and log that.
"""
from __future__ import annotations

import contextlib
import logging
import os
import secrets
import typing

from . import client as _client
from . import errors, finite, group, parameters

if typing.TYPE_CHECKING:
    import torch

_log = logging.getLogger("longhaul")
_FAMILY = "longhaul.kept/"
_KIND = _FAMILY + "2"
_WHOLE = -1  # instead of the sharded dimension: every rank has all of it
_Document = typing.Dict[str, typing.Any]
_Mark = typing.Tuple[str, int, int]  # a boundary: random name of the processes, life, step


class _Offer(typing.NamedTuple):
    """The states from which a rank could continue."""

    draw: str            # random name of the processes that begin now; rank 0's counts
    marks: list[_Mark]   # newest first
    wrong: str | None    # a file that must be removed by hand
    why: str | None      # its state belongs to another run or to other ranks


class KeptState:
    """The files of one rank: `path`, with the rank's number appended if there are several.

    The script sets the parameter groups (rates, decay); only moments and step counts are restored.

    :param path: True: `optimizer.pt` in the worker's directory, which must exist at the first use.
    """

    def __init__(self, path: str | os.PathLike[str] | bool, client: _client.Client,
                 optimizer: "torch.optim.Optimizer", every: int,
                 ours: group.Together | None = None):
        if every < 1:
            raise ValueError("keep_every is at least 1")
        self._base = None if path is True else os.fspath(path)
        self._client, self._every, self._ours = client, every, ours
        # a ZeroRedundancyOptimizer holds the state of its rank's part of the parameters
        self._zero = hasattr(optimizer, "consolidate_state_dict")
        self._optimizer = optimizer.optim if self._zero else optimizer
        self._draw, self._life, self._cuts = "", 0, 0
        self._files: dict[_Mark, str] = {}
        self._others: str | None = None  # file kept by another number of ranks

    @property
    def path(self) -> str:
        """The path of this rank's file."""
        if self._base is None:
            self._base = _beside_worker()
        return self._base if self._client.ranks == 1 else f"{self._base}.{self._client.rank}"

    # ---- writing

    def cut(self, life: int, step: int, spoiled: typing.Sequence[str] = ()) -> None:
        """Called after a cut, at this step of this life. Keeps the state at every `every`-th cut of
        a life, which costs a write of it. If the write fails (disk full), the older state stays.
        `spoiled`: parameters that are not finite, so that the worker refuses the cut."""
        self._cuts = self._cuts + 1 if life == self._life else 1
        self._life = life
        if self._cuts % self._every:
            return
        if spoiled or not finite.state_is_finite(self._optimizer):
            _log.warning("longhaul: %s is not finite: the optimizer's state that was kept before "
                         "stays", parameters.some(spoiled) if spoiled else "the optimizer's state")
            return
        try:
            self._write((self._draw, life, step))
        except OSError as why:
            with contextlib.suppress(OSError):
                os.remove(self.path + ".tmp")
            _log.warning("longhaul: %s can't be written (%s): the optimizer's state that was kept "
                         "before stays, and training goes on", self.path, why)

    def _write(self, mark: _Mark) -> None:
        import torch  # pylint: disable=import-outside-toplevel

        state, shared = self._own()
        path = self.path
        document = {"kind": _KIND, "credited": self._client.credited(), "mark": mark,
                    "ranks": (self._client.rank, self._client.ranks), "zero": self._zero,
                    "shapes": self._shapes(), "held": self._held(), "state": state,
                    "shared": shared}
        with open(path + ".tmp", "wb") as file:
            try:
                torch.save(document, file)
            except RuntimeError as why:  # torch hides the failed write's error behind this one
                raise OSError(str(why.__context__ or why)) from why
            file.flush()
            os.fsync(file.fileno())
        if self._client.ranks > 1 and os.path.exists(path):
            os.replace(path, path + ".before")
        os.replace(path + ".tmp", path)
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._remove_others()

    def _remove_others(self) -> None:
        """Removes files of another rank count, whose next start would call them the newest."""
        if self._others and self._client.rank == 0:
            for path in (self._others, self._others + ".before"):
                with contextlib.suppress(OSError):
                    os.remove(path)
        self._others = None

    def _parameters(self) -> list["torch.nn.Parameter"]:
        """Gives the parameters in the order of a state_dict()."""
        return [p for group_ in self._optimizer.param_groups for p in group_["params"]]

    def _shapes(self) -> list[list[int]]:
        return [list(p.shape) for p in self._parameters()]

    def _held(self) -> list[tuple[int, int]]:
        """Gives the range of each parameter that this rank holds; 0 and 0: all."""
        return [parameters.held("a parameter of the optimizer", p)[2:] for p in self._parameters()]

    def _own(self) -> tuple[dict[int, typing.Any], list[typing.Any]]:
        """Gives the state with local tensors instead of DTensors, and a description of these."""
        state, shared = {}, []
        for i, of in self._optimizer.state_dict()["state"].items():
            state[i] = dict(of)
            for name, value in of.items():
                if not hasattr(value, "placements"):
                    continue
                shared.append((i, name, [_dimension(p) for p in value.placements],
                               list(value.shape), list(value.stride())))
                state[i][name] = value.to_local()
        return state, shared

    # ---- reading

    def _read(self, path: str, whole: bool) -> _Document:
        """Reads a kept state. `whole`: loads its tensors, which otherwise stay in the file."""
        import torch  # pylint: disable=import-outside-toplevel

        if not os.path.isfile(path):  # opening a FIFO would wait for ever
            raise errors.StateError(f"{path} is no file: name another one")
        try:
            kept = torch.load(path, map_location="cpu", weights_only=True, mmap=not whole)
        except Exception as why:  # torch raises many kinds
            raise errors.StateError(f"{path} can't be read ({why}): remove it, and the optimizer "
                                    "warms up") from why
        if not isinstance(kept, dict) or not str(kept.get("kind")).startswith(_FAMILY):
            raise self._foreign(path)
        return kept

    @staticmethod
    def _foreign(path: str) -> errors.StateError:
        return errors.StateError(f"{path} is of another model or optimizer: remove it, or name "
                                 "another file")

    def _judge(self, path: str, kept: _Document) -> str | None:
        """Gives the reason why the state can't be used here; None: it can be."""
        if kept["kind"] != _KIND:
            return f"{path} was kept by another version of this package"
        now = self._client.credited()
        mine = (self._client.rank, self._client.ranks)
        if tuple(kept["ranks"]) != mine:
            return (f"{path} was kept by rank {kept['ranks'][0]} of {kept['ranks'][1]}, and this "
                    f"is rank {mine[0]} of {mine[1]}")
        otherwise = f"{path} was kept while the parameters were shared out otherwise"
        if kept.get("zero", False) != self._zero:  # with one, each rank has only some parameters
            return otherwise
        if kept["shapes"] != self._shapes():
            raise self._foreign(path)
        if [tuple(h) for h in kept["held"]] != self._held():
            return otherwise
        if not all(finite.is_finite(v) for of in kept["state"].values() for v in of.values()):
            return f"{path} holds values that are not finite: it is left aside"
        if kept["credited"] > now:
            return (f"{path} was kept at {kept['credited']} tokens, and the run is at {now}: it is "
                    "another run's")
        return None

    def _look(self, path: str) -> str | None:
        """Notes a file if it exists. Gives the reason why it can't be used; None: no reason."""
        if not os.path.exists(path):
            return None
        kept = self._read(path, whole=False)
        why = self._judge(path, kept)
        if why is None:
            draw, life, step = kept["mark"]
            self._files[draw, life, step] = path
        return why

    def _look_at_others(self) -> str | None:
        """If this rank has no file: the reason why that of another rank count can't be used."""
        if os.path.exists(self.path):
            return None
        alone = self._client.ranks == 1
        other = self.path + ".0" if alone else self.path[:-len(f".{self._client.rank}")]
        if not os.path.exists(other):
            return None
        why = self._judge(other, self._read(other, whole=False))
        self._others = other
        return why

    def _offer(self) -> _Offer:
        """Gives this rank's states. Errors are in the offer, because other ranks need them."""
        draw, wrong, why = secrets.token_hex(8), None, None
        self._files = {}
        try:
            why = self._look(self.path) or self._look_at_others()
            if self._client.ranks > 1:
                before = self._look(self.path + ".before")
                why = why or (None if self._files else before)  # beside a newer one
        except (errors.StateError, ValueError) as error:
            wrong = str(error)
        return _Offer(draw, list(self._files), wrong, why)

    def restore(self) -> bool:
        """Restores the optimizer's kept state, once the run's parameters have arrived. False: none
        is of this run and these ranks. Every rank calls this and waits for the others."""
        offers = group.of_all(self._offer(), self._client.ranks, self._ours)
        self._draw = offers[0].draw
        wrong = next((o.wrong for o in offers if o.wrong), None)
        if wrong:
            raise errors.StateError(wrong)
        why = next((o.why for o in offers if o.why), None)
        common = [m for m in offers[0].marks if all(m in o.marks for o in offers)]
        if not why and not common and any(o.marks for o in offers):
            why = f"{self.path}: the ranks kept no state of the same boundary"
        if why:
            _log.warning("longhaul: %s; the optimizer warms up", why)
        if why or not common:
            return False
        self._go_on_from(common[0])
        return True

    def _go_on_from(self, mark: _Mark) -> None:
        kept = self._read(self._files[mark], whole=True)
        groups = self._optimizer.state_dict()["param_groups"]
        state = self._shared_out(kept)
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})
        self._restore_types(state)
        if self._files[mark] != self.path:  # a newer file that other ranks lack is replaced
            os.replace(self._files[mark], self.path)
        _log.warning("longhaul: the optimizer goes on from %s, kept at %d tokens", self.path,
                     kept["credited"])

    def _restore_types(self, state: dict[int, typing.Any]) -> None:
        """Keeps masters and moments in fp32, because torch's optimizers load a state in its
        parameter's type. Optimizers with their own load_state_dict() handle their moments' types.
        The masters' values come from the run."""
        import torch  # pylint: disable=import-outside-toplevel

        of_torch = type(self._optimizer).load_state_dict is torch.optim.Optimizer.load_state_dict
        for i, p in enumerate(self._parameters()):
            for name, value in state.get(i, {}).items():
                loaded = self._optimizer.state[p].get(name)
                if (of_torch or "master" in str(name)) and \
                        getattr(loaded, "dtype", None) != getattr(value, "dtype", None):
                    self._optimizer.state[p][name] = value.to(loaded.device)

    def _shared_out(self, kept: _Document) -> dict[int, typing.Any]:
        """Gives the kept state, with its DTensors restored."""
        state = kept["state"]
        if not kept["shared"]:
            return state
        import torch  # pylint: disable=import-outside-toplevel
        from torch.distributed.tensor import DTensor, Replicate, Shard  # pylint: disable=C0415

        of = self._parameters()
        for i, name, dimensions, shape, stride in kept["shared"]:
            state[i][name] = DTensor.from_local(
                state[i][name].to(of[i].device), of[i].device_mesh,
                [Replicate() if d == _WHOLE else Shard(d) for d in dimensions], run_check=False,
                shape=torch.Size(shape), stride=tuple(stride))
        return state


def _dimension(placement: typing.Any) -> int:
    """Gives the sharded dimension of a placement, or _WHOLE."""
    if placement.is_shard():
        return placement.dim
    if placement.is_replicate():
        return _WHOLE
    raise errors.UnsupportedError(f"keep: the optimizer has a state that is placed {placement}, "
                                  "which can't be kept: leave keep out")


def _beside_worker() -> str:
    folder = os.path.dirname(os.environ.get("LONGHAUL_SOCKET", ""))
    if not os.path.isfile(os.path.join(folder, "identity")):
        raise ValueError(f"keep=True: {folder or 'LONGHAUL_SOCKET'} is not a worker's "
                         "directory: name a file")
    return os.path.join(folder, "optimizer.pt")
