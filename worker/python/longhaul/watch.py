"""Detects loops that train without boundaries, or train other parameters than the run's."""
from __future__ import annotations

import itertools
import operator
import typing

from . import errors, parameters

if typing.TYPE_CHECKING:
    import torch

_BATCHES = 256  # limit without a boundary: more than most loops accumulate
_REPEATED = 64  # the same limit while the loader repeats batches
_LOOKS = 4096   # limit of looks at `finished`: a loop may look several times per batch


class Patience:
    """Counts a loop's calls without a boundary, and raises if there are too many.

    The optimizer's step() is hooked. A loop that steps another optimizer, or none, never gets a
    boundary: nothing is cut or credited, and its units never become free.
    """

    def __init__(self, optimizer: object, batches: int | None, hooked: bool):
        self._kind = type(optimizer).__name__ if hooked else None
        self._optimizer, self._most = optimizer, batches
        self._ours: set[int] = set()
        self._looks = self._trained = 0
        self._steps: dict[int, int] = {}  # steps of other optimizers since a boundary, by id
        self._other: str | None = None
        self._batches = self._longest = 0  # batches of this step; most of an earlier step
        self._ever = self._over = False

    def begin(self, model: "torch.nn.Module | None") -> None:
        """Begins a life with these parameters."""
        self._ours = {id(p) for p in model.parameters()} if model is not None else set()
        self.boundary(False)
        self._longest = 0
        self._ever = self._over = False

    def boundary(self, step: bool) -> None:
        """Notes a boundary; `step`: it follows a step."""
        self._looks = self._trained = 0
        self._steps.clear()
        self._longest, self._batches = max(self._longest, self._batches), 0
        self._ever = self._ever or step

    def over(self) -> None:
        """Notes a step after the end: the loop should have left."""
        self._over = True

    def look(self) -> None:
        """Counts a look at `finished`."""
        self._looks += 1
        if self._looks > max(_LOOKS, 16 * (self._most or 0)):
            self._raise(f"{self._looks} looks at run.finished")

    def trained(self) -> None:
        """Counts a call of trained()."""
        self._trained += 1
        if self._trained > (self._most or _BATCHES):
            self._raise(f"{self._trained} calls of trained()")

    def handed(self, batches: int, again: bool) -> None:
        """Notes that a loader gives the loop its `batches`-th batch since the last step; `again`: a
        repeated one."""
        self._batches = batches - 1
        most = self._most or (max(_REPEATED, 2 * self._longest) if again else _BATCHES)
        if batches > most:
            self._raise(f"{batches} batches")

    def other(self, optimizer: typing.Any, *_: object) -> None:
        """Counts steps of other optimizers on the run's parameters."""
        if optimizer is self._optimizer or not any(
                id(p) in self._ours for group in optimizer.param_groups for p in group["params"]):
            return
        steps = self._steps[id(optimizer)] = self._steps.get(id(optimizer), 0) + 1
        self._other = type(optimizer).__name__
        if steps > (self._most or _BATCHES):
            self._raise(f"{steps} steps of another optimizer")

    def _raise(self, what: str) -> typing.NoReturn:
        if self._over:
            raise errors.StateError(
                f"{what} since the run needs no more steps: leave the loop once run.finished is "
                "true")
        if self._kind is None:
            way = "call run.step() after each step of the optimizer"
        else:
            way = (f"step() of the {self._kind} that AsyncDiLoCo was given "
                   f"{'was not called since' if self._ever else 'was never called'}"
                   + (f", and another optimizer ({self._other}) steps on the model's parameters"
                      if self._steps else "") +
                   ": pass the optimizer that steps, or hook=False and call run.step() after each "
                   "step")
        raise errors.StateError(
            f"{what} and no boundary: {way}. A loop that takes more batches for one step says so: "
            "AsyncDiLoCo(..., batches_per_step=N)")


_own = operator.attrgetter("_parameters")
_inner = operator.attrgetter("_modules")


class _Names:
    """The objects behind the modules' names. Every step compares them, so C functions do it."""

    def __init__(self, modules: list["torch.nn.Module"]):
        self._modules = modules
        dicts = self._dicts()
        self._sizes = list(map(len, dicts))
        self._keys = list(itertools.chain.from_iterable(dicts))
        self._values = [value for d in dicts for value in d.values()]

    def _dicts(self) -> list[dict[str, typing.Any]]:
        return [*map(_own, self._modules), *map(_inner, self._modules)]

    def same(self) -> bool:
        """True: each name still stands for the same object."""
        dicts = self._dicts()
        values = itertools.chain.from_iterable(map(operator.methodcaller("values"), dicts))
        return list(map(len, dicts)) == self._sizes and \
            list(itertools.chain.from_iterable(dicts)) == self._keys and \
            all(map(operator.is_, values, self._values))


class Parts:
    """Compares a model's modules and parameters to those at the beginning of a life.

    The client reads and writes by address, and the model is saved by name, so each name must stay
    the same parameter from the first step to the last. Costs about 0.4 microseconds per tensor.
    """

    def __init__(self, model: "torch.nn.Module", described: list[parameters.Described]):
        self._model = model
        self._ours = {id(p): d.name for p, d in self._pairs(described)}
        self._places = [(p, d) for p, d in self._pairs(described) if d.copy is None]
        self._names = parameters.names_of(model)
        self._learn()

    @staticmethod
    def _pairs(described: list[parameters.Described]) -> typing.Iterator[
            tuple["torch.Tensor", parameters.Described]]:
        """Gives the model's own parameters, also where masters are trained in their place."""
        for d in described:
            yield (d.parameter if d.copy is None else d.copy), d

    def _learn(self) -> None:
        self._then = _Names(list(self._model.modules()))
        self._frozen = [p for p in parameters.names_of(self._model).values()
                        if id(p) not in self._ours]

    def check(self) -> None:
        """Raises if a name has become another parameter, or if a parameter is trained only here."""
        if self._then.same() and not any(p.requires_grad for p in self._frozen):
            self._check_places()
            return
        now = parameters.names_of(self._model)
        self._check_names(now)
        self._learn()  # the same parameters in other modules, such as a new wrapper

    def _check_names(self, now: dict[str, "torch.nn.Parameter"]) -> None:
        gone = [n for n, p in self._names.items() if id(p) in self._ours and now.get(n) is not p
                and not hasattr(p, "placements")]  # fully_shard() replaces these
        if gone:
            raise errors.StateError(
                f"{parameters.some(gone)} of the model is no longer the parameter that it was "
                "when the run began (load_state_dict(assign=True), a new layer, a merged "
                "adapter): the run trains the original one. Change parameters in place "
                "(load_state_dict(), copy_()), and layers before AsyncDiLoCo")
        new = [n for n, p in now.items() if p.requires_grad and id(p) not in self._ours
               and not hasattr(self._names.get(n), "placements")]
        if new:
            raise errors.StateError(
                f"{parameters.some(new)} is trained since the run began (requires_grad), but "
                "no other region knows of it: what is trained has to be so before AsyncDiLoCo, and "
                "in the model that the run began with")

    def _check_places(self) -> None:
        for p, d in self._places:
            if getattr(p, "_local_tensor", p).data_ptr() != d.place[0]:
                parameters.check_places([d for _, d in self._places])
