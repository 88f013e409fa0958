#!/usr/bin/env python3
"""One page of the benches' latest results: `bench/page.py` writes bench/results/README.md.

    bench/page.py            writes the page, its pictures and the figures of the tree's README.md
    bench/page.py --check    reports differences from them, and ends with status 1 if there are any

Everything comes from bench/results/*.json; sections and targets are the tables of sections.py, the
figures in README are in front.py. A result that is damaged or lacks a row with a target ends the
program with status 2 and a line with the remedy. The same results give the same bytes: no date and
no load of the present.
"""
import argparse
import json
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "tests", "contracts")]
import front  # noqa: E402
import peers  # noqa: E402
import picture  # noqa: E402
import validate  # noqa: E402
from sections import SECTIONS  # noqa: E402

PAGE, COMMAND = "README.md", "./bench/report"
ROWS_SHOWN = 40
SCHEMA = os.path.join(os.path.dirname(HERE), "tests", "contracts", "bench.schema.json")


class BadResult(Exception):
    """A result from which no page can be made; the text gives the reason and the remedy."""


# ---------------------------------------------------------------- results

def path_of(folder, section):
    return os.path.join(folder, f"{section.name}.json")


def read(folder, section):
    """The document of a section's bench, checked."""
    path = path_of(folder, section)
    parts = f" --parts {section.part} {section.flags}" if section.part else ""
    command = section.command or f"./bench/run.sh {section.bench}{parts}"
    again = f"measure it with {command} --json bench/results/{section.name}.json"
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except FileNotFoundError:
        raise BadResult(f"{path} is not there: {again}") from None
    except (OSError, ValueError) as error:
        raise BadResult(f"{path} cannot be read ({error}): {again}") from None
    with open(SCHEMA, encoding="utf-8") as file:
        wrong = list(validate.problems(document, json.load(file), "document"))
    if not wrong and document["bench"] != section.bench:
        wrong = [f"is of the bench {document['bench']}"]
    if wrong:
        raise BadResult(f"{path}: {wrong[0]}: {again}")
    return document


def rows_of(section, document):
    rows = {}
    for row in document["rows"]:
        if row["name"] in rows:
            raise BadResult(f"{section.name}.json: two rows {row['name']}")
        rows[row["name"]] = row
    for target in section.targets:
        if target.row not in rows:
            raise BadResult(f"{section.name}.json: no row {target.row}, which has a target in "
                            "bench/sections.py: measure it, or change the table there")
        if target.of == "ratio" and "ratio" not in rows[target.row]:
            raise BadResult(f"{section.name}.json: {target.row} has no ratio, which its target in "
                            "bench/sections.py is about: measure what stands beside it, too")
    return rows


# ---------------------------------------------------------------- words

def number(x):
    """Four significant digits; integers in groups of thousands."""
    if x == 0:
        return "0"
    if abs(x) >= 10000:
        return f"{round(x):,}"
    digits = max(0, 3 - math.floor(math.log10(abs(x))))
    return f"{x:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{x:.0f}"


def figure(row):
    spread = ""
    if row.get("min", row["value"]) != row.get("max", row["value"]):
        spread = f" ({number(row['min'])} to {number(row['max'])})"
    unit = "" if row["unit"] == "1" else f" {row['unit']}"  # 1: a count, whose name tells its unit
    return f"{number(row['value'])}{unit}{spread}"


def beside(row):
    if "ratio" not in row:
        return ""
    spread = ""
    if "ratio_min" in row:
        spread = f" ({row['ratio_min']:.2f} to {row['ratio_max']:.2f})"
    ratio = f"{row['ratio']:.2g}" if 0 < row["ratio"] < 0.01 else f"{row['ratio']:.2f}"
    return (f"{ratio}{spread} of {number(row['against_value'])} {row['unit']}: "
            f"{row.get('against', '')}")


def table(head, lines):
    out = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return out + [f"| {' | '.join(line)} |" for line in lines] + [""]


def goal(target):
    name = {"ratio": "ratio ", "max": "upper end ", "min": "lower end ", "value": ""}[target.of]
    unit = f" {target.unit}" if target.unit else " %" if target.row.startswith(
        "learning.gap") else ""
    more = f" (stretch {number(target.stretch)})" if target.stretch is not None else ""
    return f"{name}{target.word} {number(target.bound)}{unit}{more}"


def verdict(target, row):
    if target.of in ("min", "max") and target.of not in row:
        return "not known: one repetition has no interval"
    return ("**not reached**", "reached", "stretch reached")[target.reached(row[target.of])]


# ---------------------------------------------------------------- the page

def of_run(document):
    """The conditions that a reader needs to repeat it."""
    host = document["host"]
    lines = [f"Commit `{document['commit']}`, {document['date'][:16].replace('T', ' ')} UTC, "
             f"{host['cpu']}, {host['cores']} cores, {host['memory_bytes'] / 2**30:.0f} GiB.", ""]
    for name, value in document.get("conditions", {}).items():
        lines.append(f"- {name}: {value}")
    return lines + [""]


def bars_of(bars, rows, others):
    """Our bars, and `others`: bars of the figures beside them."""
    out = []
    for name, row in rows.items():
        short = name[len(bars.prefix):].strip(".") or "ours"
        if not name.startswith(bars.prefix) or bars.of not in row:
            continue
        if (bars.only and short not in bars.only) or row[bars.of] > bars.most:
            continue
        scale = row["against_value"] if bars.of == "ratio" else 1
        ends = [row[end] / scale for end in ("min", "max") if end in row]
        if bars.of == "ratio" and "ratio_min" in row:
            ends = [row["ratio_min"], row["ratio_max"]]
        out.append(picture.Bar("ours" if bars.peers else short, row[bars.of], *ends))
    return out + [picture.Bar(label, value, apart=True) for label, value in others]


def languages(rows):
    """Held-out loss of each arm of the table by language, and the bytes that its busiest region
    moved. Arms with other settings (a name with ":") are only in the result."""
    arms = [name.split(".", 1)[1].removesuffix(".mean") for name in rows
            if name.endswith(".mean") and ":" not in name]
    last = {name.rsplit(".", 1)[1] for name in rows}
    words = sorted(word for word in last if len(word) == 2 and word.isalpha())
    lines = []
    for arm in arms:
        row = [rows.get(f"learning.{arm}.{word}") for word in ["mean", *words]]
        moved = [rows.get(f"learning.{arm}.{way}_bytes") for way in ("up", "down")]
        lines.append((f"`{arm}`", *(f"{r['value']:.3f}" if r else "" for r in row),
                      *(f"{r['value'] / 1e6:.1f}" if r else "" for r in moved)))
    return ["Held-out nats per byte; MB of the busiest region:", "",
            *table(("arm", "mean", *words, "MB up", "MB down"), lines)]


def section_page(section, document, folder, rows, others):
    """Lines of one section, and its pictures by name; `others`: the document of peers.json."""
    lines, drawings = [f"## {section.title}", ""], {}
    lines += ([section.text, ""] if section.text else []) + of_run(document)
    measured = [t for t in section.targets if t.row in rows]
    if section.counted:
        count = sum(t.reached(rows[t.row][t.of]) > 0 for t in measured)
        lines += [f"{count} of {len(measured)} {section.counted}", ""]
    if section.targets:
        lines += table(("row", "target", "figure", "beside it", "verdict"), [
            (f"`{t.row}`", goal(t), figure(rows[t.row]), beside(rows[t.row]),
             verdict(t, rows[t.row])) for t in measured])
    for bars in section.bars:
        drawn = bars_of(bars, rows, (*bars.apart, *peers.bars(others, bars.peers)))
        if drawn:
            title = bars.title
            if bars.most < math.inf:
                title += f"; above {bars.most} {bars.unit}".rstrip() + " is left out"
            drawings[bars.file] = picture.bars(title, drawn, bars.unit, bars.lines, bars.log)
            lines += [f"![{bars.title}]({bars.file})", ""]
    for file, caption in section.drawn:
        if os.path.exists(os.path.join(folder, file)):
            lines += [f"![{caption}]({file})", ""]
    if section.name == "learning":
        lines += languages(rows)
    for heading, columns, told in section.tables(rows) if section.tables else ():
        lines += [heading, "", *table(columns, told)]
    if section.peers:
        lines += [peers.said(others), ""]
        lines += table(("peer", *peers.SIZES.values()), peers.rows(others))
    return lines + all_rows(section, rows), drawings


def all_rows(section, rows):
    """The rows of a short result, or a link to a long one."""
    if len(rows) > ROWS_SHOWN:
        return [f"All {len(rows)} rows: [{section.name}.json]({section.name}.json).", ""]
    return table(("row", "figure (least to most)", "n", "beside it"), [
        (f"`{name}`", figure(row), str(row.get("n", "")), beside(row))
        for name, row in rows.items()])


def make(folder, readme):
    """Every generated file by its path: the page, its pictures, the tree's README."""
    lines = ["# Results", "",
             f"Made by `{COMMAND}` out of the JSON files here; do not edit. Run it after any",
             "change of a result, and when a merge leaves a conflict in this file. Each figure is",
             "beside its target and beside a ceiling or a peer of the same run; times without",
             "their conditions mean nothing.", ""]
    files, rows, said = {}, {}, {}
    others = peers.read(folder)
    for section in SECTIONS:
        document = read(folder, section)
        rows[section.name] = rows_of(section, document)
        said[section.name] = document.get("conditions", {})
        told, drawings = section_page(section, document, folder, rows[section.name], others)
        lines += told
        files |= drawings
    known = {f"{section.name}.json" for section in SECTIONS} | {peers.FILE}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json") and name not in known:
            raise BadResult(f"{os.path.join(folder, name)} has no section in bench/sections.py: "
                            f"add one to SECTIONS")
    files = {os.path.join(folder, name): text for name, text in files.items()}
    files[os.path.join(folder, PAGE)] = "\n".join(lines).rstrip("\n") + "\n"
    files[readme] = front.filled(readme, rows, said, others)
    return files


def stale(files):
    for path, text in files.items():
        try:
            with open(path, encoding="utf-8") as file:
                if file.read() != text:
                    yield os.path.relpath(path)
        except FileNotFoundError:
            yield os.path.relpath(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", default=os.path.join(HERE, "results"))
    parser.add_argument("--readme", default=os.path.join(os.path.dirname(HERE), "README.md"),
                        help="the page that quotes figures between its marks")
    parser.add_argument("--check", action="store_true")
    flags = parser.parse_args()
    try:
        files = make(flags.results, flags.readme)
    except (BadResult, peers.BadPeers, front.BadPage) as error:
        print(f"bench/page.py: {error}", file=sys.stderr)
        sys.exit(2)
    if flags.check:
        old = sorted(stale(files))
        if old:
            print(f"bench/page.py: {', '.join(old)}: not what the results say. Run this and commit "
                  f"what it changes:\n\n    {COMMAND}\n", file=sys.stderr)
        sys.exit(1 if old else 0)
    for path, text in files.items():
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
