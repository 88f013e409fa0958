"""KeptState: an optimizer's state in a file, so that a loop that starts again needs no warm-up."""
from __future__ import annotations

import logging
import os
import typing

from . import client as _client
from . import errors

if typing.TYPE_CHECKING:
    import torch

_log = logging.getLogger("longhaul")
_KIND = "longhaul.kept/1"


class KeptState:
    """The file of one rank; `path` and, of several ranks, the rank's number behind it.

    It is replaced as a whole and durably, so a kill leaves the old state or the new one. The groups
    (rates, decay) are the script's: only moments and step counts come back.
    """

    def __init__(self, path: str, client: _client.Client, optimizer: "torch.optim.Optimizer",
                 every: int):
        if every < 1:
            raise ValueError("keep_every is at least 1")
        if any(hasattr(p, "placements") for group in optimizer.param_groups
               for p in group["params"]):
            raise errors.UnsupportedError("keep: the state of parameters that fully_shard() shared "
                                          "out can't be kept yet", errors.UnsupportedError.code)
        self.path = path if client.ranks == 1 else f"{path}.{client.rank}"
        self._client, self._optimizer = client, optimizer
        self._every, self._cuts = every, 0

    def cut(self) -> None:
        """After a boundary's cut; every `every`-th is kept. Costs a write of the state."""
        self._cuts += 1
        if self._cuts % self._every == 0:
            self._write()

    def _write(self) -> None:
        import torch  # pylint: disable=import-outside-toplevel

        with open(self.path + ".tmp", "wb") as file:
            torch.save({"kind": _KIND, "credited": self._client.credited(),
                        "shapes": self._shapes(),
                        "state": self._optimizer.state_dict()["state"]}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.path + ".tmp", self.path)
        folder = os.open(os.path.dirname(os.path.abspath(self.path)), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _shapes(self) -> list[list[int]]:
        return [list(p.shape) for group in self._optimizer.param_groups for p in group["params"]]

    def _read(self) -> dict[str, typing.Any]:
        import torch  # pylint: disable=import-outside-toplevel

        try:
            kept = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as why:  # torch names many kinds
            raise errors.StateError(f"{self.path} can't be read ({why}): remove it, and the "
                                    "optimizer warms up", errors.StateError.code) from why
        if not isinstance(kept, dict) or kept.get("kind") != _KIND or \
                kept.get("shapes") != self._shapes():
            raise errors.StateError(f"{self.path} is of another model or optimizer: remove it, or "
                                    "name another file", errors.StateError.code)
        return kept

    def restore(self) -> bool:
        """After the run's parameters came: the optimizer goes on with what was kept. False: there
        is nothing of this run."""
        if not os.path.exists(self.path):
            return False
        kept = self._read()
        if kept["credited"] > self._client.credited():
            _log.warning("longhaul: %s was kept at %d tokens, and the run is at %d: it is another "
                         "run's; the optimizer warms up", self.path, kept["credited"],
                         self._client.credited())
            return False
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": kept["state"], "param_groups": groups})
        _log.warning("longhaul: the optimizer goes on from %s, kept at %d tokens", self.path,
                     kept["credited"])
        return True
