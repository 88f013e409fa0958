"""The model that every arm trains, and the arms' common outer step."""
import hashlib
import time

import torch

SIZES = {  # width, layers, width of the feed-forward parts
    "300m": (1024, 24, 4096),
    "100m": (768, 14, 3072),
    "30m": (512, 10, 1952),  # 30.8 M parameters: bench/grid.py
    "15m": (384, 8, 1536),
    "tiny": (32, 2, 64),
}
BATCH, LENGTH = 1, 32  # sequences, bytes


class Model(torch.nn.Module):
    """Predicts the next byte after each byte of (sequences, bytes); two halves, which can be
    synchronised separately."""

    def __init__(self, size):
        super().__init__()
        width, layers, inner = SIZES[size]
        def block():
            return torch.nn.TransformerEncoderLayer(width, width // 16, inner, dropout=0.0,
                                                    batch_first=True, norm_first=True)
        self.lower = torch.nn.Sequential(torch.nn.Embedding(256, width),
                                         *(block() for _ in range(layers // 2)))
        self.upper = torch.nn.Sequential(*(block() for _ in range(layers - layers // 2)),
                                         torch.nn.Linear(width, 256))

    def forward(self, batch):
        """The mean loss."""
        said = self.upper(self.lower(batch[:, :-1]))
        return torch.nn.functional.cross_entropy(said.transpose(1, 2), batch[:, 1:])


class Bytes(torch.nn.Module):
    """Predicts the next byte after 16 bytes, for bench/grid's losses: it learns in minutes."""

    context, batch, rate = 16, 64, 1e-3

    def __init__(self):
        super().__init__()
        self.known = torch.nn.Embedding(256, 32)
        self.inner = torch.nn.Sequential(
            torch.nn.Linear(32 * self.context, 512), torch.nn.GELU(), torch.nn.Linear(512, 512),
            torch.nn.GELU(), torch.nn.Linear(512, 256))

    def forward(self, batch):
        """The mean loss of (sequences, context + 1) bytes."""
        said = self.inner(self.known(batch[:, :-1]).flatten(1))
        return torch.nn.functional.cross_entropy(said, batch[:, -1])


class Text:
    """A file's bytes. One of every ten pieces of a kilobyte is held out."""

    def __init__(self, path):
        with open(path, "rb") as file:
            values = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
        pieces = values[:len(values) // 1024 * 1024].view(-1, 1024)
        out = torch.arange(len(pieces)) % 10 == 9
        self.train, self.heldout = pieces[~out], pieces[out]

    @staticmethod
    def drawn(pieces, count, draw):
        """`count` sequences of a model's context and the byte after it."""
        which = torch.randint(len(pieces), (count,), generator=draw)
        at = torch.randint(1024 - Bytes.context, (count,), generator=draw)
        return pieces[which[:, None], at[:, None] + torch.arange(Bytes.context + 1)]

    def loss(self, model):
        """Held-out nats a byte, of the same sequences each time."""
        draw = torch.Generator().manual_seed(3)
        with torch.no_grad():
            return model(self.drawn(self.heldout, 20000, draw)).item()


def make(size, seed=7):
    """The same initial parameters in every process."""
    torch.manual_seed(seed)
    return Bytes() if size == "bytes" else Model(size)


def outer(parameters):
    """DiLoCo's outer optimizer, with the values of its paper."""
    return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)


class Modelled(torch.optim.Optimizer):
    """Moves some of the tensors by noise in each step, each of them once in h steps: the processor
    has next to nothing to do, as if a GPU computed. No gradient is needed."""

    def __init__(self, parameters, h):
        super().__init__(parameters, {"lr": 1e-4})
        self.moved = [p for group in self.param_groups for p in group["params"]]
        draw = torch.Generator().manual_seed(5)
        self.noise = torch.randn(max(p.numel() for p in self.moved), generator=draw)
        self.h, self.n = h, 0
        self.least = {}  # seconds by turn: least time to move its tensors

    def lasts(self):
        """Processor seconds of the next step, by which the pause before it is shortened."""
        return self.least.get(self.n % self.h, 0.0)

    @torch.no_grad()
    def step(self, closure=None):
        """Moves the tensors whose turn it is."""
        begun, turn = time.monotonic(), self.n % self.h
        for p in self.moved[turn::self.h]:
            p.add_(self.noise[:p.numel()].view_as(p), alpha=self.defaults["lr"])
        self.n += 1
        took = time.monotonic() - begun
        self.least[turn] = min(took, self.least.get(turn, took))


def digest(tensors):
    """Digest of values that must be equal in all regions."""
    made = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        made.update(tensor.detach().contiguous().numpy())
    return made.hexdigest()


class Anchor:
    """The last common parameters of all regions, flat, and the outer step from there."""

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.flat = self._now()
        self.optimizer = outer([self.flat])

    def _now(self):
        return torch.cat([parameter.detach().view(-1) for parameter in self.parameters])

    def delta(self):
        """The pseudo-gradient of the steps since: fp32, as long as the model."""
        return self.flat - self._now()

    def step(self, mean):
        """One outer step by the mean of all regions' pseudo-gradients; training goes on from
        there."""
        self.flat.grad = mean
        self.optimizer.step()
        with torch.no_grad():
            parts = self.flat.split([parameter.numel() for parameter in self.parameters])
            for parameter, part in zip(self.parameters, parts):
                parameter.copy_(part.view_as(parameter))
