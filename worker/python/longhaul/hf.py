"""For transformers' Trainer, and TRL's, which are built on it."""
from __future__ import annotations

import typing

from transformers import TrainerCallback

from . import client as _client
from . import errors
from .diloco import AsyncDiLoCo


class LonghaulCallback(TrainerCallback):
    """Trainer(..., callbacks=[LonghaulCallback(tokens_per_step=...)]) trains in a run.

    Training begins with the run's parameters, stops when the run drains, and ends with the run's
    final ones. The run's figures are added to what the Trainer logs to its trackers.
    `load_best_model_at_end` is refused: the Trainer loads that checkpoint before the last cut, and
    the way back to it would be pushed as training.

    :param tokens_per_step: of one optimizer step of this process: per_device_train_batch_size x
        gradient_accumulation_steps x tokens of a sample.
    :param options: of :class:`AsyncDiLoCo`; `keep`, say.
    """

    def __init__(self, tokens_per_step: int, client: _client.Client | None = None,
                 **options: typing.Any):
        self._client, self._tokens, self._options = client, tokens_per_step, options
        self.run: AsyncDiLoCo | None = None

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
        """Joins the run."""
        if args.load_best_model_at_end:
            raise errors.UnsupportedError(
                "load_best_model_at_end=True would push the way back to an older checkpoint into "
                "the run: leave it out; training ends with the run's final parameters",
                errors.UnsupportedError.code)
        inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
        self.run = AsyncDiLoCo(self._client or _client.Client.from_env(), model, inner,
                               tokens_per_step=self._tokens, **self._options)
        self.run.__enter__()  # pylint: disable=unnecessary-dunder-call

    def on_step_end(self, args, state, control, **_):
        """The run drains: no further step."""
        if self.run and self.run.finished:
            control.should_training_stop = True

    def on_log(self, args, state, control, logs=None, **_):
        """Adds the run's figures."""
        if self.run and logs is not None and not self.run.finished:
            logs.update(self.run.figures())

    def on_train_end(self, args, state, control, **_):
        """Leaves with the run's final parameters."""
        if self.run:
            self.run.__exit__(None)
            self.run = None
