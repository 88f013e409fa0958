"""LeasedDataLoader: batches of the units that the run leases to this region."""
from __future__ import annotations

import array
import contextlib
import hashlib
import json
import logging
import os
import random
import sys
import typing

from . import arguments, errors, group
from . import client as _client
from .diloco import AsyncDiLoCo

if typing.TYPE_CHECKING:
    import torch

_log = logging.getLogger("longhaul")
_KINDS = {20240520: "H", 20240801: "I"}  # magic numbers of llm.c's .bin files: u16, u32
_DAMAGED = 8  # damaged units in a row that mean a wrong folder
_PATIENCE = 5  # waits of up to a second before the last batch is repeated


class Damaged(ValueError):
    """A token file that contradicts units.json."""


def read_tokens(path: str, first: int, count: int) -> array.array:
    """Reads tokens [first, first + count) of a token file (llm.c's .bin, common/format/units.h)."""
    with open(path, "rb") as file:
        head = array.array("i", file.read(1024))
        if sys.byteorder == "big":
            head.byteswap()
        if len(head) < 256 or head[0] not in _KINDS:
            raise ValueError(f"{path} is not a token file: its first number is not one of "
                             f"{sorted(_KINDS)}")
        tokens = array.array(_KINDS[head[0]])
        file.seek(1024 + first * tokens.itemsize)
        tokens.frombytes(file.read(count * tokens.itemsize))
    if len(tokens) != count:
        raise Damaged(f"{path} ends before token {first + count}")
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens


def digest_of(tokens: array.array) -> str:
    """Gives the SHA-256 of tokens in their file's byte order, as in units.json."""
    if sys.byteorder == "big":
        tokens = array.array(tokens.typecode, tokens)
        tokens.byteswap()
    return hashlib.sha256(tokens.tobytes()).hexdigest()


# The fields of a unit in units.json that the loader reads.
_FIELDS = {"file": str, "from": int, "tokens": int, "sha256": str}


def _read_units(path: str) -> list[dict[str, typing.Any]]:
    with open(path, encoding="utf-8") as file:
        try:
            rows = json.load(file)["units"]
            wrong = next(((i, name) for i, row in enumerate(rows) for name, kind in _FIELDS.items()
                          if not isinstance(row[name], kind)), None)
        except (ValueError, KeyError, TypeError) as why:
            raise ValueError(f"{path} is no units.json, which `longhaul data prepare` and "
                             f"longhaul.save_units() write ({type(why).__name__}: {why})") from why
    if wrong:
        raise ValueError(f"{path}: {wrong[1]} of unit {wrong[0]} is {rows[wrong[0]][wrong[1]]!r}; "
                         "`longhaul data prepare` and longhaul.save_units() write such files")
    return rows


class _Work(typing.NamedTuple):
    unit: int
    tokens: array.array
    at: int    # tokens handed out so far
    rank: int  # rank that holds the lease and notes the training


class _Found(typing.NamedTuple):
    """The result of a rank's lease requests."""

    leases: list[_client.Unit]
    drained: bool
    over: bool      # the life is over
    restarts: int   # lives so far


class LeasedDataLoader:
    """Iterates over batches: int64 tensors of shape (sequences, sequence_length).

    - Order: sequences are drawn at random from the first `window` leased units, because training
      on neighbours in a text one after the other is worse. The built-in trainer does the same.
    - Credit: the tokens of a batch count with the next optimizer step. They are credited once, with
      the cut that holds that step.
    - End of a unit: a shorter last sequence is a batch of its own. A single last token is not
      trained; it counts with the sequence before it.
    - Damage: a unit whose tokens differ from units.json (sha256) is not trained. The loader gives
      it back, for a region with an intact copy. If there is none, the run names the unit.
    - Accumulation: if a step lacks batches and no unit is left, the loader waits briefly, then
      repeats the last batch. Repeated tokens do not count again.
    - End of the run: the loader waits while other regions hold the remaining units, and ends with
      the run.
    - Restart: the run leases the units again, from the last committed cut on. state_dict() holds
      only the random draws and the epoch.
    - Several ranks: each rank of the host makes a loader, after init_process_group() and with the
      same arguments. The ranks pool their units and draw `batch_size` sequences for each rank. All
      ranks see the end at the same step. If fewer sequences are left than ranks, some ranks share
      one; its tokens count once.
    - Several data epochs (run.epochs): each unit is leased once per epoch, in another order from
      the second epoch on. Some units of the previous epoch may come after the first ones of the
      next, because other regions held them.

    :param run: the AsyncDiLoCo of the loop.
    :param units: path of the run's units.json.
    :param batch_size: sequences per batch and rank.
    :param sequence_length: tokens per sequence.
    :param folder: folder of the token files; None: that of units.json.
    :param window: number of leased units to draw from.
    :param seed: seed of the random draws.
    """

    def __init__(self, run: AsyncDiLoCo, units: str, *, batch_size: int, sequence_length: int,
                 folder: str | None = None, window: int = 8, seed: int = 0):
        call = "LeasedDataLoader(run, units)"
        arguments.must_have(call, "run", run, ("client", "listen"),
                            "what `with AsyncDiLoCo(...) as run` gives")
        arguments.must_be_path(call, "units", units, "the path of the run's units.json")
        if folder is not None:
            arguments.must_be_path(call, "folder", folder, "the folder of the token files")
        for name, value, least in (("batch_size", batch_size, 1), ("window", window, 1),
                                   ("sequence_length", sequence_length, 2)):
            arguments.must_be_number(call, name, value, least)
        group.check(run.client.ranks, "share the units that it is leased")
        self._rank, self._ranks = run.client.rank, run.client.ranks
        self._run, self._folder = run, folder or os.path.dirname(os.path.abspath(units))
        self._batch, self._length, self._window = batch_size, sequence_length, window
        self._draw = random.Random(seed)
        self._work: list[_Work] = []
        self._drained = False
        self._epoch = 0
        self._units = _read_units(units)
        self._given: dict[int, int] = {}  # unit: position handed to the loop and not noted yet
        self._tokens = 0                  # tokens handed out and not noted yet
        self._open = 0                    # batches since the last step
        self._last: "torch.Tensor | None" = None
        self._waits = 0                   # waits for another batch since the last one
        self._alone = 0                   # tokens in no sequence of the next batch
        self._damaged_in_a_row = 0
        run.listen(self._forget, self._note)

    def _forget(self) -> None:
        self._work, self._drained, self._open, self._waits = [], False, 0, 0
        self._given, self._tokens, self._alone = {}, 0, 0

    def _note(self) -> int:
        self._open = 0
        for unit in list(self._given):
            if not self._run.client.trained(unit, self._given[unit]):
                break  # notes are full until a cut: a later step notes the rest
            del self._given[unit]
        tokens, self._tokens = self._tokens, 0
        return tokens

    def _restart(self) -> None:
        """Makes boundaries until a new life begins. A rank may hear of the end before others."""
        before = self._run.restarts
        self._run.idle(0)
        while self._run.restarts == before and not self._run.finished:
            self._run.idle()

    def _wait(self) -> None:
        """Waits within a step, where no boundary is possible."""
        self._waits += 1
        with contextlib.suppress(errors.RestartError):  # the next lease reports it to all ranks
            self._run.news(1)

    @property
    def epoch(self) -> int:
        """The latest data epoch, from 0, of which a batch had tokens."""
        return self._epoch

    def state_dict(self) -> dict[str, typing.Any]:
        """The loader's state for a checkpoint."""
        return {"draw": self._draw.getstate(), "epoch": self._epoch}

    def load_state_dict(self, state: dict[str, typing.Any]) -> None:
        """Continues the draws and the epoch of an earlier state_dict()."""
        version, words, gauss = state["draw"]
        self._draw.setstate((version, tuple(words), gauss))
        self._epoch = state["epoch"]

    # ---- units

    def _load(self, lease: _client.Unit, rank: int) -> _Work:
        row = self._units[lease.unit % len(self._units)]
        if lease.tokens != row["tokens"]:
            raise errors.ModelError(
                f"unit {lease.unit} has {lease.tokens} tokens in the run and {row['tokens']} in "
                "units.json: it is another run's")
        path = os.path.join(self._folder, row["file"])
        tokens = read_tokens(path, row["from"], row["tokens"])
        if digest_of(tokens) != row["sha256"]:
            raise Damaged(
                f"tokens {row['from']} to {row['from'] + row['tokens']} of {path} are not those of "
                "units.json (sha256): copy the file again from where the data was prepared")
        return _Work(lease.unit, tokens, lease.first, rank)

    def _take(self, leases: list[tuple[_client.Unit, int]]) -> None:
        """Reads the leased units. A unit damaged on any rank of the host is given back: the run
        leases it to a region with an intact copy."""
        work: list[_Work | None] = []
        for lease, rank in leases:
            try:
                work.append(self._load(lease, rank))
            except Damaged as why:
                _log.warning("longhaul: unit %d is damaged and given back, training goes on: %s",
                             lease.unit, why)
                work.append(None)
        mine = [i for i, w in enumerate(work) if w is None]
        bad = {i for of in group.of_all(mine, self._ranks, self._run.together) for i in of} \
            if leases else set()
        for i, (lease, rank) in enumerate(leases):
            one = work[i]
            if one is not None and i not in bad:
                self._work.append(one)
                self._damaged_in_a_row = 0
                continue
            self._damaged_in_a_row += 1
            if rank == self._rank:
                self._run.client.damaged(lease.unit)
        if self._damaged_in_a_row >= _DAMAGED:
            raise ValueError(f"{self._damaged_in_a_row} units in a row are not those of units.json "
                             f"(sha256): is {self._folder} the folder of this run's token files?")

    def _ask(self, most: int) -> _Found:
        """Requests at most this many leases. Errors are part of the result, for the other ranks."""
        leases: list[_client.Unit] = []
        drained = over = False
        try:
            while len(leases) < most:
                lease = self._run.client.lease()
                if lease is None:
                    break
                leases.append(lease)
        except errors.DrainedError:
            drained = True
        except errors.RestartError:
            over = True
        return _Found(leases, drained, over, self._run.restarts)

    def _fill(self) -> None:
        """Requests units until the window is full. All ranks of the host do so at the same time."""
        while len(self._work) < self._window and not self._drained:
            wanted = self._window - len(self._work)
            found = group.of_all(self._ask(-(-wanted // self._ranks)), self._ranks,
                                 self._run.together)
            if any(f.over for f in found):
                raise errors.RestartError("this life is over")
            if len({f.restarts for f in found}) > 1:
                raise errors.StateError("the ranks of this host belong to different lives: "
                                        "restart all of them")
            self._take([(lease, rank) for rank, f in enumerate(found) for lease in f.leases
                        if lease.first < lease.tokens])
            self._drained = all(f.drained for f in found)
            if not any(f.leases for f in found):
                return

    # ---- batches

    def _sequence(self, index: int) -> array.array:
        w = self._work[index]
        tokens = w.tokens[w.at:w.at + self._length]
        upto = w.at + len(tokens)
        if len(w.tokens) - upto == 1:  # a single token can't be trained
            upto, self._alone = upto + 1, self._alone + 1
        self._work[index] = w._replace(at=upto)
        if self._work[index].at == len(w.tokens):
            del self._work[index]
        if w.rank == self._rank:
            self._given[w.unit] = upto
        self._epoch = max(self._epoch, w.unit // len(self._units))
        return tokens

    def _share(self, taken: list[array.array]) -> list[array.array]:
        """Gives this rank's part of a step's sequences, and counts its tokens."""
        mine = taken[self._rank::self._ranks]
        self._tokens += sum(map(len, mine)) + (self._alone if self._rank == 0 else 0)
        self._alone = 0
        return mine or taken[self._rank % len(taken):][:1]

    def _whole(self) -> list[int]:
        return [i for i, w in enumerate(self._work) if len(w.tokens) - w.at >= self._length]

    def _next(self) -> list[array.array]:
        """Gives the sequences of the next step for all ranks; empty: none are available now."""
        taken: list[array.array] = []
        while len(taken) < self._batch * self._ranks:
            self._fill()
            whole = self._whole()
            if not whole:
                break
            taken.append(self._sequence(self._draw.choice(whole)))
        if not taken and self._work:
            taken.append(self._sequence(0))
        return taken

    def __iter__(self) -> typing.Iterator["torch.Tensor"]:
        import torch  # pylint: disable=import-outside-toplevel

        while not self._run.finished:
            try:
                taken = self._next()
            except errors.RestartError:
                self._restart()
                continue
            if taken:
                self._run.handed(self._open + 1)
                batch = torch.tensor([list(s) for s in self._share(taken)], dtype=torch.long)
                self._last, self._waits = batch, 0
            elif self._drained:
                return
            elif not self._open:
                self._run.idle()
                continue
            else:
                self._run.handed(self._open + 1, again=True)
                if self._waits < _PATIENCE:
                    self._wait()
                    continue
            self._open += 1
            yield self._last  # repeated if an accumulating loop lacks batches for its step
