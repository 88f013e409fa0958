#!/usr/bin/env python3
"""deploy/docs/across-machines.md, line by line: six hosts on emulated long links, kills and a cut.

The page's commands are read and run as they stand. A host is a network namespace of longhaul-wanem
in which the page's names resolve, and a folder, the only part of the run's files that it sees:
`scp` copies into it. Unlike on the page, the model, the texts and the budget are small and the
trainers throttled (SMALLER). Kills with -9 and cuts are drawn from --seed; each node is restarted
with its line of the page. At the end the workers exit with 0, all replicas have the servers'
digests, every unit is credited once, and the held-out losses fell.
"""
import argparse
import ctypes
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from loopback import check_credit, check_replicas, mark, trained_on
from world import SHAPE, Failure, Node, check, make_text, until

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, "..", "..")
UNITS, UNIT_TOKENS = 20, 8192  # of each region; the page leaves the unit size at its default
RTT_MS = {("asia", "europe"): 200, ("america", "asia"): 180, ("america", "europe"): 90}
LIMIT_S = 400  # below ctest's limit, so that nothing is left behind
SMALLER = {
    "shape.json": (r"^.*$", json.dumps(dict(SHAPE, context=128)) + "\n"),
    "coordinator.yaml": (r"budget_tokens: [0-9_]+", "budget_tokens: BUDGET"),
    "asia-0.yaml": (r"trainer: \{", "trainer: {tokens_per_s: 3000, "),
}
SCP = """#!/bin/bash
# scp [-r] FILE... HOST:[NAME] and HOST:FILE FOLDER, where a host is a folder
set -eu
flags=--preserve=mode
[ "$1" != -r ] || { flags="-r $flags"; shift; }
case ${!#} in
*:*) last=${!#}; to="$HOSTS/${last%%.example.org:*}"; [ -d "$to" ]
    exec cp $flags "${@:1:$#-1}" "$to/${last#*:}" ;;
*) [ $# = 2 ]; from=${1%%.example.org:*}; exec cp $flags "$HOSTS/$from/${1#*:}" "$2" ;;
esac
"""
# A host's mounts: the page's names, its own folder, nothing of the other hosts.
ENTER = """set -eu
mount --bind "$WORK/names" /etc/hosts
mount --bind "$WORK/hosts/$1" "$WORK/here"
mount -t tmpfs none "$WORK/hosts"
mount -t tmpfs none "$WORK/desk"
cd "$WORK/here"
exec sh -c "exec $2"
"""


def die_with_parent():
    """In the child: gets SIGTERM when this test's process ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def page():
    """The seven parts of the page's commands, each introduced by a comment: lists of lines."""
    path = os.path.join(TREE, "deploy", "docs", "across-machines.md")
    with open(path, encoding="utf-8") as file:
        section = file.read().split("\n## The commands\n")[1].split("\n## ")[0]
    parts = []
    for line in re.findall(r"^    (.+)$", section, re.M):
        if line.startswith("# "):
            parts.append([])
        else:
            parts[-1].append(line)
    check(len(parts) == 7, f"the page has {len(parts)} parts, not 7")
    return parts


class Host(Node):
    """A node and the host it stands on."""

    def __init__(self, fleet, line):
        name = re.fullmatch(r"longhaul-(?:server|worker) --config (\S+)\.yaml", line).group(1)
        super().__init__(fleet, line.split()[0].removeprefix("longhaul-"), "", name, {})
        self.line, self.folder = line, fleet.path("hosts", name)
        self.dir = os.path.join(self.folder, "state")
        self.log = os.path.join(self.folder, name + ".log")  # as its settings say

    def start(self, *extra):
        with open(self.world.path(self.name + ".out"), "ab") as out:
            self.process = subprocess.Popen(
                [*self.world.wanem, "exec", self.name, "--", "/bin/bash", "-c", ENTER, "enter",
                 self.name, self.line], env=self.world.env, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, preexec_fn=die_with_parent)
        return self

    def here(self, lines):
        """Runs the lines on this host, in its node's folder."""
        done = subprocess.run(["/bin/bash", "-euo", "pipefail", "-c", "\n".join(lines)],
                              cwd=self.folder, env=self.world.env, check=False)
        check(done.returncode == 0, f"the page's lines {lines}: {done.returncode}")

    def setting(self, key):
        with open(os.path.join(self.folder, self.name + ".yaml"), encoding="utf-8") as file:
            return re.search(rf"\b{key}: ([\w.:-]+)", file.read()).group(1)


class Fleet:
    """The hosts, the links between them, and the desk: the machine of the page's reader."""

    def __init__(self, build):
        self.dir = tempfile.mkdtemp(prefix="longhaul-across-")
        self.nodes, self.units, self.links = [], [], None
        for name in ("desk", "hosts", "here", "bin"):
            os.mkdir(self.path(name))
        for room, name in (("deploy", "longhaul"), ("deploy", "longhaul-wanem"),
                           ("server", "longhaul-server"), ("worker", "longhaul-worker")):
            os.symlink(os.path.join(os.path.abspath(build), room, name), self.path("bin", name))
        with open(self.path("bin", "scp"), "w", encoding="utf-8") as out:
            out.write(SCP)
        os.chmod(self.path("bin", "scp"), 0o755)
        self.env = {"PATH": self.path("bin") + ":/usr/sbin:/usr/bin:/sbin:/bin", "WORK": self.dir,
                    "HOSTS": self.path("hosts"), "OPENBLAS_NUM_THREADS": "1"}
        self.wanem = [self.path("bin", "longhaul-wanem"), "-n", f"e{os.getpid()}"]

    def path(self, *names):
        return os.path.join(self.dir, *names)

    # ------------------------------------------------------------ the desk

    def sit_down(self, units=UNITS):
        """Writes texts of `units` units a region, and copies the page's examples, reduced in
        size."""
        make_text(self.path("desk", "text"), units * UNIT_TOKENS + 100)
        folder = self.path("desk", "deploy", "examples", "across")
        shutil.copytree(os.path.join(TREE, "deploy", "examples", "across"), folder)
        for name, (old, new) in SMALLER.items():
            with open(os.path.join(folder, name), "r+", encoding="utf-8") as file:
                new = new.replace("BUDGET", str(3 * units * UNIT_TOKENS))
                text, changes = re.subn(old, lambda _, new=new: new, file.read().strip(), count=1)
                check(changes == 1, f"{name} has no {old}")
                file.seek(0)
                file.write(text + "\n")
                file.truncate()

    def at_desk(self, lines):
        done = subprocess.run(["/bin/bash", "-euo", "pipefail", "-c", "\n".join(lines)],
                              cwd=self.path("desk"), env=self.env, capture_output=True, text=True,
                              check=False)
        if done.returncode:
            raise Failure(f"the page's lines {lines}: {done.returncode}: {done.stderr}")
        return done.stdout

    def over_the_links(self, lines):
        """Runs the lines at the desk, in the first host's network, where the names resolve."""
        script = ['mount --bind "$WORK/names" /etc/hosts', 'cd "$WORK/desk"', *lines]
        done = subprocess.run([*self.wanem, "exec", self.nodes[0].name, "--", "/bin/bash", "-euo",
                               "pipefail", "-c", "\n".join(script)], env=self.env,
                              capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"the page's lines {lines}: {done.stderr}")
        return done.stdout

    # ------------------------------------------------------------ the hosts

    def add_hosts(self, lines):
        for line in lines:
            os.mkdir(Host(self, line).folder)

    def link_up(self):
        """Makes an emulated region for each host, with the distances between the hosts' regions."""
        here = {"coordinator": "europe", "shard-0": "europe", "shard-1": "america"}
        region = {host.name: here.get(host.name, host.name.rsplit("-", 1)[0])
                  for host in self.nodes}
        names = list(region)
        with open(self.path("names"), "w", encoding="utf-8") as out:
            out.write("127.0.0.1 localhost\n")
            for number, name in enumerate(names, 1):
                out.write(f"10.77.{number}.1 {name}.example.org\n")
        with open(self.path("world"), "w", encoding="utf-8") as out:
            out.writelines(f"region {name}\n" for name in names)
            out.write("link all all rtt=2ms rate=100mbit\n")
            for i, a in enumerate(names):
                for b in names[i + 1:]:
                    if region[a] != region[b]:
                        rtt = RTT_MS[tuple(sorted((region[a], region[b])))]
                        out.write(f"link {a} {b} rtt={rtt}ms\n")
        self.links = subprocess.Popen([*self.wanem, "up", "-f", self.path("world")],
                                      preexec_fn=die_with_parent)
        until("the links are up", lambda: self.links.poll() is not None or subprocess.run(
            [*self.wanem, "show"], capture_output=True, check=False).returncode == 0)
        check(self.links.poll() is None, "longhaul-wanem ended; LH_NO_WAN=1 leaves this test out")

    def wide(self, *words):
        subprocess.run([*self.wanem, *words], check=True)

    def close(self, keep):
        for host in self.nodes:
            if host.alive():
                host.kill()
        if self.links:
            self.links.terminate()
            self.links.wait()
        if keep:
            print(f"kept: {self.dir}")
        else:
            shutil.rmtree(self.dir)


# ---------------------------------------------------------------- faults

def renewal():
    """The page's two lines for a certificate that is about to expire."""
    path = os.path.join(TREE, "deploy", "docs", "across-machines.md")
    with open(path, encoding="utf-8") as file:
        section = file.read().split("\n## A certificate that ends\n")[1].split("\n## ")[0]
    lines = re.findall(r"^    (.+)$", section, re.M)
    check(len(lines) == 2, f"{lines}")
    return lines


def renew(fleet, lines, workers):
    """The node takes the new certificate while it runs."""
    name = re.search(r"certs/(\S+)\.pem", lines[0]).group(1)
    host = next(host for host in workers if host.name == name)
    fleet.at_desk(lines)
    until(f"{name} has taken in its new certificate",
          lambda: host.says("new certificates are in use") or not host.alive())


def go_on(workers, what):
    """Waits until every worker has trained on; false if one ended meanwhile."""
    since, begun = mark(workers), time.monotonic()
    goes = trained_on(workers, since, 3)
    until(f"all workers train on after {what}",
          lambda: goes() or not all(worker.alive() for worker in workers), 120)
    print(f"{what}: all train on after {time.monotonic() - begun:.1f} s", flush=True)
    return all(worker.alive() for worker in workers)


def kill(host, workers):
    check(host.alive(), f"{host.name} has ended:\n{host.tail()}")
    host.kill()
    host.start()
    until(f"{host.name} is back", lambda: host.status() or not host.alive())
    return go_on(workers, f"kill -9 of {host.name}")


def cut(fleet, host, seconds, workers):
    fleet.wide("cut", host.name)
    time.sleep(seconds)  # the fault itself
    fleet.wide("heal", host.name)
    return go_on(workers, f"{seconds} s without {host.name}")


def drill(fleet, draw, coordinator, servers, workers):
    """One fault of each kind and a cut, in any order; then random faults while the run lasts."""
    faults = [("kill", coordinator), ("kill", draw.choice(servers)), ("kill", draw.choice(workers)),
              ("cut", draw.choice(fleet.nodes))]
    draw.shuffle(faults)
    needed = len(faults)
    faults += [("kill", draw.choice(fleet.nodes)) for _ in range(3)]
    for done, (what, host) in enumerate(faults):
        lasts = kill(host, workers) if what == "kill" else \
            cut(fleet, host, draw.choice((3, 4, 5)), workers)
        if not lasts:
            check(done >= needed, "the run ended before the faults: the drill proves nothing")
            break


# ---------------------------------------------------------------- the end

def check_learned(fleet, lines):
    fleet.at_desk(lines)
    evaluate = lines[-1] + " -o json"
    after = json.loads(fleet.at_desk([evaluate]))
    before = json.loads(fleet.at_desk([evaluate.replace("final.weights", "model/weights.bin")]))
    check(len(before) == 3, f"losses of {list(before)}")
    for language, loss in after.items():
        was, now = before[language]["nats"], loss["nats"]
        print(f"{language}: {was:.3f} -> {now:.3f} nats per byte")
        check(now < was - 0.5, f"{language} was not learned")


def check_end(fleet, coordinator, servers, workers):
    for worker in workers:
        worker.must_end(200)
    until("the coordinator knows", lambda: coordinator.status().get("phase") == "ended")
    check_replicas(servers, workers)
    check_credit(fleet, coordinator, servers)
    finals = []
    for worker in workers:
        with open(os.path.join(worker.dir, "final.weights"), "rb") as file:
            finals.append(file.read())
    check(all(final == finals[0] for final in finals), "final.weights differ between workers")


def play(fleet, seed, faults):
    once, copy, hosts, meanwhile, afterwards, logs, end = page()
    fleet.sit_down()
    fleet.at_desk(once)
    with open(fleet.path("desk", "data", "units.json"), encoding="utf-8") as file:
        fleet.units = json.load(file)["units"]
    check(len(fleet.units) == 3 * UNITS, f"{len(fleet.units)} units")
    fleet.add_hosts(hosts)
    fleet.at_desk(copy)
    fleet.link_up()
    coordinator = fleet.nodes[0]
    servers = [host for host in fleet.nodes[1:] if host.kind == "server"]
    workers = [host for host in fleet.nodes if host.kind == "worker"]
    draw = random.Random(seed)
    for host in draw.sample(fleet.nodes, len(fleet.nodes)):  # "in any order"
        host.start()
    started = trained_on(workers, {}, 8)
    until("all workers train", lambda: started() or not all(h.alive() for h in fleet.nodes), 120)
    for host in fleet.nodes:
        check(host.alive(), f"{host.name} ended with {host.process.returncode}")
    renew(fleet, renewal(), workers)
    said = fleet.over_the_links(meanwhile)
    check(all(worker.name in said for worker in workers), f"longhaul get says\n{said}")
    if faults:
        drill(fleet, draw, coordinator, servers, workers)
    check_end(fleet, coordinator, servers, workers)
    check_learned(fleet, afterwards)
    said = fleet.at_desk(logs)
    check(all(host.name in said for host in fleet.nodes), f"longhaul events says\n{said}")
    for host in (*servers, coordinator):
        host.here(end)
        check(host.end() == 0, f"{host.name} ended with {host.process.returncode}")


def arguments(description):
    flags = argparse.ArgumentParser(description=description)
    flags.add_argument("--build", required=True, help="the build tree")
    flags.add_argument("--keep", action="store_true", help="keep the hosts' folders")
    return flags


def on_hosts(given, limit_s, played):
    """Calls played(fleet). If it fails, or takes too long, shows the hosts' logs and keeps their
    folders."""
    def out_of_time(*_):
        raise Failure(f"not done after {limit_s} s")
    signal.signal(signal.SIGALRM, out_of_time)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.alarm(limit_s)
    fleet, done = Fleet(given.build), False
    try:
        played(fleet)
        done = True
    finally:
        if not done:
            for host in fleet.nodes:
                print(f"---- {host.name}\n{host.tail() if os.path.exists(host.log) else ''}")
        fleet.close(given.keep or not done)
    print("ok")
    return 0


def main():
    flags = arguments(__doc__)
    flags.add_argument("--seed", type=int, default=1, help="of the faults")
    flags.add_argument("--no-faults", action="store_true")
    given = flags.parse_args()
    return on_hosts(given, LIMIT_S, lambda fleet: play(fleet, given.seed, not given.no_faults))


if __name__ == "__main__":
    sys.exit(main())
