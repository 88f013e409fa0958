#!/usr/bin/env python3
"""Frames that no worker should send, from a client with a certificate and the job key (push.c).

Damage in transit is not final: the push is turned down and its step stays free. A frame that was
sealed correctly and has wrong contents is refused by a record that all followers fold. In both
cases the server lives and logs the cause, and the run ends with equal replicas.
"""
import subprocess
import sys

from cases import UNVERIFIED, main, run, train
from world import PATIENCE_S, check, held, until


class Rogue:
    """The worker `rogue` of europe, which has greeted shard 0's server."""

    def __init__(self, world, server):
        self.world, self.server = world, server
        world.certificate("worker", "europe", "rogue")

    def push(self, kind):
        """(exit code, answer, complaint)"""
        path = self.world.path
        done = subprocess.run(
            [self.world.program("e2e_push"), path("ca", "ca.pem"), path("certs", "rogue.pem"),
             path("certs", "rogue.key"), path("job.keys"), path("model.json"), "0",
             self.server.address, kind],
            capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        return done.returncode, done.stdout, done.stderr

    def counts(self):
        """(admitted, refused) of the shard, from its server's status."""
        before = self.server.status().get("time_s")
        until("a later status", lambda: self.server.status().get("time_s") != before)
        shard = self.server.status()["shards"][0]
        return shard["admitted"], shard["refused"]


# kind -> exit code, words of the complaint, words of a line in the server's log
TURNED_DOWN = {
    "altered": (UNVERIFIED, ("LH_ERR_UNSEAL",), ("push.rejected", "cannot be unsealed")),
    "altered-head": (UNVERIFIED, ("LH_ERR_UNSEAL",), ("push.rejected", "cannot be unsealed")),
    "truncated": (UNVERIFIED, ("LH_ERR_MALFORMED",), ("push.rejected", "frame")),
    "short": (UNVERIFIED, ("LH_ERR_MALFORMED", "ended inside"), ("push.rejected", "ended inside")),
}
# kind -> words of the record's reason, words of a line in the server's log
REFUSED = {
    "index": (("LH_ERR_MALFORMED",), ("push.refused", "index")),
    "nan": (("LH_ERR_NON_FINITE",), ("push.refused", "a value")),
}


def start(world):
    """A run that stands still at some version: its only worker is dead, so it can't end."""
    coordinator, servers = run(world)
    worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 2000}).start()
    train(worker)
    worker.kill()
    return coordinator, servers, worker, Rogue(world, servers[0])


def to_the_end(coordinator, servers, worker):
    check(all(node.alive() for node in (coordinator, *servers)), "somebody died of it")
    worker.settings["trainer.tokens_per_s"] = "off"
    worker.start()
    worker.must_end(120)
    check(held(servers) == worker.last_holdings(), "worker and servers differ in the end")


def damaged_on_the_way(world):
    coordinator, servers, worker, rogue = start(world)
    before = rogue.counts()
    for kind, (code, complaint, line) in TURNED_DOWN.items():
        got, _, said = rogue.push(kind)
        check(got == code and all(word in said for word in complaint), f"{kind}: {got}: {said}")
        until(f"the server says {line} of {kind}", lambda line=line: servers[0].says(*line))
    check(rogue.counts() == before, "a damaged frame was decided")
    got, answer, said = rogue.push("good")
    check(got == 0 and answer == "admitted\n", f"good: {got}: {answer}{said}")
    to_the_end(coordinator, servers, worker)


def wrong_inside(world):
    coordinator, servers, worker, rogue = start(world)
    admitted, refused = rogue.counts()
    for kind, (reason, line) in REFUSED.items():
        got, answer, said = rogue.push(kind)
        check(got == 0 and answer.startswith("refused") and all(w in answer for w in reason),
              f"{kind}: {got}: {answer}{said}")
        until(f"the server says {line} of {kind}", lambda line=line: servers[0].says(*line))
    check(rogue.counts() == (admitted, refused + len(REFUSED)), "counts of refusals")
    got, answer, said = rogue.push("good")
    check(got == 0 and answer == "admitted\n", f"good: {got}: {answer}{said}")
    to_the_end(coordinator, servers, worker)


CASES = (damaged_on_the_way, wrong_inside)

if __name__ == "__main__":
    sys.exit(main(CASES, __doc__))
