"""One mutant after the other is built in a copy of the tree, tested, and recorded.

A copy has its own build folder and is under --scratch, one for each job; nothing outside of it
changes. Each program that a mutant runs has its own process group, which is ended with it.
"""
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import threading
import time

import plan

# Warnings are errors in this tree. A mutant may leave a name unused; it is still run.
IGNORED = ("unused", "unused-variable", "unused-function", "unused-but-set-variable",
           "unused-but-set-parameter", "unused-parameter", "unused-value", "unused-label",
           "unused-result", "unused-const-variable", "maybe-uninitialized", "uninitialized",
           "conversion", "sign-compare", "type-limits", "empty-body", "parentheses", "shadow",
           "int-in-bool-context", "bool-compare", "bool-operation", "dangling-else", "nonnull",
           "tautological-compare", "return-type", "misleading-indentation", "array-bounds",
           "implicit-fallthrough", "logical-op", "stringop-overflow", "stringop-overread")
PRAGMAS = "".join(f'#pragma GCC diagnostic ignored "-W{name}"\n' for name in IGNORED)
# A test may use ten times its normal CPU seconds, and at least ten; a test that only waits is ended
# after six times as long.
TIMES, LEAST_S, WAIT, BUILD_S = 10, 10, 6, 600
LIMITS = "ulimit -c 0; ulimit -v 16777216; ulimit -S -t $0; exec \"$@\""


class Groups:
    """The process groups that are alive, so that none outlives this program."""

    def __init__(self):
        self.lock, self.alive, self.ended = threading.Lock(), set(), False

    def run(self, command, cwd, env, limit_s):
        """(status, seconds, output); status None: it timed out and was killed."""
        with self.lock:
            if self.ended:
                raise KeyboardInterrupt
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                ["sh", "-c", LIMITS, str(math.ceil(limit_s)), *command], cwd=cwd, env=env,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                text=True, errors="replace", start_new_session=True)
            self.alive.add(process.pid)
        start, said, status = time.monotonic(), "", None
        try:
            said, _ = process.communicate(timeout=WAIT * limit_s)
            status = process.returncode
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill(process.pid)
            process.communicate()
            with self.lock:
                self.alive.discard(process.pid)
        with self.lock:
            if self.ended:  # it was ended with us: no result for the mutant
                raise KeyboardInterrupt
        if status == -signal.SIGXCPU:
            status = None
        return status, time.monotonic() - start, said or ""

    @staticmethod
    def kill(group):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def end(self):
        with self.lock:
            self.ended = True
            for group in self.alive:
                self.kill(group)


def tree_files(root):
    said = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
                          capture_output=True, text=True, check=True)
    return [p for p in said.stdout.split("\0") if p and os.path.isfile(os.path.join(root, p))]


class Copy:
    """A copy of the tree, with a build folder; `normal` has each test's time in it."""

    def __init__(self, root, folder, groups, nice, say):
        self.root, self.groups, self.nice, self.say = root, groups, nice, say
        self.tree = os.path.join(folder, "tree")
        self.build = os.path.join(self.tree, "build", "release")
        self.temporary = os.path.join(folder, "tmp")
        self.normal, self.memory = {}, os.path.join(folder, "normal.json")
        os.makedirs(self.temporary, exist_ok=True)
        self.env = os.environ | {
            "CMAKE_C_COMPILER_LAUNCHER": "ccache" if shutil.which("ccache") else "",
            "CCACHE_BASEDIR": self.tree, "CCACHE_NOHASHDIR": "1", "TMPDIR": self.temporary}

    def run(self, command, limit_s):
        return self.groups.run(["nice", "-n", str(self.nice), *command], self.tree, self.env,
                               limit_s)

    def write(self, path, text):
        target = os.path.join(self.tree, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            with open(target, "rb") as file:
                if file.read() == text:
                    return
        except FileNotFoundError:
            pass
        with open(target, "wb") as file:
            file.write(text)

    def update(self):
        """Makes the copy equal to the tree; unchanged files stay untouched, and built."""
        wanted, total = set(tree_files(self.root)), hashlib.sha256()
        for folder, folders, names in os.walk(self.tree):
            folders[:] = [f for f in folders if os.path.join(folder, f) !=
                          os.path.join(self.tree, "build")]
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), self.tree)
                if path not in wanted:
                    os.remove(os.path.join(folder, name))
        for path in sorted(wanted):
            with open(os.path.join(self.root, path), "rb") as file:
                text = file.read()
            self.write(path, text)
            shutil.copymode(os.path.join(self.root, path), os.path.join(self.tree, path))
            if path.endswith((".c", ".h", ".py", ".txt", ".proto", ".json")):
                total.update(path.encode() + b"\0" + text)
        status, _, said = self.run(["cmake", "--preset", "release"], BUILD_S)
        if status:
            raise SystemExit(f"the tree can't be configured:\n{said[-2000:]}")
        self.normal = {"tree": total.hexdigest()}
        if os.path.exists(self.memory):
            with open(self.memory, encoding="utf-8") as file:
                old = json.load(file)
            self.normal = old if old["tree"] == self.normal["tree"] else self.normal

    def make(self, target):
        return self.run(["ninja", "-C", self.build, "-j", "1", *target.split()], BUILD_S)

    def test(self, test, limit_s):
        command = [os.path.join(self.build, test.command[0]), *test.command[1:]]
        result = self.run(command, limit_s)
        shutil.rmtree(self.temporary, ignore_errors=True)
        os.makedirs(self.temporary)
        return result

    def limit(self, test):
        return max(LEAST_S, TIMES * self.normal[test.name])

    def learn(self, tests):
        """Measures each test on the unchanged tree. A test that fails there judges no mutant."""
        for test in tests:
            if test.name in self.normal:
                continue
            status, _, said = self.make(test.target)
            if status:
                raise SystemExit(f"{test.target} is not built as the tree is:\n{said[-3000:]}")
            status, seconds, said = self.test(test, 600)
            if status != 0:
                raise SystemExit(f"{test.name} fails without any mutant:\n{said[-3000:]}")
            self.normal[test.name] = round(seconds, 2)
            with open(self.memory, "w", encoding="utf-8") as file:
                json.dump(self.normal, file)
            self.say(f"{test.name}: {seconds:.1f} s")


def try_one(copy, mutant, tests):
    """The result of a mutant: (outcome, by, how)."""
    path = os.path.join(copy.tree, mutant.file)
    with open(path, "rb") as file:
        whole = file.read()
    pragmas = "" if mutant.file.endswith(".py") else PRAGMAS
    copy.write(mutant.file, (pragmas + mutant.apply(whole.decode())).encode())
    built = set()
    try:
        for test in tests:
            if test.target not in built:
                status, _, _ = copy.make(test.target)
                if status:
                    return "unbuilt", "", "" if status is None else f"exit {status}"
                built.add(test.target)
            status, _, _ = copy.test(test, copy.limit(test))
            if status is None:
                return "killed", test.name, "took too long"
            if status:
                how = f"exit {status}" if status > 0 else signal.Signals(-status).name
                return "killed", test.name, how
        return "survived", "", ""
    finally:
        copy.write(mutant.file, whole)


class State:
    """The recorded results: a line of JSON for each try. The last one of a mutant counts."""

    def __init__(self, path):
        self.path, self.lock, self.last = path, threading.Lock(), {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    said = json.loads(line)
                    self.last[said["id"]] = said

    def of(self, mutant):
        """The result of a mutant for the present text of its function."""
        said = self.last.get(mutant.id)
        return said if said and said["text"] == mutant.function.key else None

    def add(self, said):
        with self.lock:
            self.last[said["id"]] = said
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(said) + "\n")


def tests_key(root, tests):
    """Changes with every change of the tests: survivors are then tried again."""
    total = hashlib.sha256()
    folders = {"tests/cores", "tests/sim", "tests/fault", "tests/external"}
    if any(t.name.startswith("python.") for t in tests):
        folders = {"tests/python"}
    folders |= {f"tests/{kind}" for kind in ("parity", "gpu")
                if any(t.name.startswith(f"{kind}.") for t in tests)}
    units = plan.unit_tests(root)
    names = {units[t.target[5:]] for t in tests if t.target.startswith("unit_")}
    for folder in folders:
        names |= {f"{folder}/{n}" for n in os.listdir(os.path.join(root, folder))
                  if n.endswith((".c", ".h", ".py", ".txt"))}
    for name in sorted(names):
        with open(os.path.join(root, name), "rb") as file:
            total.update(name.encode() + b"\0" + file.read())
    total.update(json.dumps([[t.name, t.command] for t in tests]).encode())
    return total.hexdigest()[:16]


__all__ = ["Copy", "Groups", "State", "plan", "tests_key", "try_one"]
