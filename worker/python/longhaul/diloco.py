"""AsyncDiLoCo: connects a PyTorch training loop to a run."""
from __future__ import annotations

import contextlib
import inspect
import logging
import os
import time
import typing

from . import (arguments, buffers, checks, errors, final, finite, group, hooks, hosts, parameters,
               watch)
from . import client as _client
from .kept import KeptState

if typing.TYPE_CHECKING:
    import torch

_log = logging.getLogger("longhaul")


def check_options(call: str, options: typing.Mapping[str, typing.Any],
                  own: typing.Container[str] = ()) -> None:
    """Checks at once the options that a wrapper passes on to AsyncDiLoCo later. `own`: options that
    the wrapper sets itself."""
    known = inspect.signature(AsyncDiLoCo.__init__).parameters
    for name in options:
        if name in own:
            raise TypeError(f"{call}: it sets {name} itself: leave it out")
    checks.refuse_settings(
        {n: v for n, v in options.items()
         if n not in known or known[n].kind != inspect.Parameter.KEYWORD_ONLY})
    checks.check_values(call, **options)


def _two_kinds() -> errors.StateError:
    return errors.StateError(
        "a LeasedDataLoader counts the tokens of its batches, and they would count twice: leave "
        "tokens_per_step, trained() and step(tokens) out, or the loader")


class AsyncDiLoCo:
    """Connects a training loop to its region's worker. Between two optimizer steps it gives the
    worker the loop's progress, and adds the other regions' updates to the parameters.

    Use it as a context manager. The loop begins with the run's current parameters and ends with the
    run's final ones::

        with longhaul.AsyncDiLoCo(longhaul.Client.from_env(), model, optimizer) as run:
            for batch in batches:
                model(batch).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                run.trained(batch.numel())
                if run.finished:
                    break

    The optimizer's step() is hooked, so every step ends with a boundary: a point at which the
    worker may take a cut (a copy of the progress), or change the parameters. With ``hook=False``
    call :meth:`step` after each optimizer step; the optimizer may be None then. How often cuts are
    taken, their compression and the outer optimizer are settings of the worker and the coordinator,
    equal in all regions: ``coordinator.h_base``, ``codec.*``, ``update.*``.

    :param manifest: path of the run's model.json, which names and orders the parameters. None: the
        file that LONGHAUL_MANIFEST names; without that variable, all trained parameters in the
        model's order.
    :param tokens_per_step: tokens of each step, for loops that neither call :meth:`trained` nor use
        a :class:`LeasedDataLoader`.
    :param keep: path of a file to which the optimizer's state is saved with every `keep_every`-th
        cut, and from which a restarted loop loads it. True: `optimizer.pt` in the worker's
        directory. None: the optimizer of a restarted loop warms up. Training waits while the file
        is written (8 bytes a parameter with Adam). Each of several ranks saves its own values in a
        file of its own, and keeps the file before it. This needs a process group; with another
        number of ranks the optimizer warms up.
    :param masters: for an optimizer that steps on fp32 copies of bf16 parameters: a mapping, or a
        function, from a parameter of the model to its copy. The run then trains the copies, and
        the parameters are cast from them. None: the copies of Megatron, apex and Transformer
        Engine are found automatically.
    :param schedule: "local": the loop's own learning-rate scheduler is meant to stay, although
        regions of different speeds then have different rates. None: the same, but with a warning.
        Use :class:`longhaul.schedule` for rates that are equal in all regions. The worker's status
        shows which clock the rates follow.
    :param timeout_s: seconds to wait for the worker at the start, and after it has been away for
        more than 1,000 steps. Several ranks wait for each other at most ten seconds longer; an
        error of one rank is a :class:`RankError` in the others.
    :param reset_optimizer: True: do not load the state that `keep` saved. The optimizer begins with
        its present state, and later cuts save it as usual.
    :param batches_per_step: the most batches that the loop takes for one optimizer step. More
        batches without a boundary raise an error. None: 256.
    :param settings: none are accepted. For an argument that another library has, the error names
        the run's setting that replaces it.
    """

    def __init__(self, client: _client.Client, model: "torch.nn.Module",
                 inner_optimizer: "torch.optim.Optimizer | None", *,
                 manifest: str | os.PathLike[str] | None = None,
                 tokens_per_step: int = 0, timeout_s: float = 600, hook: bool = True,
                 keep: str | os.PathLike[str] | bool | None = None, keep_every: int = 16,
                 masters: parameters.Masters = None, schedule: str | None = None,
                 batches_per_step: int | None = None, reset_optimizer: bool = False,
                 **settings: object):
        checks.refuse_settings(settings)
        checks.check_values("AsyncDiLoCo", manifest=manifest, tokens_per_step=tokens_per_step,
                       timeout_s=timeout_s, keep=keep, keep_every=keep_every, masters=masters,
                       schedule=schedule, batches_per_step=batches_per_step,
                       reset_optimizer=reset_optimizer)
        self._given = inner_optimizer
        inner_optimizer, alone = hooks.inside(inner_optimizer)
        self._around = None if alone else self._given  # its own step() ends with the boundary
        self._check(client, model, inner_optimizer, hook)
        parameters.check_optimizer(inner_optimizer)
        self.client: typing.Any
        self.client, self.together = hosts.spread(client, timeout_s)
        self.model = model
        self.optimizer = inner_optimizer
        self.manifest = os.fspath(manifest or "") or os.environ.get("LONGHAUL_MANIFEST") or None
        self.tokens_per_step = tokens_per_step
        self.timeout_s = timeout_s
        self._finished = False
        self.restarts = 0      # times the worker ended a life; its uncut progress was lost
        self.steps = 0         # boundaries of this life
        self._tokens = 0       # trained since the last boundary
        self._counts = False   # the loop counts tokens, or was warned that it does not
        self._hook = hook
        self._hooks: list[typing.Any] = []
        self._cut_flies = False  # the client's before_step() must come before parameters change
        self._step_holds = False  # the optimizer's step() calls before_step()
        self._masters = masters
        self._settled = inner_optimizer is None  # the optimizer's master weights are described
        self._schedule, self._scheduled = schedule, False
        self._kept: KeptState | None = None
        if keep:
            if inner_optimizer is None:
                raise ValueError("keep wants the optimizer whose state it is: pass it, beside "
                                 "hook=False too")
            group.check(self.client.ranks, "keep the optimizer's state of the same step")
            self._kept = KeptState(keep, self.client, inner_optimizer, keep_every,
                                   self.together)
        self._described: list[parameters.Described] = []
        self._handed: buffers.Handed | None = None
        self._patience = watch.Patience(inner_optimizer, batches_per_step, hook)
        self._parts: watch.Parts | None = None
        self._recovery = finite.Recovery(model, inner_optimizer)
        self._reset = reset_optimizer
        self._entered = self._left = False
        self._begun: list[typing.Callable[[], None]] = []
        self._noted: list[typing.Callable[[], int]] = []
        self._on_cut: list[typing.Callable[[], None]] = []
        self._on_end: list[typing.Callable[[], None]] = []
        self._since = time.time()

    _check = staticmethod(checks.check_given)  # the arguments of this class

    @property
    def finished(self) -> bool:
        """True: the run needs no further steps."""
        if self._entered and not self._left and not self._finished:
            with self._telling():
                self._patience.look()
        return self._finished

    @finished.setter
    def finished(self, is_so: bool) -> None:
        self._finished = is_so

    def handed(self, batches: int, again: bool = False) -> None:
        """For loaders: call it before handing out the `batches`-th batch since the last step.
        `again`: it is a repeated batch. Raises if the loop seems to take no steps."""
        with self._telling():
            self._patience.handed(batches, again)

    # ---- a life

    def __enter__(self) -> "AsyncDiLoCo":
        if self._entered:
            raise errors.StateError("this AsyncDiLoCo was entered before: make a new one for "
                                    "each run")
        self._entered = True
        with self._telling():
            self._join()
        return self

    def _must_run(self, call: str) -> None:
        if not self._entered:
            raise errors.StateError(f"{call} comes within `with AsyncDiLoCo(...) as run:`, "
                                    "which connects to the worker")
        if self._left and not self.finished:
            raise errors.StateError(f"{call} comes after the end of this AsyncDiLoCo, whose "
                                    "loop was aborted")

    @contextlib.contextmanager
    def _telling(self) -> typing.Iterator[None]:
        """If an error ends this rank, tells it to the other ranks, so that they end as well."""
        try:
            yield
        except BaseException as why:
            self._leave(why)
            raise

    def _leave(self, why: BaseException) -> None:
        if self.together:
            self.together.leave(why)
            self.client.close()

    def _join(self) -> None:
        self.client.open()
        self._described = self._describe()
        if self.together and self.together.on_hosts:
            self.together.of_all(None)  # connect() would wait for a failed rank
        self._begin()
        if self._kept and not self._reset and self._kept.restore():
            self._settle()  # restored values may be master weights
        shadow = self.client.state().shadow_bytes
        if shadow:
            _log.warning("longhaul: %.1f MB of this process hold fp32 copies of bf16 parameters "
                         "(4 bytes a value)", shadow / 1e6)
        shadow = sum(4 * d.shadow.kept.numel() for d in self._described if d.shadow)
        if shadow:
            _log.warning("longhaul: %.1f MB of the GPU's memory hold fp32 copies of bf16 "
                         "parameters (4 bytes a value); an optimizer with fp32 masters needs none",
                         shadow / 1e6)
        self._handed = buffers.Handed(self.model if self.client.rank == 0 else None)
        self._hook_steps()
        if self.optimizer is not None:
            self._watch_others()

    def _hook_steps(self) -> None:
        if self._around is not None and hasattr(self._around, "register_step_post_hook"):
            self._step_holds = True
            self._hooks.append(hooks.Stepped(self._around, self._hold,
                                        self.step if self._hook else lambda: None))
        elif hooks.hookable(self.optimizer):
            assert self.optimizer is not None
            self._step_holds = True
            self._hooks.append(self.optimizer.register_step_pre_hook(lambda *_: self._hold()))
            if self._hook:
                self._hooks.append(self.optimizer.register_step_post_hook(lambda *_: self.step()))

    def _watch_others(self) -> None:
        from torch.optim import optimizer  # pylint: disable=import-outside-toplevel

        def stepped(other: typing.Any, *_: object) -> None:
            with self._telling():
                self._patience.other(other)
        self._hooks.append(optimizer.register_optimizer_step_post_hook(stepped))

    def _hold(self) -> None:
        """Before the optimizer changes parameters: waits for a cut's copies from the GPU."""
        with self._telling():
            self._before_change()

    def _before_change(self) -> None:
        if self._cut_flies:
            self._cut_flies = False
            self.client.before_step()

    def _describe(self) -> list[parameters.Described]:
        named = parameters.of_run(self.model, self.manifest)
        masters = parameters.masters_of(self.model, self.optimizer, self._masters)
        parameters.check_masters(self.model, self.optimizer, masters)
        described = [parameters.describe(self.client, name, parameter, masters.get(id(parameter)))
                     for name, parameter in named]
        self._parts = watch.Parts(self.model, described)
        return described

    def _check_parts(self) -> None:
        if self._parts:
            self._parts.check()

    def _settle(self) -> bool:
        """Describes new master weights to the client. That begins another life, and drops this
        life's progress since the last cut. False: the client knows all masters.

        Optimizers create masters in their first step. This runs before the life's first boundary,
        so only that step is lost. A parameter's first gradient and load_state_dict() may create
        masters later. So this also runs before each cut or renewal, and the client never touches
        parameters that are no longer trained."""
        masters = parameters.masters_of(self.model, self.optimizer, self._masters)
        if all(masters.get(id(d.parameter)) is None if d.copy is None else
               masters.get(id(d.copy)) is d.parameter for d in self._described):
            return False
        _log.warning("longhaul: the optimizer has fp32 masters, and the run trains these")
        self.client.close()
        self.client.open()
        self._described = self._describe()
        self._begin()
        return True

    def __exit__(self, kind: object, why: BaseException | None = None, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        try:
            if kind is None:
                self.finish()
            elif why is not None:
                self._leave(why)
        finally:
            self._left = True
            self.client.close()

    def _begin(self) -> None:
        parameters.check_places(self._described)
        self._check_parts()
        self.client.connect(self.timeout_s)
        self.client.start()
        parameters.copy_masters(self._described)
        parameters.fill_shadows(self._described)
        self.steps = self._tokens = 0
        self._scheduled = False
        self._patience.begin(self.model)
        for begun in self._begun:
            begun()

    def _restart(self, why: errors.RestartError) -> None:
        if self.together:
            self.together.check()
        _log.warning("longhaul: %s: the progress since the last cut is lost, and the loop goes on "
                     "from the run's parameters", why.reason())
        mine = self._recovery.look(self._described), self.client.state().committed > 0
        found = group.of_all(mine, self.client.ranks, self.together)
        names = list(dict.fromkeys(n for of, _ in found for n in of))
        self._recovery.ended(names, all(cut for _, cut in found))
        self.restarts += 1
        self._begin()
        self._recover()

    def _recover(self) -> None:
        """After the parameters are valid again: restores or resets the optimizer on all ranks if
        any rank's state is not finite."""
        bad = self.optimizer is not None and self._recovery.must_reset()
        if not any(group.of_all(bad, self.client.ranks, self.together)):
            return
        if not (self._kept and self._kept.restore()):
            self._recovery.reset()
            _log.warning("longhaul: the optimizer's state was not finite either: it is dropped, "
                         "and the optimizer warms up")
        self._recovery.warn_of_buffers()
        self._settle()

    def listen(self, begun: typing.Callable[[], None], noted: typing.Callable[[], int]) -> None:
        """For loaders of leased units. `begun` is called when a life begins: units leased in the
        last life are lost. `noted` is called between a step and its boundary: it must note the
        units that the step trained, and return their tokens."""
        if self.tokens_per_step or self._tokens:
            raise _two_kinds()
        self._begun.append(begun)
        self._noted.append(noted)

    def on_cut(self, call: typing.Callable[[], None]) -> None:
        """Runs `call` after each cut. It may take long, but must not change the model."""
        self._on_cut.append(call)

    def on_end(self, call: typing.Callable[[], None]) -> None:
        """Runs `call` once the model has the run's final parameters."""
        self._on_end.append(call)

    # ---- boundaries

    def trained(self, tokens: int) -> None:
        """Counts tokens that the last step trained, or that the next one will train. A tensor with
        one integer is taken, too (reading it waits for the GPU)."""
        count = arguments.count_of("trained(tokens)", "tokens", tokens)
        if self._noted and count:
            raise _two_kinds()
        self._tokens += count
        with self._telling():
            self._patience.trained()

    def step(self, tokens: int | None = None) -> bool:
        """With ``hook=False``, call this after each optimizer step. False: the loop has to end."""
        self._must_run("step()")
        with self._telling():
            self.trained(self.tokens_per_step if tokens is None else tokens)
            for noted in self._noted:
                self._tokens += noted()
            if not self._settled and not self.finished:
                self._settled = True
                if self._settle():
                    return True
            self._boundary(True)
        return not self.finished

    def idle(self, timeout_s: float = 1) -> None:
        """For loops that wait for a lease: makes a boundary without a step, then waits for a change
        that the worker reports."""
        self._must_run("idle()")
        with self._telling():
            self._boundary(False)
            if not self.finished:
                try:
                    self.news(timeout_s)
                except errors.RestartError as why:
                    self._restart(why)

    def news(self, timeout_s: float = 1) -> bool:
        """Sleeps until the worker reports a change, at most `timeout_s` seconds. False: it did not.
        A cut's copy from the GPU in progress is completed first."""
        self._before_change()
        return self.client.wait(timeout_s)

    def _boundary(self, step: bool) -> None:
        if self._finished:
            self._patience.over()
            return
        self._patience.boundary(step)
        self._check_parts()
        try:
            self._before_change()  # not called yet if a GradScaler skipped the step
            due = self.client.boundary(self.steps + 1, self._tokens)
            self._counts = self._counts or self._tokens > 0
            self.steps, self._tokens = self.steps + 1, 0
            self._act(due)
        except errors.RestartError as why:
            self._restart(why)

    def _act(self, due: _client.Due) -> None:
        if due & (_client.Due.RENEW | _client.Due.CUT):
            parameters.check_places(self._described)
            if self._settle():
                self.restarts += 1
                return
        if due & _client.Due.RENEW:
            self.client.renew()
            parameters.copy_masters(self._described)
        if due & _client.Due.CUT:
            self.client.cut()
            self._cut_flies = True
            if not self._step_holds:
                self._before_change()
            self._say_schedule()
            if self._kept:
                self._kept.cut(self.restarts, self.steps, self._recovery.look(self._described))
            self._warn_of_tokens()
            if self._on_cut:
                self._before_change()  # the calls may take long, and the worker waits for the cut
            for call in self._on_cut:
                call()
        if due & _client.Due.WAIT:
            _log.warning("longhaul: the worker has been away for %d steps; waiting for it",
                         self.client.state().away_steps)
            if not self.news(self.timeout_s):
                raise errors.TimedOutError(
                    f"the worker did not come back in {self.timeout_s:g} s; start it again with "
                    "the same command")
        if due & _client.Due.PAUSE:
            _log.warning("longhaul: the run is paused; waiting until it is resumed")
            while not self.news():
                pass
        if due & _client.Due.DRAIN:
            self.finished = True

    def _say_schedule(self) -> None:
        """At a life's first cut: warns if learning rates do not follow the run's clock."""
        if self._scheduled or self.client.follows:
            return
        self._scheduled = True
        own = any(hasattr(getattr(o, "step", None), "_wrapped_by_lr_sched")  # by its constructor
                  for o in (self.optimizer, self._given))
        if own and not self._schedule and not self.client.rank:
            _log.warning("longhaul: the learning rate follows this loop's own scheduler, so that "
                         "regions of other speed get other rates: longhaul.schedule(optimizer, "
                         "client, total_tokens) follows the run's clock; schedule='local' "
                         "says that this is intended")
        if own or self._schedule:
            self.client.schedule(_client.Follows.LOCAL)

    def _warn_of_tokens(self) -> None:
        """At a cut: warns if a loop with data of its own counts no tokens."""
        if self._counts or self._noted or self.client.rank:
            return
        self._counts = True
        _log.warning("longhaul: no tokens are counted, so the run's clock, its rates and its "
                     "budget know nothing of this loop: call trained(tokens), or give "
                     "tokens_per_step")

    def finish(self) -> None:
        """Ends the loop: makes a last cut, waits for the end of the run, and loads the run's final
        parameters into the model. Logs once a minute that it waits."""
        self._must_run("finish()")
        self.finished = True
        with self._telling():
            parameters.check_places(self._described)
            self._check_parts()
            while not self._ends():
                _log.warning("longhaul: this loop has ended, and waits for the end of the run, "
                             "which comes with its budget or by `longhaul drain run --end`")

    def _ends(self) -> bool:
        try:
            ended = self.client.finish(60)
        except errors.RestartError as why:
            self._restart(why)
            return False
        parameters.copy_masters(self._described if ended else [])
        parameters.fill_shadows(self._described if ended else [])
        if not ended:
            return False
        final.check(self._described, self._since)
        if self._handed:
            self._handed.hand_over()
        for call in self._on_end:
            call()
        return True

    # ---- figures

    def report(self, loss: typing.Any = None, **metrics: typing.Any) -> None:
        """Reports the loop's own figures. `longhaul top`, `longhaul up` and the loss curve show the
        loss; the worker's status shows the others, at most 16. Values are numbers, or tensors with
        one value (reading one waits for the GPU). Of several ranks only rank 0 reports. Values that
        are not finite are dropped. Never waits for the worker."""
        self._must_run("report()")
        if self.client.rank or self._left:
            return
        for name, value in {**({} if loss is None else {"loss": loss}), **metrics}.items():
            try:
                number = float(value.detach() if hasattr(value, "detach") else value)
            except (TypeError, ValueError, RuntimeError) as why:
                raise TypeError(f"report(): {name} is a {type(value).__name__}: pass a number, or "
                                "a tensor of one value") from why
            self.client.report(name, number)

    def figures(self) -> dict[str, float]:
        """The run's figures that this process knows, for an experiment tracker."""
        s = self.client.state()
        return {"longhaul/credited_tokens": self.client.credited(), "longhaul/cuts": s.cuts,
                "longhaul/renewals": s.renewals, "longhaul/worker_lives": float(s.worker_lives),
                "longhaul/restarts": self.restarts}


class Optimizer:
    """Wraps an optimizer: its step() also makes the boundary. Other attributes are unchanged."""

    def __init__(self, optimizer: "torch.optim.Optimizer", client: _client.Client,
                 model: "torch.nn.Module", **options: typing.Any):
        arguments.must_have("Optimizer(optimizer, client, model)", "optimizer", optimizer,
                            ("param_groups", "step"), "the torch.optim.Optimizer that is wrapped")
        self.optimizer = optimizer
        self.run = AsyncDiLoCo(client, model, optimizer, hook=False, **options)
        self.run.__enter__()  # pylint: disable=unnecessary-dunder-call

    def step(self, *arguments: typing.Any, tokens: int | None = None) -> typing.Any:
        """Calls the wrapped optimizer's step(), then makes the boundary."""
        result = self.optimizer.step(*arguments)
        self.run.step(tokens)
        return result

    def finish(self) -> None:
        """Waits for the end of the run, takes its final parameters and closes the client."""
        self.run.__exit__(None)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self.optimizer, name)
