#!/usr/bin/env python3
"""Steps of bench/gpu/train.c's model in PyTorch, eager: tokens/s in fp32 and with bf16 autocast.

The same shape, AdamW (fused) and clipping; attention is scaled_dot_product_attention. Prints "fp32
N tokens/s, bf16 M tokens/s"; status 77 without PyTorch, or without a device that it sees.
"""
import argparse
import statistics
import sys
import time


def build(torch, flags):
    nn, functional = torch.nn, torch.nn.functional
    dim, heads = flags.dim, flags.heads
    kv_heads = heads if heads % 4 else heads // 4
    size = dim // heads

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(dim, 1e-6), nn.RMSNorm(dim, 1e-6)
            self.qkv = nn.Linear(dim, (heads + 2 * kv_heads) * size, bias=False)
            self.out = nn.Linear(dim, dim, bias=False)
            self.gate_up = nn.Linear(dim, 2 * flags.ffn, bias=False)
            self.down = nn.Linear(flags.ffn, dim, bias=False)

        def forward(self, x, cosine, sine):
            batch, length, _ = x.shape
            parts = self.qkv(self.norm1(x)).view(batch, length, -1, size).transpose(1, 2)
            q, k, v = parts.split((heads, kv_heads, kv_heads), dim=1)
            q, k = (t * cosine + torch.cat((-t[..., size // 2:], t[..., :size // 2]), -1) * sine
                    for t in (q, k))
            k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
            a = functional.scaled_dot_product_attention(q.type_as(v), k.type_as(v), v,
                                                        is_causal=True)
            x = x + self.out(a.transpose(1, 2).reshape(batch, length, dim))
            gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
            return x + self.down(functional.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(flags.vocab, dim)
            self.layers = nn.ModuleList(Layer() for _ in range(flags.layers))
            self.norm = nn.RMSNorm(dim, 1e-6)
            turns = torch.arange(flags.context)[:, None] * \
                1e4 ** (-torch.arange(0, size, 2) / size)
            turns = torch.cat((turns, turns), -1)
            self.register_buffer("cosine", turns.cos())
            self.register_buffer("sine", turns.sin())

        def forward(self, ids):
            x = self.embed(ids[:, :-1])
            for layer in self.layers:
                x = layer(x, self.cosine, self.sine)
            logits = functional.linear(self.norm(x), self.embed.weight)
            return functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    return Model().to(flags.device)


def rate(torch, flags, half):
    model = build(torch, flags)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, (0.9, 0.95),
                                  fused=flags.device == "cuda")
    ids = torch.randint(flags.vocab, (flags.batch, flags.context + 1), device=flags.device)
    times = []
    for _ in range(flags.steps + 2):
        begun = time.perf_counter()
        with torch.autocast(flags.device, torch.bfloat16, enabled=half):
            loss = model(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        if flags.device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return flags.batch * flags.context / statistics.median(times[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("dim", 1024), ("layers", 12), ("heads", 16), ("ffn", 2816),
                        ("vocab", 32000), ("context", 1024), ("batch", 8), ("steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cuda", help="cpu: to try this program")
    flags = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("no PyTorch")
        return 77
    if flags.device == "cuda" and not torch.cuda.is_available():
        print("PyTorch sees no device")
        return 77
    torch.manual_seed(1)
    rates = [rate(torch, flags, half) for half in (False, True)]
    print(f"fp32 {rates[0]:.0f} tokens/s, bf16 {rates[1]:.0f} tokens/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
