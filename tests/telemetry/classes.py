#!/usr/bin/env python3
"""Every field that travels has a class in server/docs/0005-telemetry.md.

A field that is added to a message has to be given a class with it: what it follows from, and so
whether a private region may say it.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "server/docs/0005-telemetry.md"
CLASSES = ("fixed", "history", "path", "release", "training", "units", "servers", "operator")
FIELD = re.compile(r"(?:repeated |optional )?[\w.]+\s+(\w+)\s*=\s*\d+\s*(?:\[[^\]]*\])?\s*;")


def messages():
    """{message: its fields} of all .proto files."""
    found = {}
    for path in sorted((ROOT / "proto/longhaul/v1").glob("*.proto")):
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        for name, body in re.findall(r"message (\w+)\s*\{([^}]*)\}", text):
            found[name] = FIELD.findall(body)
    return found


def header():
    """The fields of struct lh_frame."""
    text = (ROOT / "common/format/frame.h").read_text(encoding="utf-8")
    body = re.sub(r"//.*", "", re.search(r"struct lh_frame \{([^}]*)\}", text)[1])
    names = []
    for declared in body.split(";"):
        if declared.strip():
            names += re.findall(r"(\w+)(?:\[\w+\])?\s*(?:,|$)", declared.strip())
    return names


def classified(page):
    """{message: {field: class}} of the page, and what is wrong with its rows."""
    found, wrong = {}, []
    for name, row in re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.M):
        fields = found.setdefault(name, {})
        for part in row.split(";"):
            kind, _, names = part.strip().partition(": ")
            if kind not in CLASSES:
                wrong.append(f"{name}: {kind} is no class")
            for field in names.split(", "):
                if field in fields:
                    wrong.append(f"{name}.{field} has two classes")
                fields[field] = kind
    return found, wrong


def compare(page, fields):
    """What the page lacks, and what it has too much, a line each."""
    found, wrong = classified(page)
    for name, names in fields.items():
        have = found.get(name, {})
        wrong += [f"{name}.{field} has no class in {PAGE.name}" for field in names
                  if field not in have]
        wrong += [f"{name}.{field} is no field any more" for field in have if field not in names]
    wrong += [f"{name} is no message any more" for name in found if name not in fields]
    return wrong


def main():
    page = PAGE.read_text(encoding="utf-8")
    fields = {name: names for name, names in messages().items() if names}
    fields["lh_frame"] = header()
    wrong = compare(page, fields)
    more = {**fields, "LeaseRequest": [*fields["LeaseRequest"], "gradient_norm"]}
    if compare(page, more) != [f"LeaseRequest.gradient_norm has no class in {PAGE.name}"]:
        wrong.append("a field without a class is not seen")
    if len(fields) < 30 or len(fields["lh_frame"]) < 20:
        wrong.append(f"only {len(fields)} messages were read")
    print("\n".join(wrong) or f"{sum(map(len, fields.values()))} fields have their class")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
