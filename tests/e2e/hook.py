#!/usr/bin/env python3
"""A command is called with each change of a worker's state, as signed JSON.

A worker joins, is killed with -9, comes back, drains and is stopped. The command fails at first and
is called again with the same change; later it hangs and is killed, while the worker trains on.
Every signature is valid, no change is missing, and a drained worker is not reported as lost.
"""
import hashlib
import hmac
import json
import os
import sys

from loopback import end_all, mark, play, trained_on
from world import check, until

SECRET = "0123456789abcdef0123456789abcdef"
SCRIPT = """\
body=$(cat)
about="$LONGHAUL_RUN/$LONGHAUL_REGION/$LONGHAUL_MEMBER/$LONGHAUL_STATE"
printf '%s %s %s\\n' "$LONGHAUL_SIGNATURE" "$about" "$body" >>{calls}
while [ -e {hangs} ]; do sleep 1; done
[ ! -e {fails} ] || exit 7
printf '%s\\n' "$body" >>{told}
"""


def lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return [line for line in file.read().split("\n")[:-1] if line]
    except FileNotFoundError:
        return []


def told(world):
    return [json.loads(line) for line in lines(world.path("told"))]


def last(world):
    return (told(world) or [{}])[-1].get("to")


def write(path, text=""):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def calls(world):
    """(signature, the environment's copy of the change, body) of each call."""
    return [line.split(" ", 2) for line in lines(world.path("calls"))]


def check_calls(world):
    for signature, about, body in calls(world):
        code = hmac.new(SECRET.encode(), body.encode(), hashlib.sha256).hexdigest()
        check(signature == "sha256=" + code, f"{signature} does not sign {body}")
        change = json.loads(body)
        check(about == f"e2e/{change['region']}/{change['name']}/{change['to']}", about)
        check((change["run"], change["role"]) == ("e2e", "worker"), body)


def check_chain(changes):
    """Of one worker: each change begins in the state where the last ended; none is missing."""
    for before, after in zip(changes, changes[1:]):
        check(after["from"] == before["to"], f"{before} is followed by {after}")
        check(after["number"] == before["number"] + 1, f"{before} is followed by {after}")


def joins(world, coordinator):
    """The first call fails and is repeated."""
    write(world.path("fails"))
    worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 2000}).start()
    until("its failure is told", lambda: coordinator.says(
        "WARN", "hook.failed", "asia-0 of asia, new -> live", "ended with 7",
        "called again in 1 s"))
    os.remove(world.path("fails"))
    until("it is told again", lambda: told(world))
    first = told(world)[0]
    check((first["name"], first["region"], first["from"], first["to"]) ==
          ("asia-0", "asia", "new", "live"), f"{first}")
    bodies = [json.loads(body)["id"] for _, _, body in calls(world)]
    check(len(bodies) > 1 and bodies[0] == bodies[1] == first["id"], f"{bodies}")
    until("it trains", trained_on([worker], {}, 5))
    return worker


def dies(world, worker):
    worker.kill()
    until("it is lost", lambda: last(world) == "lost")
    before = told(world)[-2]
    check((before["from"], before["to"]) == ("live", "suspect"), f"{before}")
    loss = told(world)[-1]
    check(loss["silent_s"] >= loss["bound_s"] >= 6, f"{loss}")
    worker.start()
    until("it is back", lambda: last(world) == "live")
    until("it trains", trained_on([worker], {}, 3))


def hangs(world, coordinator, worker):
    """The call for the drain hangs and is killed; the change is repeated until a call succeeds."""
    write(world.path("hangs"))
    world.tool("drain", "worker", "asia-0", "--wait", *world.admin(coordinator))
    until("the call is ended", lambda: coordinator.says(
        "WARN", "hook.failed", "-> drained", "took too long (over 10 s)"))
    check(last(world) != "drained", "a call that hangs counts as told")
    world.tool("drain", "worker", "asia-0", "--undo", *world.admin(coordinator))
    until("it trains on", trained_on([worker], mark([worker]), 5))
    os.remove(world.path("hangs"))
    until("it is told in the end", lambda: last(world) == "live" and "drained" in [
        change["to"] for change in told(world)])


def row_of(world, coordinator):
    rows = json.loads(world.tool("get", "members", *world.admin(coordinator), "-o", "json"))
    return next(row for row in rows if row["name"] == "asia-0")


def drains(world, coordinator, worker):
    world.tool("drain", "worker", "asia-0", "--wait", *world.admin(coordinator))
    until("it has drained", lambda: last(world) == "drained")
    worker.must_stop()

    def over():
        row = row_of(world, coordinator)
        return row["silent_s"] > row["bound_s"] + 1 and row
    row = until("it was silent for its bound", over)
    check(row["state"] == "drained", f"{row}")
    check(last(world) == "drained", f"{told(world)[-1]}")


def run(world):
    script, secret = world.path("hook.sh"), world.path("hook.secret")
    write(script, SCRIPT.format(**{name: world.path(name)
                                   for name in ("calls", "hangs", "fails", "told")}))
    write(secret, SECRET + "\n")
    os.chmod(secret, 0o600)
    coordinator = world.coordinator(workers=1, **{
        "coordinator.hook_command": f"sh {script}", "coordinator.hook_secret": secret,
        "coordinator.worker_timeout_s": "6 s"})
    coordinator.start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in (0, 1)]
    worker = joins(world, coordinator)
    dies(world, worker)
    hangs(world, coordinator, worker)
    drains(world, coordinator, worker)
    check_calls(world)
    check_chain(told(world))
    hook = until("its status has the hook", lambda: coordinator.status().get("hook"))
    check(hook["dropped"] == 0 and hook["given_up"] == 0, f"{hook}")
    end_all([*servers, coordinator])


if __name__ == "__main__":
    sys.exit(play(__doc__, run, 480))
