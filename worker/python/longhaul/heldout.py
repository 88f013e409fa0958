"""Evaluates a model on held-out texts, by language: before, during and after a run.

    python3 -m longhaul.heldout --model FOLDER --data data [--manifest model.json --weights FILE]

prints the mean negative log likelihood per token of each held-out text in `data`, for the model in
FOLDER. With the weights of a run it also prints the losses of the trained model. `longhaul eval
--model FOLDER` calls this program. `save_units(..., heldout=)` and `python3 -m longhaul.prepare`
write held-out texts.
"""
from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import math
import os
import sys
import typing

from . import arguments, parameters
from .data import read_tokens

if typing.TYPE_CHECKING:
    import torch

    from .diloco import AsyncDiLoCo

_log = logging.getLogger("longhaul")
Losses = typing.Dict[str, float]
FILE, BEST = "evaluation.json", "best.safetensors"


def heldout_of(data: str) -> dict[str, typing.Any]:
    """Gives the tokens of the held-out texts of units.json, by language."""
    with open(os.path.join(data, "units.json"), encoding="utf-8") as file:
        rows = json.load(file)["heldout"]
    if not rows:
        raise ValueError(f"{data}/units.json: no text is held out, so there is nothing to evaluate "
                         "on: save_units(..., heldout={language: documents}) holds some out, and "
                         "`python3 -m longhaul.prepare` takes TEXT/heldout/LANGUAGE/")
    return {row["language"]: read_tokens(os.path.join(data, row["file"]), 0, row["tokens"])
            for row in rows}


def _logits(model: typing.Any, batch: "torch.Tensor") -> "torch.Tensor":
    out = model(batch)
    return getattr(out, "logits", out)


@contextlib.contextmanager
def _at_rest(model: "torch.nn.Module") -> typing.Iterator[None]:
    """Turns dropout and gradients off; restores the model's training mode afterwards."""
    import torch  # pylint: disable=import-outside-toplevel

    trained = [m for m in model.modules() if m.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for m in trained:
            m.training = True


def evaluate(model: "torch.nn.Module", data: str, *, sequence_length: int = 512,
             batch_size: int = 8, most_tokens: int | None = None) -> Losses:
    """Gives the mean negative log likelihood per token (nats) of each held-out text, by language.

    The model is in evaluation mode during the call.

    :param model: maps a batch of token ids to logits, or to an object with an attribute `logits`
        (transformers).
    :param data: the folder of units.json.
    :param sequence_length: tokens per sequence. The last sequence of a text may be shorter.
    :param batch_size: sequences per batch.
    :param most_tokens: tokens to evaluate per language; None: all.
    """
    import torch  # pylint: disable=import-outside-toplevel

    call = "evaluate(model, data)"
    arguments.must_be_model(call, model)
    arguments.must_be_path(call, "data", data, "the folder of units.json")
    for name, value in (("sequence_length", sequence_length), ("batch_size", batch_size)):
        arguments.must_be_number(call, name, value, 1 if name == "batch_size" else 2)
    device = next(model.parameters()).device
    losses = {}
    with _at_rest(model):
        for language, tokens in heldout_of(data).items():
            ids = torch.tensor(list(tokens[:most_tokens]), dtype=torch.long)
            whole = len(ids) // sequence_length * sequence_length
            batches = list(ids[:whole].view(-1, sequence_length).split(batch_size))
            if len(ids) - whole > 1:
                batches.append(ids[whole:].view(1, -1))
            total = count = 0.0
            for batch in batches:
                batch = batch.to(device)
                logits = _logits(model, batch)[:, :-1].float()
                total += float(torch.nn.functional.cross_entropy(
                    logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1),
                    reduction="sum"))
                count += batch[:, 1:].numel()
            if not count:
                raise ValueError(f"the held-out text of {language} has fewer than two tokens")
            losses[language] = total / count
    return losses


def load_weights(model: "torch.nn.Module", manifest: str, weights: str) -> None:
    """Loads a run's parameters into a model.

    :param manifest: path of the run's model.json.
    :param weights: path of a worker's final.weights, or of final.bin of `longhaul up`.
    """
    import torch  # pylint: disable=import-outside-toplevel

    shapes = parameters.shapes_of(parameters.read_manifest(manifest))
    named = parameters.names_of(model)
    mine = parameters.matched(shapes, named)
    missing = [n for n in shapes if n not in mine]
    if missing:
        raise ValueError(f"the model has no parameter {parameters.some(missing)}, which {manifest} "
                         "names")
    values = sum(_count(s) for s in shapes.values())
    if os.path.getsize(weights) != 4 * values:
        raise ValueError(f"{weights} has {os.path.getsize(weights)} bytes, and {manifest} wants "
                         f"{4 * values}")
    with open(weights, "rb") as file, torch.no_grad():
        for name, shape in shapes.items():
            flat = torch.frombuffer(bytearray(file.read(4 * _count(shape))), dtype=torch.float32)
            named[mine[name]].copy_(flat.view(named[mine[name]].shape))


def _count(shape: typing.Iterable[int]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def mean(losses: Losses) -> float:
    """The mean over languages; each language counts the same."""
    return sum(losses.values()) / len(losses)


def table(columns: typing.Mapping[str, Losses]) -> str:
    """Gives a table: a row per language, a column per entry. With several columns, an additional
    one shows the last minus the first."""
    languages = list(next(iter(columns.values())))
    names = list(columns)
    lines = [f"{'nats a token':<12}" + "".join(f"{n:>12}" for n in names) +
             (f"{'change':>12}" if len(names) > 1 else "")]
    for language in [*languages, "mean"]:
        row = [mean(columns[n]) if language == "mean" else columns[n][language] for n in names]
        change = f"{row[-1] - row[0]:>+12.4f}" if len(row) > 1 else ""
        lines.append(f"{language:<12}" + "".join(f"{v:>12.4f}" for v in row) + change)
    return "\n".join(lines)


def _versions(folder: str) -> list[int]:
    """Gives the version of each shard in the worker's replicas, from its status.json."""
    try:
        with open(os.path.join(folder, "status.json"), encoding="utf-8") as file:
            return [s["version"] for s in json.load(file)["shards"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


class Evaluation:
    """Evaluates the loop's model on held-out texts: at the start, every `every` rounds, at the end.

    ::

        with longhaul.AsyncDiLoCo(client, model, optimizer) as run:
            longhaul.Evaluation(run, "data", every=16)
            for batch in ...

    Create it in the loop of one region. That loop waits during an evaluation; other regions go on
    training. `longhaul top` and the worker's status show the losses. Two files are written:

    - `evaluation.json`: the losses before the run, at each evaluated round and after the run, with
      the credited tokens and the shards' versions at that time. A restarted loop continues it.
    - `best.safetensors`: the parameters with the lowest mean loss.

    At the end a table of the losses by language is printed.

    :param data: the folder of units.json.
    :param every: rounds (cuts) between two evaluations.
    :param folder: folder of the two files; None: the worker's directory.
    :param given: options of :func:`evaluate`.
    """

    def __init__(self, run: "AsyncDiLoCo", data: str, *, every: int = 16,
                 folder: str | None = None, **given: typing.Any):
        arguments.must_have("Evaluation(run, data)", "run", run, ("client", "on_cut"),
                            "what `with AsyncDiLoCo(...) as run` gives")
        arguments.must_be_number("Evaluation(run, data)", "every", every, 1)
        self._run, self._data, self._every, self._given = run, data, every, given
        self._folder = folder or os.path.dirname(os.environ.get("LONGHAUL_SOCKET", "")) or "."
        self.found: dict[str, typing.Any] = {"before": None, "rounds": [], "best": None,
                                             "after": None, "cuts": 0}
        self._take_up(set(heldout_of(data)))  # reports missing files at once
        if run.client.rank:
            return
        if self.found["before"] is None:
            self.found["before"] = self._look()
            self._keep()
        run.on_cut(self._cut)
        run.on_end(self._end)

    def _look(self) -> dict[str, typing.Any]:
        losses = evaluate(self._run.model, self._data, **self._given)
        self._run.report(**{f"heldout_{n}": v for n, v in losses.items()},
                         heldout=mean(losses))
        return {"losses": losses, "mean": mean(losses),
                "credited_tokens": self._run.client.credited(),
                "versions": _versions(self._folder)}

    def _take_up(self, languages: set[str]) -> None:
        """Continues an earlier evaluation.json, if it has the same languages."""
        try:
            with open(os.path.join(self._folder, FILE), encoding="utf-8") as file:
                had = json.load(file)
            seen = [had["before"], had.get("best"), had.get("after")]
            if all(set(s["losses"]) == languages for s in seen if s):
                self.found.update(had)
            else:
                _log.warning("longhaul: %s has other languages than the data: it is replaced",
                             file.name)
        except (OSError, ValueError, KeyError, TypeError):
            pass

    def _keep(self) -> None:
        """Writes evaluation.json. If that fails (disk full), logs it; training goes on."""
        path = os.path.join(self._folder, FILE)
        try:
            with open(path + ".tmp", "w", encoding="utf-8") as file:
                json.dump(self.found, file, indent=1)
            os.replace(path + ".tmp", path)
        except OSError as why:
            _log.warning("longhaul: evaluation.json was not written: %s", why)

    def _consider(self, seen: dict[str, typing.Any], when: str) -> None:
        from . import buffers  # pylint: disable=import-outside-toplevel

        best = self.found["best"]
        if not math.isfinite(seen["mean"]) or (best and seen["mean"] >= best["mean"]):
            return
        named = {n: p for n, p in parameters.names_of(self._run.model).items() if p.requires_grad}
        try:
            buffers.write(os.path.join(self._folder, BEST), named)
        except OSError as why:
            _log.warning("longhaul: the best parameters were not written: %s", why)
            return
        self.found["best"] = {**seen, "when": when}

    def _cut(self) -> None:
        self.found["cuts"] += 1
        if self.found["cuts"] % self._every:
            return
        seen = self._look()
        self.found["rounds"] = [*self.found["rounds"], seen][-1000:]
        self._consider(seen, f"round {self.found['cuts']}")
        self._keep()
        _log.info("longhaul: held-out loss %.4f at %d credited tokens", seen["mean"],
                  seen["credited_tokens"])

    def _end(self) -> None:
        self.found["after"] = seen = self._look()
        self._consider(seen, "the end")
        self._keep()
        print(self.verdict(), flush=True)

    def verdict(self) -> str:
        """Gives the table of losses by language, and a line about the best parameters."""
        columns = {n: self.found[n]["losses"] for n in ("before", "best", "after") if self.found[n]}
        best = self.found["best"]
        line = "" if best is None else (
            f"\nbest: {best['when']}, mean {best['mean']:.4f} at {best['credited_tokens']} "
            f"credited tokens, versions {best['versions']}: {os.path.join(self._folder, BEST)}")
        return table(columns) + line


def _model_of(given: argparse.Namespace) -> "torch.nn.Module":
    if given.load:
        sys.path.insert(0, os.getcwd())
        module, _, function = given.load.partition(":")
        return getattr(importlib.import_module(module), function or "load")()
    from transformers import AutoModelForCausalLM  # pylint: disable=import-outside-toplevel

    return AutoModelForCausalLM.from_pretrained(given.model)


def main(words: list[str] | None = None) -> int:
    """Runs the command line; gives its exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m longhaul.heldout",
                                     description="Held-out losses by language.")
    parser.add_argument("--model", help="a folder in Hugging Face's format")
    parser.add_argument("--load", help="MODULE:FUNCTION that returns the model, instead of --model")
    parser.add_argument("--data", required=True, help="folder of units.json")
    parser.add_argument("--manifest", help="the run's model.json")
    parser.add_argument("--weights", help="the run's parameters: final.weights, final.bin")
    parser.add_argument("--sequence-length", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--most-tokens", type=int, help="tokens per language (default: all)")
    parser.add_argument("-o", choices=("table", "json"), default="table")
    given = parser.parse_args(words)
    if bool(given.model) == bool(given.load) or bool(given.manifest) != bool(given.weights):
        parser.error("--model or --load, and --manifest with --weights")
    how = {"sequence_length": given.sequence_length, "batch_size": given.batch_size,
           "most_tokens": given.most_tokens}
    try:
        model = _model_of(given)
        columns = {"before": evaluate(model, given.data, **how)}
        if given.weights:
            load_weights(model, given.manifest, given.weights)
            columns["after"] = evaluate(model, given.data, **how)
    except (ValueError, OSError, KeyError) as why:
        print(f"longhaul.heldout: {why}", file=sys.stderr)
        return 1
    print(json.dumps(columns) if given.o == "json" else table(columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
