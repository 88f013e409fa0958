"""Hooks an optimizer's step(): by its own hooks, by those of the optimizer inside a wrapper, or by
calls around a wrapper whose hooks fail."""
from __future__ import annotations

import functools
import typing


def hookable(optimizer: typing.Any) -> bool:
    """Do the optimizer's own hooks work? They fail in a subclass of torch.optim.Optimizer that does
    not call Optimizer.__init__()."""
    try:
        optimizer.register_step_post_hook(lambda *_: None).remove()
    except (AttributeError, TypeError):
        return False
    return True


_INNER = ("optimizer", "original_optimizer")  # of accelerate's wrapper, and Opacus's


def inside(optimizer: typing.Any) -> tuple[typing.Any, bool]:
    """Gives the optimizer inside a wrapper, and True if the wrapper does nothing after its step."""
    if optimizer is None or hookable(optimizer):
        return optimizer, True
    for name in _INNER:
        if hookable(getattr(optimizer, name, None)):
            return getattr(optimizer, name), True
    held = [o for o in vars(optimizer).values() if hookable(o)] \
        if hasattr(optimizer, "__dict__") else []
    return (held[0], False) if len(held) == 1 else (optimizer, False)


class Stepped:  # pylint: disable=too-few-public-methods
    """Wraps the step() of an object whose own hooks fail. remove() ends that."""

    def __init__(self, optimizer: typing.Any, before: typing.Callable[[], typing.Any],
                 after: typing.Callable[[], typing.Any]):
        step = optimizer.step

        @functools.wraps(step)
        def stepped(*given: typing.Any, **named: typing.Any) -> typing.Any:
            before()
            result = step(*given, **named)
            after()
            return result
        self._optimizer = optimizer
        optimizer.step = stepped

    def remove(self) -> None:
        """Restores the step() of the class."""
        del self._optimizer.step
