"""Longhaul: connects your own training loop to a run over several datacenters.

The loop talks to the worker, a separate process on this host, which handles keys, network and disk.
See README.md of the package.
"""
import typing

from .client import Client, Due, State, Unit
from .data import LeasedDataLoader
from .diloco import AsyncDiLoCo, Optimizer
from .errors import (AgainError, BusyError, DamagedError, DrainedError, ForkedError, InvalidError,
                     LonghaulError, ModelError, OutOfMemoryError, RankError, RefusedError,
                     RestartError, StateError, SystemCallError, TimedOutError, UnsupportedError,
                     VersionError)
from .initial import save_arrays, save_initial
from .rates import cosine, schedule
from .units import save_units

if typing.TYPE_CHECKING:
    from .functional import Functional
    from .heldout import Evaluation, evaluate, load_weights

__version__ = "0.1.0"
__all__ = ["AsyncDiLoCo", "Client", "Due", "Evaluation", "Functional", "LeasedDataLoader",
           "LonghaulError", "Optimizer", "State", "Unit", "cosine", "evaluate", "load_weights",
           "save_arrays", "save_initial", "save_units", "schedule", "AgainError", "BusyError",
           "DamagedError", "DrainedError", "ForkedError", "InvalidError", "ModelError",
           "OutOfMemoryError", "RankError", "RefusedError", "RestartError", "StateError",
           "SystemCallError", "TimedOutError", "UnsupportedError", "VersionError"]


def __getattr__(name: str) -> typing.Any:
    if name == "Functional":  # imported late: only Functional needs NumPy
        from .functional import Functional as found  # pylint: disable=import-outside-toplevel
        return found
    if name in ("Evaluation", "evaluate", "load_weights"):  # imported late, for python3 -m
        from . import heldout  # pylint: disable=import-outside-toplevel
        return getattr(heldout, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
