"""LocalSGD for loops of accelerate, with the interface of accelerate's own LocalSGD."""
from __future__ import annotations

import functools
import logging
import typing

from accelerate import Accelerator, DistributedType

from . import arguments, errors, parameters
from . import client as _client
from .diloco import AsyncDiLoCo, check_options

if typing.TYPE_CHECKING:
    import torch

_log = logging.getLogger("longhaul")
_REPORTED = 16  # steps between two reported losses
_REFUSED = {
    DistributedType.DEEPSPEED: "DeepSpeed steps on partitions of its own, not on the model's "
                               "parameters",
    DistributedType.MEGATRON_LM: "Megatron's parallel parameters can't be described yet",
    DistributedType.FSDP: "FSDP1's flat parameters can't be described"}


def check_way(state: typing.Any) -> None:
    """Refuses a way of sharding by accelerate that can't be trained in a run. `state`: an
    Accelerator, or an AcceleratorState."""
    if state.distributed_type in _REFUSED and not getattr(state, "is_fsdp2", False):
        raise errors.UnsupportedError(
            f"{state.distributed_type.value}: {_REFUSED[state.distributed_type]}: take FSDP2 "
            "(FullyShardedDataParallelPlugin(fsdp_version=2), or fsdp_config={'version': 2} of the "
            "Trainer), or DistributedDataParallel")


def _prepared(accelerator: Accelerator, model: "torch.nn.Module",
              masters: parameters.Masters) -> "torch.optim.Optimizer | None":
    """Gives the model's optimizer from accelerator.prepare(). None: there is none, or several."""
    mine = {id(p) for p in model.parameters()}
    # accelerate has no public list of prepared objects, only this attribute
    found = [o for o in getattr(accelerator, "_optimizers", ())
             if any(id(p) in mine for group in o.param_groups for p in group["params"])
             or parameters.masters_of(model, o, masters)]
    if len(found) > 1:
        _log.warning("longhaul: accelerator.prepare() gave %d optimizers for this model: "
                     "LocalSGD(..., optimizer=...) says which one's state and masters are meant",
                     len(found))
    return found[0] if len(found) == 1 else None


class LocalSGD:
    """Replaces accelerate.local_sgd.LocalSGD, and synchronises regions of a run, not local ranks::

        with longhaul.accelerate.LocalSGD(accelerator, model, enabled=True) as local:
            for batch in batches:
                with accelerator.accumulate(model):
                    accelerator.backward(model(**batch).loss)
                    optimizer.step()
                    optimizer.zero_grad()
                    local.step(tokens=batch["input_ids"].numel())
                if local.finished:
                    break

    Ranks of this host still average their gradients at every step. They may shard the model with
    accelerate's FSDP2.

    :param model: the model from accelerator.prepare().
    :param local_sgd_steps: ignored. The run's setting ``coordinator.h_base`` sets how often regions
        exchange.
    :param enabled: False: the loop trains alone.
    :param optimizer: the model's optimizer. `keep` saves its state, and the run trains its fp32
        masters. None: the one from accelerator.prepare().
    :param options: options of :class:`AsyncDiLoCo`.
    """

    def __init__(self, accelerator: Accelerator, model: "torch.nn.Module",
                 local_sgd_steps: int | None = None, enabled: bool = True,
                 client: _client.Client | None = None,
                 optimizer: "torch.optim.Optimizer | None" = None, **options: typing.Any):
        call = "LocalSGD(accelerator, model)"
        arguments.must_have(call, "accelerator", accelerator, ("sync_gradients", "prepare"),
                            "the accelerate.Accelerator that prepared the model")
        arguments.must_be_model(call, model)
        if client is not None:
            arguments.must_be_client(call, client)
        check_options(call, options, own=("hook",))
        check_way(accelerator)
        if local_sgd_steps is not None:
            _log.warning("longhaul: local_sgd_steps=%d is not used: coordinator.h_base of the run "
                         "says how often regions exchange", local_sgd_steps)
        self._accelerator, self._model = accelerator, model
        self._enabled, self._client, self._options = enabled, client, options
        self._optimizer = optimizer
        self._loss: typing.Any = None
        self._steps = 0
        self.run: AsyncDiLoCo | None = None

    @property
    def finished(self) -> bool:
        """True: the run needs no further steps."""
        return self.run is not None and self.run.finished

    def __enter__(self) -> "LocalSGD":
        if self._enabled:
            optimizer = self._optimizer
            if optimizer is None:
                optimizer = _prepared(self._accelerator, self._model, self._options.get("masters"))
            self.run = AsyncDiLoCo(self._client or _client.Client.from_env(), self._model,
                                   optimizer, hook=False, **self._options)
            self.run.__enter__()  # pylint: disable=unnecessary-dunder-call
            self._watch_loss()
        return self

    def __exit__(self, *kind: object) -> None:
        self._accelerator.__dict__.pop("backward", None)
        if self.run:
            self.run.__exit__(*kind)

    def step(self, tokens: int = 0) -> None:
        """Ends a step. Call this after each optimizer.step(). If the step only accumulates
        gradients, or a GradScaler skips it, its tokens count with the next real step."""
        if not self.run:
            return
        self.run.trained(tokens)
        if self._accelerator.sync_gradients and not self._accelerator.optimizer_step_was_skipped:
            self.run.step()
            self._report()

    def _report(self) -> None:
        """Reports the loss. Does so only every few steps, because reading it waits for the GPU."""
        self._steps += 1
        if self._loss is not None and self._steps % _REPORTED == 1 and self.run:
            self.run.report(loss=self._loss)
            self._loss = None

    def _watch_loss(self) -> None:
        """Notes the argument of accelerator.backward() as the loss."""
        backward = self._accelerator.backward

        @functools.wraps(backward)
        def watched(loss: typing.Any, *given: typing.Any, **named: typing.Any) -> typing.Any:
            if getattr(loss, "numel", lambda: 0)() == 1:
                self._loss = loss.detach()
            return backward(loss, *given, **named)
        self._accelerator.backward = watched
