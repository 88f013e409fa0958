"""For loops of accelerate: LocalSGD with the names of accelerate's own."""
from __future__ import annotations

import logging
import typing

from accelerate import Accelerator, DistributedType

from . import client as _client
from . import errors
from .diloco import AsyncDiLoCo

if typing.TYPE_CHECKING:
    import torch

_log = logging.getLogger("longhaul")
_REFUSED = {
    DistributedType.DEEPSPEED: "DeepSpeed steps on partitions of its own, not on the model's "
                               "parameters",
    DistributedType.MEGATRON_LM: "Megatron's parallel parameters can't be described yet",
    DistributedType.FSDP: "FSDP1's flat parameters can't be described"}


def check_way(state: typing.Any) -> None:
    """Refuses, by its name, a way to share a model out that accelerate prepared and that can't be
    trained in a run. `state`: an Accelerator, or AcceleratorState."""
    if state.distributed_type in _REFUSED and not getattr(state, "is_fsdp2", False):
        raise errors.UnsupportedError(
            f"{state.distributed_type.value}: {_REFUSED[state.distributed_type]}: take FSDP2 "
            "(FullyShardedDataParallelPlugin(fsdp_version=2), or fsdp_config={'version': 2} of the "
            "Trainer), or DistributedDataParallel", errors.UnsupportedError.code)


class LocalSGD:
    """Takes the place of accelerate.local_sgd.LocalSGD: regions of a run instead of local ranks.

    ::

        with longhaul.accelerate.LocalSGD(accelerator, model, enabled=True) as local:
            for batch in batches:
                with accelerator.accumulate(model):
                    accelerator.backward(model(**batch).loss)
                    optimizer.step()
                    optimizer.zero_grad()
                    local.step(tokens=batch["input_ids"].numel())
                if local.finished:
                    break

    Ranks of this host go on averaging their gradients at every step, as they do without it. They
    may share the model out by accelerate's FSDP2; `model` is what accelerator.prepare() gave.

    :param local_sgd_steps: is not used: how often regions exchange is ``coordinator.h_base`` of the
        run, equal for all.
    :param enabled: False: the loop trains alone.
    :param optimizer: whose state `keep` keeps; the one that accelerator.prepare() gave, too.
    :param options: of :class:`AsyncDiLoCo`.
    """

    def __init__(self, accelerator: Accelerator, model: "torch.nn.Module",
                 local_sgd_steps: int | None = None, enabled: bool = True,
                 client: _client.Client | None = None,
                 optimizer: "torch.optim.Optimizer | None" = None, **options: typing.Any):
        check_way(accelerator)
        if local_sgd_steps is not None:
            _log.warning("longhaul: local_sgd_steps=%d is not used: coordinator.h_base of the run "
                         "says how often regions exchange", local_sgd_steps)
        self._accelerator, self._model = accelerator, model
        self._enabled, self._client, self._options = enabled, client, options
        self._optimizer = optimizer
        self.run: AsyncDiLoCo | None = None

    @property
    def finished(self) -> bool:
        """The run wants no further steps."""
        return self.run is not None and self.run.finished

    def __enter__(self) -> "LocalSGD":
        if self._enabled:
            self.run = AsyncDiLoCo(self._client or _client.Client.from_env(), self._model,
                                   self._optimizer, hook=False, **self._options)
            self.run.__enter__()  # pylint: disable=unnecessary-dunder-call
        return self

    def __exit__(self, *kind: object) -> None:
        if self.run:
            self.run.__exit__(*kind)

    def step(self, tokens: int = 0) -> None:
        """After each optimizer.step(), also one that accumulates or that a GradScaler skips: its
        tokens count with the next real step."""
        if not self.run:
            return
        self.run.trained(tokens)
        if self._accelerator.sync_gradients and not self._accelerator.optimizer_step_was_skipped:
            self.run.step()
