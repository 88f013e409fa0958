"""Finds values that are not finite (NaN, infinite), and lets a loop recover from them.

The worker refuses a cut with such a value, so other regions never see one. The optimizer's moments
would make the first step of the next life not finite, too. So they are replaced by the last kept
state, or cleared.
"""
from __future__ import annotations

import logging
import typing

from . import errors, parameters

if typing.TYPE_CHECKING:
    import torch

_log = logging.getLogger("longhaul")
_LIVES = 3  # failed lives in a row before the loop gets an error


def is_finite(value: typing.Any) -> bool:
    """True: all values of a tensor are finite. Objects other than float tensors count as finite."""
    value = getattr(value, "_local_tensor", value)
    if not getattr(value, "numel", lambda: 0)() or \
            not (value.is_floating_point() or value.is_complex()):
        return True
    return bool(value.isfinite().all())


def spoiled(named: typing.Iterable[tuple[str, typing.Any]]) -> list[str]:
    """Gives the names of tensors with a value that is not finite."""
    return [name for name, value in named if not is_finite(value)]


def _tensors(value: typing.Any) -> typing.Iterator[typing.Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
    elif hasattr(value, "is_floating_point"):
        yield value


def state_is_finite(optimizer: typing.Any) -> bool:
    """True: all values of the optimizer's state are finite."""
    state = getattr(optimizer, "state", None)
    return all(is_finite(v) for v in _tensors(list(state.values()) if state else []))


class Recovery:
    """Counts lives that ended with values that are not finite, and resets the optimizer."""

    def __init__(self, model: "torch.nn.Module | None", optimizer: typing.Any):
        inner = optimizer.optim if hasattr(optimizer, "consolidate_state_dict") else optimizer
        self._model, self._optimizer = model, inner
        # some optimizers create their state in the constructor and need it (Adagrad)
        self._made = bool(getattr(inner, "state", None))
        self._lives = 0

    def look(self, described: typing.Iterable[parameters.Described]) -> list[str]:
        """Names this rank's parameters that are not finite at the end of a life."""
        return spoiled((d.name, d.parameter.detach()) for d in described)

    def ended(self, names: list[str], cut: bool) -> None:
        """Ends a life. `names`: parameters that were not finite, on any rank. `cut`: the life
        committed a cut. Raises after _LIVES failed lives in a row."""
        if not names:
            return
        self._lives = 1 if cut else self._lives + 1
        if self._lives < _LIVES:
            return
        raise errors.NonFiniteError(
            f"{parameters.some_are(names)} not finite (NaN or infinite), for the {self._lives}rd "
            "time in a row before a cut was taken. A GradScaler, or "
            "clip_grad_norm_(..., error_if_nonfinite=True), skips such steps; a lower learning "
            "rate or cleaner data makes them rarer; AsyncDiLoCo(..., reset_optimizer=True) begins "
            "with another state of the optimizer than the one that was kept")

    def must_reset(self) -> bool:
        """True: this rank's optimizer state has a value that is not finite."""
        return not state_is_finite(self._optimizer)

    def reset(self) -> None:
        """Clears the optimizer's state, or sets it to 0 if its constructor made it."""
        if not self._made:
            self._optimizer.state.clear()
            return
        for value in _tensors(list(self._optimizer.state.values())):
            if value.is_floating_point():
                value.zero_()

    def warn_of_buffers(self) -> None:
        """Warns of buffers that are not finite. The run does not hold buffers, so it can't restore
        them."""
        if self._model is None:
            return
        names = spoiled((n, b) for n, b in self._model.named_buffers())
        if names:
            _log.warning("longhaul: %s, which the run does not hold, is not finite: set it anew",
                         parameters.some(names))
