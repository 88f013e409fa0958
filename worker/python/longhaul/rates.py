"""Learning rates that follow the run's clock: its credited tokens."""
from __future__ import annotations

import math
import typing

from . import arguments, errors
from . import client as _client

if typing.TYPE_CHECKING:
    import torch


def cosine(tokens: int, total: int, warmup: float = 0.05, floor: float = 0.02) -> float:
    """Gives the rate as a fraction of its peak: linear warm-up over the first `warmup` of the run,
    then a cosine down to `floor`. The built-in trainer has the same schedule
    (worker/train/schedule.c).
    """
    if tokens < warmup * total:
        start = max(floor, 0.01)
        return start + (1 - start) * tokens / (warmup * total)
    if tokens >= total:
        return floor
    part = (tokens - warmup * total) / (total - warmup * total)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * part))


class schedule:  # pylint: disable=invalid-name,too-few-public-methods
    """Replaces torch.optim.lr_scheduler, so that all regions have the same rate at the same time.

    Every call of step() sets each group's rate to its initial one times ``shape(credited, total)``.
    Until the client has started, the rates are those of the run's beginning.

    If an operator changes the budget, the rate does not jump. It moves linearly to the new budget's
    schedule, over the fraction `rewarm` of the tokens left at the change. The run knows the new
    budget, so `total_tokens` need not change.

    :param optimizer: the optimizer to set the rates of.
    :param client: the Client of AsyncDiLoCo.
    :param total_tokens: the run's budget (run.budget_tokens).
    :param shape: function of credited and total tokens; gives a fraction of the initial rate.
    """

    def __init__(self, optimizer: "torch.optim.Optimizer", client: _client.Client,
                 total_tokens: int, shape: typing.Callable[[int, int], float] = cosine,
                 rewarm: float = 0.05):
        call = "schedule(optimizer, client, total_tokens)"
        arguments.must_have(call, "optimizer", optimizer, ("param_groups",),
                            "the optimizer whose rates follow the run's clock")
        arguments.must_have(call, "client", client, ("credited", "schedule"),
                            "the Client that AsyncDiLoCo has")
        arguments.must_be_number(call, "total_tokens, the run's run.budget_tokens,",
                                 total_tokens, 1)
        if not callable(shape):
            raise TypeError(f"{call}: shape is a {type(shape).__name__}: pass a function of "
                            "credited and total tokens, longhaul.cosine say")
        self._optimizer, self._client, self._total = optimizer, client, total_tokens
        self._shape, self._rewarm = shape, rewarm
        self._peak = [group.setdefault("initial_lr", group["lr"])
                      for group in optimizer.param_groups]
        try:
            self.step()
        except (errors.StateError, errors.InvalidError):  # not started, or closed
            self._set(0)

    def step(self) -> None:
        """Sets the rates. Call it before or after each optimizer step."""
        self._set(self._client.credited())
        self._client.schedule(_client.Follows.RUN)

    def _part(self, credited: int) -> float:
        change = getattr(self._client, "change", _client.BudgetChange())
        if not change.tokens or change.changed >= change.tokens:
            return self._shape(credited, change.tokens or self._total)
        if credited < change.changed:
            return self._shape(credited, change.old_tokens)
        stood = self._shape(change.changed, change.old_tokens)
        ramp = max(1.0, self._rewarm * (change.tokens - change.changed))
        way = min(1.0, (credited - change.changed) / ramp)
        return stood + (self._shape(credited, change.tokens) - stood) * way

    def _set(self, credited: int) -> None:
        part = self._part(credited)
        for group, peak in zip(self._optimizer.param_groups, self._peak):
            group["lr"] = peak * part

    def get_last_lr(self) -> list[float]:
        """Gives the current rates, like torch's schedulers."""
        return [group["lr"] for group in self._optimizer.param_groups]

    def state_dict(self) -> dict[str, typing.Any]:
        """Gives an empty dict: the run keeps the clock, so there is nothing to save."""
        return {}

    def load_state_dict(self, state: dict[str, typing.Any]) -> None:
        """Does nothing: the state is empty."""
