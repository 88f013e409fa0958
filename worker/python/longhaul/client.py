"""Client: the functions of longhaul.h as methods, for any framework."""
from __future__ import annotations

import ctypes
import enum
import json
import logging
import os
import typing
import weakref
from concurrent.futures import ThreadPoolExecutor

from . import arguments, errors, library

_log = logging.getLogger("longhaul")
FP32, BF16 = 1, 2
HOST, CUDA = 0, 1


# Adds fp32 values in host memory to a parameter. Arguments: first, count, entries, address of the
# values, address of their int32 indices or 0 (struct longhaul_addition).
Add = typing.Callable[[int, int, int, int, int], None]
# Queues a copy of a parameter's values for a cut. Arguments: first, count, address in host memory,
# stream (struct longhaul_taking).
Take = typing.Callable[[int, int, int, int], None]


class Due(enum.IntFlag):
    """The work that is due at a boundary. Do it in this order."""

    RENEW = 1
    CUT = 2
    WAIT = 4
    DRAIN = 8
    PAUSE = 16


class Follows(enum.IntEnum):
    """The clock of learning rates: the run's tokens, or the loop's own steps."""

    RUN = 1
    LOCAL = 2


class Unit(typing.NamedTuple):
    """A leased unit: train it from token `first` to token `tokens`.

    `unit` modulo the number of units in units.json is the unit's row there; the quotient is the
    data epoch, from 0.
    """

    unit: int
    first: int
    tokens: int


class BudgetChange(typing.NamedTuple):
    """A change of the run's budget before this life began. All 0: there was none."""

    tokens: int = 0
    old_tokens: int = 0
    changed: int = 0  # tokens credited at the change


class State(typing.NamedTuple):
    """The library's counters. Bytes are this process's."""

    worker_lives: bool
    away_steps: int
    cuts: int
    renewals: int
    returns: int
    memory_bytes: int
    shadow_bytes: int
    pinned_bytes: int = 0
    committed: int = 0  # durable cuts of this life; the smallest count of any part


# Clients of this process that connected, by socket and rank; they may be closed by now.
_CONNECTED: "weakref.WeakValueDictionary[tuple[str, int], Client]" = weakref.WeakValueDictionary()


class Client:
    """A connection to this host's worker. Only one thread at a time may use it.

    :param rank: this process's rank on this host; None: torchrun's LOCAL_RANK.
    :param ranks: number of ranks on this host; None: torchrun's LOCAL_WORLD_SIZE.
    :param threads: threads that copy cuts and renewals. Above 1, the client starts its own.
    """

    takes = True  # parameter() accepts `take`

    def __init__(self, rank: int | None = None, ranks: int | None = None, threads: int = 1):
        if (rank is None) != (ranks is None):
            raise ValueError("Client: rank and ranks come together, or both from torchrun's "
                             "LOCAL_RANK and LOCAL_WORLD_SIZE: pass both or neither")
        if ranks is not None:
            arguments.must_be_number("Client", "rank", rank, 0)
            arguments.must_be_number("Client", "ranks", ranks, 1)
        arguments.must_be_number("Client", "threads", threads, 1)
        self._lib = library.load()
        self._handle = ctypes.c_void_p()
        self._kept: list[object] = []  # owners of described memory
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._owner = os.getpid()
        self._on_cuda = self._told_of_pins = False
        self._wrong: Exception | None = None  # error of an `add` or a `take`
        self.follows = False  # the loop's rates follow the run's clock
        self.told: int | None = None  # the clock that ranks on several hosts share
        self.change = BudgetChange()
        self._noise: tuple[float, float, float] | None = None  # reported in each life
        if ranks is None:
            rank, ranks = _number("LOCAL_RANK", 0), _number("LOCAL_WORLD_SIZE", 1)
        self.rank, self.ranks = rank or 0, ranks
        self.open()

    @classmethod
    def from_env(cls, threads: int = 1) -> "Client":
        """Makes the client from LONGHAUL_SOCKET (path of the worker's socket), LOCAL_RANK and
        LOCAL_WORLD_SIZE.

        If torchrun starts ranks on several hosts, only the first host needs a worker and a socket.
        """
        if not os.environ.get("LONGHAUL_SOCKET"):
            if _number("GROUP_RANK", 0):
                return FarClient()
            raise errors.StateError(
                "LONGHAUL_SOCKET is not set: it must name the socket of this host's worker, "
                "trainer.sock in the worker's dir")
        return cls(threads=threads)

    def _check(self, code: int) -> None:
        if not code:
            return
        text = (self._lib.longhaul_text(self._handle) or b"").decode() if self._handle else ""
        name = self._lib.longhaul_error_name(code).decode()
        kind = errors.BY_CODE[code - 1] if code <= len(errors.BY_CODE) else errors.LonghaulError
        raise kind(f"{name}: {text}" if text else name, code)

    def _done(self, code: int, but: type[errors.LonghaulError]) -> bool:
        """False: the call gave the error `but`. Raises any other."""
        if code == but.code:
            return False
        self._check(code)
        return True

    # ---- before a connection

    def open(self) -> None:
        """Opens a closed client again. Describe the parameters again, then connect. Does nothing
        if the client is open."""
        if self._handle:
            return
        self._check(self._lib.longhaul_open(ctypes.byref(self._handle)))
        self._owner = os.getpid()
        self._check(self._lib.longhaul_ranks(self._handle, self.rank, self.ranks))

    def parameter(self, name: str, shape: typing.Sequence[int], data: int, *, dtype: int = FP32,
                  memory: int = HOST, first: int = 0, count: int = 0, stream: int = 0,
                  add: Add | None = None, take: Take | None = None,
                  owner: object = None) -> None:
        """Describes one parameter by its address. Call it for each parameter, in the manifest's
        order.

        `first` and `count`: the range of values that this rank holds, in row-major order. A count
        of 0 means all. `owner` is kept alive until close(). For fp32 on CUDA, `add` replaces the
        library's addition of corrections, and `take` its copy of the values for a cut.
        """
        sizes = (ctypes.c_uint64 * max(1, len(shape)))(*shape)
        adder, taker = self._adder(add), self._taker(take)
        tensor = library.Tensor(ctypes.sizeof(library.Tensor), dtype, memory, len(shape), sizes,
                                name.encode(), data, first, count, stream or None, adder, None,
                                taker)
        self._check(self._lib.longhaul_parameter(self._handle, ctypes.byref(tensor)))
        self._kept += [owner, adder, taker]
        self._on_cuda = self._on_cuda or memory == CUDA

    def _adder(self, add: Add | None) -> typing.Any:
        return self._called(library.Add, add and (
            lambda a: add(a.first, a.count, a.entries, a.value, a.index or 0)))

    def _taker(self, take: Take | None) -> typing.Any:
        return self._called(library.Take, take and (
            lambda t: take(t.first, t.count, t.to, t.stream or 0)))

    def _called(self, kind: typing.Any, call: typing.Callable[[typing.Any], None] | None
                ) -> typing.Any:
        """A callback for the library; renew() or cut() raises its error."""
        if call is None:
            return kind()

        def called(_: object, of: typing.Any) -> int:
            try:
                call(of.contents)
                return 0
            except Exception as why:  # pylint: disable=broad-exception-caught
                self._wrong = self._wrong or why
                return 1
        return kind(called)

    # ---- a life

    def connect(self, timeout_s: float = 60) -> None:
        """Waits until the worker runs and all ranks are connected, and maps the shared memory."""
        place = (os.environ.get("LONGHAUL_SOCKET", ""), self.rank)
        other = _CONNECTED.get(place)
        if other is not None and other is not self and other.is_open():
            raise errors.BusyError(  # the worker would make us wait until that one leaves
                "another client of this process is this worker's trainer: leave its `with "
                "AsyncDiLoCo(...)`, or close() it, before the next one begins")
        self._await(place[0], timeout_s)
        _CONNECTED[place] = self
        if self._on_cuda and not self._told_of_pins and not self.state().pinned_bytes:
            self._told_of_pins = True
            _log.warning("longhaul: CUDA can't pin the memory that is shared with the worker (is "
                         "ulimit -l too small?), so cuts are waited for, in place of going on "
                         "beside the next step")

    def _await(self, socket: str, timeout_s: float) -> None:
        """Prints the reason of the wait: after 5 s and then every 30 s, and at once if another loop
        uses the worker. Stops waiting for a run that is over."""
        waited, slices, told_busy = 0.0, [1.0, 4.0], False
        while True:
            slice_s = min(slices.pop(0) if slices else 30.0, max(timeout_s - waited, 0))
            waited += slice_s
            try:
                self._check(self._lib.longhaul_connect(self._handle, _ms(slice_s)))
                return
            except errors.TimedOutError as why:
                if _is_over(socket):
                    raise errors.DrainedError(
                        f"the run is over: the worker at {socket} has ended with it, and nothing "
                        "is left to train (one that goes on starts the worker first)") from why
                if waited >= timeout_s:
                    raise
                if not slices:
                    _log.warning("longhaul: waiting for the worker at %s for %.0f s: %s", socket,
                                 waited, why)
            except errors.BusyError as why:
                if waited >= timeout_s:
                    raise
                if not told_busy or not slices:
                    _log.warning("longhaul: the worker at %s already has a loop; waiting for "
                                 "that one to end: %s", socket, why)
                told_busy = True

    def start(self) -> None:
        """Overwrites the described parameters with the run's."""
        self._check(self._lib.longhaul_start(self._handle))
        change = (ctypes.c_uint64 * 3)()
        self._check(self._lib.longhaul_budget(self._handle, ctypes.byref(change)))
        self.change = BudgetChange(*change)
        if self._noise:
            self.noise(*self._noise, steps=0)

    def close(self) -> None:
        """Ends the connection; progress since the last cut is dropped."""
        if self._handle:
            self._lib.longhaul_close(self._handle)
            self._handle = ctypes.c_void_p()
        if self._pool and os.getpid() == self._owner:
            self._pool.shutdown()
        self._pool = None
        self._kept.clear()

    def is_open(self) -> bool:
        """True: not closed, and opened by this process, not by its parent."""
        return bool(self._handle) and self._owner == os.getpid()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- boundaries

    def boundary(self, step: int, tokens: int) -> Due:
        """Returns the work that is due between two steps. `tokens`: trained since the last call."""
        due = ctypes.c_uint()
        self._check(self._lib.longhaul_boundary(self._handle, step, tokens, ctypes.byref(due)))
        return Due(due.value)

    def renew(self) -> None:
        """Adds the other workers' progress to the parameters."""
        self._whole(self._lib.longhaul_renew, self._lib.longhaul_renew_piece,
                    self._lib.longhaul_renew_done)

    def cut(self) -> None:
        """Copies the parameters, or this rank's share of them, to the worker. Copies from CUDA run
        on until :meth:`before_step`, beside the loop's other work."""
        self._whole(self._lib.longhaul_cut, self._lib.longhaul_cut_piece,
                    self._lib.longhaul_cut_done)

    def before_step(self) -> None:
        """Call it after a cut, before parameters on CUDA change and before the next boundary. The
        parameters' streams wait for the copy; this thread does not. Without a cut in progress it
        does nothing."""
        self._check(self._lib.longhaul_before_step(self._handle))

    def _whole(self, alone, piece, done) -> None:
        self._wrong = None
        try:
            self._in_pieces(alone, piece, done)
        except errors.LonghaulError:
            if self._wrong:  # an `add` or a `take` raised it
                raise self._wrong from None
            raise

    def _in_pieces(self, alone, piece, done) -> None:
        if self._threads == 1:
            self._check(alone(self._handle))
            return
        if not self._pool:
            self._pool = ThreadPoolExecutor(self._threads, "longhaul")
        codes = list(self._pool.map(lambda i: piece(self._handle, i, self._threads),
                                    range(self._threads)))
        for code in codes:
            self._check(code)
        self._check(done(self._handle))

    def wait(self, timeout_s: float = 1) -> bool:
        """Sleeps until the worker reports a change or is back. False: `timeout_s` passed first."""
        return self._done(self._lib.longhaul_wait(self._handle, _ms(timeout_s)),
                          errors.TimedOutError)

    def credited(self) -> int:
        """The run's credited tokens: the clock that learning rates follow."""
        return self.now() if self.told is None else self.told

    def now(self) -> int:
        """The run's credited tokens at this moment, as this rank alone sees them."""
        tokens = ctypes.c_uint64()
        self._check(self._lib.longhaul_credited(self._handle, ctypes.byref(tokens)))
        return tokens.value

    def schedule(self, follows: Follows) -> None:
        """Sets the clock of the learning rates in the worker's status; changes nothing else."""
        self._check(self._lib.longhaul_schedule(self._handle, int(follows)))
        self.follows = follows == Follows.RUN

    def noise(self, sigma: float, rate: float, clip: float, steps: int = 1) -> None:
        """Reports the noise of a loop that makes its own steps private. Call it before a boundary.

        For a region at privacy level "reported": the loop clips each record's gradient and adds
        Gaussian noise, for example with Opacus. Call this after :meth:`start` and before the first
        boundary, and again when a number changes; later lives report the last numbers. If the loop
        reports no noise, or less than the run's terms demand, the worker pushes none of its
        progress. The worker counts the steps, charges them to the region's privacy budget, and
        drains the loop once the budget is spent. Nothing checks that the report is true.

        :param sigma: the noise's standard deviation over `clip` (Opacus: ``noise_multiplier``).
        :param rate: the probability that a step draws a record (``sample_rate``).
        :param clip: the largest norm of one record's gradient (``max_grad_norm``).
        :param steps: private steps up to the next boundary; several calls before it add up.
        """
        self._noise = sigma, rate, clip
        n = library.Noise(ctypes.sizeof(library.Noise), steps, sigma, rate, clip)
        self._check(self._lib.longhaul_noise(self._handle, ctypes.byref(n)))

    def state(self) -> State:
        """Gives the library's counters."""
        s = library.State(ctypes.sizeof(library.State))
        self._check(self._lib.longhaul_state(self._handle, ctypes.byref(s)))
        return State(bool(s.worker_lives), s.away_steps, s.cuts, s.renewals, s.returns,
                     s.memory_bytes, s.shadow_bytes, s.pinned_bytes, s.committed)

    def report(self, name: str, value: float) -> None:
        """Reports a figure of the loop, such as "loss". Never waits. Values that are not finite are
        dropped."""
        self._check(self._lib.longhaul_report(self._handle, name.encode(), value))

    # ---- units of data that the run leases

    def lease(self) -> Unit | None:
        """Gives the next leased unit. None: none is available now. Raises DrainedError if there
        will be no more."""
        u = library.Unit()
        leased = self._done(self._lib.longhaul_lease(self._handle, ctypes.byref(u)),
                            errors.AgainError)
        return Unit(u.unit, u.from_, u.tokens) if leased else None

    def trained(self, unit: int, upto: int) -> bool:
        """Notes that the steps until the next boundary train the unit up to this token.

        False: too many notes wait for the worker; call again after a boundary.
        """
        return self._done(self._lib.longhaul_trained(self._handle, unit, upto), errors.AgainError)

    def damaged(self, unit: int) -> bool:
        """Gives back a unit because its tokens here differ from the run's (sha256).

        False: the worker is away; call again after a boundary.
        """
        return self._done(self._lib.longhaul_damaged(self._handle, unit), errors.AgainError)

    # ---- the end

    def finish(self, timeout_s: float = 60) -> bool:
        """Ends the loop: makes a last cut, waits for the run's end, loads its final parameters.

        False: the run has not ended yet; call this again.
        """
        return self._done(self._lib.longhaul_finish(self._handle, _ms(timeout_s)),
                          errors.TimedOutError)


def _is_over(socket: str) -> bool:
    """True: the worker's status.json says that the run has ended. A worker that joins an ended run
    writes this again before it exits."""
    try:
        with open(os.path.join(os.path.dirname(socket), "status.json"), encoding="utf-8") as file:
            return json.load(file).get("state") == "done"
    except (OSError, ValueError, AttributeError):
        return False


class FarClient(Client):
    """The client of a rank on a host without a worker. hosts.py passes it the answers that the
    first host's ranks get."""

    takes = False

    def __init__(self) -> None:  # pylint: disable=super-init-not-called
        self.rank, self.ranks = _number("RANK", 0), _number("WORLD_SIZE", 1)
        self.follows, self.told = False, 0
        self.change = BudgetChange()

    def open(self) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Nothing is open."""

    def schedule(self, follows: Follows) -> None:
        """The first host's ranks tell the worker."""
        self.follows = follows == Follows.RUN

    def noise(self, sigma: float, rate: float, clip: float, steps: int = 1) -> None:
        """The first host's ranks tell the worker."""

    def state(self) -> State:
        """Nothing is counted here."""
        return State(True, 0, 0, 0, 0, 0, 0, committed=1)

    def report(self, name: str, value: float) -> None:
        """The first host's ranks tell the worker."""

    def before_step(self) -> None:
        """Nothing is copied to a worker here."""

    def lease(self) -> Unit | None:
        """This rank never has its own unit."""
        raise errors.DrainedError("units are leased to the ranks of the first host")


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name) or str(otherwise)
    if not text.isdecimal():
        raise errors.InvalidError(f"{name} is {text!r}, which is not a number")
    return int(text)


def _ms(seconds: float) -> int:
    return min(int(seconds * 1000), 2**31 - 1)
