"""Moves corrections to a GPU, through pinned memory and a side stream.

1. Entries of sparse corrections are gathered in one of two halves of pinned memory. A half goes to
   the GPU in two copies, on the side stream, while the training stream works.
2. The training stream waits for the copies of a half, then adds it. So additions run in order,
   after the last step and before the next one.
3. The side stream overwrites a half on the GPU after its earlier entries were added. The host
   overwrites a half of pinned memory after its copies have ended; the host waits only for that.
4. An addition is x[i] = x[i] + v: indices are unique, and float atomics (index_add_) would flush
   subnormals, which the worker keeps.
"""
from __future__ import annotations

import ctypes
import threading
import typing

if typing.TYPE_CHECKING:
    import torch

ENTRIES = 1 << 20  # per half: 8 MiB of pinned memory, and 8 MiB on the GPU

_LANES: dict[typing.Any, "Lane"] = {}
_LOCK = threading.Lock()


def here(kind: typing.Any, address: int, count: int, dtype: "torch.dtype") -> "torch.Tensor":
    """Gives host memory as a tensor."""
    import torch  # pylint: disable=import-outside-toplevel

    return torch.frombuffer((kind * count).from_address(address), dtype=dtype)


def floats(address: int, count: int) -> "torch.Tensor":
    """Gives fp32 values in host memory as a tensor."""
    import torch  # pylint: disable=import-outside-toplevel

    return here(ctypes.c_float, address, count, torch.float32)


def integers(address: int, count: int) -> "torch.Tensor":
    """Gives 32-bit integers in host memory as a tensor."""
    import torch  # pylint: disable=import-outside-toplevel

    return here(ctypes.c_int32, address, count, torch.int32)


def add_entries(to: "torch.Tensor", where: "torch.Tensor", values: "torch.Tensor") -> None:
    """Adds values at unique indices, with one rounding each."""
    where = where.long()
    to.index_put_((where,), to[where] + values)


class _Half:
    """A half on the host and on the GPU, with the events of its copies and additions."""

    def __init__(self, torch: typing.Any, cuda: typing.Any, device: typing.Any, entries: int):
        self.host, self.there = ((torch.empty(entries, dtype=torch.float32, **more),
                                  torch.empty(entries, dtype=torch.int32, **more))
                                 for more in (cuda.pinned, {"device": device}))
        self.copied, self.added = cuda.Event(), cuda.Event()
        self.used = False


class Cuda:
    """The part of torch.cuda that a lane uses; tests replace it."""

    pinned = {"pin_memory": True}

    def __init__(self) -> None:
        import torch  # pylint: disable=import-outside-toplevel

        self.Event, self.Stream = torch.cuda.Event, torch.cuda.Stream  # pylint: disable=C0103
        self.stream, self.current_stream = torch.cuda.stream, torch.cuda.current_stream

    @staticmethod
    def keep(tensor: "torch.Tensor", stream: typing.Any) -> None:
        """Keeps the tensor's memory until the stream has finished its current work."""
        tensor.record_stream(stream)


class Lane:
    """Moves corrections to one device, for its stream that is current when the lane is made."""

    def __init__(self, device: typing.Any, cuda: typing.Any = None, entries: int = ENTRIES):
        import torch  # pylint: disable=import-outside-toplevel

        self._torch, self._cuda = torch, cuda or Cuda()
        self.training = self._cuda.current_stream(device)
        self._side = self._cuda.Stream(device)
        self._device, self._entries = device, entries
        self._halves: list[_Half] = []  # made at the first sparse correction
        self._turn = self._filled = 0
        self._acts: list[typing.Callable[[_Half], None]] = []
        self._lock = threading.RLock()

    def act(self, call: typing.Callable[[], None]) -> None:
        """Runs `call` on the training stream, after all earlier additions of this lane."""
        with self._lock:
            self._acts.append(lambda _: call())

    def add_sparse(self, to: "torch.Tensor", values: "torch.Tensor", where: "torch.Tensor") -> None:
        """Defers these additions until the lane is flushed or full. Both tensors are in host memory
        and may change after the call."""
        with self._lock:
            if not self._halves:
                self._halves = [_Half(self._torch, self._cuda, self._device, self._entries)
                                for _ in range(2)]
            done = 0
            while done < len(values):
                if self._filled == self._entries:
                    self._send()
                done += self._put(to, values[done:], where[done:])

    def _put(self, to: "torch.Tensor", values: "torch.Tensor", where: "torch.Tensor") -> int:
        half, first = self._halves[self._turn], self._filled
        if not first and half.used:
            half.copied.synchronize()
        n = min(len(values), self._entries - first)
        half.host[0][first:first + n] = values[:n]
        half.host[1][first:first + n] = where[:n]
        self._filled += n
        self._acts.append(lambda h: add_entries(to, h.there[1][first:first + n],
                                                h.there[0][first:first + n]))
        return n

    def add_dense(self, to: "torch.Tensor", values: "torch.Tensor") -> None:
        """Adds values in host memory, which must not change until the addition is done."""
        with self._lock:
            self.flush()  # earlier additions
            with self._cuda.stream(self._side):
                there = values.to(self._device, non_blocking=True, copy=True)
                copied = self._cuda.Event()
                copied.record(self._side)
            self.training.wait_event(copied)
            with self._cuda.stream(self.training):
                self._cuda.keep(there, self.training)
                to.add_(there)

    def flush(self) -> None:
        """Queues the deferred additions."""
        with self._lock:
            if self._acts:
                self._send()

    def _send(self) -> None:
        half = self._halves[self._turn] if self._filled else None
        if half is not None:
            with self._cuda.stream(self._side):
                if half.used:
                    self._side.wait_event(half.added)
                for to, source in zip(half.there, half.host):
                    to[:self._filled].copy_(source[:self._filled], non_blocking=True)
                half.copied.record(self._side)
            self.training.wait_event(half.copied)
        acts, self._acts = self._acts, []
        try:
            with self._torch.no_grad(), self._cuda.stream(self.training):
                for act in acts:
                    act(half)  # type: ignore[arg-type]  # without a half no act uses it
        finally:
            if half is not None:
                half.added.record(self.training)
                half.used = True
                self._turn, self._filled = 1 - self._turn, 0


def lane_of(device: typing.Any) -> Lane:
    """Gives the lane of this device and its current stream, which all parameters there share."""
    import torch  # pylint: disable=import-outside-toplevel

    key = (str(device), torch.cuda.current_stream(device).cuda_stream)
    with _LOCK:
        if key not in _LANES:
            _LANES[key] = Lane(device)
        return _LANES[key]
