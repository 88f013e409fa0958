#!/usr/bin/env python3
"""Checks the house rules over the whole tree: `tests/tidy/tidy.py [--root DIR] [--rule NAME]`.

Exit status: 0 clean, 1 findings, 2 usage error. Python 3.11 and its standard library only.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

import rules

TEXT = (".c", ".h", ".cu", ".cuh", ".def", ".py", ".sh", ".md", ".proto", ".txt", ".cmake",
        ".yaml", ".yml", ".json")
CLANG_FORMAT = 14  # versions disagree with each other, so one of them is required


def paths(root: str) -> list[str]:
    """Files that git tracks or would track; without git every file outside build folders."""
    git = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                         capture_output=True, text=True, check=False)
    if git.returncode == 0:
        return [p for p in git.stdout.splitlines() if os.path.isfile(os.path.join(root, p))]
    found = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [s for s in subfolders if s not in ("build", "run", "data", "__pycache__")
                         and not s.startswith(".")]
        found += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(found)


class Texts(dict):
    """path -> text of the files that rules read; `others`: paths of files that are not read."""

    def __init__(self) -> None:
        super().__init__()
        self.others: set[str] = set()


def load(root: str) -> rules.Tree:
    """The texts that rules read. Data (fixtures, corpora, goldens) are not checked."""
    tree = Texts()
    for path in paths(root):
        if path.endswith(TEXT) and not re.search(r"/(corpus|fixtures|golden)/", path):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                tree[path] = file.read()
        else:
            tree.others.add(path)
    return tree


def formatter() -> str | None:
    for name in (f"clang-format-{CLANG_FORMAT}", "clang-format"):
        if shutil.which(name):
            said = subprocess.run([name, "--version"], capture_output=True, text=True, check=True)
            if re.search(rf"version {CLANG_FORMAT}\.", said.stdout):
                return name
    return None


def format_findings(root: str, tree: rules.Tree, command: str) -> list[rules.Finding]:
    """clang-format's findings, one per file."""
    files = [path for path in tree if path.endswith((".c", ".h"))]
    said = subprocess.run([command, "--dry-run", "-Werror", "--ferror-limit=1", *files], cwd=root,
                          capture_output=True, text=True, check=False)
    places = re.findall(r"^([^\s:]+):(\d+):\d+: error: code should be clang-formatted", said.stderr,
                        re.M)
    if said.returncode and not places:
        return [rules.Finding("clang-format", 0, "format", said.stderr.strip() or "failed")]
    first = {}
    for path, line in places:
        first.setdefault(path, int(line))
    return [rules.Finding(path, line, "format", f"run {command} -i {path}")
            for path, line in first.items()]


def main() -> int:
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(here)))
    parser.add_argument("--rule", action="append", help="only this rule (may repeat)")
    flags = parser.parse_args()
    names = [rule.__name__.replace("_", "-") for rule in rules.RULES] + ["format"]
    unknown = set(flags.rule or ()) - set(names)
    if unknown:
        parser.error(f"no rule {', '.join(sorted(unknown))}; there are {', '.join(names)}")

    wanted = flags.rule or names
    tree = load(flags.root)
    if not tree:
        print(f"tidy: no files under {flags.root}")
        return 2
    findings = [finding for rule, name in zip(rules.RULES, names) if name in wanted
                for finding in rule(tree)]
    if "format" in wanted:
        command = formatter()
        if command:
            findings += format_findings(flags.root, tree, command)
        else:
            print(f"tidy: format NOT RUN: no clang-format {CLANG_FORMAT} here")
            names.remove("format")
    for finding in findings:
        print(finding)
    ran = len([name for name in names if name in wanted])
    print(f"tidy: {len(tree)} files, {ran} rules, {len(findings)} errors")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
