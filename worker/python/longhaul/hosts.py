"""Trains one model with ranks on several hosts, of which only the first has a worker.

The ranks of torchrun's first host connect to the worker. They exchange messages with the ranks of
the other hosts through a gloo process group of all ranks:

 1. At each boundary all ranks agree on the work that is due: all of them do it, or none does.
 2. Replicated parameters: the first host's ranks cut and renew theirs as if they were alone, then
    rank 0 broadcasts its parameters to the other hosts. Replicas have equal bits, so nothing is
    lost.
 3. Parameters sharded by FSDP2: each rank of the first host stages the rows of several ranks, one
    after another. Ranks send it their rows before a cut or a renewal, and receive them after it.
 4. An error of one rank is raised on all ranks (group.py).
"""
from __future__ import annotations

import dataclasses
import itertools
import os
import typing

from . import client as _client
from . import errors, group

if typing.TYPE_CHECKING:
    import torch

_DUES = (_client.Due.RENEW, _client.Due.CUT, _client.Due.WAIT, _client.Due.DRAIN,
         _client.Due.PAUSE)


def spread(client: _client.Client,
           timeout_s: float) -> "tuple[_client.Client | Spread, group.Together | None]":
    """Gives the client for this rank, and the group of all ranks (None: one rank, or no
    process group). If all ranks are on this host, the client is returned as it is. All ranks call
    this, after init_process_group()."""
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel

    size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    far = isinstance(client, _client.FarClient)
    if far and size != client.ranks:
        raise errors.StateError("this host has no worker: torch.distributed.init_process_group() "
                                "with the ranks of the host that has one comes first")
    if not far and size <= client.ranks:
        return client, group.together(client.ranks, timeout_s)
    all_ranks = group.Together(timeout_s, "gloo")
    return Spread(client, all_ranks), all_ranks


@dataclasses.dataclass
class _Share:
    """One parameter: this rank's part of it, and the parts of all ranks."""

    name: str
    shape: typing.Sequence[int]
    dtype: int
    data: "torch.Tensor"
    given: dict[str, typing.Any]
    first: int
    count: int
    all: list[tuple[int, int]]             # (first, count) of each rank's rows
    staged: "torch.Tensor | None" = None   # on the first host: the rows of several ranks

    @property
    def shared_out(self) -> bool:
        return any(first or count for first, count in self.all)


class Spread:
    """The client of one rank, if ranks are on several hosts and the first host has the worker."""

    takes = False  # other hosts receive the described tensors: parameters, not their shadows

    def __init__(self, client: _client.Client, all_ranks: group.Together):
        import torch.distributed as dist  # pylint: disable=import-outside-toplevel

        self._dist, self._all = dist, all_ranks
        self.rank, self.ranks = all_ranks.rank, all_ranks.size
        self._own = client
        mine = (isinstance(client, _client.FarClient), client.rank, client.ranks)
        told = self._all.of_all(mine)
        self._near = told[0][2]  # ranks of the first host
        if any(told[r] != (False, r, self._near) for r in range(self._near)) or \
                not all(far for far, _, _ in told[self._near:]):
            raise errors.UnsupportedError(
                f"{self.ranks} ranks of several hosts: those of torchrun's first host, and no "
                "others, have LONGHAUL_SOCKET; or each host is a region of its own, with a process "
                "group of its own. Ranks of one host are known by LOCAL_RANK and "
                f"LOCAL_WORLD_SIZE, which torchrun sets: here these are {self._of_env()}")
        self._others = all_ranks.of([0, *range(self._near, self.ranks)], "gloo")
        self._shares: list[_Share] = []
        self._described = self._gathered = self._ending = False

    @staticmethod
    def _of_env() -> str:
        return " and ".join(os.environ.get(name) or "not set"
                            for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))

    # ---- messages between ranks

    @property
    def _connected(self) -> bool:
        return self.rank < self._near

    def _reduced(self, mine: typing.Sequence[int], largest: bool) -> list[int]:
        import torch  # pylint: disable=import-outside-toplevel

        numbers = torch.tensor(mine, dtype=torch.int64)
        how = self._dist.ReduceOp.MAX if largest else self._dist.ReduceOp.SUM
        with self._all.hearing():
            self._dist.all_reduce(numbers, how, group=self._all.all)
        return numbers.tolist()

    def _together(self, call: typing.Callable[[], typing.Any]) -> list[typing.Any]:
        """Runs `call` on the first host's ranks and gives their results. All ranks raise an error
        of any of them."""
        result, wrong = None, None
        if self._connected:
            try:
                result = call()
            except errors.LonghaulError as error:
                wrong = error
        found = self._all.of_all((result, wrong and (type(wrong), str(wrong), wrong.code)))
        if wrong:
            raise wrong
        for rank, (_, error) in enumerate(found):
            if error:
                kind, text, code = error
                raise kind(f"rank {rank}: {text}", code)
        return [result for result, _ in found[:self._near]]

    # ---- moving rows

    def _leader(self, rank: int) -> int:
        return rank * self._near // self.ranks

    def _pieces(self, share: _Share) -> typing.Iterator[tuple[int, int, "torch.Tensor | None"]]:
        """Gives each rank with rows and its leader; on that leader also the staged rows."""
        at = 0
        for rank, (_, count) in enumerate(share.all):
            leader, place = self._leader(rank), None
            if share.staged is not None and leader == self.rank:
                place = share.staged[at:at + count]
                at += count
            if count:
                yield rank, leader, place

    @staticmethod
    def _bytes(tensor: "torch.Tensor") -> "torch.Tensor":
        import torch  # pylint: disable=import-outside-toplevel

        return tensor.detach().reshape(-1).view(torch.uint8)

    def _gather(self) -> None:
        """Sends all rows to the leaders. Ranks use the same order, so none wait for each other."""
        with self._all.hearing():
            for share in self._shares:
                for rank, leader, place in self._pieces(share) if share.shared_out else ():
                    if place is not None and rank == self.rank:
                        place.copy_(share.data.detach().reshape(-1))
                    elif place is not None:
                        self._dist.recv(self._bytes(place), rank, group=self._all.all)
                    elif rank == self.rank:
                        self._dist.send(self._bytes(share.data.cpu()), leader, group=self._all.all)

    def _give_back(self) -> None:
        with self._all.hearing():
            self._give_back_all()

    def _give_back_all(self) -> None:
        for share in self._shares:
            if not share.shared_out:
                if self.rank == 0 or not self._connected:
                    self._receive(share, lambda here: self._dist.broadcast(
                        here, 0, group=self._others))
                continue
            for rank, leader, place in self._pieces(share):
                if place is not None and rank == self.rank:
                    share.data.detach().reshape(-1).copy_(place)
                elif place is not None:
                    self._dist.send(self._bytes(place), rank, group=self._all.all)
                elif rank == self.rank:
                    self._receive(share, lambda here, leader=leader: self._dist.recv(
                        here, leader, group=self._all.all))

    def _receive(self, share: _Share, call: typing.Callable[["torch.Tensor"], typing.Any]) -> None:
        """Receives values through host memory, because gloo moves no other."""
        here = share.data.detach().cpu()  # not a copy if it is in host memory
        call(self._bytes(here))
        if self.rank and share.data.is_cuda:
            share.data.detach().copy_(here)

    # ---- the calls of a client

    def open(self) -> None:
        """See Client.open()."""
        self._own.open()
        self._shares, self._described = [], False

    def parameter(self, name: str, shape: typing.Sequence[int], data: int, *, dtype: int,
                  first: int = 0, count: int = 0, owner: typing.Any = None,
                  **given: typing.Any) -> None:
        """See Client.parameter(). `owner` must be the tensor itself."""
        del data
        self._shares.append(_Share(name, shape, dtype, owner, given, first, count, []))

    def _describe(self) -> None:
        told = self._all.of_all([(s.first, s.count, s.name, tuple(s.shape), s.dtype)
                             for s in self._shares])
        for rank, one in enumerate(told):
            for here, there in itertools.zip_longest(told[0], one):
                if here and there and here[2:] == there[2:]:
                    continue
                raise errors.ModelError(
                    f"rank {rank} trains other parameters than rank 0, first "
                    f"{there[2:] if there else 'nothing'} in place of "
                    f"{here[2:] if here else 'nothing'} (name, shape, type): on every host "
                    "LONGHAUL_MANIFEST names the run's model.json, and the script makes the same "
                    "model")
        for i, share in enumerate(self._shares):
            share.all = [one[i][:2] for one in told]
            if self._connected:
                self._describe_one(share)
        self._described = True

    def _describe_one(self, share: _Share) -> None:
        import torch  # pylint: disable=import-outside-toplevel

        if not share.shared_out:
            self._own.parameter(share.name, share.shape, share.data.data_ptr(), dtype=share.dtype,
                                owner=share.data, **share.given)
            return
        block = [share.all[r] for r in range(self.ranks) if self._leader(r) == self.rank]
        count = sum(c for _, c in block)
        share.staged = torch.zeros(count, dtype=share.data.dtype)
        self._own.parameter(share.name, share.shape, share.staged.data_ptr() if count else 0,
                            dtype=share.dtype, first=block[0][0], count=count, owner=share.staged)

    def connect(self, timeout_s: float = 60) -> None:
        """See Client.connect()."""
        if not self._described:
            self._describe()
        self._ending = False
        self._together(lambda: self._own.connect(timeout_s))

    def start(self) -> None:
        """See Client.start()."""
        self._together(self._own.start)
        self._own.told = self._together(self._own.now)[0]
        self._own.change = self._together(lambda: self._own.change)[0]
        self._give_back()

    def boundary(self, step: int, tokens: int) -> _client.Due:
        """See Client.boundary(). Rank 0 reports the other hosts' tokens to the worker."""
        theirs, = self._reduced([0 if self._connected else tokens], largest=False)
        due, wrong, clock = _client.Due(0), None, 0
        try:
            if self._connected:
                due = self._own.boundary(step, tokens + theirs * (self.rank == 0))
            if self.rank == 0:
                clock = self._own.now()
        except errors.LonghaulError as error:
            wrong = error
        how = 0 if not wrong else 1 if isinstance(wrong, errors.RestartError) else 2
        *dues, worst, self._own.told = self._reduced(
            [*(int(bool(due & d)) for d in _DUES), how, clock], largest=True)
        if how < 2 <= worst:
            self._all.of_all(None)  # the failed rank sends its error instead of a call
        if wrong:
            raise wrong
        if worst:
            raise errors.RestartError("another rank's life has ended")
        self._gathered = False
        return _client.Due(sum(int(d) for d, is_due in zip(_DUES, dues) if is_due))

    def renew(self) -> None:
        """See Client.renew()."""
        self._gather()
        self._gathered = True
        self._together(self._own.renew)
        self._give_back()

    def cut(self) -> None:
        """See Client.cut()."""
        if not self._gathered:
            self._gather()
        self._together(self._own.cut)

    def wait(self, timeout_s: float = 1) -> bool:
        """See Client.wait()."""
        return any(self._together(lambda: self._own.wait(timeout_s)))

    def finish(self, timeout_s: float = 60) -> bool:
        """See Client.finish()."""
        if not self._ending:  # later calls go on with the rows that the first one gathered
            self._ending = True
            self._gather()
        if not all(self._together(lambda: self._own.finish(timeout_s))):
            return False
        self._give_back()
        return True

    def __getattr__(self, name: str) -> typing.Any:
        """The other calls are those of this rank's own client. The rank that leased a unit, one of
        the first host, calls trained() and damaged()."""
        return getattr(self._own, name)
