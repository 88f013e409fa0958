"""A callback for the Trainer of transformers, and for TRL's trainers, which derive from it."""
from __future__ import annotations

import typing

from accelerate.state import AcceleratorState
from transformers import TrainerCallback

from . import arguments, errors
from . import client as _client
from .accelerate import check_way
from .diloco import AsyncDiLoCo, check_options
from .rates import schedule

if typing.TYPE_CHECKING:
    from transformers import Trainer


class LonghaulCallback(TrainerCallback):
    """Makes a Trainer train in a run::

        trainer = Trainer(...)
        LonghaulCallback(tokens_per_step=...).attach(trainer)
        trainer.train()

    Training begins with the run's parameters, stops when the run drains, and ends with the run's
    final parameters. The run's figures are added to the Trainer's logs. The callback may be passed
    in ``callbacks=[...]`` of the Trainer instead, but the Trainer's trackers (TensorBoard, wandb)
    run before such callbacks and do not log the run's figures.

    `load_best_model_at_end` is refused: the Trainer loads that checkpoint before the last cut, so
    the step back to it would be pushed as training. `resume_from_checkpoint` restores the Trainer's
    step count, its optimizer and its position in the data; parameters come from the run.

    :param tokens_per_step: tokens of one optimizer step of this process:
        per_device_train_batch_size x gradient_accumulation_steps x tokens of a sample. None: the
        Trainer's count, with ``TrainingArguments(include_num_input_tokens_seen="non_padding")``.
    :param total_tokens: the run's budget (run.budget_tokens). Learning rates then follow the run's
        clock (:class:`longhaul.schedule`). None: the Trainer's own scheduler sets them.
    :param options: options of :class:`AsyncDiLoCo`, such as `keep`.
    """

    def __init__(self, tokens_per_step: int | None = None, client: _client.Client | None = None,
                 *, total_tokens: int | None = None, **options: typing.Any):
        call = "LonghaulCallback(tokens_per_step)"
        if tokens_per_step is not None:
            arguments.must_be_number(call, "tokens_per_step", tokens_per_step, 1)
        if total_tokens is not None:
            arguments.must_be_number(call, "total_tokens", total_tokens, 1)
        if client is not None:
            arguments.must_be_client(call, client)
        check_options(call, options, own=("hook",))
        self._client, self._tokens, self._options = client, tokens_per_step, options
        self._total = total_tokens
        self._rate: schedule | None = None
        self._seen = 0  # tokens that the Trainer counted up to the last step
        self.run: AsyncDiLoCo | None = None

    def attach(self, trainer: "Trainer") -> "LonghaulCallback":
        """Adds the callback before all others of the trainer. Call this before train()."""
        arguments.must_have("attach(trainer)", "trainer", trainer, ("callback_handler",),
                            "the Trainer, before its train()")
        callbacks = trainer.callback_handler.callbacks
        if self in callbacks:
            callbacks.remove(self)
        callbacks.insert(0, self)
        return self

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
        """Joins the run."""
        if args.load_best_model_at_end:
            raise errors.UnsupportedError(
                "load_best_model_at_end=True would push the return to an older checkpoint into "
                "the run: leave it out; training ends with the run's final parameters")
        if self._tokens is None and args.include_num_input_tokens_seen in ("no", False):
            raise errors.InvalidError(
                "no tokens are counted: give LonghaulCallback(tokens_per_step=...), or "
                "TrainingArguments(include_num_input_tokens_seen='non_padding')")
        check_way(AcceleratorState())
        if self.run:  # an earlier train() failed, or restarted with smaller batches
            self.run.__exit__(errors.RestartError)
        inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
        client = self._client or _client.Client.from_env()
        self.run = AsyncDiLoCo(client, model, optimizer, tokens_per_step=self._tokens or 0,
                               **self._options)
        self.run.__enter__()  # pylint: disable=unnecessary-dunder-call
        self._seen = state.num_input_tokens_seen
        self._rate = schedule(inner, client, self._total) if self._total else None

    def on_pre_optimizer_step(self, args, state, control, **_):
        """Sets the tokens and rates of the next step."""
        if not self.run:
            return
        if self._tokens is None:
            tokens, self._seen = state.num_input_tokens_seen - self._seen, \
                state.num_input_tokens_seen
            if not self._seen:
                raise errors.InvalidError(
                    "the Trainer counts no tokens in the inputs of this model: give "
                    "LonghaulCallback(tokens_per_step=...)")
            client = self.run.client  # the Trainer counts the tokens of all ranks
            self.run.trained(tokens // client.ranks + (client.rank < tokens % client.ranks))
        if self._rate:
            self._rate.step()

    def on_step_end(self, args, state, control, **_):
        """Stops the training when the run drains."""
        if self.run and self.run.finished:
            control.should_training_stop = True

    def on_log(self, args, state, control, logs=None, **_):
        """Adds the run's figures to the logs, and reports the Trainer's loss to the run."""
        if self.run and logs is not None and not self.run.finished:
            if "loss" in logs:
                self.run.report(loss=logs["loss"])
            logs.update(self.run.figures())
            if self._rate and "learning_rate" in logs:
                self._rate.step()  # the Trainer's scheduler has set its own rate meanwhile
                logs["learning_rate"] = self._rate.get_last_lr()[0]

    def on_train_end(self, args, state, control, **_):
        """Leaves the run, with its final parameters."""
        if self.run:
            self.run.__exit__(None)
            self.run = None
