"""Checks the arguments of AsyncDiLoCo."""
from __future__ import annotations

import typing

from . import arguments

# Arguments of other libraries' wrappers, and the settings of a run that replace them.
_SETTINGS = {"sync_every": "coordinator.h_base", "local_sgd_steps": "coordinator.h_base",
             "fragment_sync_delay": "coordinator.h_base", "compression": "codec.*",
             "outer_optimizer": "update.*", "target_batch_size": "coordinator.h_base",
             "run_id": "the worker's settings file"}


def refuse_settings(settings: dict[str, object]) -> None:
    """Refuses arguments that AsyncDiLoCo does not take. Names the setting that stands for each."""
    for name in settings:
        if name in _SETTINGS:
            raise TypeError(f"{name} is a setting of the run, equal for all who take part, and not "
                            f"of a loop: {_SETTINGS[name]}")
        raise TypeError(f"AsyncDiLoCo() takes no {name}")


def check_values(call: str, *, manifest: typing.Any = None, tokens_per_step: typing.Any = 0,
                 timeout_s: typing.Any = 600, keep: typing.Any = None,
                 keep_every: typing.Any = 16, masters: typing.Any = None,
                 schedule: typing.Any = None, hook: typing.Any = True,
                 batches_per_step: typing.Any = None,
                 reset_optimizer: typing.Any = False) -> None:
    """Refuses values that AsyncDiLoCo's options can't have. `call` names the caller in errors."""
    del hook
    if not isinstance(reset_optimizer, bool):
        raise TypeError(f"{call}: reset_optimizer is a {type(reset_optimizer).__name__}: pass True "
                        "or False")
    if batches_per_step is not None:
        arguments.must_be_number(call, "batches_per_step", batches_per_step, 1)
    if manifest is not None:
        arguments.must_be_path(call, "manifest", manifest, "the path of the run's model.json")
    arguments.must_be_number(call, "tokens_per_step", tokens_per_step, 0)
    arguments.must_be_number(call, "timeout_s", timeout_s, 0, whole=False)
    arguments.must_be_number(call, "keep_every", keep_every, 1)
    if keep is not None and not isinstance(keep, bool):
        arguments.must_be_path(call, "keep", keep, "the path of a file, or True for one in the "
                               "worker's directory")
    if masters is not None and not callable(masters) and not hasattr(masters, "get"):
        raise TypeError(f"{call}: masters is a {type(masters).__name__}: pass a mapping or a "
                        "function from a parameter to its fp32 copy")
    if schedule not in (None, "local"):
        raise ValueError(f"{call}: schedule={schedule!r}: \"local\", or None; rates by the run's "
                         "clock are longhaul.schedule(optimizer, client, total_tokens)")


def check_given(client: object, model: object, optimizer: object, hook: bool) -> None:
    """Refuses a client, model or optimizer that AsyncDiLoCo can't use."""
    call = "AsyncDiLoCo(client, model, inner_optimizer)"
    arguments.must_be_client(call, client)
    arguments.must_be_model(call, model)
    if optimizer is None:
        if hook:
            raise ValueError(f"{call}: inner_optimizer is None: pass the optimizer, whose step() "
                             "then ends with a boundary, or hook=False and call run.step() after "
                             "each step")
        return
    arguments.must_have(call, "inner_optimizer", optimizer, ("param_groups", "step"),
                        "the torch.optim.Optimizer that steps on the model's parameters")
    if hook and not hasattr(optimizer, "register_step_post_hook"):
        raise TypeError(f"{call}: inner_optimizer is a {type(optimizer).__name__}, whose step() "
                        "can't be hooked: pass hook=False and call run.step() after each step")
