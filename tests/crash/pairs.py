"""Servers with standbys under all faults: a server that takes over is the owner, and the former
owner, which ends when it hears of that, is restarted as the standby.

The log of a former standby may begin in the middle. So all servers' segments of all restarts form
one pool, and a shard's history is the branch to the last version of its last owner.
"""
import os

from faults import Faulty, last_words
from standby import WHOLE

TAKEN = ("was taken over by its standby, or moved to it", "another server has it")


class Pairs(Faulty):
    """Servers with a standby each; either of a pair may be the owner."""

    ROLES = ("coordinator", "server", "standby", "worker")

    def __init__(self, *given):
        super().__init__(*given)
        self.replacements = 0
        self.kept += [self.world.path(f"history-standby-{i}") for i in range(self.SERVERS)]
        for folder in self.kept[self.SERVERS:]:
            os.mkdir(folder)

    def make_servers(self, checkpoint_every):
        self.servers = []
        for name, role in (("shard", "shard"), ("standby", "standby")):
            for i in range(self.SERVERS):
                self.servers.append(self.world.server(
                    i, self.coordinator, name=f"{name}-{i}", **WHOLE | {
                        "role": role, "shards": self.shards_of(i)}).start().listening())

    def owners(self):
        known = {s["address"] for s in self.coordinator.status().get("shards", [])}
        return [s for s in self.servers if s.address in known]

    def role(self, node):
        if node.kind != "server":
            return node.kind
        return "server" if node in self.owners() else "standby"

    def up(self, node):
        """Like Faulty.up(); a server that was taken over may end before it listens."""
        if node.kind != "server":
            super().up(node)

    def replaced(self, node):
        if node.kind != "server" or not any(text in last_words(node) for text in TAKEN):
            return False
        node.settings["role"] = "standby"
        self.replacements += 1
        self.start_again(node)
        return True

    def history(self):
        """Replicas and credits are compared with the owners' reports."""
        self.everyone, self.servers = self.servers, self.owners()
        try:
            return super().history()
        finally:
            self.servers = self.everyone

    def gather(self):
        owners, self.servers = self.servers, self.everyone
        super().gather()
        self.servers = owners

    def more_figures(self):
        return {"servers_replaced": self.replacements}
