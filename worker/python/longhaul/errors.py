"""The errors of the package: one class for each error of longhaul.h."""
from __future__ import annotations

import re


class LonghaulError(RuntimeError):
    """A call of the library failed. `code` is the error's number in longhaul.h."""

    code = 0

    def __init__(self, text: str, code: int | None = None):
        super().__init__(text)
        if code is not None:
            self.code = code


class InvalidError(LonghaulError):
    """An invalid argument."""


class StateError(LonghaulError):
    """The call is not allowed now; another one has to come first."""


class NonFiniteError(StateError):
    """Parameters repeatedly become NaN or infinite. The text names them."""


class RankError(StateError):
    """Another rank failed, so this one can't go on. The text names that rank and its error."""


class ForkedError(LonghaulError):
    """This process is a fork of the one that opened the client."""


class UnsupportedError(LonghaulError):
    """This host, or this kind of parameter, is not supported."""


class OutOfMemoryError(LonghaulError):
    """Out of memory."""


class SystemCallError(LonghaulError):
    """A system call failed."""


class VersionError(LonghaulError):
    """The worker and the library have different versions."""


class ModelError(LonghaulError):
    """The run's parameters differ from the model's."""


class BusyError(LonghaulError):
    """Another process is this worker's trainer."""


class RefusedError(LonghaulError):
    """The worker refused the call."""


class RestartError(LonghaulError):
    """This life has ended. connect() and start() begin another one."""

    def reason(self) -> str:
        """Gives why it ended, without the calls that a loop in C would make now."""
        return re.sub(r"^(LONGHAUL_E_\w+: )?(this life is over: )?|; longhaul_connect\(\).*", "",
                      str(self))


class TimedOutError(LonghaulError):
    """No answer came in time."""


class AgainError(LonghaulError):
    """Nothing is available now. Call wait(), then try again."""


class DrainedError(LonghaulError):
    """There will be no more units. Call finish()."""


class DamagedError(LonghaulError):
    """The shared memory holds invalid data."""


# In the order of enum longhaul_error, from 1.
BY_CODE = (InvalidError, StateError, ForkedError, UnsupportedError, OutOfMemoryError,
           SystemCallError, VersionError, ModelError, BusyError, RefusedError, RestartError,
           TimedOutError, AgainError, DrainedError, DamagedError)
for _code, _kind in enumerate(BY_CODE, 1):
    _kind.code = _code
