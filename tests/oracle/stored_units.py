#!/usr/bin/env python3
"""Units and an export in a real S3 store, SeaweedFS: `stored_units.py --build BUILD`.

Follows deploy/docs/store.md as an operator would. The token files go into the store, and the
worker's host has none. In the middle the store is killed: units are given back, and no process
ends; the worker is restarted meanwhile. Then the run ends with every unit credited, its model goes
into the store, and the downloaded files equal an export to disk.
"""
import filecmp
import json
import os
import shutil
import sys

from store import KEY, SECRET, ROOT, main

sys.path.insert(0, str(ROOT / "tests/e2e"))
from world import check, held, until  # noqa: E402

UNITS, MODEL = "s3://longhaul/run/units", "s3://longhaul/run/model"


def push(world):
    """Pushes the token files, and removes them from this host."""
    code = world.try_tool("store", "push", world.path("data"), "s3://no-bucket/units")[0]
    check(code, "a bucket that is not there")
    os.environ["AWS_SECRET_ACCESS_KEY"] = "another"
    code, _, text = world.try_tool("store", "push", world.path("data"), UNITS)
    check(code == 7 and "look at the access key" in text, f"{code}: {text}")
    os.environ["AWS_SECRET_ACCESS_KEY"] = SECRET
    world.tool("store", "push", world.path("data"), UNITS)
    code, _, text = world.try_tool("store", "push", world.path("data"), UNITS)
    check(code and "holds files already" in text, f"{code}: {text}")
    world.tool("store", "pull", UNITS, world.path("pulled"))
    names = os.listdir(world.path("pulled"))
    same = filecmp.cmpfiles(world.path("data"), world.path("pulled"), names, shallow=False)
    check(same[0] and not same[1] and not same[2], f"{same}")
    shutil.rmtree(world.path("data"))


TOPOLOGY = """run: stored
budget_tokens: 24000
model: {dim: 16, layers: 1, heads: 2, kv_heads: 1, ffn: 32, context: 64}
coordinator: {region: asia}
servers: [{name: s0, region: europe, shards: [0]}]
regions: {asia: , europe: , america: }
"""


def launch(world):
    """`longhaul up` on units in the store: only the manifest and held-out texts are copied here."""
    with open(world.path("t.yaml"), "w", encoding="utf-8") as out:
        out.write(TOPOLOGY)
    line = ("up", world.path("t.yaml"), "--data", UNITS, "--dir", world.path("up"))
    code, _, text = world.try_tool(*line)
    check(code == 6 and "use --no-wan" in text, f"{code}: {text}")
    code, said, text = world.try_tool(*line, "--no-wan")
    check(code in (0, 5), f"{code}: {said}{text}")  # 5: the model may learn too little
    for verdict in ("4 replicas of each shard are equal", "every unit of data is credited at most"):
        check(f"ok     {verdict}" in said, said)
    names = os.listdir(world.path("up", "data"))
    check("units.json" in names and all(name.startswith(("units.", "heldout-")) for name in names),
          f"{names}")


def export(world, worker):
    line = ("export", "--to", "safetensors", "--manifest", world.path("model.json"), "--parameters",
            os.path.join(worker.dir, "final.weights"), "--max-shard-size", "20KB", "--out")
    world.tool(*line, MODEL)
    world.tool(*line, world.path("model"))
    world.tool("store", "pull", MODEL, world.path("model-pulled"))
    names = sorted(os.listdir(world.path("model")))
    check(len(names) > 3 and names == sorted(os.listdir(world.path("model-pulled"))), f"{names}")
    same = filecmp.cmpfiles(world.path("model"), world.path("model-pulled"), names, shallow=False)
    check(same[0] == names, f"{same}")


def play(world, store, way):
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET,
                      AWS_ENDPOINT_URL=f"http://127.0.0.1:{way.port}")
    push(world)
    launch(world)
    coordinator = world.coordinator(1, **{"data.units": UNITS + "/units.json"})
    coordinator.start().listening()
    server = world.server(0, coordinator)
    server.start().listening()
    worker = world.worker("asia", coordinator,
                          **{"data.units": UNITS + "/units.json", "data.dir": UNITS,
                             "trainer.tokens_per_s": 4000})
    worker.start()
    until("it trains out of the store", lambda: server.shards()
          and server.shards()[0]["version"] > 3 and worker.status()["loader"]["fetched"] > 0)
    store.kill()
    until("units are given back", lambda: worker.says("units.closed"))
    check(worker.says("do not reach this worker: loader: unit", UNITS), worker.tail())
    check(worker.alive() and server.alive(), "nothing ends")
    worker.must_stop()  # although the store is down
    worker.start()
    until("it starts without the store", lambda: worker.says("units.copy"))
    store.start()
    worker.must_stop()
    worker.settings["trainer.tokens_per_s"] = 40000
    worker.start()
    worker.must_end()
    check(held([server]) == worker.last_holdings(), "worker and server differ in the end")
    status = json.loads(world.tool("get", "leases", *world.admin(coordinator), "-o", "json"))
    check(all(row["state"] == "credited" for row in status["leases"]), f"{status}")
    export(world, worker)
    for node in (server, coordinator):
        node.must_stop()


if __name__ == "__main__":
    sys.exit(main(__doc__, play))
