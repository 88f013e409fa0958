"""The errors of the package: one class for each error of longhaul.h."""
from __future__ import annotations


class LonghaulError(RuntimeError):
    """A call of the library failed. `code` is the error's number, the text says what and where."""

    code = 0

    def __init__(self, text: str, code: int | None = None):
        super().__init__(text)
        if code is not None:
            self.code = code


class InvalidError(LonghaulError):
    """An invalid argument."""


class StateError(LonghaulError):
    """Another call has to come first."""


class NonFiniteError(StateError):
    """Parameters become NaN or infinite again and again: the text names them."""


class RankError(StateError):
    """Another rank failed, so this one can't go on. The text names that rank and its error."""


class ForkedError(LonghaulError):
    """This process is a fork of the one that opened the client."""


class UnsupportedError(LonghaulError):
    """Not on this host, or not with this kind of parameter."""


class OutOfMemoryError(LonghaulError):
    """There is no memory for it."""


class SystemCallError(LonghaulError):
    """A system call failed."""


class VersionError(LonghaulError):
    """Worker and library are of different versions."""


class ModelError(LonghaulError):
    """The run's parameters differ from the model's."""


class BusyError(LonghaulError):
    """Another process is this worker's trainer."""


class RefusedError(LonghaulError):
    """The worker refused the call."""


class RestartError(LonghaulError):
    """This life is over: connect() and start() begin another one."""


class TimedOutError(LonghaulError):
    """No answer came in time."""


class AgainError(LonghaulError):
    """Nothing is available now: wait(), then again."""


class DrainedError(LonghaulError):
    """No more units: finish()."""


class DamagedError(LonghaulError):
    """The shared memory holds invalid data."""


# In the order of enum longhaul_error, from 1.
BY_CODE = (InvalidError, StateError, ForkedError, UnsupportedError, OutOfMemoryError,
           SystemCallError, VersionError, ModelError, BusyError, RefusedError, RestartError,
           TimedOutError, AgainError, DrainedError, DamagedError)
for _code, _kind in enumerate(BY_CODE, 1):
    _kind.code = _code
