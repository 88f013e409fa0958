"""Checks the arguments of the package's constructors before a run is touched.

An object of the wrong kind raises a TypeError, a number out of range a ValueError. Both name the
call, the argument and the value to pass. Objects are checked for the attributes that the package
uses, not for their class, so wrappers and stand-ins pass.
"""
from __future__ import annotations

import numbers
import operator
import os
import typing


def _kind(value: object) -> str:
    return "None" if value is None else value.__name__ + " itself" if isinstance(value, type) else \
        f"a {type(value).__name__}"


def must_have(call: str, name: str, value: object, methods: typing.Iterable[str],
              wanted: str) -> None:
    """`value` must have these attributes. `wanted` describes the right value."""
    if isinstance(value, type) or not all(hasattr(value, m) for m in methods):
        raise TypeError(f"{call}: {name} is {_kind(value)}: pass {wanted}")


def must_be_client(call: str, value: object) -> None:
    """`value` must be a Client, or a stand-in for one."""
    must_have(call, "client", value, ("boundary", "connect"), "longhaul.Client.from_env()")


def must_be_model(call: str, value: object) -> None:
    """`value` must be a module of PyTorch."""
    must_have(call, "model", value, ("named_parameters",), "the torch.nn.Module that is trained")


def must_be_number(call: str, name: str, value: object, least: float, whole: bool = True) -> None:
    """`value` must be a number of at least `least`."""
    if isinstance(value, bool) or \
            not isinstance(value, numbers.Integral if whole else numbers.Real):
        raise TypeError(f"{call}: {name} is {_kind(value)}: pass "
                        f"{'a whole number' if whole else 'a number'}")
    if not value >= least:  # true for NaN, too
        raise ValueError(f"{call}: {name} is {value}: pass at least {least:g}")


def count_of(call: str, name: str, value: typing.Any) -> int:
    """Gives a count as an int. `value` must be a whole number, or a tensor that holds one."""
    try:
        count = operator.index(value)
    except TypeError as why:
        raise TypeError(f"{call}: {name} is {_kind(value)}: pass a whole number, or a tensor with "
                        "one integer") from why
    if not 0 <= count <= 1 << 40:
        raise ValueError(f"{call}: {name} is {count}: pass at least 0, and at most 2^40")
    return count


def must_be_path(call: str, name: str, value: object, wanted: str) -> None:
    """`value` must be a string or a Path."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise TypeError(f"{call}: {name} is {'empty' if value == '' else _kind(value)}: pass "
                        f"{wanted}")
    if str(value).startswith("s3://"):
        raise ValueError(f"{call}: {name} is in a store, and a loop reads files: fetch them with "
                         f"`longhaul store pull`, and pass {wanted} on this machine")
