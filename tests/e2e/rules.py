#!/usr/bin/env python3
"""Rules of a run (coordinator.rules) and a webhook (coordinator.hook_url), against a small server.

A rule's alarm begins once the workers report a loss, and pauses the run. The webhook fails at
first; then it gets each change in order, signed. The alarm is in the events and the status. After
`resume` the run goes on although the alarm lasts, also over a kill of the coordinator. A wrong rule
is refused before anything starts.
"""
import hashlib
import hmac
import http.server
import json
import os
import sys
import threading

from loopback import mark, play, trained_on
from world import REGIONS, check, until

SECRET = "ab" * 32
FAILS = 2  # answers of the webhook before it accepts a call


class Webhook:
    """Keeps each body that it accepted, and counts the refused ones."""

    def __init__(self):
        hook = self
        self.taken, self.refused, self.wrong = [], [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # pylint: disable=invalid-name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.heard(body, self.headers)
                refuse = len(hook.refused) < FAILS
                (hook.refused if refuse else hook.taken).append(json.loads(body))
                self.send_response(503 if refuse else 204)
                self.end_headers()

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/longhaul"

    def heard(self, body, headers):
        good = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        if headers["X-Longhaul-Signature"] != "sha256=" + good or \
                headers["Content-Type"] != "application/json":
            self.wrong.append(dict(headers))

    def events(self):
        return [body["event"] for body in self.taken]


def refused(world):
    """`config check` says where a rule is wrong, and suggests a correction."""
    for text, says in (("a: loss > 9\nb: los > 3",
                        "line 2: \"los\" is no metric of rules; did you mean loss?"),
                       ("a: loss > 9 then stop", "line 1: then what? then alarm, or then pause")):
        node = world.coordinator(**{"coordinator.rules": text})
        file = node.write_settings()
        code, _, complaint = world.try_tool("config", "check", file, "--kind", "server")
        check(code == 6 and says in complaint, f"{code}: {complaint}")


def doctor(world, coordinator, server):
    """The doctor names the alarm and the pause, and judges a running node by its status."""
    code, said, _ = world.try_tool("doctor", *world.admin(coordinator))
    check(code == 1 and "FAIL   alarm trains of " in said and "run: paused by rule trains" in said,
          f"{code}: {said}")
    check(said.count(": it answers") == 2 and "1 to mend" in said, said)
    code, said, _ = world.try_tool("doctor", server.write_settings(), "--kind", "server")
    check(code == 0 and f"process: {server.process.pid} runs" in said and "listen:" not in said,
          f"{code}: {said}")


def rules(world):
    hook, secret = Webhook(), world.path("hook.secret")
    with open(secret, "w", encoding="utf-8") as out:
        out.write(SECRET + "\n")
    os.chmod(secret, 0o600)
    refused(world)
    coordinator = world.coordinator(**{
        "coordinator.rules": "trains: loss > 0 for 1s then pause\nfull: disk_free < 1MB",
        "coordinator.hook_url": hook.url, "coordinator.hook_secret": secret})
    coordinator.start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in (0, 1)]
    workers = [world.worker(region, coordinator, **{"trainer.tokens_per_s": 4000}).start()
               for region in REGIONS]
    boss = world.admin(coordinator)
    until("the rule pauses the run", lambda: coordinator.status().get("paused"))
    until("all stand still", lambda: all(w.status().get("state") == "paused" for w in workers))
    status = coordinator.status()
    check(status["paused"]["by"] == "rule trains" and "loss" in status["paused"]["why"],
          f"{status['paused']}")
    alarms = {row["rule"]: row["active"] for row in status["alarms"]}
    check(alarms == {"trains": True, "full": False}, f"{alarms}")
    check("alarm trains of " in world.tool("top", "--once", *boss), "top does not name it")
    check(coordinator.says("rule.alarm", "trains"), "no event names it")
    doctor(world, coordinator, servers[0])
    until("the webhook hears of it", lambda: "rule.alarm" in hook.events())
    check(len(hook.refused) == FAILS and not hook.wrong, f"{hook.refused} {hook.wrong}")
    check(hook.refused[0]["id"] == hook.refused[1]["id"] == hook.taken[0]["id"],
          "a change that was refused is another one the next time")
    numbers = [body["number"] for body in hook.taken]
    check(numbers == sorted(numbers), f"{numbers}")
    alarm = next(body for body in hook.taken if body["event"] == "rule.alarm")
    check(alarm["rule"] == "trains" and alarm["to"] == "alarm" and alarm["region"] in REGIONS and
          "loss" in alarm["text"], f"{alarm}")

    world.tool("resume", *boss)
    until("all train on", trained_on(workers, mark(workers), 3))
    coordinator.kill()
    coordinator.start().listening()
    until("all train on", trained_on(workers, mark(workers), 3))
    until("its status is written", lambda: coordinator.status().get("alarms"))
    status = coordinator.status()
    check("paused" not in status and status["alarms"][0]["active"], f"{status['alarms']}")
    check(hook.events().count("rule.alarm") == 1, f"{hook.events()}")
    for node in [*workers, *servers, coordinator]:
        node.must_stop()


if __name__ == "__main__":
    sys.exit(play(__doc__, rules, 900))
