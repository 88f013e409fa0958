#!/usr/bin/env python3
"""bench/learning/gpu on the processor: its codecs beside the payload's page, its rule beside
worker/rule.c's, a region alone, all arms at a tiny size, the verdict: replica.py BENCH_LEARNING.
"""
import json
import os
import subprocess
import sys
import tempfile
import types

import numpy
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GPU = os.path.join(ROOT, "bench", "learning", "gpu")
sys.path[:0] = [GPU, os.path.join(ROOT, "tests", "e2e")]
import cluster  # noqa: E402
import pushes  # noqa: E402
import replica  # noqa: E402
from model import CHUNK, CONTEXT, Shape  # noqa: E402
from world import check  # noqa: E402


def codecs():
    """The examples of kernels/docs/0001-payload.md."""
    rows = torch.zeros(2, CHUNK)
    rows[0, :9] = torch.tensor([0.5, -3, 0, 2.5, -0.25, 1, -1, 0, 2.5])
    rows[1, :3] = torch.tensor([-7, 7, 0.125])
    lengths = torch.tensor([9, 3])
    mean = torch.tensor((3 + 2.5 + 2.5) / 3).half().item()
    for codec, first in (("topk-sign", (-mean, mean, mean)), ("topk-q2", (-3, 2.5, 2.5))):
        q = pushes.encode(codec, rows, lengths, 0.3)
        check([q[0, 1].item(), q[0, 3].item(), q[0, 8].item()] == list(first),
              f"{codec} carries {q[0, :9]}")
        check(q[1, 0].item() == -7 and int((q != 0).sum()) == 4, f"{codec} carries {q[1, :3]}")


def rules(program):
    """Those that bench_learning says, which are worker/rule.c's."""
    given = (0, 0.01, 1 / 64, 0.025, 0.03, 0.035, 0.05, 0.06, 0.065, 0.075, 0.09, 0.1, 0.11, 0.2)
    arms = ",".join(f"ours:p={density:.9g}" if density else "ours" for density in given)
    for rounds in (1, 100, 180, 250, 330, 400, 401, 800, 1100, 1600, 1601, 6400, 100000):
        said = subprocess.run([program, "--rule", "--rounds", str(rounds), "--arms", arms],
                              capture_output=True, text=True, check=True).stdout.splitlines()
        check(len(said) == len(given), f"{said}")
        for density, line in zip(given, said):
            ours = replica.rule(density, rounds)
            theirs = [float(word) for word in line.split()[1:]]
            check(all(abs(a - b) < 1e-6 * b for a, b in zip(ours, theirs)),
                  f"{rounds} rounds, {line}: the replica has {ours}")


def units(folder):
    """Text of a few words in each region."""
    draw, files = numpy.random.default_rng(3), {}
    for home in cluster.REGIONS + ("heldout",):
        text = b" ".join(draw.choice([b"abc", b"bcd", b"cde", home.encode()], 4000))
        files[home] = numpy.frombuffer(text, numpy.uint8)
        files[home].astype("<u2").tofile(os.path.join(folder, f"{home}.bin"))
    document = {"units": [{"home": home, "file": f"{home}.bin"} for home in cluster.REGIONS],
                "heldout": [{"file": "heldout.bin"}]}
    with open(os.path.join(folder, "units.json"), "w", encoding="utf-8") as file:
        json.dump(document, file)


def alone(folder):
    """A region alone, dense: the log's model is what it trained, for its steps are folded whole."""
    data = replica.Data(folder, "cpu", 4096)
    conf = types.SimpleNamespace(layout=cluster.Layout(Shape(32, 2, 2)), seed=5, h=(4,), rounds=3,
                                 peak=0.006, warmup=0.2, sequences=2)
    for bsp in (False, True):
        arm = types.SimpleNamespace(codec="dense-fp32", density=1, beta=1, kappa=0, eta=1,
                                    momentum=0, bsp=bsp)
        parts = []
        run = cluster.Cluster(arm, conf, lambda r: data.batches("asia", 5, 2),
                              lambda part, _, to=parts: to.append(part))
        run.run()
        local = run.region[0].trainer.local
        check(torch.allclose(local, run.theta(), atol=1e-6), "the log is not what was trained")
        check(not torch.allclose(local, conf.layout.initial(5), atol=1e-3), "nothing was trained")
        check(len(parts) == 3 and run.region[0].tokens == 12, f"{parts}, {run.region[0].tokens}")
        rows = torch.arange(CHUNK) >= conf.layout.lengths[:, None]
        check(not local[rows].any(), "what is beside the tensors has changed")


def arms(folder):
    """All arms, a second call that runs nothing, the report; replicas are compared by run()."""
    results, said = os.path.join(folder, "r.jsonl"), os.path.join(folder, "r.json")
    line = [sys.executable, os.path.join(GPU, "replica.py"), "--data", folder, "--results", results,
            "--sizes", "tiny", "--seeds", "7-8", "--arms", ",".join(replica.ARMS), "--rounds", "4",
            "--points", "2", "--held-bytes", "2048", "--tokens", "0.25",
            "--device", "cpu", "--json", said]
    once = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    with open(results, encoding="utf-8") as file:
        lines = [json.loads(text) for text in file]
    check(len(lines) == 2 * len(replica.ARMS) and all(2 < r["loss"] < 5.55 for r in lines),
          f"{once}\n{lines}")
    check(all(r["tokens"] == 4 * 14 * CONTEXT * round(
        r["parameters"] / 4 / (4 * 14 * CONTEXT)) for r in lines), f"{lines}")
    sparse = [r for r in lines if r["arm"] == "sparseloco"]
    check(all(0.01 < r["carried"] < 0.02 and not r["staleness"] for r in sparse), f"{sparse}")
    again = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    check("nats a byte" in once and "nats a byte" not in again, again)
    with open(said, encoding="utf-8") as file:
        names = {row["name"]: row["n"] for row in json.load(file)["rows"]}
    check(names == {f"learning.gpu.gap.{a}.tinyM": 2 for a in replica.ARMS if a != "baseline"},
          f"{names}")


def verdicts(folder):
    """As the README writes them; lines of two commits are refused."""
    for value, half, word in ((-1, 0.5, "holds"), (0.1, 0.3, "parity"), (0.1, 0.5, "behind"),
                              (0, None, "not enough seeds")):
        check(replica.verdict(value, half) == word, f"{value} within {half}: not {word}")
    path = os.path.join(folder, "two.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for arm, commit in (("baseline", "a"), ("ours", "b")):
            file.write(json.dumps({"size": "3", "arm": arm, "seed": 1, "loss": 2, "rounds": 4,
                                   "tokens": 1, "parameters": 1, "peak": 1, "commit": commit,
                                   "device": "cpu"}) + "\n")
    ended = subprocess.run([sys.executable, os.path.join(GPU, "replica.py"), "--report",
                            "--results", path], capture_output=True, text=True, check=False)
    check(ended.returncode == 1 and "trained otherwise" in ended.stderr, ended.stderr)


def main():
    torch.set_num_threads(1)
    codecs()
    rules(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="longhaul-replica-") as folder:
        units(folder)
        alone(folder)
        verdicts(folder)
        arms(folder)
    print("ok")


if __name__ == "__main__":
    main()
