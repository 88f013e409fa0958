"""A stand-in for the client, and what the package's tests share; their command line is
`TEST LIBRARY PACKAGE`."""
import os
import sys

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
    """A client of one life after the other, whose boundaries do as the test says."""

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
