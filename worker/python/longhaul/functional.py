"""Functional: joins a run from a loop that never writes its arrays in place (JAX, NumPy)."""
from __future__ import annotations

import typing

import numpy

from . import arguments, errors, parameters
from . import client as _client
from .diloco import AsyncDiLoCo

Arrays = typing.Dict[str, typing.Any]


class Functional(AsyncDiLoCo):
    """A loop passes step() its parameters after a step, and gets those for the next one::

        with longhaul.Functional(longhaul.Client.from_env(), arrays) as run:
            arrays = run.arrays                   # the run's parameters, as NumPy arrays
            while not run.finished:
                arrays = run.step(update(arrays), tokens=...)
        final = run.arrays

    If no cut or renewal is due, step() returns its argument. Otherwise it copies the values through
    the client's own host memory: 4 bytes per value, in addition to the memory shared with the
    worker.

    :param arrays: names and arrays of the model. Only their shapes are used. The run's manifest
        must have the same names and shapes; it gives the order.
    :param options: options of :class:`AsyncDiLoCo`.
    """

    @staticmethod
    def _check(client: object, *_: object) -> None:
        arguments.must_be_client("Functional(client, arrays)", client)

    def __init__(self, client: _client.Client, arrays: Arrays, **options: typing.Any):
        arguments.must_have("Functional(client, arrays)", "arrays", arrays, ("items", "keys"),
                            "a mapping from names to arrays")
        super().__init__(client, None, None, hook=False, **options)
        self._held: Arrays = {n: numpy.zeros(numpy.shape(a), numpy.float32)
                              for n, a in arrays.items()}
        self._given: Arrays | None = None  # the loop's next parameters; None: those in _held

    @property
    def arrays(self) -> Arrays:
        """Copies of the current parameters, as NumPy arrays."""
        now = self._held if self._given is None else self._given
        return {n: numpy.array(a, numpy.float32) for n, a in now.items()}

    def _describe(self) -> list[parameters.Described]:
        names: typing.Iterable[str] = self._held
        if self.manifest:
            wanted = parameters.shapes_of(parameters.read_manifest(self.manifest))
            mine = {n: a.shape or (1,) for n, a in self._held.items()}
            other = sorted(n for n in {*mine, *wanted} if mine.get(n) != wanted.get(n))
            if other:
                raise errors.ModelError(f"{other[0]} is {mine.get(other[0])} here and "
                                        f"{wanted.get(other[0])} in {self.manifest}")
            names = wanted
        for name in names:
            a = self._held[name]
            self.client.parameter(name, a.shape, a.ctypes.data, dtype=_client.FP32, owner=a)
        return []

    def _begin(self) -> None:
        self._given = None
        super()._begin()

    def _hold(self) -> None:
        for name, a in (self._given or {}).items():
            numpy.copyto(self._held[name], a)

    def step(self, arrays: Arrays, tokens: int | None = None) -> Arrays:  # type: ignore[override]
        """Takes the parameters after an optimizer step, gives those for the next step."""
        self._given = arrays
        super().step(tokens)  # type: ignore[arg-type]
        return self.arrays if self._given is None else self._given

    def _act(self, due: _client.Due) -> None:
        if due & (_client.Due.RENEW | _client.Due.CUT):
            self._hold()
        super()._act(due)
        if due & _client.Due.RENEW:
            self._given = None

    def finish(self) -> None:
        """Makes the last cut and waits for the run's end. Then `arrays` has the final values."""
        self._hold()
        self._given = None
        super().finish()
