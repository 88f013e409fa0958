"""Messages between ranks, through the process group of torch.distributed."""
from __future__ import annotations

import contextlib
import datetime
import itertools
import time
import typing

from . import errors

_Mine = typing.TypeVar("_Mine")
_GRACE_S = 10  # lets the error of a rank that waited for `timeout_s` reach the others
_LONGEST_S = 2**31 / 1000
_NO_STORE = (RuntimeError, ValueError)  # the store's host or the default group may be gone
_MADE = itertools.count()  # numbers groups, which all ranks make in the same order


def check(ranks: int, why: str) -> None:
    """Refuses a process group that is not all ranks that train together. `why` is a part of the
    error: '8 ranks WHY, and ...'. One rank needs no group."""
    if ranks == 1:
        return
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel

    size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 0
    if size != ranks:
        raise errors.UnsupportedError(
            f"{ranks} ranks {why}, and their process group has {size}: call "
            "torch.distributed.init_process_group() first")


class Together:
    """A separate process group of all ranks that train together. All ranks make it at the same
    time, after init_process_group().

     1. No rank waits in it for longer than `timeout_s` and ten seconds.
     2. A rank that can't go on first writes the reason into the ranks' store, then leaves. Ranks
        that wait for it read the reason at once and raise it as a RankError.
     3. A rank that fails by another rank's error does not report that error as its own.
    """

    def __init__(self, timeout_s: float, backend: str | None = None):
        import torch.distributed as dist  # pylint: disable=import-outside-toplevel

        self._dist = dist
        self.timeout_s = min(timeout_s, _LONGEST_S) + _GRACE_S
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._made: list[typing.Any] = []
        self._over = False
        self._key = f"longhaul/{next(_MADE)}/can't go on"
        self.all = self.of(None, backend)
        # NCCL needs a device per rank, and waits for peers when a group ends
        self.on_hosts = dist.get_backend(self.all) == "gloo"

    def of(self, ranks: list[int] | None, backend: str | None) -> typing.Any:
        """Makes a group of some of the ranks, with the same limit. All ranks call this, and none
        returns before all have made it: gloo waits without a limit for a rank that leaves while
        it is still connecting."""
        begun, limit = time.monotonic(), datetime.timedelta(seconds=self.timeout_s)
        with self.hearing():
            made = self._dist.new_group(ranks, limit, backend)
            spent = datetime.timedelta(seconds=time.monotonic() - begun)
            keys = [f"{self._key}/{len(self._made)}/{rank}" for rank in range(self.size)]
            store = self._board()
            store.set(keys[self.rank], "made")
            store.wait(keys, max(limit - spent, datetime.timedelta(seconds=1)))
        self._made.append(made)
        return made

    # ---- failures

    @contextlib.contextmanager
    def hearing(self) -> typing.Iterator[None]:
        """Wraps a wait for other ranks: turns torch's error about a rank that left into that rank's
        own error."""
        if self._over:
            raise errors.RankError("this rank has left the others")
        try:
            yield
        except errors.LonghaulError:
            raise
        except RuntimeError as why:  # torch raises subclasses of it
            self.check()
            raise errors.RankError(
                "another rank ended without a word, or did not answer within "
                f"{self.timeout_s:g} s (timeout_s and {_GRACE_S} more): "
                f"{str(why).splitlines()[0]}") from why

    def check(self) -> None:
        """Raises the error of another rank that left. Costs a request to the store."""
        told = None
        with contextlib.suppress(*_NO_STORE):
            store = self._board()
            told = store.get(self._key).decode() if store.check([self._key]) else None
        if told:
            raise errors.RankError(told)

    def leave(self, why: BaseException) -> None:
        """Leaves with an error. Other ranks get the error when they next wait for this one."""
        if self._over:
            return
        self._over = True
        if not isinstance(why, errors.RankError):
            with contextlib.suppress(*_NO_STORE):
                store = self._board()
                if not store.check([self._key]):
                    store.set(self._key,
                              f"rank {self.rank} can't go on: {type(why).__name__}: {why}")
        if self.on_hosts:
            for made in self._made:
                if made != self._dist.GroupMember.NON_GROUP_MEMBER:
                    with contextlib.suppress(RuntimeError, ValueError, AssertionError):
                        self._dist.destroy_process_group(made)
        self._made, self.all = [], None

    @staticmethod
    def _board() -> typing.Any:
        """The store in which the ranks found each other."""
        from torch.distributed import distributed_c10d  # pylint: disable=C0415

        return distributed_c10d._get_default_store()  # pylint: disable=protected-access

    # ---- messages between ranks

    def of_all(self, mine: _Mine) -> list[_Mine]:
        """Gives each rank the values of all ranks, in rank order."""
        found: list[typing.Any] = [None] * self.size
        with self.hearing():
            self._dist.all_gather_object(found, mine, group=self.all)
        return found


def together(ranks: int, timeout_s: float) -> Together | None:
    """Makes the group. None: there is one rank, or no process group of all ranks."""
    if ranks == 1:
        return None
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel

    made = dist.is_available() and dist.is_initialized() and dist.get_world_size() == ranks
    return Together(timeout_s) if made else None


def of_all(mine: _Mine, ranks: int, ours: Together | None) -> list[_Mine]:
    """Gives each rank the values of all ranks, in rank order. All ranks call this and wait."""
    return [mine] if ranks == 1 or ours is None else ours.of_all(mine)
