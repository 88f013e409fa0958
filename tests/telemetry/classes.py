#!/usr/bin/env python3
"""Every transmitted field has a class in server/docs/0005-telemetry.md.

A new field of a message, a frame's header, a log record, a worker's row in snapshots and
checkpoints, a call's metadata, a message to etcd or the metrics needs a class: the data from which
it is derived, and so whether a private region may send it.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "server/docs/0005-telemetry.md"
CLASSES = ("fixed", "history", "path", "release", "training", "units", "servers", "operator")
FIELD = re.compile(r"(?:repeated |optional )?[\w.]+\s+(\w+)\s*=\s*\d+\s*(?:\[[^\]]*\])?\s*;")


STRUCTS = {"lh_frame": "common/format/frame.h", "lh_record": "common/format/record.h",
           "lh_row": "common/format/ledger.h"}


def messages(folder):
    """{message: its fields} of all .proto files."""
    found = {}
    for path in sorted((ROOT / folder).glob("*.proto")):
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        text = re.sub(r"enum \w+\s*\{[^}]*\}", "", text)
        text = re.sub(r"oneof \w+\s*\{([^}]*)\}", r"\1", text)
        for name, body in re.findall(r"message (\w+)\s*\{([^}]*)\}", text):
            found[name] = FIELD.findall(body)
            if len(found[name]) != body.count(";"):
                sys.exit(f"{path}: a field of {name} was not understood")
    return found


def members(name):
    """The fields of a struct."""
    text = (ROOT / STRUCTS[name]).read_text(encoding="utf-8")
    body = re.search(rf"struct {name} \{{(.*?)\n\}}", text, re.S)[1]
    names = []
    for declared in re.sub(r"//.*", "", body).split(";"):
        if declared.strip():
            names += re.findall(r"(\w+)(?:\[\w+\])?\s*(?:,|$)", declared.strip())
    return names


def metadata():
    """The names that calls carry as metadata."""
    found = []
    for path in sorted((ROOT / "common/net/grpc").glob("*.c")):
        found += re.findall(r'const char lh_grpc_\w+_key\[\] = "(\S+)"',
                            path.read_text(encoding="utf-8"))
    return found


def metrics():
    """{process: the metrics that it serves}, without `longhaul_`."""
    text = (ROOT / "common/app/metrics.c").read_text(encoding="utf-8")
    rows = re.findall(r'\{"longhaul_(\w+)",\s*\w+,\s*\w+,\s*"([swc]+)"', text)
    return {f"metrics_{process}": [name for name, by in rows if process[0] in by]
            for process in ("server", "worker", "coordinator")}


def classified(page):
    """{message: {field: class}} of the page, and the errors in its rows."""
    found, wrong = {}, []
    for name, row in re.findall(r"^\| `([\w.]+)` \| (.*) \|$", page, re.M):
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
    """The page's missing and surplus fields, a line each."""
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
    fields = {**messages("proto/longhaul/v1"), **metrics(), "metadata": metadata()}
    fields.update({f"etcd.{name}": names for name, names in messages("proto/etcd").items()})
    fields.update({name: members(name) for name in STRUCTS})
    fields = {name: names for name, names in fields.items() if names}
    wrong = compare(page, fields)
    for name in ("LeaseRequest", "etcd.PutRequest", "metadata", "lh_record", "lh_row",
                 "metrics_coordinator"):
        more = {**fields, name: [*fields[name], "gradient_norm"]}
        if f"{name}.gradient_norm has no class in {PAGE.name}" not in compare(page, more):
            wrong.append(f"a field of {name} without a class is not seen")
    if len(fields) < 50 or len(fields["lh_frame"]) < 20 or len(fields["metrics_worker"]) < 20:
        wrong.append(f"only {len(fields)} messages were read")
    print("\n".join(wrong) or f"{sum(map(len, fields.values()))} fields have their class")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
