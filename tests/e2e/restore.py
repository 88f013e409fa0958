#!/usr/bin/env python3
"""An operator moves a run to another number of servers.

Two servers are stopped in the middle of a run and their shards restored, complete, into one
directory; later that server is stopped too, and its shards are split again, from its checkpoints
alone. The worker is killed both times and goes on, and the log replays to every earlier version's
state.
"""
import json
import os
import sys

from cases import MISSING, main, run, train
from world import check, held, until


def versions(servers):
    return {s["shard"]: s["version"] for server in servers
            for s in server.status().get("shards", [])}


def job(world):
    return ("--manifest", world.path("model.json"), "--run", world.run, "--domain", "e2e.test",
            "--keys", world.path("job.keys"), "--weights", world.path("weights.bin"))


def replayed(world, server, *more):
    rows = json.loads(world.tool("log", "replay", "--config", server.write_settings(), "-o", "json",
                                 *more))
    return {row["shard"]: (row["version"], row["digest"]) for row in rows}


def stop(world, servers):
    """shard -> (version, digest) that the stopped servers left on disk."""
    was = {}
    for server in servers:
        server.must_stop()
        check("whole" in world.tool("log", "verify", server.dir), f"{server.name}'s log")
        was.update(replayed(world, server))
    return was


def look_back(world, server, shard, was):
    """A version from before the move is unchanged, and a version that never was is refused."""
    version, _ = was
    check(replayed(world, server, "--to", f"{shard}:{version}")[shard] == was,
          f"shard {shard} was {was}")
    code, _, complaint = world.try_tool("log", "replay", "--config", server.write_settings(),
                                        "--to", f"{shard}:999999")
    check(code == MISSING and "999999" in complaint, f"{code}: {complaint}")


def together(world, coordinator, apart, was):
    """Restores both shards into one server, without loss."""
    one = world.server(0, coordinator, name="shard-01", shards=[0, 1])
    adopt(world, coordinator, one, "0,1")
    world.tool("checkpoint", "restore", apart[0].dir, apart[1].dir, *job(world), "--into", one.dir)
    one.start().listening()
    until("it has what they had", lambda: all(
        versions([one]).get(shard, 0) >= version for shard, (version, _) in was.items()))
    check(not one.says("shard.epoch") and not one.says("shard.rebuilt"),
          f"a history was lost:\n{one.tail()}")
    return one


def adopt(world, coordinator, server, shards):
    """An operator's command makes a server the owner of shards that another one had."""
    world.tool("adopt", f"europe/{server.name}", "--shards", shards, *world.admin(coordinator))


def goes_on(servers, worker, was):
    worker.start()
    until("pushes land above what was restored", lambda: all(
        versions(servers).get(shard, 0) > version + 2 for shard, (version, _) in was.items()))


def other_servers(world):
    coordinator, apart = run(world)
    worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 1500}).start()
    train(worker, 10)
    worker.kill()  # otherwise it would use up its data while no server is up
    was = stop(world, apart)
    one = together(world, coordinator, apart, was)
    goes_on([one], worker, was)
    worker.kill()
    now = stop(world, [one])
    for shard in (0, 1):
        look_back(world, one, shard, was[shard])
    check(all(now[shard][0] > was[shard][0] for shard in was), f"{was}, then {now}")
    world.tool("checkpoint", "verify", "--config", one.write_settings())
    again = [world.server(i, coordinator, name=f"again-{i}") for i in (0, 1)]
    for i, server in enumerate(again):
        adopt(world, coordinator, server, str(i))
        world.tool("checkpoint", "restore", os.path.join(one.dir, "checkpoints"), *job(world),
                   "--into", server.dir, "--shards", str(i))
        server.start().listening()
    worker.start()
    worker.must_end(120)
    check(held(again) == worker.last_holdings(), "worker and servers differ in the end")


CASES = (other_servers,)

if __name__ == "__main__":
    sys.exit(main(CASES, __doc__))
