#!/usr/bin/env python3
"""The coordinator calls a command when it wants more workers; the command runs beside it.

The command gets the figures; a failed call is a warning, and is repeated. A worker joins, is
counted, and reports its device. A coordinator that is stopped also ends a command that would run
for ever.
"""
import os
import sys

from loopback import end_all, play
from world import check, until

SCRIPT = """\
echo "$LONGHAUL_RUN/$LONGHAUL_REGION/$LONGHAUL_WANTED/$LONGHAUL_PRESENT" >>{calls}
echo "asked for $LONGHAUL_WANTED"
[ -e {works} ] || exit 7
echo $$ >{pid}
while [ -e {works} ]; do sleep 1; done
"""


def lines(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read().split()
    except FileNotFoundError:
        return []


def gone(pid):
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    return False


def wanted(coordinator):
    return (coordinator.status().get("scale") or [{}])[0]


def run(world):
    calls, works, pid = world.path("calls"), world.path("works"), world.path("pid")
    script = world.path("supply.sh")
    with open(script, "w", encoding="utf-8") as f:
        f.write(SCRIPT.format(calls=calls, works=works, pid=pid))
    coordinator = world.coordinator(**{
        "coordinator.scale": "00:00=2", "coordinator.scale_command": f"sh {script}",
        "coordinator.worker_timeout_s": "3 s"}).start().listening()
    until("the command is called", lambda: lines(calls))
    check(lines(calls)[0] == "e2e//2/0", f"it was told {lines(calls)[0]}")
    until("its failure is told", lambda: coordinator.says(
        "WARN", "scale.failed", "ended with 7", "saying: asked for 2", "called again in 10 s"))
    worker = world.worker("asia", coordinator).start()
    until("the worker is counted", lambda: wanted(coordinator).get("present") == 1)
    shown = world.tool("get", "members", "-o", "wide", *world.admin(coordinator))
    check(any("asia-0" in line and "Linux " in line and "xchacha20" in line
              for line in shown.splitlines()), f"what it runs on: {shown}")
    with open(works, "w", encoding="utf-8"):
        pass
    until("the command is called again", lambda: lines(pid))
    check(lines(calls)[-1] == "e2e//2/1", f"it was told {lines(calls)[-1]}")
    until("its status counts the calls",
          lambda: wanted(coordinator).get("calls") == len(lines(calls)))
    shown = world.tool("get", "plan", "-o", "wide", *world.admin(coordinator))
    check("2 workers are wanted since 00:00, 1 are here" in shown, shown)
    end_all([worker, coordinator])
    check(gone(lines(pid)[0]), "the command outlives the coordinator")


if __name__ == "__main__":
    sys.exit(play(__doc__, run, 4))
