"""A stand-in for the client, and shared parts of the package's tests, whose command line is `TEST
LIBRARY PACKAGE`."""
import array
import hashlib
import json
import os
import struct
import sys
import tempfile
import unittest

LIBRARY, PACKAGE = sys.argv[1:3]
sys.path.insert(0, PACKAGE)
os.environ["LONGHAUL_LIBRARY"] = LIBRARY
import torch  # noqa: E402

import longhaul  # noqa: E402
from longhaul import client as _client  # noqa: E402
from longhaul import final  # noqa: E402
from longhaul import errors, group, parameters  # noqa: E402,F401  pylint: disable=unused-import

# No worker writes final.weights.
final._PATIENCE_S = 0.3  # pylint: disable=protected-access


class Fake:
    """A client of several lives, whose boundaries return the test's values."""

    rank, ranks, follows = 0, 1, False
    change = _client.BudgetChange()

    def __init__(self, leases=(), dues=()):
        self.leases, self.dues = list(leases), list(dues)
        self.done, self.credits, self.room, self.kinds = [], 0, 1000, []
        self.shadow, self.places = 0, []

    def parameter(self, name, _shape, data, *, dtype, **__):
        self.done.append(("parameter", name))
        self.places.append(data)
        self.kinds.append(dtype)

    def __getattr__(self, name):
        def call(*given):
            self.done.append((name, *given))
            return True
        return call

    def open(self):
        pass  # it is never closed

    def state(self):
        return longhaul.State(True, 0, 0, 0, 0, 0, self.shadow)

    def boundary(self, step, tokens):
        self.done.append(("boundary", step, tokens))
        due = self.dues.pop(0) if self.dues else 0
        if due == "over":
            raise errors.RestartError("over")
        return longhaul.Due(due)

    def lease(self):
        if not self.leases:
            raise errors.DrainedError("none")
        lease = self.leases.pop(0)
        if lease == "over":
            raise errors.RestartError("over")
        return lease

    def trained(self, unit, upto):
        if not self.room:
            return False
        self.room -= 1
        self.done.append(("trained", unit, upto))
        return True

    def credited(self):
        return self.credits

    def schedule(self, follows):
        self.follows = follows == 1
        self.done.append(("schedule", int(follows)))

    def noise(self, sigma, rate, clip, steps=1):
        self.done.append(("noise", sigma, rate, clip, steps))

    def of(self, *names):
        return [d for d in self.done if d[0] in names]


def model_of(*sizes):
    return torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in sizes))


class Scarce(Fake):
    """A client whose units are all there are: no other is leased until one of them is trained."""

    idle, over, holder = 0, None, None

    def lease(self):
        if self.leases:
            return self.leases.pop(0)
        if self.over in (self.holder or self).done:
            raise errors.DrainedError("none")
        return None

    def wait(self, *_):
        self.idle += 1
        if self.idle > 9:
            raise AssertionError("the loop waits for a step that never comes")


class Case(unittest.TestCase):
    """A folder, a model with its optimizer, and a run's files."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="lh-py-")
        self.addCleanup(self.folder.cleanup)
        self.model = model_of((2, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def units(self, *sizes):
        tokens, rows = array.array("H"), []
        for i, size in enumerate(sizes):
            own = array.array("H", [100 * i + k for k in range(size)])
            rows.append({"id": i, "file": "a.bin", "from": len(tokens), "tokens": size,
                         "sha256": hashlib.sha256(own.tobytes()).hexdigest()})
            tokens.extend(own)
        with open(self.path("a.bin"), "wb") as file:
            file.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253))
            tokens.tofile(file)
        with open(self.path("units.json"), "w", encoding="utf-8") as file:
            json.dump({"units": rows}, file)
        return self.path("units.json")

    def manifest(self, **tensors):
        with open(self.path("model.json"), "w", encoding="utf-8") as file:
            json.dump({"tensors": [{"name": n.replace("_", "."), "shape": s}
                                   for n, s in tensors.items()]}, file)
        return self.path("model.json")

    def run_of(self, client, **options):
        return longhaul.AsyncDiLoCo(client, self.model, self.optimizer, **options)
