"""AsyncDiLoCo: a training loop of PyTorch joins a run, and leaves with its final parameters."""
from __future__ import annotations

import logging
import os
import typing

from . import client as _client
from . import errors, group, parameters
from .kept import KeptState

if typing.TYPE_CHECKING:
    import torch

_log = logging.getLogger("longhaul")


# What other libraries' wrappers are given, and where it stands here.
_SETTINGS = {"sync_every": "coordinator.h_base", "local_sgd_steps": "coordinator.h_base",
             "fragment_sync_delay": "coordinator.h_base", "compression": "codec.*",
             "outer_optimizer": "update.*", "target_batch_size": "coordinator.h_base",
             "run_id": "the worker's settings file"}


def _of_the_run(settings: dict[str, object]) -> None:
    """Says of a word that AsyncDiLoCo does not take where it stands."""
    for name in settings:
        if name in _SETTINGS:
            raise TypeError(f"{name} is a setting of the run, equal for all who take part, and not "
                            f"of a loop: {_SETTINGS[name]}")
        raise TypeError(f"AsyncDiLoCo() takes no {name}")


class AsyncDiLoCo:
    """Between two optimizer steps: gives the worker cuts, adds what other regions trained.

    As a context manager it begins with the run's parameters and ends with its final ones::

        with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer) as run:
            for batch in batches:
                model(batch).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                run.trained(batch.numel())
                if run.finished:
                    break

    The optimizer's step() is hooked: every step ends with a boundary. With ``hook=False`` call
    :meth:`step` after each one instead, and the optimizer may be None. What a run does with the
    cuts (how often, compression, outer optimizer) are settings of the worker and the coordinator,
    equal for all who take part: ``coordinator.h_base``, ``codec.*``, ``update.*``.

    :param manifest: the run's model.json; its names choose and order the parameters. None: the
        file that LONGHAUL_MANIFEST names; where it is not set, those that are trained, in the
        model's order.
    :param tokens_per_step: tokens of each step, for loops that call neither :meth:`trained` nor a
        :class:`LeasedDataLoader`.
    :param keep: a file that gets the optimizer's state with every `keep_every`-th cut; a loop that
        starts again goes on with it. True: `optimizer.pt` in the directory of the worker, beside
        its own state. None: the optimizer of such a loop warms up. A write of it, 8 bytes a
        parameter with Adam, is waited for. Each of several ranks has a file of its own, of the
        values that it holds, and the one before it: they want a process group, and another number
        of them warms up.
    :param timeout_s: how long to wait for the worker at the start, and after it went away for
        longer than ``trainer.run_on`` steps.
    :param settings: none; a word of another library is an error that says which setting it is.
    """

    def __init__(self, client: _client.Client, model: "torch.nn.Module",
                 inner_optimizer: "torch.optim.Optimizer | None", *, manifest: str | None = None,
                 tokens_per_step: int = 0, timeout_s: float = 600, hook: bool = True,
                 keep: str | os.PathLike[str] | bool | None = None, keep_every: int = 16,
                 **settings: object):
        _of_the_run(settings)
        if not hasattr(inner_optimizer, "_optimizer_step_post_hooks"):  # accelerate's wrapper
            inner_optimizer = getattr(inner_optimizer, "optimizer", inner_optimizer)
        parameters.check_optimizer(inner_optimizer)
        self.client = client
        self.model = model
        self.optimizer = inner_optimizer
        self.manifest = manifest or os.environ.get("LONGHAUL_MANIFEST") or None
        self.tokens_per_step = tokens_per_step
        self.timeout_s = timeout_s
        self.finished = False  # the run wants no further steps
        self.restarts = 0      # lives that ended under us; their uncut progress is lost
        self.steps = 0         # boundaries of this life
        self._tokens = 0       # trained since the last boundary
        self._counts = False   # tokens, or it was told that it does not
        self._hook = hook
        self._handle: typing.Any = None
        self._checked = False  # that the optimizer's state holds no masters
        self._kept: KeptState | None = None
        if keep:
            if inner_optimizer is None:
                raise ValueError("keep wants the optimizer whose state it is")
            group.check(client.ranks, "keep the optimizer's state of the same step")
            self._kept = KeptState(keep, client, inner_optimizer, keep_every)
        self._described: list[parameters.Described] = []
        self._begun: list[typing.Callable[[], None]] = []
        self._noted: list[typing.Callable[[], int]] = []

    # ---- a life

    def __enter__(self) -> "AsyncDiLoCo":
        self.client.open()
        self._described = self._describe()
        self._begin()
        shadow = self.client.state().shadow_bytes
        if shadow:
            _log.warning("longhaul: %.1f MB of this process hold in fp32 what bf16 parameters "
                         "can't (4 bytes a value)", shadow / 1e6)
        if self._kept:
            self._kept.restore()
        if self._hook:
            self._handle = self.optimizer.register_step_post_hook(lambda *_: self.step())
        return self

    def _describe(self) -> list[parameters.Described]:
        named = parameters.of_run(self.model, self.manifest)
        parameters.check_masters(self.model, self.optimizer)
        return [parameters.describe(self.client, name, parameter) for name, parameter in named]

    def __exit__(self, kind: object, *_: object) -> None:
        if self._handle:
            self._handle.remove()
        try:
            if kind is None:
                self.finish()
        finally:
            self.client.close()

    def _begin(self) -> None:
        parameters.check_places(self._described)
        self.client.connect(self.timeout_s)
        self.client.start()
        self.steps = self._tokens = 0
        for begun in self._begun:
            begun()

    def _restart(self, why: errors.RestartError) -> None:
        _log.warning("longhaul: %s", why)
        self.restarts += 1
        self._begin()

    def listen(self, begun: typing.Callable[[], None], noted: typing.Callable[[], int]) -> None:
        """For loaders of leased units: `begun` is called when a life begins, and what was leased
        in the last one is gone; `noted` after a step and before its boundary: it notes what the
        step trained and gives the tokens."""
        self._begun.append(begun)
        self._noted.append(noted)

    # ---- boundaries

    def trained(self, tokens: int) -> None:
        """So many tokens were trained by the step that just ended, or will be by the next one."""
        self._tokens += tokens

    def step(self, tokens: int | None = None) -> bool:
        """After an optimizer step. True: the loop goes on."""
        self._tokens += self.tokens_per_step if tokens is None else tokens
        for noted in self._noted:
            self._tokens += noted()
        self._boundary()
        return not self.finished

    def idle(self, timeout_s: float = 1) -> None:
        """A boundary without a step, for loops that wait for a lease; then waits for news."""
        self._boundary()
        if not self.finished:
            try:
                self.client.wait(timeout_s)
            except errors.RestartError as why:
                self._restart(why)

    def _boundary(self) -> None:
        if self.finished:
            return
        try:
            due = self.client.boundary(self.steps + 1, self._tokens)
            self._counts = self._counts or self._tokens > 0
            self.steps, self._tokens = self.steps + 1, 0
            self._act(due)
        except errors.RestartError as why:
            self._restart(why)

    def _act(self, due: _client.Due) -> None:
        if due & (_client.Due.RENEW | _client.Due.CUT):
            parameters.check_places(self._described)
        if due & _client.Due.RENEW:
            self._checked = self._checked or parameters.check_state(self.optimizer)
            self.client.renew()
        if due & _client.Due.CUT:
            self.client.cut()
            if self._kept:
                self._kept.cut(self.restarts, self.steps)
            self._warn_of_tokens()
        if due & _client.Due.WAIT:
            _log.warning("longhaul: the worker is away for %d steps; waiting for it",
                         self.client.state().away_steps)
            if not self.client.wait(self.timeout_s):
                raise errors.TimedOutError(
                    f"the worker did not come back in {self.timeout_s:g} s; start it again with "
                    "the same command", errors.TimedOutError.code)
        if due & _client.Due.DRAIN:
            self.finished = True

    def _warn_of_tokens(self) -> None:
        """At a cut of a loop with data of its own."""
        if self._counts or self._noted or self.client.rank:
            return
        self._counts = True
        _log.warning("longhaul: no tokens are counted, so the run's clock, its rates and its "
                     "budget know nothing of this loop: call trained(tokens), or give "
                     "tokens_per_step")

    def finish(self) -> None:
        """The loop is over: a last cut, the end of the run, its final parameters into the model.

        Waits as long as the run takes, and says so every minute.
        """
        self.finished = True
        parameters.check_places(self._described)
        while not self._ends():
            _log.warning("longhaul: this loop has ended, and waits for the end of the run, which "
                         "comes with its budget or by `longhaul drain run --end`")

    def _ends(self) -> bool:
        try:
            return self.client.finish(60)
        except errors.RestartError as why:
            self._restart(why)
            return False

    # ---- figures

    def figures(self) -> dict[str, float]:
        """For a tracker: what this process knows of the run."""
        s = self.client.state()
        return {"longhaul/credited_tokens": self.client.credited(), "longhaul/cuts": s.cuts,
                "longhaul/renewals": s.renewals, "longhaul/worker_lives": float(s.worker_lives),
                "longhaul/restarts": self.restarts}


class Optimizer:
    """An optimizer whose step() is also the boundary. Everything else is the wrapped one's."""

    def __init__(self, optimizer: "torch.optim.Optimizer", client: _client.Client,
                 model: "torch.nn.Module", **options: typing.Any):
        self.optimizer = optimizer
        self.run = AsyncDiLoCo(client, model, optimizer, hook=False, **options)
        self.run.__enter__()  # pylint: disable=unnecessary-dunder-call

    def step(self, *arguments: typing.Any, tokens: int | None = None) -> typing.Any:
        """The wrapped optimizer's step, then the boundary."""
        result = self.optimizer.step(*arguments)
        self.run.step(tokens)
        return result

    def finish(self) -> None:
        """Waits for the end of the run, takes its final parameters and closes the client."""
        self.run.__exit__(None)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self.optimizer, name)
