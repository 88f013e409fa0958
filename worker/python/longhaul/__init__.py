"""Longhaul: a training loop of your own in a run over several datacenters.

The worker beside this process keeps keys, network and disk; see README.md of the package.
"""
from .client import Client, Due, State, Unit
from .data import LeasedDataLoader
from .diloco import AsyncDiLoCo, Optimizer
from .errors import (AgainError, BusyError, DamagedError, DrainedError, ForkedError, InvalidError,
                     LonghaulError, ModelError, OutOfMemoryError, RefusedError, RestartError,
                     StateError, SystemCallError, TimedOutError, UnsupportedError, VersionError)
from .parameters import save_initial
from .rates import cosine, schedule

__version__ = "0.1.0"
__all__ = ["AsyncDiLoCo", "Client", "Due", "LeasedDataLoader", "LonghaulError", "Optimizer",
           "State", "Unit", "cosine", "save_initial", "schedule", "AgainError", "BusyError",
           "DamagedError", "DrainedError", "ForkedError", "InvalidError", "ModelError",
           "OutOfMemoryError", "RefusedError", "RestartError", "StateError", "SystemCallError",
           "TimedOutError", "UnsupportedError", "VersionError"]
