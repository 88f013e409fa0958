"""What ranks tell each other, through the process group of torch.distributed."""
from __future__ import annotations

import contextlib
import datetime
import itertools
import typing

from . import errors

_Mine = typing.TypeVar("_Mine")
_GRACE_S = 10  # the error of a rank that waited for `timeout_s` itself still reaches the others
_LONGEST_S = 2**31 / 1000
_NO_STORE = (RuntimeError, ValueError)  # its host may be gone; so may the default group
_MADE = itertools.count()  # groups are made in the same order on all ranks: each has its number


def check(ranks: int, why: str) -> None:
    """The process group has to be all ranks that train together; `why` begins the sentence of the
    error: 'so many ranks ...'. One rank needs no group."""
    if ranks == 1:
        return
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel

    size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 0
    if size != ranks:
        raise errors.UnsupportedError(
            f"{ranks} ranks {why}, and their process group has {size}: call "
            "torch.distributed.init_process_group() first", errors.UnsupportedError.code)


class Together:
    """A process group of this package's own, of all ranks that train together. All make it at the
    same time, after init_process_group().

     1. No rank waits in it for longer than `timeout_s` and ten seconds.
     2. A rank that can't go on writes down why, where all ranks can read it, and only then leaves:
        whoever waits for it hears that at once, and raises a RankError with its words.
     3. An error that came from another rank is not told again as one's own.
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
        # NCCL needs a device for each rank, and waits for its peers when a group ends
        self.on_hosts = dist.get_backend(self.all) == "gloo"

    def of(self, ranks: list[int] | None, backend: str | None) -> typing.Any:
        """A group of some of the ranks, with the same limit. All ranks call it."""
        limit = datetime.timedelta(seconds=self.timeout_s)
        with self.hearing():
            made = self._dist.new_group(ranks, limit, backend)
        self._made.append(made)
        return made

    # ---- failures

    @contextlib.contextmanager
    def hearing(self) -> typing.Iterator[None]:
        """Around what waits for other ranks: what torch says of a rank that went away becomes what
        that rank said."""
        if self._over:
            raise errors.RankError("this rank has left the others")
        try:
            yield
        except errors.LonghaulError:
            raise
        except RuntimeError as why:  # torch's own kinds of it
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
        """This rank can't go on: the others get the error at their next wait for it."""
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
        """Each rank's value, in rank order, on each of them."""
        found: list[typing.Any] = [None] * self.size
        with self.hearing():
            self._dist.all_gather_object(found, mine, group=self.all)
        return found


def together(ranks: int, timeout_s: float) -> Together | None:
    """None: there is one rank, or no process group of all of them."""
    if ranks == 1:
        return None
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel

    made = dist.is_available() and dist.is_initialized() and dist.get_world_size() == ranks
    return Together(timeout_s) if made else None


def of_all(mine: _Mine, ranks: int, ours: Together | None) -> list[_Mine]:
    """What each rank gave, in the ranks' order, on each of them. All call it; each waits."""
    return [mine] if ranks == 1 or ours is None else ours.of_all(mine)
