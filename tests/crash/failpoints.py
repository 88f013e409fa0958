#!/usr/bin/env python3
"""Every failpoint fires, and no death there loses anything: `failpoints.py --build build/bugs`.

The build must have -DLH_BUGS=ON. For each name in common/base/check.h a process of its role is
started with that failpoint armed, until it has killed itself there, and restarted without it. At
the end history.py judges the whole run, as in kill.py.
"""
import argparse
import os
import re
import signal
import sys

from cluster import ROOT, Cluster, check, figures, judged, until, verdict


def names():
    """(name, role) of each failpoint, from the header."""
    with open(os.path.join(ROOT, "common", "base", "check.h"), encoding="utf-8") as file:
        found = re.findall(r'^ *X\("([a-z.]+)", (\w+),', file.read(), re.M)
    check(len(found) > 10, f"only {len(found)} failpoints in common/base/check.h")
    return found


def fire(cluster, name, role, passage, then=None):
    """A process of the role dies at this passage of the failpoint, then(node) is called, and the
    process is restarted."""
    node = {"server": cluster.servers[0], "worker": cluster.workers[0],
            "coordinator": cluster.coordinator}[role]
    cluster.keep_segments()
    node.kill()
    node.process.stdout.close()
    before = node.before
    node.before = ["env", f"LONGHAUL_FAILPOINT={name}@{passage}", *before]
    node.start()
    until(f"{node.name} dies at {name}", lambda: (cluster.keep_segments(), not node.alive())[1])
    check(node.process.returncode == -signal.SIGKILL,
          f"{node.name} with {name} ended with {node.process.returncode}:\n{node.tail()}")
    if then:
        then(node)
    node.process.stdout.close()
    node.before = before
    node.start()
    if role != "worker":
        node.listening()
    cluster.wait_for_pushes(3)


def run(given):
    listed = [(n, r) for n, r in names() if n in given.name or not given.name]
    cluster = Cluster(given.build, 60 * len(listed) + 300, keep=given.keep)
    with cluster.world:
        cluster.start(600, checkpoint_every=15)
        cluster.wait_for_pushes(10)
        for name, role in listed:
            fire(cluster, name, role, 1 if name.startswith(("recover", "file")) else 2)
            check(not cluster.over(), f"the run was over at {name}")
        print(f"{len(listed)} failpoints fired: {figures(judged(cluster))}")


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", required=True, help="the build tree, with -DLH_BUGS=ON")
    flags.add_argument("--keep", action="store_true", help="keep the run's folder")
    flags.add_argument("name", nargs="*", help="only these")
    given = flags.parse_args()
    return verdict(lambda: run(given))


if __name__ == "__main__":
    sys.exit(main())
