"""Ways to synchronise a training loop with other regions: longhaul, and its peers.

`after_step(n)` is called after the n-th optimizer step; `finished` is true when the loop shall end;
`proof()` gives, after the last step, the values that must be equal in all regions if they were
synchronised.
"""
import contextlib
import datetime
import time

import model as models
import torch

PATIENCE = datetime.timedelta(minutes=5)


class Alone:
    """Synchronises nothing: the time of the steps alone."""

    finished = False

    def __init__(self, given, model, optimizer):
        self.given, self.model, self.optimizer = given, model, optimizer
        self.synced = 0

    def begin(self):
        """Called before the first step."""

    def after_step(self, n):
        """Called after an optimizer step."""

    def beside(self, n):
        """Called in the pause of a step, for work that fits there."""

    def spent(self):
        """Seconds of the ending window, by purpose."""
        return {}

    def proof(self):
        """The values that must be equal in all regions at the end."""
        return {}

    def close(self):
        """Called when all regions gave their proof."""


class Longhaul(Alone):
    """The package of worker/python; the loop has its own data, and an operator ends the run."""

    def begin(self):
        import longhaul

        client = longhaul.Client.from_env()
        self.seconds = dict.fromkeys(("cut_s", "renew_s", "memcpy_s"), 0.0)
        self.calls = dict.fromkeys(self.seconds, 0)
        client.cut = self.timed("cut_s", client.cut)
        client.renew = self.timed("renew_s", client.renew)
        self.beside_them = [] if self.given.bare else \
            [torch.zeros_like(p) for p in self.model.parameters()]
        self.run = longhaul.AsyncDiLoCo(client, self.model, self.optimizer,
                                        tokens_per_step=models.BATCH * models.LENGTH)
        self.run.__enter__()

    def timed(self, what, call):
        """A wrapper of the call that adds its seconds."""
        def measured():
            begun = time.monotonic()
            call()
            self.seconds[what] += time.monotonic() - begun
            self.calls[what] += 1
        return measured

    def copy(self):
        """A memcpy of the parameters, on as many threads as a cut."""
        with torch.no_grad():
            for to, p in zip(self.beside_them, self.model.parameters()):
                to.copy_(p)

    def beside(self, n):
        if self.beside_them and n % self.given.h == self.given.h // 2:  # once a window
            self.timed("memcpy_s", self.copy)()

    def spent(self):
        said = {name: seconds for name, seconds in self.seconds.items()
                if self.beside_them or name != "memcpy_s"}
        self.seconds.update(dict.fromkeys(self.seconds, 0.0))
        return said

    @property
    def finished(self):
        """The run is drained."""
        return self.run.finished

    def proof(self):
        self.run.__exit__(None)
        if not self.calls["cut_s"] or bool(self.calls["memcpy_s"]) != bool(self.beside_them):
            raise SystemExit(f"no cut was timed, or no memcpy: {self.calls}")
        return {"final": models.digest(self.model.parameters())}


class Gloo(Alone):
    """DiLoCo in a dozen lines: an all-reduce of the fp32 pseudo-gradient every h steps."""

    def begin(self):
        import torch.distributed as dist

        self.dist = dist
        dist.init_process_group("gloo", init_method=f"tcp://{self.given.first}:7710",
                                rank=self.given.rank, world_size=self.given.regions,
                                timeout=PATIENCE)
        self.anchor = models.Anchor(self.model)

    def after_step(self, n):
        if n % self.given.h == 0:
            mean = self.anchor.delta()
            self.dist.all_reduce(mean)
            self.anchor.step(mean.div_(self.given.regions))
            self.synced += 1

    def proof(self):
        return {"anchor": models.digest([self.anchor.flat]), "synced": self.synced}

    def close(self):
        self.dist.destroy_process_group()


class Torchft(Alone):
    """torchft's DiLoCo, one fragment. Its tensors are sent as one (use_bucketization): by default
    each is all-reduced separately, and waits for its own round trips."""

    def fragments(self):
        """The fragments, each synchronised at once, and the number of steps beside it."""
        return [self.model], 0

    def begin(self):
        import torch.distributed as dist
        from torchft.local_sgd import DiLoCo
        from torchft.manager import Manager
        from torchft.process_group import ProcessGroupGloo

        given = self.given
        self.store = dist.TCPStore(given.address, 0, is_master=True, wait_for_workers=False)
        self.manager = Manager(
            pg=ProcessGroupGloo(timeout=PATIENCE), min_replica_size=given.regions,
            load_state_dict=None, state_dict=None, use_async_quorum=False, init_sync=False,
            timeout=PATIENCE, quorum_timeout=PATIENCE, rank=0, world_size=1,
            store_addr=given.address, store_port=self.store.port,
            lighthouse_addr=f"http://{given.hub}:7711", replica_id=f"frontdoor{given.rank}",
            hostname=given.address)
        parts, delay = self.fragments()
        self.diloco = DiLoCo(self.manager, parts, self.optimizer,
                             [models.outer(part.parameters()) for part in parts],
                             sync_every=given.h, fragment_sync_delay=delay,
                             use_bucketization=True)
        self.diloco.__enter__()

    def proof(self):
        held = [values for fragment in self.diloco._fragments  # pylint: disable=protected-access
                for values in fragment.original_parameters.values()]
        return {"anchor": models.digest(held), "synced": self.manager.current_step()}

    def close(self):
        self.diloco.__exit__(None, None, None)
        self.manager.shutdown(wait=False)


class Streaming(Torchft):
    """torchft's streaming DiLoCo: two fragments in turn, each all-reduced beside `delay` steps."""

    def fragments(self):
        return [self.model.lower, self.model.upper], self.given.delay


class Hivemind(Alone):
    """DiLoCo over hivemind's averager at its defaults, with a known group size."""

    def begin(self):
        import hivemind

        listen = f"/ip4/{self.given.address}/tcp/{7712 + self.given.rank}"
        self.dht = hivemind.DHT(host_maddrs=[listen], start=True,
                                initial_peers=self.given.peers or None)
        if self.given.rank == 0:
            print("peers", *self.dht.get_visible_maddrs(), flush=True)
        self.anchor = models.Anchor(self.model)
        self.averager = hivemind.DecentralizedAverager(
            [torch.zeros_like(self.anchor.flat)], self.dht, prefix="frontdoor", start=True,
            target_group_size=self.given.regions)

    def after_step(self, n):
        if n % self.given.h:
            return
        with self.averager.get_tensors() as tensors:
            tensors[0].copy_(self.anchor.delta())
        group = self.averager.step(timeout=PATIENCE.total_seconds())
        self.synced += group is not None and len(group) == self.given.regions
        with self.averager.get_tensors() as tensors:
            mean = tensors[0].clone()
        self.anchor.step(mean)

    def proof(self):
        return {"synced": self.synced}  # averages may differ by rounding

    def close(self):
        self.averager.shutdown()
        self.dht.shutdown()


ARMS = {"alone": Alone, "longhaul": Longhaul, "gloo": Gloo, "torchft": Torchft,
        "torchft-streaming": Streaming, "hivemind": Hivemind}


@contextlib.contextmanager
def lighthouse(address, regions):
    """torchft's lighthouse, for all regions."""
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(bind=f"{address}:7711", min_replicas=regions)
    yield
    server.shutdown()
