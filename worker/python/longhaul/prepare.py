"""Makes a run's units from texts, with a tokenizer of the package `tokenizers`.

    python3 -m longhaul.prepare --tokenizer DIR --text TEXT --out data [--unit-tokens N]

TEXT/REGION/LANGUAGE/, with subfolders, holds the documents of a region and a language:

    .txt, .txt.gz        one document
    .jsonl, .jsonl.gz    one document per line, the "text" of a JSON object

After each document the tokenizer's end mark is added. TEXT/heldout/LANGUAGE/ (or LANGUAGE.txt)
holds documents that no region trains, for `longhaul eval` and longhaul.Evaluation. Skipped files
are listed. A dangling link, an unreadable folder and a language without a document are errors.
"""
from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import typing
import zlib

from .units import save_units

_KINDS = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")
_MARKS = ("</s>", "<|endoftext|>", "<eos>", "<|end_of_text|>", "[SEP]")


def _fail(why: OSError) -> typing.NoReturn:
    raise why


def files_of(folder: str, passed: list[str]) -> list[str]:
    """Gives the text files in a folder, in order. Appends the paths of other files to `passed`."""
    found = []
    for at, inner, names in os.walk(folder, onerror=_fail):
        inner.sort()
        for name in sorted([*names, *(d for d in inner if os.path.islink(os.path.join(at, d)))]):
            path = os.path.join(at, name)
            if not os.path.exists(path):
                raise ValueError(f"{path} is a link to {os.readlink(path)}, which is not there")
            if name.endswith(_KINDS) and os.path.isfile(path):
                found.append(path)
            else:
                passed.append(path)
    return found


def documents_of(path: str) -> typing.Iterator[str]:
    """Gives the documents of a file, except empty ones."""
    try:
        yield from _documents(path)
    except UnicodeDecodeError as why:
        raise ValueError(f"{path} is no text in UTF-8 ({why.reason}): convert or remove "
                         "it") from why
    except (gzip.BadGzipFile, EOFError, zlib.error) as why:
        raise ValueError(f"{path} is no whole .gz file ({why}): copy it anew") from why


def _documents(path: str) -> typing.Iterator[str]:
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        if ".jsonl" not in os.path.basename(path):
            text = file.read()
            if text:
                yield text
            return
        for number, line in enumerate(file, 1):
            try:
                text = json.loads(line)["text"] if line.strip() else ""
            except (ValueError, KeyError, TypeError) as why:
                raise ValueError(f"{path}:{number}: not a JSON object with a \"text\"") from why
            if text:
                yield text


def _heldout(folder: str, passed: list[str]) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Gives the held-out files of each language, and the bytes of their texts."""
    found: dict[str, list[str]] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            found.setdefault(name, []).extend(files_of(path, passed))
        elif name.endswith(_KINDS):
            found.setdefault(name.split(".")[0], []).append(path)
        else:
            passed.append(path)
    empty = [language for language, files in found.items() if not files]
    if empty:
        raise ValueError(f"{os.path.join(folder, empty[0])} holds no file that is used "
                         f"({', '.join(_KINDS)})")
    return found, {language: sum(len(d.encode()) for path in files for d in documents_of(path))
                   for language, files in found.items()}


def prepare(tokenizer: typing.Any, text: str, out: str, unit_tokens: int = 8192,
            mark: str | None = None) -> tuple[int, list[str]]:
    """Writes the units. Gives their number, and the paths of skipped files. `mark`: the token that
    ends a document; None: the first of _MARKS that the tokenizer has."""
    passed: list[str] = []
    ends = [mark] if mark else list(_MARKS)
    end = next((i for i in map(tokenizer.token_to_id, ends) if i is not None), None)
    if end is None:
        raise ValueError(f"the tokenizer has none of {', '.join(ends)}: --mark names the token "
                         "that ends a document")

    def tokens(files: list[str]) -> typing.Iterator[list[int]]:
        for path in files:
            for document in documents_of(path):
                yield [*tokenizer.encode(document, add_special_tokens=False).ids, end]
    held, held_bytes = _heldout(os.path.join(text, "heldout"), passed)
    regions: dict[str, dict[str, typing.Iterator[list[int]]]] = {}
    for region in sorted(os.listdir(text)):
        folder = os.path.join(text, region)
        if region == "heldout":
            continue
        if not os.path.isdir(folder):
            passed.append(folder)
            continue
        languages = sorted(os.listdir(folder))
        if not any(os.path.isdir(os.path.join(folder, language)) for language in languages):
            raise ValueError(f"{folder} holds no folder of a language: is a disk mounted there? "
                             "Take the folder away if it is no region's")
        for language in languages:
            path = os.path.join(folder, language)
            if not os.path.isdir(path):
                passed.append(path)
                continue
            files = files_of(path, passed)
            if not files:
                raise ValueError(f"{path} holds no file that is used ({', '.join(_KINDS)})")
            regions.setdefault(region, {})[language] = tokens(files)
    if not regions:
        raise ValueError(f"{text} holds no folder REGION/LANGUAGE")
    made = save_units(regions, out, tokenizer.get_vocab_size(), unit_tokens=unit_tokens,
                      heldout={language: tokens(files) for language, files in held.items()},
                      heldout_bytes=held_bytes)
    return made, passed


def _tokenizer_of(path: str) -> typing.Any:
    try:
        from tokenizers import Tokenizer  # pylint: disable=import-outside-toplevel
    except ImportError as why:
        raise ValueError(f"{why}: pip install tokenizers") from why
    if os.path.isdir(path):
        path = os.path.join(path, "tokenizer.json")
    if not os.path.isfile(path):
        raise ValueError(f"{path}: no such file; --tokenizer names a tokenizer.json, or the folder "
                         "of a model that has one")
    try:
        return Tokenizer.from_file(path)
    except Exception as why:  # tokenizers raises no other kind
        raise ValueError(f"{path} is no tokenizer.json of `tokenizers` ({why})") from why


def main(words: list[str] | None = None) -> int:
    """Runs the command line; gives its exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m longhaul.prepare",
                                     description="Makes a run's units from texts.")
    parser.add_argument("--tokenizer", required=True, help="tokenizer.json, or a folder with it")
    parser.add_argument("--text", required=True, help="folder of REGION/LANGUAGE/")
    parser.add_argument("--out", required=True, help="folder for units.json and the token files")
    parser.add_argument("--unit-tokens", type=int, default=8192)
    parser.add_argument("--mark", help="token that ends a document (the tokenizer's own)")
    given = parser.parse_args(words)
    try:
        made = _tokenizer_of(given.tokenizer)
        units, passed = prepare(made, given.text, given.out, given.unit_tokens, given.mark)
    except (ValueError, OSError) as why:
        print(f"longhaul.prepare: {why}", file=sys.stderr)
        return 1
    for one in passed:
        print(f"passed over: {one}")
    print(f"{units} units of {given.unit_tokens} tokens in {given.out}/units.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
