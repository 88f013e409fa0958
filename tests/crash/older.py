#!/usr/bin/env python3
"""A server's directory is rolled back to an older copy: `older.py --build build/release`.

Coordinator, two shard servers and three workers on loopback, as in kill.py. While a server is down
its directory is copied (cp -a). It goes on, and is killed with -9 after many more pushes were
acknowledged.

1. With default settings the server refuses the copy, logs why, and serves nothing of it; on
   the newer directory it goes on in its epoch.
2. With rebuild.damaged: followers it rebuilds from its followers' copies, under a new epoch.

The run then goes to its end, and history.py judges it: nothing acknowledged is lost, no push is
decided twice in the shard's new branch, missing versions above the stable point were named.
"""
import os
import shutil
import sys

from cluster import check, figures, judged, until
from lost_disk import Losses, main

import history


class Copies(Losses):
    """A cluster whose first server may restart on an older copy of its directory."""

    def copy_directory(self):
        """Copies the directory while the server is down."""
        server = self.servers[0]
        server.kill()
        self.keep_segments()
        self.copy = self.world.path("shard-0-copy")
        shutil.copytree(server.dir, self.copy)
        records, _ = history.read_segments(os.path.join(self.copy, "log"))
        self.copied_version = records[-1].version
        server.start().listening()

    def known(self):
        shards = self.coordinator.status().get("shards", [])
        return any(s["shard"] == 0 and s["version"] > self.copied_version for s in shards)

    def replace_directory(self, server):
        shutil.rmtree(server.dir)
        shutil.copytree(self.copy, server.dir)

    def epoch(self):
        shards = self.coordinator.status().get("shards", [])
        return next((s["epoch"] for s in shards if s["shard"] == 0), 0)

    def refuses(self):
        """The copy is not served unless the settings allow a rebuild."""
        server, epoch = self.servers[0], self.epoch()
        server.kill()
        self.keep_segments()
        newer, served = self.world.path("shard-0-newer"), server.text().count("server.serving")
        os.rename(server.dir, newer)
        shutil.copytree(self.copy, server.dir)
        check(server.start().end() != 0, "a server that finds an older copy ends with 0")
        check(server.says("is an older copy", "Nothing is served from it"), "it does not say why")
        check(server.text().count("server.serving") == served, "it served the older copy")
        shutil.rmtree(server.dir)
        os.rename(newer, server.dir)
        server.start().listening()
        until("the newer directory is served",
              lambda: server.text().count("server.serving") > served)
        check(self.epoch() == epoch, "a history was given up, and the newer directory is there")


def run(given):
    cluster = Copies(given.build, given.units, given.keep)
    with cluster.world:
        cluster.start(given.speed)
        cluster.wait_for_pushes(10)
        cluster.copy_directory()
        cluster.wait_for_pushes(20)
        until("the coordinator knows of more than the copy has", cluster.known)
        cluster.refuses()
        cluster.wait_for_pushes(10)
        until("something is stable, and more lies above all durable copies", cluster.runs_ahead)
        check(not cluster.over(), "the run was over before the directory was rolled back")
        cluster.servers[0].settings["rebuild.damaged"] = "followers"
        cluster.lose(())
        check(cluster.servers[0].says("log.older"), "it does not say that the copy is older")
        cluster.wait_for_pushes(10)
        check(not cluster.over(), "the run was over before the shard went on")
        h = judged(cluster)
        check(cluster.epoch() > 1, "no new epoch was opened")
        print(figures(h), flush=True)


if __name__ == "__main__":
    sys.exit(main(__doc__, run))
