#!/usr/bin/env python3
"""Loss under differential privacy: `private.py --text data/text --tool build/.../longhaul`.

The mechanisms of deploy/docs/privacy.md, in PyTorch, on a byte-level transformer. Noise is computed
from epsilon by `longhaul privacy plan`; delta is below 1 / records.

- record: one region trains a model from scratch on paragraphs of manual pages. Each step draws
  paragraphs in secret, clips the gradient of each, and adds noise to their sum.
- trainer: the same records in the product: `longhaul up` with one region, the built-in trainer and
  its own model of the same size. Without privacy it takes the same texts in order.
- region: a model that was trained on English without privacy is adapted to German by rank-1
  adapters. Several regions have a part of the German text each. A round is some local steps in
  each of them; each clips its delta and adds noise; the mean is applied. The size of that step
  follows from noise, values and regions alone: with the noise's norm r times that of a run's
  clipped deltas, it is 1 / (1 + r^2).

Each arm is trained at epsilon 8, at 3, and without privacy, on the same seeds. A line for each is
appended to --results, and an arm that is there is not trained again; --json makes the rows,
--picture their picture.
Losses are held-out nats per byte. Learning rates were tried on seed 0, which is in no figure; 4e-3
was worse on seed 1.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time

import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import picture  # noqa: E402
from report import Report  # noqa: E402

CONTEXT, DIM, LAYERS, HEADS = 64, 64, 2, 4
RECORDS, DRAWN, STEPS, CLIP = 20000, 96, 150, 0.5
RATE = {"none": 16e-3, "8": 8e-3, "3": 8e-3}  # the better of both at epsilon 8 and at none
BASE_STEPS, BASE_RATE = 200, 4e-3     # of the model that is adapted
ROUNDS, LOCAL, SEQUENCES = 16, 2, 4   # of a run at region level; of a round; of a local step
REGION_RATE, REGION_CLIP = 5e-3, 0.2
DELTA = {"record": 1e-5, "region": 1e-6}
ARMS = ("record", "trainer", "region-3", "region-64")
LEVELS = ("none", "8", "3")
BETAS, EPS = (0.9, 0.95), 1e-8


# ---------------------------------------------------------------- the model

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.RMSNorm(DIM), torch.nn.RMSNorm(DIM)
        for name, rows, columns in (("q", DIM, DIM), ("k", DIM, DIM), ("v", DIM, DIM),
                                    ("o", DIM, DIM), ("up", 4 * DIM, DIM), ("down", DIM, 4 * DIM)):
            setattr(self, name, torch.nn.Linear(columns, rows, bias=False))

    def forward(self, x):
        """[records, tokens, DIM]"""
        n, t, _ = x.shape
        y = self.norm1(x)
        q, k, v = (layer(y).view(n, t, HEADS, -1).transpose(1, 2)
                   for layer in (self.q, self.k, self.v))
        score = q @ k.transpose(-1, -2) / math.sqrt(DIM // HEADS)
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        y = (score.masked_fill(hidden, -math.inf).softmax(-1) @ v).transpose(1, 2)
        x = x + self.o(y.reshape(n, t, DIM))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = torch.nn.Embedding(256, DIM), torch.nn.Embedding(CONTEXT, DIM)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(DIM)
        for p in self.parameters():
            if p.dim() > 1:
                torch.nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        x = self.embed(ids) + self.place.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embed.weight.T


def loss_of(model, values, ids):
    """Mean over the targets of records ids[n, CONTEXT + 1]; -1 is padding."""
    said = functional_call(model, values, (ids[:, :-1].clamp(min=0),))
    return F.cross_entropy(said.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=-1)


class Adam:
    """AdamW on a dictionary of tensors, without weight decay."""

    def __init__(self, values):
        self.m = {k: torch.zeros_like(v) for k, v in values.items()}
        self.v = {k: torch.zeros_like(v) for k, v in values.items()}
        self.t = 0

    def step(self, values, gradient, rate):
        self.t += 1
        out = {}
        for k, g in gradient.items():
            self.m[k] = BETAS[0] * self.m[k] + (1 - BETAS[0]) * g
            self.v[k] = BETAS[1] * self.v[k] + (1 - BETAS[1]) * g * g
            m, v = self.m[k] / (1 - BETAS[0] ** self.t), self.v[k] / (1 - BETAS[1] ** self.t)
            out[k] = values[k] - rate * m / (v.sqrt() + EPS)
        return out


def rate_at(peak, step, steps):
    warm = max(1, steps // 20)
    return peak * min(1, (step + 1) / warm) * (0.55 + 0.45 * math.cos(math.pi * step / steps))


# ---------------------------------------------------------------- texts

def paragraphs(path, most):
    """Records of CONTEXT + 1 bytes, one per paragraph, padded with -1; longer ones are cut."""
    out = []
    with open(path, "rb") as file:
        for line in file:
            line = line.strip()[:CONTEXT + 1]
            if len(line) >= 20:
                out.append(list(line) + [-1] * (CONTEXT + 1 - len(line)))
            if len(out) == most:
                break
    return torch.tensor(out)


class Texts:
    def __init__(self, folder):
        path = lambda *name: os.path.join(folder, *name)  # noqa: E731
        self.english = paragraphs(path("america", "en", "manpages.txt"), RECORDS)
        self.german = paragraphs(path("europe", "de", "manpages.txt"), RECORDS)
        self.heldout = {name: paragraphs(path("heldout", f"{name}.txt"), 600)
                        for name in ("en", "de")}


def heldout(model, values, ids):
    with torch.no_grad():
        return float(loss_of(model, values, ids))


# ---------------------------------------------------------------- record level

def clipped(gradients, clip):
    """The sum of the records' gradients, each of norm at most `clip`."""
    norm = sum(g.flatten(1).square().sum(1) for g in gradients.values()).sqrt()
    scale = (clip / norm.clamp(min=1e-12)).clamp(max=1)
    return {k: (g * scale.view(-1, *[1] * (g.dim() - 1))).sum(0) for k, g in gradients.items()}


def train_records(model, records, steps, rate, sigma, draw):
    """sigma None: no clip and no noise, the same draws."""
    values = {k: v.detach().clone() for k, v in model.named_parameters()}
    adam, q = Adam(values), DRAWN / len(records)
    each = vmap(grad(lambda v, one: loss_of(model, v, one[None])), in_dims=(None, 0))
    whole = grad(lambda v, ids: loss_of(model, v, ids))
    for step in range(steps):
        ids = records[torch.rand(len(records), generator=draw) < q]
        if sigma is None:
            gradient = whole(values, ids)
        else:
            gradient = {k: (g + sigma * CLIP * torch.randn(g.shape, generator=draw)) / DRAWN
                        for k, g in clipped(each(values, ids), CLIP).items()}
        values = adam.step(values, gradient, rate_at(rate, step, steps))
    return values


# ---------------------------------------------------------------- region level

def adapters(base, regions, draw):
    """A rank-1 adapter for each matrix of the blocks, for each region: `a` is drawn, `b` is
    zero."""
    out = {}
    for name, w in base.items():
        if name.startswith("blocks.") and w.dim() == 2:
            out[name + ":a"] = torch.randn(w.shape[1], generator=draw) / math.sqrt(w.shape[1])
            out[name + ":b"] = torch.zeros(w.shape[0])
    return {k: v.expand(regions, *v.shape).clone() for k, v in out.items()}


def merged(base, adapter):
    out = dict(base)
    for name in base:
        if name + ":a" in adapter:
            out[name] = base[name] + torch.outer(adapter[name + ":b"], adapter[name + ":a"])
    return out


def train_regions(model, base, text, regions, sigma, draw):
    """Gives the final common adapter."""
    text = text[torch.randperm(len(text), generator=draw)]
    own = text[:len(text) // regions * regions].view(regions, -1, CONTEXT + 1)
    local = vmap(grad(lambda a, ids: loss_of(model, merged(base, a), ids)))
    shared = {k: v[0] for k, v in adapters(base, 1, draw).items()}
    ratio = (sigma or 0) * math.sqrt(sum(v.numel() for v in shared.values()) / regions / ROUNDS)
    outer = 1 / (1 + ratio ** 2)
    for _ in range(ROUNDS):
        begun = {k: v.expand(regions, *v.shape) for k, v in shared.items()}
        values, adam = begun, Adam(begun)
        for _ in range(LOCAL):
            at = torch.randint(own.shape[1], (regions, SEQUENCES), generator=draw)
            values = adam.step(values, local(values, own[torch.arange(regions)[:, None], at]),
                               REGION_RATE)
        delta = {k: values[k] - begun[k] for k in values}
        if sigma is None:
            total = {k: d.sum(0) for k, d in delta.items()}
        else:
            total = {k: d + math.sqrt(regions) * sigma * REGION_CLIP
                     * torch.randn(d.shape, generator=draw)
                     for k, d in clipped(delta, REGION_CLIP).items()}
        shared = {k: shared[k] + outer * total[k] / regions for k in shared}
    return shared


# ---------------------------------------------------------------- arms

def sigma_of(tool, arm, epsilon, values):
    """The noise divided by the clip, from `longhaul privacy plan`; None: no privacy."""
    if epsilon == "none":
        return None
    level, steps = arm.split("-")[0], STEPS if arm == "record" else ROUNDS
    more = ["--rate", str(DRAWN / RECORDS), "--records", str(RECORDS)] if arm == "record" else []
    said = subprocess.run([tool, "privacy", "plan", "--level", level, "--epsilon", epsilon,
                           "--delta", str(DELTA[level]), "--steps", str(steps), "--values",
                           str(values), *more, "-o", "json"], stdout=subprocess.PIPE, check=True)
    plan = json.loads(said.stdout)
    assert plan["epsilon"] <= float(epsilon)
    return plan["noise_over_clip"]


def base_of(texts, seed, folder):
    """The English model to adapt: trained once for each seed."""
    path = os.path.join(folder, f"private-base-{seed}.pt")
    torch.manual_seed(seed)
    model = Model()
    if not os.path.exists(path):
        draw = torch.Generator().manual_seed(seed)
        torch.save(train_records(model, texts.english, BASE_STEPS, BASE_RATE, None, draw), path)
    return model, torch.load(path)


def run_arm(given, texts, arm, epsilon, seed):
    began, draw = time.monotonic(), torch.Generator().manual_seed(1000 + seed)
    if arm == "record":
        torch.manual_seed(seed)
        model = Model()
        count = sum(p.numel() for p in model.parameters())
        sigma = sigma_of(given.tool, arm, epsilon, count)
        before = heldout(model, dict(model.named_parameters()), texts.heldout["en"])
        values = train_records(model, texts.english, STEPS, RATE[epsilon], sigma, draw)
        after = heldout(model, values, texts.heldout["en"])
    else:
        model, base = base_of(texts, seed, os.path.dirname(given.results) or ".")
        count = sum(v[0].numel() for v in adapters(base, 1, draw).values())
        sigma = sigma_of(given.tool, arm, epsilon, count)
        before = heldout(model, base, texts.heldout["de"])
        adapter = train_regions(model, base, texts.german, int(arm.split("-")[1]), sigma, draw)
        after = heldout(model, merged(base, adapter), texts.heldout["de"])
    return row_of(arm, epsilon, seed, sigma, count, before, after, began)


def row_of(arm, epsilon, seed, sigma, count, before, after, began):
    return {"arm": arm, "epsilon": epsilon, "seed": seed, "sigma": sigma, "values": count,
            "before": before, "loss": after, "seconds": round(time.monotonic() - began, 1)}


# ---------------------------------------------------------------- the product

TOPOLOGY = """
run: private
seed: {seed}
budget_tokens: {budget}
model:
  {{dim: {dim}, layers: {layers}, heads: {heads}, kv_heads: {heads}, ffn: {ffn},
   context: {context}}}
coordinator: {{region: asia}}
servers:
  - {{name: shard-0, region: asia, shards: [0]}}
regions:
  asia: {region}
server:
  coordinator: {{h_base: 1, cadence: fixed, step_tokens: {step}}}
{terms}
worker:
  codec: {{name: dense-fp32}}
  trainer: {{learning_rate: {rate}, batch: {batch}}}
"""


def write_texts(folder, text):
    """Writes the records of arm `record`, a line each, and held-out English."""
    os.makedirs(os.path.join(folder, "asia", "en"))
    os.makedirs(os.path.join(folder, "heldout"))
    with open(os.path.join(folder, "asia", "en", "records.txt"), "wb") as out:
        for record in paragraphs(os.path.join(text, "america", "en", "manpages.txt"), RECORDS):
            out.write(bytes(record[record >= 0].tolist()) + b"\n")
    with open(os.path.join(text, "heldout", "en.txt"), "rb") as file, \
            open(os.path.join(folder, "heldout", "en.txt"), "wb") as out:
        out.write(file.read(40000))


def run_trainer(given, epsilon, seed):
    began, step, count = time.monotonic(), DRAWN * CONTEXT, 147776
    sigma = sigma_of(given.tool, "record", epsilon, count)
    claim = f"epsilon: {epsilon}, delta: {DELTA['record']}"
    private = sigma is not None
    with tempfile.TemporaryDirectory() as folder:
        path = lambda *name: os.path.join(folder, *name)  # noqa: E731
        tool = lambda *words: subprocess.run(  # noqa: E731
            [os.path.abspath(given.tool), *words], cwd=folder, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False)
        write_texts(path("text"), given.text)
        units = ["--documents", "line", "--unit-tokens", str(CONTEXT + 1)] if private else \
            ["--unit-tokens", str(10 * step), "--sequence", str(CONTEXT)]
        assert not tool("data", "prepare", "--text", "text", "--out", "data", *units).returncode
        region, terms = "", ""
        if private:
            region = f"{{data: data, privacy: {{level: record}}}}"
            terms = f"  privacy: {{{claim}, sigma: {sigma}, rate: {DRAWN / RECORDS}, " \
                    f"clip: {CLIP}, steps: {STEPS}, record_tokens: {CONTEXT + 1}}}"
        with open(path("t.yaml"), "w", encoding="utf-8") as file:
            file.write(TOPOLOGY.format(
                seed=seed, budget=STEPS * (step + DRAWN), dim=DIM, layers=LAYERS, heads=HEADS,
                ffn=4 * DIM, context=CONTEXT, region=region, terms=terms,
                step=step + DRAWN if private else 0, rate=RATE[epsilon], batch=DRAWN))
        more = [] if private else ["--data", "data"]
        ended = tool("up", "t.yaml", "--no-wan", "--dir", "run", *more)
        assert not ended.returncode, ended.stdout.decode()[-3000:]
        loss = {}
        for name in ("weights.bin", "final.bin"):
            said = tool("eval", "--manifest", "run/model.json", "--weights", "run/" + name,
                        "--data", "data", "-o", "json")
            loss[name] = json.loads(said.stdout)["en"]["nats"]
        with open(path("run", "summary.json"), encoding="utf-8") as file:
            count = json.load(file)["model"]["parameters"]
    return row_of("trainer", epsilon, seed, sigma, count, loss["weights.bin"], loss["final.bin"],
                  began)


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def train(given):
    texts, begun = Texts(given.text), time.monotonic()
    assert all(delta < 1 / RECORDS for delta in DELTA.values())
    for arm in given.arms:
        for seed in given.seeds:
            for epsilon in LEVELS:
                have = {(d["arm"], d["epsilon"], d["seed"]) for d in lines_of(given.results)}
                if (arm, epsilon, seed) in have:
                    continue
                if time.monotonic() - begun > given.seconds:
                    return
                done = run_trainer(given, epsilon, seed) if arm == "trainer" else \
                    run_arm(given, texts, arm, epsilon, seed)
                print(json.dumps(done), flush=True)
                with open(given.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps(done) + "\n")


def report(given):
    lines = [d for d in lines_of(given.results) if d["seed"] in given.seeds]
    out = Report("learning", given.json)
    out.condition("model", f"bytes, dim {DIM}, {LAYERS} layers, context {CONTEXT}, PyTorch")
    out.condition("record", f"{RECORDS} English paragraphs, {DRAWN} a step, {STEPS} steps, clip "
                            f"{CLIP}, AdamW at {RATE['none']}, private "
                            f"{RATE['8']}, delta {DELTA['record']}")
    out.condition("region", f"rank-1 adapters on an English model, German text, {ROUNDS} rounds of "
                            f"{LOCAL} local steps, clip {REGION_CLIP}, delta {DELTA['region']}")
    for arm in ARMS:
        mine = [d for d in lines if d["arm"] == arm]
        if not mine:
            continue
        out.condition(f"values of {arm}", mine[0]["values"])
        out.row(f"private.{arm}.untrained", "nats", [d["before"] for d in mine
                                                     if d["epsilon"] == "none"])
        for epsilon in LEVELS:
            of = [d for d in mine if d["epsilon"] == epsilon]
            name = "no privacy" if epsilon == "none" else f"epsilon {epsilon}"
            if epsilon != "none":
                out.condition(f"sigma of {arm} at {epsilon}", f"{of[0]['sigma']:.4g}")
            out.row(f"private.{arm}.{name}", "nats", [d["loss"] for d in of])
    out.condition("seconds", round(sum(d["seconds"] for d in lines)))
    out.condition("seeds", len({d["seed"] for d in lines}))
    out.finish()
    if not given.picture:
        return
    drawn = [picture.Bar(row["name"].removeprefix("private.").replace(".", ": "), row["value"],
                         row["min"], row["max"]) for row in out.rows]
    with open(given.picture, "w", encoding="utf-8") as file:
        file.write(picture.bars("held-out loss, median and ends of three seeds", drawn, "nats"))


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--text", default="data/text", help="of deploy/text/corpora.sh")
    flags.add_argument("--tool", default="build/release/deploy/longhaul")
    flags.add_argument("--results", default="run/private.jsonl")
    flags.add_argument("--json", help="the rows of --seeds")
    flags.add_argument("--picture", help="an SVG of the same, with --json")
    flags.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    flags.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    flags.add_argument("--seconds", type=float, default=1e9, help="begin no arm after so long")
    given = flags.parse_args()
    torch.set_num_threads(1)
    train(given)
    if given.json:
        report(given)


if __name__ == "__main__":
    main()
