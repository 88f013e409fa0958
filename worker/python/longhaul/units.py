"""save_units: writes the data of a run from tokens of any tokenizer. `longhaul data prepare` does
this with bytes as tokens. common/format/units.h has the format."""
from __future__ import annotations

import array
import contextlib
import fractions
import hashlib
import json
import operator
import os
import re
import struct
import sys
import typing

from . import arguments

_Documents = typing.Iterable[typing.Sequence[int]]
_WORD = re.compile(r"(?!\.)(?!.*\.\.)[A-Za-z0-9._-]+\Z")  # safe in a path
_CALL = "save_units(tokens, folder, vocabulary)"
_HEADER = 256                                             # int32 values before a file's tokens
_FILE_TOKENS = 1 << 26


def _checked(kind: str, name: str, most: int) -> str:
    if not isinstance(name, str) or not _WORD.match(name) or len(name) > most:
        raise ValueError(f"a {kind} has a name of at most {most} letters, digits and ._-, not "
                         f"{name!r}")
    return name


def _ids(where: str, document: typing.Sequence[int], vocabulary: int, width: str) -> array.array:
    """Gives the token ids of a document. Refuses what is no sequence of ids below the vocabulary.
    """
    ids = array.array(width)
    try:
        operator.index(next(iter(document), 0))
        low, high = (min(document), max(document)) if len(document) else (0, 0)
        fits = bool(0 <= low <= high < vocabulary)
        if fits:
            ids.extend(iter(document))
    except (TypeError, RuntimeError, ValueError) as why:  # PyTorch's and NumPy's, too
        raise TypeError(f"{where}: a document is {_kind_of(document)}: give a list of documents, "
                        "each a list of token ids (\"input_ids\" of a tokenizer)") from why
    if not fits:
        raise ValueError(f"{where}: a token of {low} to {high}; the vocabulary has {vocabulary}")
    return ids


def _kind_of(document: typing.Any) -> str:
    """Names the type of a document, and of its first part."""
    kind = f"a {type(document).__name__}"
    try:
        return f"{kind} of {type(next(iter(document))).__name__}"
    except (TypeError, StopIteration):
        return kind


def _own(path: str, flags: int) -> int:
    """Opens a file with permissions that keep other users from reading private texts."""
    return os.open(path, flags, 0o640)


class _Files:
    """Writes the token files of one region and language, in whole units."""

    def __init__(self, folder: str, region: str, language: str, width: str, unit: int):
        self.folder, self.stem, self.width = folder, f"{region}-{language}", width
        self._unit = unit
        self._row = {"language": language, "home": region}
        self._pending = array.array(width)
        self._file: typing.BinaryIO | None = None
        self._in_file = self._files = 0
        self.units: list[dict[str, typing.Any]] = []

    def add(self, document: typing.Sequence[int], vocabulary: int) -> None:
        """Adds the tokens of the next document."""
        self._pending.extend(_ids(self.stem, document, vocabulary, self.width))
        at = 0
        while len(self._pending) - at >= self._unit:
            self._put(self._pending[at:at + self._unit])
            at += self._unit
        del self._pending[:at]

    def _put(self, tokens: array.array) -> None:
        if sys.byteorder == "big":
            tokens.byteswap()
        if self._file and self._in_file + len(tokens) > _FILE_TOKENS:
            self.close()
        if not self._file:
            name = f"{self.stem}-{self._files:03}.bin"
            self._file = open(  # pylint: disable=consider-using-with
                os.path.join(self.folder, name), "wb", opener=_own)
            self._row["file"], self._files = name, self._files + 1
            self._file.write(bytes(4 * _HEADER))
        self.units.append({**self._row, "from": self._in_file, "tokens": len(tokens),
                           "sha256": hashlib.sha256(tokens.tobytes()).hexdigest()})
        self._file.write(tokens.tobytes())
        self._in_file += len(tokens)

    def close(self) -> None:
        """Ends the current file, by writing the count of its tokens into its header."""
        if not self._file:
            return
        magic, version = (20240520, 1) if self.width == "H" else (20240801, 7)
        self._file.seek(0)
        self._file.write(struct.pack("<3i", magic, version, self._in_file))
        self._file.close()
        self._file, self._in_file = None, 0


def _hold_out(folder: str, language: str, documents: _Documents, vocabulary: int,
              width: str) -> dict[str, typing.Any]:
    """Writes a held-out text as one file; gives its row."""
    tokens = array.array(width)
    for document in documents:
        tokens.extend(_ids(f"heldout, {language}", document, vocabulary, width))
    if len(tokens) < 2:
        raise ValueError(f"heldout, {language}: {len(tokens)} tokens: give at least two")
    files = _Files(folder, "heldout", _checked("language", language, 15), width, len(tokens))
    files.add(tokens, vocabulary)
    files.close()
    row = files.units[0]
    return {"language": language, "file": row["file"], "tokens": len(tokens),
            "sha256": row["sha256"]}


def _check_names(tokens: typing.Mapping[str, typing.Iterable[str]]) -> None:
    """Refuses names whose files (REGION-LANGUAGE-NNN.bin) are equal but for upper case."""
    known: dict[str, str] = {}
    for region in sorted(tokens):
        arguments.must_have(_CALL, f"tokens[{region!r}]", tokens[region], ("items",),
                            "a mapping from languages to documents")
        for language in sorted(tokens[region]):
            stem = f"{_checked('region', region, 63)}-{_checked('language', language, 15)}"
            other = known.setdefault(stem.lower(), f"language {language} of region {region}")
            if other != f"language {language} of region {region}":
                raise ValueError(f"language {language} of region {region} and {other} would both "
                                 f"be written to {stem}-000.bin: give one of them another name")


def save_units(tokens: typing.Mapping[str, typing.Mapping[str, _Documents]], folder: str,
               vocabulary: int, *, unit_tokens: int = 8192,
               stays: typing.Container[str] = (),
               heldout: typing.Mapping[str, _Documents] | None = None,
               heldout_bytes: typing.Mapping[str, int] | None = None) -> int:
    """Writes token files and units.json, for coordinator, workers and :class:`LeasedDataLoader`.
    Gives the number of units.

    ::

        tokenizer = AutoTokenizer.from_pretrained("model")
        def documents(path):
            for line in open(path): yield tokenizer(line)["input_ids"] + [tokenizer.eos_token_id]
        longhaul.save_units({"asia": {"ja": documents("ja.txt")}, "europe": {"de": ...}}, "data",
                            vocabulary=len(tokenizer))

    Nothing is added between documents, so end each with the tokenizer's end mark. At the end of a
    language, tokens that do not fill a unit are dropped.

    :param tokens: documents by region and language. A document is a sequence of token ids.
    :param folder: folder of the files; it is created if missing.
    :param vocabulary: number of token ids; each id is below it.
    :param unit_tokens: tokens per unit: a multiple of the sequence length in training.
    :param stays: regions whose units must not leave the region.
    :param heldout: by language: documents that no region trains, for
        :class:`longhaul.Evaluation` and `longhaul eval`.
    :param heldout_bytes: by language: bytes of the held-out text, for losses per byte. None: one
        byte per token.
    """
    arguments.must_have(_CALL, "tokens", tokens, ("items",), "a mapping from regions to languages, "
                        "and of each to documents: {\"asia\": {\"ja\": documents}}")
    if heldout is not None:
        arguments.must_have(_CALL, "heldout", heldout, ("items",),
                            "a mapping from languages to documents")
    arguments.must_be_path(_CALL, "folder", folder, "the folder that units.json is written into")
    arguments.must_be_number(_CALL, "vocabulary", vocabulary, 0)
    arguments.must_be_number(_CALL, "unit_tokens", unit_tokens, 0)
    if not 1 <= vocabulary <= 1 << 31 or not 1 <= unit_tokens <= _FILE_TOKENS:
        raise ValueError(f"a vocabulary of 1 to 2^31 and units of 1 to {_FILE_TOKENS} tokens, not "
                         f"{vocabulary} and {unit_tokens}")
    _check_names(tokens)
    width = "H" if vocabulary <= 65536 else "I"
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "units.json")
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)  # so that a failed call leaves none
    units = []
    for region in sorted(tokens):
        placed = []
        for language in sorted(tokens[region]):
            files = _Files(folder, _checked("region", region, 63),
                           _checked("language", language, 15), width, unit_tokens)
            try:
                for document in tokens[region][language]:
                    files.add(document, vocabulary)
            finally:
                files.close()
            many = len(files.units)  # spreads the languages evenly over a region's units
            placed += [(fractions.Fraction(2 * j + 1, many), u) for j, u in enumerate(files.units)]
        units += [{**u, "may_leave": region not in stays}
                  for _, u in sorted(placed, key=lambda one: one[0])]
    if not units:
        raise ValueError(f"no language has a whole unit of {unit_tokens} tokens: give more text, "
                         "or smaller units")
    held = [_hold_out(folder, language, (heldout or {})[language], vocabulary, width)
            for language in sorted(heldout or {})]
    for row in held:
        row["bytes"] = (heldout_bytes or {}).get(row["language"], row["tokens"])
    with open(path, "w", encoding="utf-8", opener=_own) as file:
        json.dump({"schema": "longhaul.units/1", "vocabulary": vocabulary,
                   "dtype": f"u{16 if width == 'H' else 32}", "unit_tokens": unit_tokens,
                   "units": [{"id": i, **u} for i, u in enumerate(units)], "heldout": held}, file)
    return len(units)
