"""AsyncDiLoCo: a training loop of PyTorch joins a run, and leaves with its final parameters."""
from __future__ import annotations

import contextlib
import inspect
import logging
import os
import time
import typing

from . import arguments, buffers, errors, final, finite, group, hooks, hosts, parameters, watch
from . import client as _client
from .kept import KeptState

if typing.TYPE_CHECKING:
    import torch

_log = logging.getLogger("longhaul")


# Arguments of other libraries' wrappers, and their counterparts here.
_SETTINGS = {"sync_every": "coordinator.h_base", "local_sgd_steps": "coordinator.h_base",
             "fragment_sync_delay": "coordinator.h_base", "compression": "codec.*",
             "outer_optimizer": "update.*", "target_batch_size": "coordinator.h_base",
             "run_id": "the worker's settings file"}


def _of_the_run(settings: dict[str, object]) -> None:
    """For an argument that AsyncDiLoCo does not take: names its counterpart."""
    for name in settings:
        if name in _SETTINGS:
            raise TypeError(f"{name} is a setting of the run, equal for all who take part, and not "
                            f"of a loop: {_SETTINGS[name]}")
        raise TypeError(f"AsyncDiLoCo() takes no {name}")


def check_options(call: str, options: typing.Mapping[str, typing.Any],
                  own: typing.Container[str] = ()) -> None:
    """Options that a wrapper passes on to AsyncDiLoCo later: what is wrong is said at once. `own`:
    those that the wrapper sets itself."""
    known = inspect.signature(AsyncDiLoCo.__init__).parameters
    for name in options:
        if name in own:
            raise TypeError(f"{call}: {name} is not yours to give here: leave it out")
    _of_the_run({n: v for n, v in options.items()
                 if n not in known or known[n].kind != inspect.Parameter.KEYWORD_ONLY})
    _check_options(call, **options)


def _check_options(call: str, *, manifest: typing.Any = None, tokens_per_step: typing.Any = 0,
                   timeout_s: typing.Any = 600, keep: typing.Any = None,
                   keep_every: typing.Any = 16, masters: typing.Any = None,
                   schedule: typing.Any = None, hook: typing.Any = True,
                   batches_per_step: typing.Any = None,
                   reset_optimizer: typing.Any = False) -> None:
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


def _check_given(client: object, model: object, optimizer: object, hook: bool) -> None:
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


def _two_kinds() -> errors.StateError:
    return errors.StateError(
        "a LeasedDataLoader counts the tokens of its batches, and they would count twice: leave "
        "tokens_per_step, trained() and step(tokens) out, or the loader", errors.StateError.code)


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
    :param masters: of an optimizer that steps on fp32 copies of bf16 parameters: a mapping, or a
        function, from a parameter of the model to its copy. Progress is measured on the copies,
        corrections are added to them, and the parameters are made of them anew. None: they are
        looked for where Megatron, apex and Transformer Engine keep them.
    :param schedule: "local": the loop's own scheduler is kept, though rates of regions may differ
        by it. None: the same, and a warning says so where there is one. :class:`longhaul.schedule`
        takes its place. The worker's status says which it is.
    :param timeout_s: how long to wait for the worker at the start, and after it went away for
        longer than 1,000 steps. Several ranks wait for each other ten seconds longer
        at most; the error of one is a :class:`RankError` of the others.
    :param reset_optimizer: True: what `keep` kept is left aside this time, and the optimizer begins
        with the state that it is given with. The next cut is kept as always.
    :param batches_per_step: the most batches that the loop takes for one optimizer step. A loop
        that takes more without a boundary is told so by an error. None: 256.
    :param settings: none; a word of another library is an error that says which setting it is.
    """

    def __init__(self, client: _client.Client, model: "torch.nn.Module",
                 inner_optimizer: "torch.optim.Optimizer | None", *,
                 manifest: str | os.PathLike[str] | None = None,
                 tokens_per_step: int = 0, timeout_s: float = 600, hook: bool = True,
                 keep: str | os.PathLike[str] | bool | None = None, keep_every: int = 16,
                 masters: parameters.Masters = None, schedule: str | None = None,
                 batches_per_step: int | None = None, reset_optimizer: bool = False,
                 **settings: object):
        _of_the_run(settings)
        _check_options("AsyncDiLoCo", manifest=manifest, tokens_per_step=tokens_per_step,
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
        self.restarts = 0      # lives ended by the worker; their uncut progress is lost
        self.steps = 0         # boundaries of this life
        self._tokens = 0       # trained since the last boundary
        self._counts = False   # it counts tokens, or was told not to
        self._hook = hook
        self._hooks: list[typing.Any] = []
        self._cut_flies = False  # the client's before_step() must come before parameters change
        self._step_holds = False  # the optimizer's step() calls it
        self._masters = masters
        self._settled = inner_optimizer is None  # its master weights are described
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

    _check = staticmethod(_check_given)  # the arguments of this class

    @property
    def finished(self) -> bool:
        """The run wants no further steps."""
        if self._entered and not self._left and not self._finished:
            with self._telling():
                self._patience.look()
        return self._finished

    @finished.setter
    def finished(self, is_so: bool) -> None:
        self._finished = is_so

    def handed(self, batches: int, again: bool = False) -> None:
        """For loaders: so many batches are the loop's since the last step, with the one that comes;
        `again`: it had that one before. Raises where no step can be meant to come."""
        with self._telling():
            self._patience.handed(batches, again)

    # ---- a life

    def __enter__(self) -> "AsyncDiLoCo":
        if self._entered:
            raise errors.StateError("this AsyncDiLoCo has begun before: each run wants one of its "
                                    "own, made anew", errors.StateError.code)
        self._entered = True
        with self._telling():
            self._join()
        return self

    def _must_run(self, call: str) -> None:
        if not self._entered:
            raise errors.StateError(f"{call} comes within `with AsyncDiLoCo(...) as run:`, which "
                                    "connects with the worker", errors.StateError.code)
        if self._left and not self.finished:
            raise errors.StateError(f"{call} comes after the end of this AsyncDiLoCo, whose loop "
                                    "was broken off", errors.StateError.code)

    @contextlib.contextmanager
    def _telling(self) -> typing.Iterator[None]:
        """An error that ends this rank ends all: the others get its reason and end their life."""
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
            _log.warning("longhaul: %.1f MB of this process hold in fp32 what bf16 parameters "
                         "can't (4 bytes a value)", shadow / 1e6)
        shadow = sum(4 * d.shadow.kept.numel() for d in self._described if d.shadow)
        if shadow:
            _log.warning("longhaul: %.1f MB of the GPU's memory hold in fp32 what bf16 parameters "
                         "can't (4 bytes a value); an optimizer with fp32 masters needs none",
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
        """Waits for copies from a GPU of the parameters that the optimizer is about to change."""
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
        """True: the optimizer has other masters than the client knows. Another life began, and what
        no cut holds of this one is dropped.

        Optimizers make masters with their first step: the client hears of them before this life's
        first boundary, and nothing is lost but that step. Later they come with a parameter's first
        gradient, or by load_state_dict(): the client hears of them where a cut or a renewal is due,
        before it touches what nobody trains any more."""
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
        _log.warning("longhaul: %s", why)
        mine = self._recovery.look(self._described), self.client.state().committed > 0
        found = group.of_all(mine, self.client.ranks, self.together)
        names = list(dict.fromkeys(n for of, _ in found for n in of))
        self._recovery.ended(names, all(cut for _, cut in found))
        self.restarts += 1
        self._begin()
        self._recover()

    def _recover(self) -> None:
        """The parameters are valid again; the optimizer may not be, on any rank."""
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
        """For loaders of leased units: `begun` is called when a life begins, and what was leased
        in the last one is gone; `noted` after a step and before its boundary: it notes what the
        step trained and gives the tokens."""
        if self.tokens_per_step or self._tokens:
            raise _two_kinds()
        self._begun.append(begun)
        self._noted.append(noted)

    def on_cut(self, call: typing.Callable[[], None]) -> None:
        """`call` runs after each cut, at a boundary; it may take long and must change nothing."""
        self._on_cut.append(call)

    def on_end(self, call: typing.Callable[[], None]) -> None:
        """`call` runs once the model has the run's final parameters."""
        self._on_end.append(call)

    # ---- boundaries

    def trained(self, tokens: int) -> None:
        """This many tokens were trained by the last step, or will be by the next one."""
        if self._noted and tokens:
            raise _two_kinds()
        self._tokens += tokens
        with self._telling():
            self._patience.trained()

    def step(self, tokens: int | None = None) -> bool:
        """After an optimizer step. True: the loop goes on."""
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
        """A boundary without a step, for loops that wait for a lease; then waits for news."""
        self._must_run("idle()")
        with self._telling():
            self._boundary(False)
            if not self.finished:
                try:
                    self.news(timeout_s)
                except errors.RestartError as why:
                    self._restart(why)

    def news(self, timeout_s: float = 1) -> bool:
        """Sleeps until the worker says anything new; False: it did not. The worker may wait for a
        cut from a GPU meanwhile: it gets that, and no parameter may change before."""
        self._before_change()
        return self.client.wait(timeout_s)

    def _boundary(self, step: bool) -> None:
        if self._finished:
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
            _log.warning("longhaul: the worker is away for %d steps; waiting for it",
                         self.client.state().away_steps)
            if not self.news(self.timeout_s):
                raise errors.TimedOutError(
                    f"the worker did not come back in {self.timeout_s:g} s; start it again with "
                    "the same command", errors.TimedOutError.code)
        if due & _client.Due.PAUSE:
            _log.warning("longhaul: the run is paused; waiting until it is resumed")
            while not self.news():
                pass
        if due & _client.Due.DRAIN:
            self.finished = True

    def _say_schedule(self) -> None:
        """Warns at a life's first cut if rates do not follow the run's clock."""
        if self._scheduled or self.client.follows:
            return
        self._scheduled = True
        own = any(hasattr(getattr(o, "step", None), "_wrapped_by_lr_sched")  # by its constructor
                  for o in (self.optimizer, self._given))
        if own and not self._schedule and not self.client.rank:
            _log.warning("longhaul: the learning rate follows this loop's own scheduler, so that "
                         "regions of other speed have other rates: longhaul.schedule(optimizer, "
                         "client, total_tokens) follows the run's clock; schedule='local' says "
                         "that it is meant so")
        if own or self._schedule:
            self.client.schedule(_client.Follows.LOCAL)

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
        """Tells the worker the loop's own figures: `longhaul top`, `longhaul up` and the loss curve
        show the loss, and the worker's status the others (16 at most). Numbers, or tensors of one
        value, of which float() waits for a GPU. Several ranks: rank 0's count. What is not finite
        is not told. Never waits for the worker."""
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
        """For a tracker: the run's figures known to this process."""
        s = self.client.state()
        return {"longhaul/credited_tokens": self.client.credited(), "longhaul/cuts": s.cuts,
                "longhaul/renewals": s.renewals, "longhaul/worker_lives": float(s.worker_lives),
                "longhaul/restarts": self.restarts}


class Optimizer:
    """An optimizer whose step() is also the boundary. Everything else is the wrapped one's."""

    def __init__(self, optimizer: "torch.optim.Optimizer", client: _client.Client,
                 model: "torch.nn.Module", **options: typing.Any):
        arguments.must_have("Optimizer(optimizer, client, model)", "optimizer", optimizer,
                            ("param_groups", "step"), "the torch.optim.Optimizer that is wrapped")
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
