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
from .data import digest_of, read_tokens

if typing.TYPE_CHECKING:
    import torch

    from .diloco import AsyncDiLoCo

_log = logging.getLogger("longhaul")
Losses = typing.Dict[str, float]
FILE, BEST = "evaluation.json", "best.safetensors"


def heldout_of(data: str) -> dict[str, typing.Any]:
    """Gives the tokens of the held-out texts of units.json, by language."""
    path = os.path.join(data, "units.json")
    try:
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["heldout"]
    except (KeyError, TypeError, json.JSONDecodeError) as why:
        raise ValueError(f"{path} is not what `longhaul data prepare` or save_units() writes "
                         f"({type(why).__name__}: {why})") from why
    if not rows:
        raise ValueError(f"{data}/units.json: no text is held out, so there is nothing to evaluate "
                         "on: save_units(..., heldout={language: documents}) holds some out, and "
                         "`python3 -m longhaul.prepare` takes TEXT/heldout/LANGUAGE/")
    return {row["language"]: _tokens_of(data, row) for row in rows}


def _tokens_of(data: str, row: dict[str, typing.Any]) -> typing.Any:
    path = os.path.join(data, row["file"])
    tokens = read_tokens(path, 0, row["tokens"])
    if "sha256" in row and digest_of(tokens) != row["sha256"]:
        raise ValueError(f"{path} is not the held-out text of units.json (sha256): copy it anew "
                         "from where the data were prepared")
    return tokens


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


def _length(call: str, model: "torch.nn.Module", wanted: int | None) -> int:
    """Tokens per sequence: as many as the model has positions for (transformers), at most 512."""
    positions = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    most = positions if isinstance(positions, int) and positions > 1 else sys.maxsize
    if wanted is None:
        return min(512, most)
    arguments.must_be_number(call, "sequence_length", wanted, 2)
    if wanted > most:
        raise ValueError(f"the model takes {most} tokens at a time, and sequence_length is "
                         f"{wanted}: pass at most {most}")
    return wanted


def evaluate(model: "torch.nn.Module", data: str, *, sequence_length: int | None = None,
             batch_size: int = 8, most_tokens: int | None = None) -> Losses:
    """Gives the mean negative log likelihood per token (nats) of each held-out text, by language.

    The model is in evaluation mode during the call.

    :param model: maps a batch of token ids to logits, or to an object with an attribute `logits`
        (transformers).
    :param data: the folder of units.json.
    :param sequence_length: tokens per sequence. The last sequence of a text may be shorter. None:
        512, or as many as the model has positions for (transformers).
    :param batch_size: sequences per batch.
    :param most_tokens: tokens to evaluate per language; None: all.
    """
    import torch  # pylint: disable=import-outside-toplevel

    call = "evaluate(model, data)"
    arguments.must_be_model(call, model)
    arguments.must_be_path(call, "data", data, "the folder of units.json")
    length = _length(call, model, sequence_length)
    arguments.must_be_number(call, "batch_size", batch_size, 1)
    device = next(model.parameters()).device
    losses = {}
    with _at_rest(model):
        for language, tokens in heldout_of(data).items():
            ids = torch.tensor(list(tokens[:most_tokens]), dtype=torch.long)
            whole = len(ids) // length * length
            batches = list(ids[:whole].view(-1, length).split(batch_size))
            if len(ids) - whole > 1:
                batches.append(ids[whole:].view(1, -1))
            total = count = 0.0
            for batch in batches:
                batch = batch.to(device)
                try:
                    logits = _logits(model, batch)[:, :-1].float()
                except IndexError as why:
                    raise ValueError(
                        f"the model does not take the tokens of {language}, the largest of which "
                        f"is {int(ids.max())}: was the text made with another tokenizer? ({why})"
                    ) from why
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
    other = [n for n, s in shapes.items() if (tuple(named[mine[n]].shape) or (1,)) != s]
    if other:
        raise ValueError(f"{other[0]} is {tuple(named[mine[other[0]]].shape)} in the model and "
                         f"{shapes[other[0]]} in {manifest}: is it the model of this run?")
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
    training. If the region is lost, the coordinator logs `eval.stopped`, and no other one evaluates
    in its place; in the loops of two regions each writes its own files. `longhaul top` and the
    worker's status show the losses. Two files are written:

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
        self._take_up(self._languages())
        self._could = self.found["before"] is not None  # the model was evaluated once
        if run.client.rank:
            return
        if self.found["before"] is None:
            self.found["before"] = self._try()
            self._keep()
        run.on_cut(self._cut)
        run.on_end(self._end)

    def _languages(self) -> set[str] | None:
        """Reads the texts, so that missing ones are reported at once; later in a run they end no
        loop. None: a loop was started again, and they can't be read any more."""
        try:
            return set(heldout_of(self._data))
        except (OSError, ValueError) as why:
            if not os.path.exists(os.path.join(self._folder, FILE)):
                raise
            _log.warning("longhaul: nothing is evaluated: %s", why)
            return None

    def _try(self) -> dict[str, typing.Any] | None:
        """Evaluates. If that fails, logs it; training goes on."""
        try:
            losses = self._losses()
        except (OSError, ValueError) as why:
            _log.warning("longhaul: the model was not evaluated: %s", why)
            return None
        return self._seen(losses)

    def _losses(self) -> Losses:
        try:
            losses = evaluate(self._run.model, self._data, **self._given)
        except (RuntimeError, MemoryError) as why:  # PyTorch's for a device without memory, too
            if not self._could:
                raise  # it never worked: the script is wrong
            raise ValueError(f"{type(why).__name__}: {why}") from why
        self._could = True
        return losses

    def _seen(self, losses: Losses) -> dict[str, typing.Any]:
        self._run.report(heldout=mean(losses),  # first: the worker shows so many figures alone
                         **{f"heldout_{n}": v for n, v in losses.items()})
        return {"losses": losses, "mean": mean(losses),
                "credited_tokens": self._run.client.credited(),
                "versions": _versions(self._folder)}

    def _take_up(self, languages: set[str] | None) -> None:
        """Continues an earlier evaluation.json, if it has the same languages. None: any."""
        try:
            with open(os.path.join(self._folder, FILE), encoding="utf-8") as file:
                had = json.load(file)
            seen = [had["before"], had.get("best"), had.get("after")]
            if languages is None or all(set(s["losses"]) == languages for s in seen if s):
                self.found.update(had)
            else:
                _log.warning("longhaul: %s has other languages than the data; it is replaced",
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
        seen = self._try()
        if seen is None:
            return
        self.found["rounds"] = [*self.found["rounds"], seen][-1000:]
        self._consider(seen, f"round {self.found['cuts']}")
        self._keep()
        _log.info("longhaul: held-out loss %.4f at %d credited tokens", seen["mean"],
                  seen["credited_tokens"])

    def _end(self) -> None:
        self.found["after"] = seen = self._try()
        if seen is not None:
            self._consider(seen, "the end")
        self._keep()
        if self.found["before"] is not None:
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

    if not os.path.isdir(given.model):
        raise FileNotFoundError(f"{given.model}: no such folder")
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
    parser.add_argument("--sequence-length", type=int,
                        help="tokens a sequence (512, or as many as the model takes)")
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
    except (ValueError, OSError, KeyError, ImportError, AttributeError, IndexError) as why:
        kind = "" if isinstance(why, (ValueError, OSError)) else f"{type(why).__name__}: "
        print(f"longhaul.heldout: {kind}{why}", file=sys.stderr)
        return 1
    print(json.dumps(columns) if given.o == "json" else table(columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
