#!/usr/bin/env python3
"""Mutants of the protocol's code: does a test detect each?

    mutants.py list                      every mutant, a line each
    mutants.py show ID                   what it changes
        mutants.py run --budget-s 3600       tries mutants without a result, class by class in turn
    mutants.py report                    the score of each class, and the survivors

README.md describes the rules and the scores. Python 3.11 and its standard library only.
"""
import argparse
import contextlib
import datetime
import difflib
import fnmatch
import hashlib
import io
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "bench")]
import campaign  # noqa: E402
import kernel_rules  # noqa: E402
import plan  # noqa: E402
import python_rules  # noqa: E402
import report as bench  # noqa: E402
import rules  # noqa: E402
import source  # noqa: E402

QUOTA = 40  # judged mutants of each class: those with the lowest ids, a fair draw
STATE = os.path.join(ROOT, "bench", "results", "mutants.jsonl")
RESULT = os.path.join(ROOT, "bench", "results", "mutants.json")
EQUIVALENT = os.path.join(HERE, "equivalent.json")


class Mutant:
    """An edit whose name does not change when the code around it does."""

    def __init__(self, function, edit, nth):
        self.function, self.file = function, function.file
        self.kind, self.rule, self.start, self.end, self.new = edit
        self.old = function.source[self.start:self.end]
        said = (source.former_file(function), source.former(function.name),
                self.rule, source.former(source.squeeze(self.old)),
                source.former(source.squeeze(self.new)), str(nth))
        self.id = hashlib.sha256("\0".join(said).encode()).hexdigest()[:12]
        self.line = function.source.count("\n", 0, self.start) + 1

    def apply(self, text):
        return text[:self.start] + self.new + text[self.end:]

    def __str__(self):
        return (f"{self.id} {self.rule:22} {self.file}:{self.line} {self.function.name}: "
                f"{short(self.old)} -> {short(self.new)}")


def short(text, most=60):
    text = " ".join(text.split())
    return text if len(text) <= most else text[:most - 3] + "..."


def edits_of(function):
    if function.file.endswith(".py"):
        return python_rules.edits(function)
    if function.file.startswith("kernels/"):
        return kernel_rules.edits(function)
    if function.file in plan.QUEUES:
        return itertools.chain(rules.edits(function), kernel_rules.order_edits(function))
    return rules.edits(function)


def mutants_of(file, text):
    """All mutants of a file's text, in the order of the text."""
    seen = {}
    made = python_rules if file.endswith(".py") else source
    for function in made.functions(file, text):
        for edit in edits_of(function):
            key = (function.name, edit[1], source.squeeze(function.source[edit[2]:edit[3]]),
                   source.squeeze(edit[4]))
            seen[key] = seen.get(key, 0) + 1
            yield Mutant(function, edit, seen[key])


def every(root=ROOT):
    made = []
    for file in plan.files(root):
        with open(os.path.join(root, file), encoding="utf-8") as opened:
            made += mutants_of(file, opened.read())
    return made


def by_turns(made):
    """The classes take turns, each with its lowest ids first."""
    rows = [sorted((m for m in made if m.kind == kind), key=lambda m: m.id)
            for kind in rules.CLASSES]
    return [m for turn in itertools.zip_longest(*rows) for m in turn if m]


def equivalents():
    with open(EQUIVALENT, encoding="utf-8") as file:
        return json.load(file)


def judged(made, state, quota):
    """Each class's first `quota` mutants that build, as far as that is known."""
    chosen, count = [], {kind: 0 for kind in rules.CLASSES}
    for m in by_turns(made):
        said = state.of(m)
        if count[m.kind] < quota:
            chosen.append(m)
            count[m.kind] += not (said and said["outcome"] == "unbuilt")
    return chosen


def to_try(given, state):
    """The judged ones first; others only on request."""
    made = every()
    asked = wanted(given, made)
    names = {m.id for m in asked}
    first = [m for m in judged(made, state, given.quota) if m.id in names]
    names -= {m.id for m in first}
    more = given.id or given.file or given.whole or given.changed
    return first + ([m for m in by_turns(asked) if m.id in names] if more else [])


def changed(since):
    """The keys of the functions that differ from those of a commit."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)

    names = git("diff", "--name-only", since)
    if names.returncode:
        raise SystemExit(f"--changed {since}: {names.stderr.strip()}")
    keys = set()
    for file in set(names.stdout.split()) & set(plan.files(ROOT)):
        reader = python_rules if file.endswith(".py") else source
        was = git("show", f"{since}:{file}").stdout  # empty if the file is new
        with open(os.path.join(ROOT, file), encoding="utf-8") as opened:
            now = {f.key for f in reader.functions(file, opened.read())}
        keys |= now - {f.key for f in reader.functions(file, was)}
    return keys


def wanted(given, made):
    if given.changed:
        keys = changed(given.changed)
        made = [m for m in made if m.function.key in keys]
    if given.kind:
        made = [m for m in made if m.kind in given.kind]
    if given.file:
        made = [m for m in made if any(fnmatch.fnmatch(m.file, p) for p in given.file)]
    if given.id:
        made = [m for m in made if m.id in given.id]
    return made


# ---------------------------------------------------------------- commands

def list_command(given):
    made = wanted(given, every())
    for m in made:
        print(m)
    counts = ", ".join(f"{kind} {sum(m.kind == kind for m in made)}" for kind in rules.CLASSES)
    print(f"{len(made)} mutants: {counts}", file=sys.stderr)
    return 0


def difference(mutant):
    with open(os.path.join(ROOT, mutant.file), encoding="utf-8") as file:
        text = file.read()
    return "".join(difflib.unified_diff(
        text.splitlines(True), mutant.apply(text).splitlines(True), f"a/{mutant.file}",
        f"b/{mutant.file}", n=3))


def show_command(given):
    found = [m for m in every() if m.id.startswith(given.mutant)]
    for m in found:
        print(m, difference(m), sep="\n")
    return 0 if found else 1


def known(given, state, m):
    """Whether a mutant need not be tried again."""
    said = state.of(m)
    if not said or given.again == "all":
        return False
    if said["outcome"] != "survived":
        return True
    tests = plan.tests(ROOT, m.file, given.deep)
    same = said["tests"] == campaign.tests_key(ROOT, tests)
    return same and given.again != "survived"


def run_command(given):
    state, end = campaign.State(given.state), time.monotonic() + given.budget_s
    same = equivalents()
    chosen = [m for m in to_try(given, state) if m.id not in same and not known(given, state, m)]
    chosen = chosen[:given.sample] if given.sample else chosen
    print(f"{len(chosen)} mutants to try", flush=True)
    commit = bench.commit()  # of the copies, even if others are committed meanwhile
    waiting, groups, lock = queue.SimpleQueue(), campaign.Groups(), threading.Lock()
    for m in chosen:
        waiting.put(m)

    def say(text):
        with lock:
            print(text, flush=True)

    def work(job):
        copy = campaign.Copy(ROOT, os.path.join(given.scratch, f"job{job}"), groups, given.nice,
                             say)
        copy.update()
        while time.monotonic() < end:
            try:
                m = waiting.get_nowait()
            except queue.Empty:
                return
            tests = [t for t in plan.tests(copy.tree, m.file, given.deep)
                     if fnmatch.fnmatch(t.name, given.only)]
            start = time.monotonic()
            for part in plan.stages(tests):
                copy.learn(part)
                outcome, by, how = campaign.try_one(copy, m, part)
                if outcome != "survived":
                    break
            seconds = time.monotonic() - start
            say(f"{m}: {outcome} {by} {how} ({seconds:.0f} s)")
            if outcome == "survived" and given.only != "*":
                continue
            state.add({"id": m.id, "class": m.kind, "rule": m.rule, "file": m.file, "line": m.line,
                       "function": m.function.name, "outcome": outcome, "by": by, "how": how,
                       "seconds": round(seconds, 1), "text": m.function.key,
                       "tests": campaign.tests_key(copy.tree, tests), "only": given.only,
                       "commit": commit,
                       "date": datetime.datetime.now(datetime.timezone.utc).strftime("%F %T")})

    def stop(*_):
        groups.end()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    failed = []

    def guarded(job):
        try:
            work(job)
        except KeyboardInterrupt:
            pass
        except BaseException as error:  # raised again once all have ended
            failed.append(error)
            groups.end()

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(given.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in failed:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    return 1 if failed else 0


def score(made, state, same, quota):
    """A row for each class: the results of its judged mutants."""
    chosen, table = judged(made, state, quota), {}
    for kind in rules.CLASSES:
        row = {"made": sum(m.kind == kind for m in made), "killed": 0, "survived": 0,
               "equivalent": 0, "unbuilt": 0, "untried": 0}
        for m in (m for m in chosen if m.kind == kind):
            said = state.of(m)
            row["equivalent" if m.id in same else said["outcome"] if said else "untried"] += 1
        table[kind] = row
    return table


def report_command(given):
    state, same, made = campaign.State(given.state), equivalents(), every()
    ids = {m.id for m in made}
    stray = [i for i in same if i not in ids]
    for i in stray:
        print(f"equivalent.json: {i} is no mutant any more ({same[i]})", file=sys.stderr)
    table = score(made, state, same, given.quota)
    names = ("made", "killed", "survived", "equivalent", "unbuilt", "untried")
    report = bench.Report("mutants", given.json)
    report.condition("judged", f"the {given.quota} of each class with the lowest ids that build")
    report.condition("commands", f"tests/mutants/mutants.py run; report --quota {given.quota}")
    tried = [s for m in judged(made, state, given.quota) if (s := state.of(m))]
    some = [s for s in tried if s.get("only", "*") != "*"]
    report.condition("tried_with", f"{len(tried) - len(some)} with all tests that see them; "
                     f"{len(some)} with some (run --only), of which those that live stay untried, "
                     "so the share of the killed is too high by them")
    report.condition("tried_at", " ".join(sorted({s["commit"] for s in tried})))
    total = {name: sum(row[name] for row in table.values()) for name in names}
    tried = [row["killed"] + row["survived"] + row["equivalent"] for row in table.values()]
    with contextlib.redirect_stdout(io.StringIO()):  # the table says the same, more briefly
        for kind, row in table.items():
            for name in names:
                report.row(f"mutants.{kind}.{name}", "1", [row[name]])
        for name in names:
            report.row(f"mutants.{name}", "1", [total[name]])
        report.row("mutants.tried", "1", [sum(tried)])
        report.row("mutants.least_of_a_class", "1", [min(tried)])
    print(f"{'class':12}" + "".join(f"{name:>12}" for name in names))
    for kind, row in [*table.items(), ("all", total)]:
        print(f"{kind:12}" + "".join(f"{row[name]:12}" for name in names))
    print("\nwho survived:")
    for m in made:
        said = state.of(m)
        if said and said["outcome"] == "survived" and m.id not in same:
            print(m)
    if stray:
        return 1
    report.finish()
    return 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("list", help="every mutant, a line each")
    two = commands.add_parser("run", help="tries what is not known yet")
    for p in (one, two):
        p.add_argument("--class", dest="kind", action="append", choices=rules.CLASSES)
        p.add_argument("--file", action="append", help="a pattern of paths (may repeat)")
        p.add_argument("--id", action="append", help="this one (may repeat)")
        p.add_argument("--changed", metavar="COMMIT",
                       help="of the functions that differ from those of this commit")
    two.add_argument("--jobs", type=int, default=1)
    two.add_argument("--budget-s", type=float, default=3600, help="no mutant begins after that")
    two.add_argument("--sample", type=int, default=0, help="at most that many")
    two.add_argument("--whole", action="store_true", help="all, not --quota of each class")
    two.add_argument("--deep", action="store_true", help="the simulator's other mixes, more seeds")
    two.add_argument("--only", default="*", metavar="PATTERN",
                     help="these tests alone; who survives them is told, not written down")
    two.add_argument("--again", choices=("survived", "all"), help="what is known, too")
    two.add_argument("--nice", type=int, default=10)
    two.add_argument("--scratch", default=os.path.join(ROOT, "build", "mutants"))
    three = commands.add_parser("report", help="the score of each class, and who survived")
    three.add_argument("--json", default=RESULT)
    for p in (two, three):
        p.add_argument("--state", default=STATE)
        p.add_argument("--quota", type=int, default=QUOTA, help="how many of each class are judged")
    four = commands.add_parser("show", help="what a mutant changes")
    four.add_argument("mutant")
    given = parser.parse_args()
    if given.command == "run":
        given.scratch = os.path.abspath(given.scratch)
    return given


def main():
    given = arguments()
    return {"list": list_command, "run": run_command, "report": report_command,
            "show": show_command}[given.command](given)


if __name__ == "__main__":
    sys.exit(main())
