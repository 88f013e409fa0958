"""Where an optimizer's step() is hooked: its own hooks, those of the one inside a wrapper, or calls
around a wrapper whose hooks fail."""
from __future__ import annotations

import functools
import typing


def hookable(optimizer: typing.Any) -> bool:
    """Can its step() be hooked? A subclass of torch.optim.Optimizer that does not call
    Optimizer.__init__() has the methods, and they fail."""
    try:
        optimizer.register_step_post_hook(lambda *_: None).remove()
    except (AttributeError, TypeError):
        return False
    return True


_INNER = ("optimizer", "original_optimizer")  # accelerate's wrapper, Opacus's


def inside(optimizer: typing.Any) -> tuple[typing.Any, bool]:
    """The optimizer that a wrapper holds, and whether the wrapper does nothing after its step."""
    if optimizer is None or hookable(optimizer):
        return optimizer, True
    for name in _INNER:
        if hookable(getattr(optimizer, name, None)):
            return getattr(optimizer, name), True
    held = [o for o in vars(optimizer).values() if hookable(o)] \
        if hasattr(optimizer, "__dict__") else []
    return (held[0], False) if len(held) == 1 else (optimizer, False)


class Stepped:  # pylint: disable=too-few-public-methods
    """Calls around the step() of an object whose own hooks fail; remove() takes them away."""

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
        """step() is the class's again."""
        del self._optimizer.step
