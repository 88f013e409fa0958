#!/usr/bin/env python3
"""The update rule at sizes that need a GPU: three regions of one model, simulated in PyTorch.

    bench/learning/gpu/replica.py --data DIR --results FILE.jsonl [--json FILE]

DIR is what `longhaul data prepare` made of the demo's texts. Arms of one seed begin with the same
parameters and see the same sequences; the outcome of each is a line of FILE, and what stands there
is not run again. No arm is begun that would not end within --limit seconds, by what the size's
last one took. --report makes the rows of the lines that are there, and the verdict.
"""
import argparse
import json
import math
import os
import sys
import time
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.dirname(os.path.dirname(HERE))]
import report  # noqa: E402
from attribution import BadResults, lines_of, paired, seeds_of  # noqa: E402

# Width, layers, heads; peak of the learning rate, for all arms. "tiny" is for tests.
SIZES = {"tiny": (32, 2, 2, 0.006), "0.4": (96, 4, 4, 0.006), "3": (256, 4, 4, 0.004),
         "10": (384, 6, 6, 0.003), "30": (640, 7, 10, 0.002)}
H = (8, 4, 2)  # local steps of a round in each region
# Codec, density (0: the rule's), beta (0: the rule's), kappa, eta (0: the rule's), momentum, BSP.
ARMS = {
    "baseline": ("dense-fp32", 1, 1, 0, 0.5, 0.6, True),
    "ours": ("topk-sign", 0, 0, 0.25, 0, 0, False),
    "ours-p64": ("topk-sign", 1 / 64, 0, 0.25, 0, 0, False),
    "sparseloco": ("topk-q2", 1 / 64, 0.95, 0, 1, 0, True),
}
SAME = ("rounds", "tokens", "parameters", "peak", "commit", "device")


def rule(density, rounds):
    """(density, beta, eta) of worker/rule.c for three workers and plain outer steps."""
    density = density or min(max(30 / rounds, 0.075), 1 / 6)
    if density >= 0.1:
        eta = 1
    elif density < 0.03:
        eta = 3
    else:
        longer = math.log(min(max(rounds, 400), 1600) / 400) / math.log(4)
        eta = 1.4 + 0.3 * longer if density >= 0.06 else 2 - 0.3 * longer
    return density, 1 if density >= 0.06 else 0.95, eta


def arm_of(name, rounds):
    codec, density, beta, kappa, eta, momentum, bsp = ARMS[name]
    ruled = rule(density, rounds)
    return types.SimpleNamespace(
        codec=codec, density=density or ruled[0], beta=beta or ruled[1], kappa=kappa,
        eta=eta or ruled[2], momentum=momentum, bsp=bsp)


# ---------------------------------------------------------------- data

class Data:
    """Ids of each region's units and of the held-out texts, on the device."""

    def __init__(self, folder, device, held_bytes):
        import numpy  # pylint: disable=import-outside-toplevel
        import torch  # pylint: disable=import-outside-toplevel
        from model import CONTEXT  # pylint: disable=import-outside-toplevel
        self.torch, self.length = torch, CONTEXT
        with open(os.path.join(folder, "units.json"), encoding="utf-8") as file:
            units = json.load(file)

        def ids(name):
            return numpy.fromfile(os.path.join(folder, name), "<u2").astype(numpy.uint8)

        homes = {}
        for unit in units["units"]:
            homes.setdefault(unit["home"], set()).add(unit["file"])
        self.text = {home: torch.from_numpy(numpy.concatenate(
            [ids(name) for name in sorted(files)])).to(device) for home, files in homes.items()}
        self.held = [self.rows(torch.from_numpy(ids(text["file"])[:held_bytes]).to(device))
                     for text in units["heldout"]]

    def rows(self, text):
        count = (len(text) - 1) // self.length
        return self.gather(text, self.torch.arange(count, device=text.device))

    def gather(self, text, numbers):
        at = numbers[:, None] * self.length
        return text[at + self.torch.arange(self.length + 1, device=text.device)].long()

    def batches(self, home, seed, sequences):
        """All sequences of a region in an order of the seed's, then anew in another."""
        text, draw = self.text[home], self.torch.Generator().manual_seed(seed)
        count = (len(text) - 1) // self.length
        order = self.torch.zeros(0, dtype=self.torch.long)
        while True:
            while len(order) < sequences:
                order = self.torch.cat((order, self.torch.randperm(count, generator=draw)))
            yield self.gather(text, order[:sequences].to(text.device))
            order = order[sequences:]

    def passes(self, home, sequences):
        return sequences * self.length / len(self.text[home])


# ---------------------------------------------------------------- runs

def play(name, size, seed, data, flags):
    """One arm; its line."""
    import cluster  # pylint: disable=import-outside-toplevel
    from model import CONTEXT, Shape  # pylint: disable=import-outside-toplevel
    *shape, peak = SIZES[size]
    layout = cluster.Layout(Shape(*shape))
    steps = sum(H) * flags.rounds
    sequences = max(1, round(flags.tokens * layout.values / (steps * CONTEXT)))
    conf = types.SimpleNamespace(layout=layout, seed=seed, h=H, rounds=flags.rounds, peak=peak,
                                 warmup=min(max(20 / flags.rounds, 0.05), 0.2),
                                 sequences=sequences)
    arm, curve, began = arm_of(name, flags.rounds), [], time.monotonic()

    def look(part, playing):
        if len(curve) < part * flags.points - 1e-9 and part < 1:
            curve.append([round(part, 4),
                          cluster.held_out(layout, playing.theta(), [t[:32] for t in data.held])])

    run = cluster.Cluster(
        arm, conf, lambda r: data.batches(cluster.REGIONS[r], seed * 16 + r, sequences), look,
        flags.device, flags.device == "cuda" and not flags.eager)
    run.run()
    pushed = flags.rounds * len(H) * layout.values
    return {"arm": name, "size": size, "seed": seed, "parameters": layout.values,
            "tokens": steps * sequences * CONTEXT, "rounds": flags.rounds, "peak": peak,
            "loss": cluster.held_out(layout, run.theta(), data.held), "curve": curve,
            "passes": {home: round(data.passes(home, h * flags.rounds * sequences), 2)
                       for home, h in zip(cluster.REGIONS, H)},
            "density": arm.density, "carried": run.carried / pushed, "beta": arm.beta,
            "kappa": arm.kappa, "eta": arm.eta, "staleness": run.stale / run.admitted,
            "seconds": round(time.monotonic() - began, 1), "commit": report.commit(),
            "device": flags.device_name}


def play_all(flags):
    import torch  # pylint: disable=import-outside-toplevel
    if flags.device == "cuda" and not torch.cuda.is_available():
        print("replica.py: not run: no CUDA device", file=sys.stderr)
        return 77
    torch.backends.cuda.matmul.allow_tf32 = True
    flags.device_name = torch.cuda.get_device_name() if flags.device == "cuda" else "cpu"
    done = set()
    if os.path.exists(flags.results):
        done = {(r["arm"], r["size"], r["seed"]) for _, r in lines_of(flags.results)}
    ends, took = time.monotonic() + flags.limit, {}
    data = Data(flags.data, flags.device, flags.held_bytes)
    for seed in flags.seeds:
        for size in flags.sizes.split(","):
            for name in flags.arms.split(","):
                if (name, size, seed) in done:
                    continue
                if time.monotonic() + took.get(size, 0) > ends:
                    print(f"not run for want of time: {name}, size {size}, seed {seed}")
                    continue
                line = play(name, size, seed, data, flags)
                took[size] = line["seconds"]
                with open(flags.results, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(f"{name}, size {size}, seed {seed}: {line['loss']:.4f} nats a byte, "
                      f"{line['seconds']} s", flush=True)
    return 0


# ---------------------------------------------------------------- report

def gaps_of(path):
    """(size, arm) -> gaps to the baseline by seed, percent; and what a size's lines share."""
    losses, shared = {}, {}
    for number, line in lines_of(path):
        same = {key: line[key] for key in SAME}
        if shared.setdefault(line["size"], same) != same:
            raise BadResults(f"{path}:{number}: trained otherwise than the lines before of size "
                             f"{line['size']}: {same}, {shared[line['size']]}")
        losses[line["size"], line["arm"], line["seed"]] = line["loss"]
    gaps = {}
    for (size, arm, seed), loss in losses.items():
        beside = losses.get((size, "baseline", seed))
        if beside and arm != "baseline":
            gaps.setdefault((size, arm), []).append(100 * (loss / beside - 1))
    if not gaps:
        raise BadResults(f"{path}: no arm has a baseline of its size and seed")
    return gaps, shared


def verdict(value, half):
    """Written before any of it ran."""
    if half is None:
        return "not enough seeds"
    return "holds" if value + half < 0 else "parity" if value + half < 0.5 else "behind"


def tell(flags):
    gaps, shared = gaps_of(flags.results)
    out = report.Report("learning", flags.json)
    for size, same in shared.items():
        out.condition(f"size {size}", ", ".join(f"{k} {v}" for k, v in same.items()))
    for (size, arm), found in gaps.items():
        out.estimate(f"learning.gpu.gap.{arm}.{size}M", "%", *paired(found), len(found))
    for arm in dict.fromkeys(arm for _, arm in gaps):
        found = [gap for size in ("10", "30") for gap in gaps.get((size, arm), [])]
        if found:
            mean = paired(found)
            out.estimate(f"learning.gpu.gap.{arm}.10M+30M", "%", *mean, len(found))
            out.condition(f"verdict {arm}", verdict(*mean))
            print(f"{arm}, 10 M and 30 M together: {verdict(*mean)}")
    out.finish()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", required=True)
    parser.add_argument("--data", default="data/tokens")
    parser.add_argument("--json")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--sizes", default="30,10,3", help="million parameters (30,10,3)")
    parser.add_argument("--seeds", type=seeds_of, default="401-404")
    parser.add_argument("--arms", default="baseline,ours,sparseloco", help=", ".join(ARMS))
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--tokens", type=float, default=6.7, help="a parameter (6.7)")
    parser.add_argument("--points", type=int, default=12, help="of a curve (12)")
    parser.add_argument("--held-bytes", type=int, default=65536, help="of each held-out text")
    parser.add_argument("--limit", type=float, default=1740, help="seconds (1740)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--eager", action="store_true", help="no CUDA graph")
    flags = parser.parse_args()
    for given, known in ((flags.sizes, SIZES), (flags.arms, ARMS)):
        for word in given.split(","):
            if word not in known:
                parser.error(f"'{word}' is none of {', '.join(known)}")
    try:
        status = 0 if flags.report else play_all(flags)
        if not status:
            tell(flags)
    except (BadResults, OSError) as error:
        print(f"replica.py: {error}", file=sys.stderr)
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
