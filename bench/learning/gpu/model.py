"""The built-in trainer's transformer and its AdamW, in PyTorch (worker/train/model.h, update.h).

All parameters are one array of rows of CHUNK values: a tensor fills whole rows, what is over is
zero and stays zero. So a codec's chunks are rows, and a step of the outer optimizer is one
operation.
"""
import math

import torch
from torch.nn import functional as F

CHUNK = 4096
CONTEXT = 128
BETAS, EPS, DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0


class Shape:
    """Sizes of a model: tied embeddings of bytes, heads of grouped keys and values."""

    def __init__(self, dim, layers, heads, vocab=256):
        self.dim, self.layers, self.heads, self.vocab = dim, layers, heads, vocab
        self.kv_heads = heads // 2 or 1
        self.ffn = (dim * 8 // 3 + 7) // 8 * 8

    def tensors(self):
        """(name, rows, columns, deviation of the initial values; 0: ones) in the manifest's
        order."""
        wide, narrow = self.dim, self.dim // self.heads * self.kv_heads
        out = 0.02 / math.sqrt(2 * self.layers)  # of those that write to the residual stream
        yield "embed", self.vocab, wide, 0.02
        for i in range(self.layers):
            yield f"{i}.norm1", 1, wide, 0
            yield f"{i}.q", wide, wide, 0.02
            yield f"{i}.k", narrow, wide, 0.02
            yield f"{i}.v", narrow, wide, 0.02
            yield f"{i}.o", wide, wide, out
            yield f"{i}.norm2", 1, wide, 0
            yield f"{i}.gate", self.ffn, wide, 0.02
            yield f"{i}.up", self.ffn, wide, 0.02
            yield f"{i}.down", wide, self.ffn, out
        yield "norm", 1, wide, 0


class Layout:
    """Where a shape's tensors are in the rows; two shards of about as many values."""

    def __init__(self, shape, shards=2):
        self.shape, self.at, lengths = shape, {}, []
        for name, rows, columns, deviation in shape.tensors():
            self.at[name] = (len(lengths), rows, columns, deviation)
            left = rows * columns
            while left > 0:
                lengths.append(min(left, CHUNK))
                left -= CHUNK
        self.lengths = torch.tensor(lengths)  # values of each row
        self.values = int(self.lengths.sum())
        goes = torch.cumsum(self.lengths, 0)
        ends = [int((goes * shards <= self.values * (s + 1)).sum()) for s in range(shards)]
        self.shards = [slice(a, b) for a, b in zip([0, *ends], ends)]

    def initial(self, seed):
        """(rows, CHUNK) of fp32."""
        draw = torch.Generator().manual_seed(seed)
        out = torch.zeros(len(self.lengths), CHUNK)
        for name, (_, rows, columns, deviation) in self.at.items():
            self.view(out, name).copy_(torch.randn(rows, columns, generator=draw) * deviation
                                       if deviation else torch.ones(rows, columns))
        return out

    def view(self, array, name):
        """A tensor of the array, (rows, columns)."""
        at, rows, columns, _ = self.at[name]
        return array.flatten()[at * CHUNK:at * CHUNK + rows * columns].view(rows, columns)

    def decays(self):
        """(rows, 1): the weight decay of each row's values."""
        out = torch.zeros(len(self.lengths), 1)
        for at, rows, columns, deviation in self.at.values():
            if deviation:
                out[at:at + -(-rows * columns // CHUNK)] = DECAY
        return out


def rotary(length, width, device):
    """Cosines and sines of rotary positions, half-split."""
    frequency = 10000.0 ** (-torch.arange(0, width, 2, device=device) / width)
    angle = torch.outer(torch.arange(length, device=device).float(), frequency)
    return torch.cat((angle, angle), 1).cos(), torch.cat((angle, angle), 1).sin()


def turned(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def loss_of(shape, p, ids, total=False):
    """Nats a token of (sequences, length + 1) ids; `p`: tensors by name. `total`: their sum."""
    width, groups = shape.dim // shape.heads, shape.heads // shape.kv_heads
    batch, length = ids.shape[0], ids.shape[1] - 1
    cos, sin = rotary(length, width, ids.device)
    x = F.embedding(ids[:, :-1], p["embed"])
    for i in range(shape.layers):
        h = F.rms_norm(x, (shape.dim,), p[f"{i}.norm1"].view(-1), 1e-6)
        q, k, v = (F.linear(h, p[f"{i}.{n}"]).view(batch, length, -1, width).transpose(1, 2)
                   for n in "qkv")
        k, v = (t.repeat_interleave(groups, 1) for t in (turned(k, cos, sin), v))
        h = F.scaled_dot_product_attention(turned(q, cos, sin).to(v.dtype), k.to(v.dtype), v,
                                           is_causal=True)
        x = x + F.linear(h.transpose(1, 2).reshape(batch, length, -1), p[f"{i}.o"])
        h = F.rms_norm(x, (shape.dim,), p[f"{i}.norm2"].view(-1), 1e-6)
        x = x + F.linear(F.silu(F.linear(h, p[f"{i}.gate"])) * F.linear(h, p[f"{i}.up"]),
                         p[f"{i}.down"])
    x = F.rms_norm(x, (shape.dim,), p["norm"].view(-1), 1e-6)
    return F.cross_entropy(F.linear(x, p["embed"]).float().flatten(0, 1), ids[:, 1:].flatten(),
                           reduction="sum" if total else "mean")


class Trainer:
    """A region's parameters and AdamW. `local` changes in place, so a captured graph stays right.
    """

    def __init__(self, layout, initial, step_sequences, graph):
        self.layout, self.local = layout, initial.clone()
        self.gradient = torch.zeros_like(self.local)
        self.m, self.v = torch.zeros_like(self.local), torch.zeros_like(self.local)
        self.decay = layout.decays().to(initial.device)
        self.power = torch.ones(2, device=initial.device, dtype=torch.float64)
        self.betas = torch.tensor(BETAS, device=initial.device, dtype=torch.float64)
        self.rate = torch.zeros((), device=initial.device)
        self.ids = torch.zeros(step_sequences, CONTEXT + 1, dtype=torch.long,
                               device=initial.device)
        self.p = {}
        for name in layout.at:
            self.p[name] = torch.nn.Parameter(layout.view(self.local, name))
            self.p[name].grad = layout.view(self.gradient, name)
        self.graph = None
        if graph:
            self.capture()

    def work(self):
        """Everything of a step, on what `ids` and `rate` hold."""
        self.gradient.zero_()
        with torch.autocast("cuda", torch.bfloat16, enabled=self.local.is_cuda):
            loss_of(self.layout.shape, self.p, self.ids).backward()
        with torch.no_grad():
            self.gradient *= (CLIP / self.gradient.norm().clamp_min(1e-30)).clamp_max(1)
            self.power *= self.betas
            one, two = (1 - self.power).float()
            self.m.lerp_(self.gradient, 1 - BETAS[0])
            self.v.mul_(BETAS[1]).addcmul_(self.gradient, self.gradient, value=1 - BETAS[1])
            way = (self.m / one) / ((self.v / two).sqrt() + EPS) + self.decay * self.local
            self.local.sub_(self.rate * way)

    def capture(self):
        """The step as a CUDA graph. Warming up changes the arrays, which are put back."""
        kept = [(t, t.clone()) for t in (self.local, self.m, self.v, self.power)]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.work()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.work()
        for tensor, value in kept:
            tensor.copy_(value)

    def step(self, ids, rate):
        """One step of the local optimizer."""
        self.ids.copy_(ids)
        self.rate.fill_(rate)
        if self.graph:
            self.graph.replay()
        else:
            self.work()
