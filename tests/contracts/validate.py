#!/usr/bin/env python3
"""Checks JSON files against a contract: `tests/contracts/validate.py summary FILE...`.

The name is that of NAME.schema.json beside this file. Exit status: 0 all valid, 1 an invalid file,
2 usage error. Standard library only: it knows the part of JSON Schema 2020-12 that the contracts
use, and refuses a schema that uses more, so that no keyword is silently ignored.
"""
import json
import math
import os
import sys
from typing import Any, Iterator

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool}
SILENT = {"$schema", "title", "description", "if"}  # 'if' is read with 'else'


class SchemaError(Exception):
    """The schema itself is invalid."""


def _is_type(value: Any, name: str) -> bool:
    if name in ("number", "integer"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return math.isfinite(value) and (name == "number" or float(value).is_integer())
    if name not in TYPES:
        raise SchemaError(f"unknown type {name}")
    return isinstance(value, TYPES[name])


def _keyword(value: Any, schema: dict, key: str, at: str) -> Iterator[str]:
    want = schema[key]
    number = _is_type(value, "number")
    if key == "type":
        if not _is_type(value, want):
            yield f"{at}: is no {want}: {json.dumps(value)[:60]}"
    elif key == "const":
        if value != want or isinstance(value, bool) != isinstance(want, bool):
            yield f"{at}: is not {json.dumps(want)}"
    elif key == "required":
        if isinstance(value, dict):
            yield from (f"{at}: lacks {name}" for name in want if name not in value)
    elif key in ("minItems", "minProperties"):
        kind = list if key == "minItems" else dict
        if isinstance(value, kind) and len(value) < want:
            yield f"{at}: has {len(value)} entries, fewer than {want}"
    elif key == "minimum":
        if number and value < want:
            yield f"{at}: {value} is below {want}"
    elif key == "exclusiveMinimum":
        if number and value <= want:
            yield f"{at}: {value} is not above {want}"
    elif key == "properties":
        if isinstance(value, dict):
            for name, below in want.items():
                if name in value:
                    yield from problems(value[name], below, f"{at}.{name}")
    elif key == "additionalProperties":
        if isinstance(value, dict):
            for name in value.keys() - schema.get("properties", {}).keys():
                yield from problems(value[name], want, f"{at}.{name}")
    elif key == "items":
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from problems(item, want, f"{at}[{index}]")
    elif key == "else":
        if any(problems(value, schema["if"], at)):
            yield from problems(value, want, at)
    elif key not in SILENT:
        raise SchemaError(f"keyword {key} is not known to validate.py")


def problems(value: Any, schema: dict, at: str = "$") -> Iterator[str]:
    """One line for each violation of `schema` in `value`."""
    if not isinstance(schema, dict):
        raise SchemaError(f"{at}: not an object")
    for key in schema:
        yield from _keyword(value, schema, key, at)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def load(path: str) -> Any:
    """Strict JSON: NaN and Infinity are refused."""
    with open(path, encoding="utf-8") as file:
        return json.load(file, parse_constant=_no_constant)


def contract(name: str) -> dict:
    return load(os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.schema.json"))


def main(argv: list[str]) -> int:
    if len(argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        schema = contract(argv[1])
    except FileNotFoundError:
        print(f"validate: no contract {argv[1]}", file=sys.stderr)
        return 2
    bad = 0
    for path in argv[2:]:
        try:
            found = list(problems(load(path), schema))
        except (OSError, ValueError) as error:
            found = [f"cannot be read: {error}"]
        for line in found:
            print(f"{path}: {line}")
        print(f"{path}: {'INVALID' if found else 'valid'} ({argv[1]})")
        bad += bool(found)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
