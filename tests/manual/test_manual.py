#!/usr/bin/env python3
"""Every command and flag in --help is in the manual pages and in both completions.

    test_manual.py LONGHAUL [--install BUILD --cmake CMAKE]
"""
import argparse
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

TAB = """source /dev/stdin
while IFS= read -r line <&3; do
    eval "COMP_WORDS=($line)"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _longhaul
    echo "${COMPREPLY[*]}"
done
"""


def check(holds, text):
    if not holds:
        raise SystemExit(f"FAILED: {text}")


class Tool:
    def __init__(self, path):
        self.path = path

    def __call__(self, *line):
        done = subprocess.run([self.path, *line], capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"longhaul {' '.join(line)}: {done.returncode}: {done.stderr}")
        return done.stdout

    def commands(self):
        """(command, word or None) -> flags, from the help texts."""
        found = {}
        for name in re.findall(r"^  (\S+)", self("help"), re.M):
            if name in ("help", "version"):
                continue
            usage = self(name, "--help")
            found[name, None] = re.findall(r"^  (-\S+)", usage, re.M)
            if "VERB --help" not in usage:
                continue
            for word in re.findall(r"^(\w+)  +\w", usage, re.M):
                found[name, word] = re.findall(r"^  (-\S+)", self(name, word, "--help"), re.M)
        return found


def press_tab(script, lines):
    """Bash's completions for each line, whose last word is being typed ('': nothing yet)."""
    with tempfile.TemporaryFile("w+") as typed:
        typed.write("".join(line + "\n" for line in lines))
        typed.seek(0)
        done = subprocess.run(
            ["bash", "--norc", "-c", f"exec 3<&{typed.fileno()}; {TAB}"], input=script, text=True,
            capture_output=True, check=False, pass_fds=[typed.fileno()])
    check(done.returncode == 0 and not done.stderr, f"bash: {done.returncode}: {done.stderr}")
    offered = [line.split() for line in done.stdout.splitlines()]
    check(len(offered) == len(lines), f"{len(offered)} answers to {len(lines)} lines")
    return offered


def test_bash(tool, commands):
    script = tool("completion", "bash")
    lines = [f"longhaul {name} {word or ''} -" for name, word in commands]
    for (command, flags), offered in zip(commands.items(), press_tab(script, lines)):
        check(set(offered) == {*flags, "--help"}, f"bash offers {offered} for {command}: {flags}")
    names = {name for name, _ in commands}
    asked = {"longhaul ''": {*names, "help", "version"},
             "longhaul help ''": {*names, "exit-codes"}, "longhaul man ''": names,
             "longhaul dr": {"drain"}, "longhaul help exi": {"exit-codes"},
             "longhaul get ''": {"members", "workers", "shards", "regions", "links", "plan",
                              "leases"},
             "longhaul drain w": {"worker"}, "longhaul certs i": {"init", "issue"},
             "longhaul get leases --state ''": {"free", "leased", "credited"},
             "longhaul top -o j": {"json"}, "longhaul generate --seed ''": set()}
    for (line, wanted), offered in zip(asked.items(), press_tab(script, list(asked))):
        check(set(offered) == wanted, f"bash offers {offered} for: {line}")


class Shell:
    """An interactive bash in `folder`, at its own terminal, where TAB is a key."""

    def __init__(self, script, folder):
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"],
                       {**os.environ, "TERM": "dumb", "HISTFILE": "", "INPUTRC": "/dev/null"})
        self.said = ""
        path = os.path.join(folder, ".completion")
        with open(path, "w", encoding="utf-8") as file:  # a function replaces the tool
            file.write(script + "\nlonghaul() { printf '{%s}' \"$@\"; echo END; }\n")
        self.type(f". {path}; echo BEGIN\"\"NING\n", "BEGINNING")

    def type(self, keys, until):
        os.write(self.terminal, keys.encode())
        began, end = len(self.said), time.monotonic() + 60
        while until not in self.said[began:]:
            check(select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0],
                  f"bash said {self.said!r} to {keys!r}")
            self.said += os.read(self.terminal, 4096).decode(errors="replace")
        return self.said[began:]

    def press_tab(self, line):
        """The words that bash passes to the command after TAB has completed the line."""
        return re.findall(r"{([^}]*)}", self.type(line + "\t\n", "END"))

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def test_paths(tool):
    """A folder named like a command changes no command; a path may contain a space."""
    with tempfile.TemporaryDirectory(prefix="longhaul-typed-") as folder:
        for name in ("data", "man", "my runs"):
            os.mkdir(os.path.join(folder, name))
        with open(os.path.join(folder, "three regions.yaml"), "w", encoding="utf-8"):
            pass
        shell = Shell(tool("completion", "bash"), folder)
        try:
            for line, words in {"longhaul dat": ["data"],
                                "longhaul up thr": ["up", "three regions.yaml"],
                                "longhaul top --dir my": ["top", "--dir", "my runs/"],
                                "longhaul man gen": ["man", "generate"]}.items():
                passed = shell.press_tab(line)
                check(passed == words, f"{line}<TAB> becomes {passed}, not {words}")
        finally:
            shell.end()


def test_zsh(tool, commands):
    script = tool("completion", "zsh")
    names = {name for name, _ in commands}
    for name, words in (("help", {*names, "exit-codes"}), ("man", names)):
        part = re.search(rf"^    {name}\)\n(.*?);;", script, re.M | re.S)
        offered = part and re.search(r"'1:what:\(([^)]*)\)'", part.group(1))
        check(offered and set(offered.group(1).split()) == words, f"zsh offers not all for {name}")
    check(script.startswith("#compdef longhaul\n"), "zsh would not find it")
    for (name, word), flags in commands.items():
        label = f"'{name} {word}'" if word else name
        part = re.search(rf"^    {re.escape(label)}\)\n(.*?);;", script, re.M | re.S)
        check(part, f"zsh does not know {label}")
        named = re.findall(r"^ +'\*?(-[-\w]+)\[", part.group(1), re.M)
        check(set(named) == {*flags, "--help"}, f"zsh has {named} for {label}: {flags}")
        check(f"'{name}:" in script, f"zsh does not offer {name}")


def test_man(tool, commands):
    whole = tool("man")
    for (name, word), flags in commands.items():
        page = tool("man", name)
        check(f".BR longhaul\\-{name} (1)" in whole, f"longhaul.1 does not name {name}")
        check(page.count(".TH longhaul-" + name) == 1, f"the title of {name}'s page")
        if word:
            page = page.split(f".SH {word}\n")[1].split(".SH ")[0]
        for flag in flags:
            bold = "\\fB" + flag.replace("-", "\\-") + "\\fR"
            check(bold in page, f"longhaul-{name}.1 lacks {flag}")
        for kept in re.findall(r"^\.nf\n(.*?)^\.fi", page, re.M | re.S):
            wide = [line for line in kept.splitlines() if len(line) > 73]
            check(not wide, f"wider than a terminal of 80, and not filled: {wide}")
    done = subprocess.run([tool.path, "man", "genrate"], capture_output=True, text=True,
                          check=False)
    check(done.returncode == 2 and "did you mean generate?" in done.stderr, done.stderr)
    for code in ("0", "4", "8"):
        check(f"\\fB{code}\\fR" in whole, f"longhaul.1 lacks exit code {code}")


def test_words(tool):
    """Completion offers the words of the usage line."""
    script = tool("completion", "bash")
    for name, words in re.findall(r"^    (\w+)\)\n +flags='[^']*' words='([^']+)'", script, re.M):
        if name == "man":  # takes any command's name
            continue
        usage = tool(name, "--help").split("\n\n")[0]
        for word in words.split():
            check(re.search(rf"\b{word}\b", usage), f"{word} is no word of: {usage}")


def test_json(tool, commands):
    for (name, word), flags in commands.items():
        table = json.loads(tool(name, *([word] if word else []), "--help=json"))
        check([flag["name"] for flag in table["flags"]] == flags, f"{name}: {table}")


def test_install(build, cmake, commands):
    with tempfile.TemporaryDirectory(prefix="longhaul-installed-") as prefix:
        done = subprocess.run([cmake, "--install", build, "--prefix", prefix], text=True,
                              capture_output=True, check=False)
        check(done.returncode == 0, done.stdout + done.stderr)
        share = os.path.join(prefix, "share")
        pages = os.listdir(os.path.join(share, "man", "man1"))
        wanted = {f"longhaul-{name}.1.gz" for name in
                  ["server", "worker", "wanem", *(name for name, _ in commands)]}
        wanted.add("longhaul.1.gz")
        check(set(pages) == wanted, f"installed are {pages}")
        for path in ("bash-completion/completions/longhaul", "zsh/site-functions/_longhaul"):
            check(os.path.getsize(os.path.join(share, path)) > 1000, f"{path} is not installed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("--install", metavar="BUILD")
    parser.add_argument("--cmake", default="cmake")
    flags = parser.parse_args()
    tool = Tool(flags.tool)
    commands = tool.commands()
    check(len(commands) > 15 and ("certs", "issue") in commands, f"few commands: {commands}")
    test_bash(tool, commands)
    test_paths(tool)
    test_zsh(tool, commands)
    test_man(tool, commands)
    test_words(tool)
    test_json(tool, commands)
    if flags.install:
        test_install(flags.install, flags.cmake, commands)
    print(f"{len(commands)} commands, {sum(map(len, commands.values()))} flags: ok")


if __name__ == "__main__":
    sys.exit(main())
