#!/usr/bin/env python3
"""deploy/docs/operations.md, line by line: a week of a run on six hosts, in some minutes.

The hosts, the links and the desk are those of across.py. The page's commands are run as they stand:
`# desk` and `# NAME` give the place. In between the test causes the events that the page describes:
one host is lost with its disk, then all of them. At the end the workers exit with 0 and all
replicas have the servers' digests. Units that the backup counts as credited are not trained again.
"""
import json
import os
import re
import shutil
import subprocess
import sys

import across
from across import ENTER, TREE
from loopback import check_replicas, mark, trained_on
from world import check, until

LIMIT_S = 500  # below ctest's limit
UNITS = 160  # of each region: more than is trained by the end of the week
ASK = re.compile(r"^ask=")


def page():
    """Title of a section -> its commands: (where, lines), in their order."""
    with open(os.path.join(TREE, "deploy", "docs", "operations.md"), encoding="utf-8") as file:
        head, *sections = file.read().split("\n## ")
    parts = {}
    for section in (head, *sections):
        title = section.splitlines()[0]
        parts[title] = []
        for line in re.findall(r"^    (.+)$", section, re.M):
            if line.startswith("# "):
                parts[title].append((line[2:], []))
            else:
                parts[title][-1][1].append(line)
    return {title: part for title, part in parts.items() if part}


class Week:
    def __init__(self, fleet):
        self.fleet, self.page = fleet, page()
        (where, self.ask), = self.page.pop("# Operating a run")
        check(where == "desk" and len(self.ask) == 1 and ASK.match(self.ask[0]), f"{self.ask}")

    def hosts(self, kind=None):
        return [host for host in self.fleet.nodes if kind in (None, host.kind)]

    def host(self, name):
        return next(host for host in self.fleet.nodes if host.name == name)

    def on(self, host, lines):
        """Runs the lines on this host, in its network, in its node's folder."""
        done = subprocess.run(
            [*self.fleet.wanem, "exec", host.name, "--", "/bin/bash", "-c", ENTER, "enter",
             host.name, "bash -euo pipefail"], input="\n".join(lines), env=self.fleet.env,
            capture_output=True, text=True, check=False)
        check(done.returncode == 0,
              f"{host.name}: {lines}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def run(self, title):
        """Runs the section's commands and gives their output. A node's own line starts it."""
        said = []
        for where, lines in self.page.pop(title):
            print(f"{title}: {where}: {len(lines)} lines", flush=True)
            if where == "desk":
                said.append(self.fleet.over_the_links(self.ask + lines))
            elif lines == [self.host(where).line]:
                host = self.host(where)
                check(not host.alive() or host.end() == 0, f"{where} ended in disorder")
                host.start()
                said.append("")
            else:
                said.append(self.on(self.host(where), lines))
        return said

    def all_train(self, what):
        workers = self.hosts("worker")
        goes = trained_on(workers, mark(workers), 5)
        until(f"all workers train {what}",
              lambda: goes() or not all(host.alive() for host in workers), 150)
        check(all(host.alive() for host in workers), f"a worker ended {what}")

    def lose(self, *hosts):
        for host in hosts:
            host.kill()
            shutil.rmtree(host.folder)
            os.mkdir(host.folder)

    def versions(self):
        return {s["shard"]: s["version"] for host in self.hosts("server") for s in host.shards()}

    def credited(self):
        return self.fleet.nodes[0].status().get("credited", 0)

    def kept(self, folders):
        """shard -> version of the newest checkpoint in these folders."""
        rows = [row for folder in folders for row in json.loads(
            self.fleet.at_desk([f"longhaul checkpoint ls {folder} -o json"]))]
        return {shard: max([row["version"] for row in rows if row["shard"] == shard] or [-1])
                for shard in (0, 1)}


def settings(fleet):
    """The page's settings, and more frequent checkpoints, since the run takes only minutes."""
    for name in ("coordinator", "shard-0", "asia-0"):
        with open(fleet.path("desk", "deploy", "examples", "across", name + ".yaml"), "a",
                  encoding="utf-8") as out:
            out.write("http: {listen: 127.0.0.1:9464}\n")
            if name == "shard-0":
                out.write("checkpoint: {every_versions: 10}\n")


def set_up(fleet):
    once, copy, hosts, *_ = across.page()
    fleet.sit_down(UNITS)
    settings(fleet)
    fleet.at_desk(once)
    with open(fleet.path("desk", "data", "units.json"), encoding="utf-8") as file:
        fleet.units = json.load(file)["units"]
    fleet.add_hosts(hosts)
    fleet.at_desk(copy)
    fleet.link_up()


def play(week):
    coordinator, servers = week.fleet.nodes[0], week.hosts("server")[1:]
    workers = week.hosts("worker")
    coordinator.start()
    until("the coordinator serves", coordinator.status)
    week.run("Start")
    for host in week.fleet.nodes[1:]:
        host.start()
    week.all_train("from the start")
    seen = week.run("Watch")[0]
    check(all(worker.name in seen for worker in workers), f"the desk saw\n{seen}")
    with open(os.path.join(week.host("shard-0").folder, "metrics.txt"), encoding="utf-8") as file:
        check("longhaul_shard_version" in file.read(), "no metrics")
    week.lose(week.host("asia-0"))
    week.run("Replace a worker's host")
    week.all_train("after asia-0 was replaced")
    week.lose(week.host("shard-1"))
    week.run("Replace a server's host")
    lost = week.host("shard-1")
    until("shard 1 is back", lambda: lost.status() and lost.says("shard.rebuilt"), 120)
    week.all_train("after shard-1 was replaced")
    said = week.run("Upgrade")
    check(all(host.name in said[-1] for host in (*servers, *workers)), f"{said[-1]}")
    week.all_train("after an upgrade")
    until("units are credited", lambda: week.credited() > 0)
    credited, least = week.credited(), week.versions()
    until("the checkpoints have them", lambda: all(
        version >= least[shard] for shard, version in
        week.kept([server.dir for server in servers]).items()), 90)
    week.run("Back up")
    was = week.kept(["backup/shard-0", "backup/shard-1"])
    week.lose(*week.fleet.nodes)
    week.run("Restore")
    for host in week.fleet.nodes:
        host.start()
    week.all_train("after everything was restored")
    now = week.versions()
    check(all(now[shard] >= was[shard] for shard in was), f"{was} when backed up, then {now}")
    until(f"{credited} units are credited again", lambda: week.credited() >= credited, 10)
    week.run("End")
    check(not week.page, f"not run: {list(week.page)}")
    for worker in workers:
        worker.must_end(200)
    check_replicas(servers, workers)
    for host in (*servers, coordinator):
        host.must_stop()


def main():
    given = across.arguments(__doc__.splitlines()[0]).parse_args()

    def played(fleet):
        set_up(fleet)
        play(Week(fleet))
    return across.on_hosts(given, LIMIT_S, played)


if __name__ == "__main__":
    sys.exit(main())
