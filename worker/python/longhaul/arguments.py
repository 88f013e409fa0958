"""What the constructors of the package are given, checked before anything is begun.

A wrong kind of thing is a TypeError, a number that makes no sense a ValueError. Both say which
argument of which call it is and what belongs there. What is checked is what the package calls, not
the class: wrappers and stand-ins are welcome.
"""
from __future__ import annotations

import numbers
import os
import typing


def _kind(value: object) -> str:
    return "None" if value is None else value.__name__ + " itself" if isinstance(value, type) else \
        f"a {type(value).__name__}"


def must_have(call: str, name: str, value: object, methods: typing.Iterable[str],
              wanted: str) -> None:
    """`value` is an object with these attributes. `wanted` says what to pass."""
    if isinstance(value, type) or not all(hasattr(value, m) for m in methods):
        raise TypeError(f"{call}: {name} is {_kind(value)}: pass {wanted}")


def must_be_client(call: str, value: object) -> None:
    """A Client, or its stand-in."""
    must_have(call, "client", value, ("boundary", "connect"), "longhaul.Client.from_env()")


def must_be_model(call: str, value: object) -> None:
    """A module of PyTorch."""
    must_have(call, "model", value, ("named_parameters",), "the torch.nn.Module that is trained")


def must_be_number(call: str, name: str, value: object, least: float, whole: bool = True) -> None:
    """A number of at least `least`."""
    if isinstance(value, bool) or \
            not isinstance(value, numbers.Integral if whole else numbers.Real):
        raise TypeError(f"{call}: {name} is {_kind(value)}: pass "
                        f"{'a whole number' if whole else 'a number'}")
    if not value >= least:  # NaN is not
        raise ValueError(f"{call}: {name} is {value}: pass at least {least:g}")


def must_be_path(call: str, name: str, value: object, wanted: str) -> None:
    """A string or a Path."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise TypeError(f"{call}: {name} is {'empty' if value == '' else _kind(value)}: pass "
                        f"{wanted}")
