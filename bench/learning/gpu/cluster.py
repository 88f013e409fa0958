"""One arm: three regions and two shards of one model on a virtual clock.

What the programs do without losses of messages or machines: local steps, cuts (staggered where
nobody waits), error feedback, folds in the order of arrival, views that keep kappa of the residual
(worker/push/view.c), outer optimizers (kernels/outer.h), the learning rate by tokens that are in
the log of shard 0. A step of a region with H takes 1/H s, whatever it takes here.
"""
import heapq
import itertools
import math
import random
import types

import pushes
import torch
from model import CONTEXT, Layout, Trainer, loss_of

REGIONS = ("asia", "europe", "america")
SERVERS = ("europe", "america")  # of the shards
WAY_S = {frozenset(("asia", "europe")): 0.1, frozenset(("asia", "america")): 0.09,
         frozenset(("europe", "america")): 0.075}
DAMPING = 0.5


def rate_of(part, peak, warmup, floor=0.02):
    """The learning rate after a part of the run's tokens (worker/train/schedule.h)."""
    if part < warmup:
        low = max(floor, 0.01)
        return peak * (low + (1 - low) * part / warmup)
    way = min((part - warmup) / (1 - warmup), 1)
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * way)) / 2)


class Outer:
    """A replica of one shard: its values and what the outer optimizer keeps."""

    def __init__(self, values, momentum, live):
        self.theta, self.momentum, self.live = values.clone(), momentum, live
        self.u = torch.zeros_like(values) if momentum else None
        self.m = torch.zeros_like(values) if momentum else None
        self.count, self.by = 0, [0] * live  # admitted pushes; of each region

    def fold(self, push):
        step = push.q * push.scale
        self.theta -= step
        self.count += 1
        self.by[push.region] += 1
        if not self.momentum:
            return
        self.u += step
        if self.count % self.live == 0:  # delayed Nesterov
            self.m.mul_(self.momentum).add_(self.u)
            self.theta -= self.momentum * self.m
            self.u.zero_()


class Cluster:
    """`arm`: codec, density, beta, kappa, eta, momentum, bsp. `conf`: layout, seed, h (steps a
    round of each region), rounds, peak, warmup. `batches(region)`: an endless iterator of ids.
    `look(part, cluster)` is called after each round of the first region."""

    def __init__(self, arm, conf, batches, look, device="cpu", graph=False):
        self.arm, self.conf, self.look = arm, conf, look
        layout = conf.layout
        initial = layout.initial(conf.seed).to(device)
        self.lengths = layout.lengths.to(device)
        self.draw = random.Random(conf.seed)
        self.batches = [batches(r) for r in range(len(conf.h))]
        live, shards = len(conf.h), range(len(layout.shards))
        self.server = [Outer(initial[s], arm.momentum, live) for s in layout.shards]
        self.region = [types.SimpleNamespace(
            trainer=Trainer(layout, initial, conf.sequences, graph), h=h, left=h * conf.rounds,
            steps=[0] * len(layout.shards), in_turn=[False for _ in shards],
            pending=[False for _ in shards], pushed=[0 for _ in shards],
            base=[initial[s].clone() for s in layout.shards],
            residual=[torch.zeros_like(initial[s]) for s in layout.shards],
            replica=[Outer(initial[s], arm.momentum, live) for s in layout.shards],
            seen=[0 for _ in shards], tokens=0, uncredited=0, waits=False)
            for h in conf.h]
        self.total = sum(conf.h) * conf.rounds  # steps
        self.admitted = self.stale = self.carried = 0
        self.events, self.order, self.now = [], itertools.count(), 0.0
        self.last = {}  # of each way: when its last message came; they come in order

    # ------------------------------------------------------------ events

    def at(self, when, what, *given):
        heapq.heappush(self.events, (when, next(self.order), what, given))

    def send(self, a, b, what, *given):
        """A message between two places, up to 10 ms later than the way is long."""
        way = 0.001 if a == b else WAY_S[frozenset((a, b))]
        when = max(self.now + way + self.draw.random() * 0.01, self.last.get((a, b, what), 0))
        self.last[a, b, what] = when
        self.at(when, what, *given)

    def run(self):
        """Plays all rounds; afterwards theta() is the run's model."""
        for r, region in enumerate(self.region):
            self.at(1 / region.h, self.stepped, r)
        while self.events:
            self.now, _, what, given = heapq.heappop(self.events)
            what(*given)
        for r in self.region:
            for shard, replica in enumerate(r.replica):
                if not torch.equal(replica.theta, self.server[shard].theta):
                    raise RuntimeError(f"a replica of shard {shard} is not the server's")

    def theta(self):
        return torch.cat([s.theta for s in self.server])

    # ------------------------------------------------------------ regions

    def stepped(self, r):
        """A step of region r ends now."""
        region = self.region[r]
        part = region.tokens / self.total
        region.trainer.step(next(self.batches[r]),
                            rate_of(part, self.conf.peak, self.conf.warmup))
        region.left -= 1
        region.uncredited += 1
        region.steps = [n + 1 for n in region.steps]
        for shard in range(len(region.base)):
            if self.due(r, shard):
                self.cut(r, shard)
            elif not self.arm.bsp:
                self.renew(r, shard)
        if r == 0 and region.left % region.h == 0:
            self.look(1 - region.left / (region.h * self.conf.rounds), self)
        region.waits = self.arm.bsp and region.steps[0] == 0
        if region.left and not region.waits:
            self.at(self.now + 1 / region.h, self.stepped, r)

    def due(self, r, shard):
        region = self.region[r]
        if region.pending[shard]:
            return False
        if region.steps[shard] >= region.h or region.left == 0:
            return True
        turn = -(-region.h * shard // len(region.base))
        return (not self.arm.bsp and shard > 0 and not region.in_turn[shard] and
                region.steps[shard] >= turn)

    def cut(self, r, shard):
        region, rows = self.region[r], self.conf.layout.shards[shard]
        local, residual = region.trainer.local[rows], region.residual[shard]
        residual.mul_(self.arm.beta).add_(region.base[shard] - local)
        q = pushes.encode(self.arm.codec, residual, self.lengths[rows], self.arm.density)
        residual -= q
        region.base[shard].copy_(local)
        region.steps[shard], region.in_turn[shard] = 0, True
        region.pending[shard] = True
        push = types.SimpleNamespace(
            q=q, region=r, shard=shard, seen=list(region.replica[shard].by), scale=0.0,
            tokens=region.uncredited if shard == 0 else 0)
        if shard == 0:
            region.uncredited = 0
        self.carried += int((q != 0).sum())
        self.send(REGIONS[r], SERVERS[shard], self.arrives, push)

    def renew(self, r, shard):
        """The view moves to the replica, less kappa of the residual; progress stays."""
        region, rows = self.region[r], self.conf.layout.shards[shard]
        replica = region.replica[shard]
        if region.pending[shard] or replica.count == region.seen[shard]:
            return
        view = replica.theta - self.arm.kappa * region.residual[shard]
        region.trainer.local[rows] += view - region.base[shard]
        region.base[shard].copy_(view)
        region.seen[shard] = replica.count

    # ------------------------------------------------------------ servers

    def arrives(self, push):
        server, live = self.server[push.shard], len(self.region)
        others = sum(n - m for k, (n, m) in enumerate(zip(server.by, push.seen))
                     if k != push.region)
        stale = max(0, others - (live - 1))
        push.scale = self.arm.eta / live * (1 + stale) ** -DAMPING
        server.fold(push)
        self.admitted += 1
        self.stale += stale
        for r, name in enumerate(REGIONS[:live]):
            self.send(SERVERS[push.shard], name, self.follows, r, push)

    def follows(self, r, push):
        """A record comes to region r."""
        region = self.region[r]
        region.replica[push.shard].fold(push)
        region.tokens += push.tokens
        if push.region == r:
            region.pending[push.shard] = False
            if region.left == 0 and region.steps[push.shard]:
                self.cut(r, push.shard)  # what was trained while the push before was on its way
        if region.waits and self.round_over(region):
            for shard in range(len(region.base)):
                self.renew(r, shard)
            region.waits = False
            if region.left:
                self.at(self.now + 1 / region.h, self.stepped, r)

    @staticmethod
    def round_over(region):
        """All regions' pushes of this round are folded here."""
        return not any(region.pending) and all(len(set(p.by)) == 1 for p in region.replica)


def held_out(layout, theta, texts):
    """Mean over texts of nats a byte; a text is (sequences, CONTEXT + 1) of ids."""
    p = {name: layout.view(theta, name) for name in layout.at}
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=theta.is_cuda):
        return sum(float(loss_of(layout.shape, p, t, total=True)) / (len(t) * CONTEXT)
                   for t in texts) / len(texts)


__all__ = ["Cluster", "Layout", "held_out", "rate_of"]
