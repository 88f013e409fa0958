#!/usr/bin/env python3
"""The lines and branches that the tests ran: `tests/coverage.py [BUILD] [--files]`.

`tests/coverage.py --whole` builds (preset release) and runs the tests of the log, the ledger
(including dedupe), the decision and checkpoints with their manifest, and fails if one of their
branches is not taken (coverage.cmake lists them; stage `coverage` of tests/run.sh). A branch that
no test can reach must belong to an LH_ASSERT.

All tests:

    cmake --preset coverage && cmake --build --preset coverage
    ctest --test-dir build/coverage -LE 'links|e2e|oracle|bugs'
    tests/coverage.py

Needs gcov (part of gcc). A line's counts are added over all programs that contain it. Branches are
gcov's, without those that only an exception would take and without those of an LH_ASSERT, whose
other side is a bug of ours. --missing FILE lists each branch that no test took.
"""
import argparse
import collections
import gzip
import json
import os
import re
import subprocess
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
ROOMS = ("common", "kernels", "server", "worker", "deploy")
COVERED = os.path.join(ROOT, "build", "release", "tests", "CMakeFiles", "covered.dir")


def reports(build):
    """gcov's JSON of every object that ran."""
    notes = of_kind(build, ".gcda")
    if not notes:
        raise SystemExit(f"{build}: no test has run there (no .gcda); see --help")
    with tempfile.TemporaryDirectory() as folder:
        for at in range(0, len(notes), 50):
            subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--hash-filenames",
                            *notes[at:at + 50]], cwd=folder, check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name in os.listdir(folder):
            with gzip.open(os.path.join(folder, name), "rt", encoding="utf-8") as file:
                yield json.load(file)


def asserts(path):
    """The lines of a file that hold an assertion."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return {at for at, text in enumerate(file, 1) if "LH_ASSERT(" in text}


def collect(build):
    asserting = {}
    lines = collections.defaultdict(collections.Counter)
    branches = collections.defaultdict(collections.Counter)
    for report in reports(build):
        for source in report["files"]:
            # The build strips the root's prefix; with a compiler cache the rest is relative.
            path = re.sub(r"^((\.\./)+|/)", "", source["file"])
            if path.split(os.sep)[0] not in ROOMS or not os.path.isfile(os.path.join(ROOT, path)):
                continue
            if path not in asserting:
                asserting[path] = asserts(path)
            for line in source["lines"]:
                lines[path][line["line_number"]] += line["count"]
                for i, branch in enumerate(line["branches"]):
                    if not branch["throw"] and line["line_number"] not in asserting[path]:
                        branches[path][line["line_number"], i] += branch["count"]
    return lines, branches


def of_kind(folder, suffix):
    return [os.path.join(inside, name) for inside, _, names in os.walk(folder) for name in names
            if name.endswith(suffix)]


def run_whole():
    """Builds and runs the tests of coverage.cmake, without counts of earlier runs. Gives the files
    that they cover."""
    subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", "release"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    for path in of_kind(COVERED, ".gcda"):
        os.remove(path)
    subprocess.run(["ctest", "--test-dir", "build/release", "--output-on-failure",
                    "--no-tests=error", "-L", "^coverage$"], cwd=ROOT, check=True)
    return sorted(os.path.relpath(path.removesuffix(".c.gcno"), os.path.join(COVERED, "__")) + ".c"
                  for path in of_kind(COVERED, ".gcno"))


def judge_whole(whole, branches):
    """Prints a line per file; gives the number of files with a missed branch, or without any."""
    failed = 0
    for path in whole:
        if all(branches[path].values()) and branches[path]:
            print(f"{path}: all {len(branches[path])} branches")
        else:
            print_missing(path, branches[path])
            failed += 1
    print(f"{len(whole) - failed} passed, {failed} failed")
    return failed or not whole


def share(counters):
    total = sum(len(c) for c in counters)
    ran = sum(sum(1 for n in c.values() if n) for c in counters)
    return f"{100 * ran / max(1, total):6.1f} % of {total:6d}"


def print_missing(path, counts):
    missing = collections.Counter(at for (at, _), n in counts.items() if not n)
    print(f"{path}: {share([counts]).strip()} branches")
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        for at, text in enumerate(file, 1):
            if missing[at]:
                print(f"  {at}: {missing[at]} in {text.strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=os.path.join(ROOT, "build", "coverage"))
    parser.add_argument("--files", action="store_true", help="a row a file, too")
    parser.add_argument("--missing", action="append", default=[], metavar="FILE",
                        help="print this file's lines with a branch that no test took (may repeat)")
    parser.add_argument("--whole", action="store_true",
                        help="run the tests of the files that must be covered, and judge")
    flags = parser.parse_args()
    if flags.whole:
        raise SystemExit(1 if judge_whole(run_whole(), collect(COVERED)[1]) else 0)
    lines, branches = collect(os.path.abspath(flags.build))
    for path in flags.missing:
        print_missing(path, branches[path])
    print(f"{'':34} {'lines':>18} {'branches':>18}")
    for room in ROOMS:
        inside = sorted(path for path in lines if path.startswith(room + os.sep))
        for path in inside if flags.files else []:
            print(f"  {path:32} {share([lines[path]])} {share([branches[path]])}")
        print(f"{room:34} {share([lines[p] for p in inside])} "
              f"{share([branches[p] for p in inside])}")
    print(f"{'all':34} {share(lines.values())} {share(branches.values())}")


main()
