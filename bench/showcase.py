#!/usr/bin/env python3
"""A model trained alone, then fine-tuned by three regions: `bench/run.sh showcase [--json FILE]`.

A base learns English; three regions fine-tune it on their own small parts of texts in three other
languages: each alone, and in one run over emulated links (bench/showcase), all parameters and
adapters (LoRA). Judged on texts of the same kind that nobody trained. An arm's steps, batches and
rates are the same alone and in the run, and three loops of one thread run at once either way.
Needs .venv (tests/run.sh --stage oracle) and, without --no-wan, root and /dev/net/tun.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import report  # noqa: E402

ROOT = os.path.dirname(HERE)
LOOP = os.path.join(HERE, "showcase", "loop.py")
REGIONS = ("asia", "europe", "america")
SOURCES = {"de": "europe", "fr": "europe", "es": "america"}  # language -> its corpus' folder
ARMS = {"full": ((), 1e-3), "lora": (("--lora",), 3e-3)}     # -> flags of the loop, rate
LINK = (150, 100)  # ms, Mbit/s
TOPOLOGY = """run: showcase-{arm}
budget_tokens: {budget}
model: {{import: {model}}}
command: {command}
coordinator: {{region: europe}}
servers:
  - {{name: s0, region: europe, shards: [0]}}
  - {{name: s1, region: america, shards: [1]}}
regions: {{asia: {{}}, europe: {{}}, america: {{}}}}
link: {{rtt_ms: {rtt}, mbit: {mbit}}}
server: {{coordinator: {{h_base: {h}, data: own}}}}
{worker}"""
WORKER = {"full": "", "lora": "worker: {codec.name: dense-q4}\n"}  # adapters are small


def tokens_of(given, steps):
    """Of so many steps in all: bytes, in samples of 256."""
    return steps * given.batch * 256


class Showcase:
    """Its folder, texts, and the loop in it."""

    def __init__(self, given, folder):
        self.given, self.folder = given, folder
        self.env = {
            **os.environ, "PYTHONPATH": os.path.join(ROOT, "worker", "python"),
            "LONGHAUL_LIBRARY": os.path.abspath(os.path.join(given.build, "worker", "client",
                                                             "liblonghaul.so.1")),
            "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "TRANSFORMERS_VERBOSITY": "error"}
        self.held_out = [self.path(f"{language}.held") for language in SOURCES]

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def texts(self):
        """The base's, each region's own, and the end of each corpus for the judge."""
        def corpus(region, language):
            name = os.path.join(self.given.text, region, language, "manpages.txt")
            with open(name, "rb") as file:
                return file.read()

        own, held = self.given.own_bytes, self.given.held_bytes
        mine = dict.fromkeys(REGIONS, b"")
        for language, region in SOURCES.items():
            text = corpus(region, language)
            if len(text) < 3 * own + held:
                raise SystemExit(f"{language}: {len(text)} bytes of text, {3 * own + held} wanted")
            for i, name in enumerate(REGIONS):
                # a third of the corpus apart: other pages
                begin = (len(text) - held) // 3 * i
                mine[name] += text[begin:begin + own]
            self.write(f"{language}.held", text[-held:])
        for name, text in mine.items():
            self.write(f"{name}.txt", text)
        self.write("base.txt", corpus("america", "en")[:self.given.base_bytes])

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)

    def words(self, *words, threads=1):
        return [self.given.python, LOOP, "--batch", str(self.given.batch), "--threads",
                str(threads), *map(str, words)]

    def loop(self, *words, threads=1):
        """One call to its end: what it printed."""
        return subprocess.run(self.words(*words, threads=threads), env=self.env, check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def base(self):
        begun = time.monotonic()
        self.loop("--steps", self.given.base_steps, "base", "--dim", self.given.dim, "--layers",
                  self.given.layers, self.path("base.txt"), self.path("base"), threads=2)
        return time.monotonic() - begun

    def judge(self, *models):
        """Of each model: nats a byte, language -> loss; and the number of its parameters."""
        losses, parameters = {model: {} for model in models}, {}
        for line in self.loop("judge", *models, "--texts", *self.held_out, threads=2).splitlines():
            words = line.split()
            if words[0] == "loss":
                losses[words[1]][words[2].removesuffix(".held")] = float(words[3])
            elif words[0] == "parameters":
                parameters[words[1]] = int(words[2])
        return [losses[model] for model in models], parameters[models[0]]

    def tune(self, arm, steps):
        """Each region by itself, all at once: seconds, region -> model."""
        flags, rate = ARMS[arm]
        begun = time.monotonic()
        models = {r: self.path(f"{arm}-alone-{r}-{steps}") for r in REGIONS}
        with contextlib.ExitStack() as stack:
            loops = [stack.enter_context(subprocess.Popen(
                self.words("--steps", steps, "--rate", rate, *flags, "tune",
                           self.path("base"), self.path(region + ".txt"), out),
                env=self.env, stdout=subprocess.DEVNULL)) for region, out in models.items()]
        if any(loop.returncode for loop in loops):
            raise SystemExit(f"{arm}: a loop ended with {[loop.returncode for loop in loops]}")
        return time.monotonic() - begun, models

    def alone(self, arm):
        """Of each region's better model: its losses, and how many steps it was trained; and the
        seconds of those that were trained as many steps as the run."""
        lengths = [self.given.steps, *([self.given.alone_also] if self.given.alone_also else [])]
        tried, seconds = [], []
        for steps in lengths:
            took, models = self.tune(arm, steps)
            tried.append(self.judge(*models.values())[0])
            seconds.append(took)
        better = [min(range(len(lengths)), key=lambda k, i=i: sum(tried[k][i].values()))
                  for i in range(len(REGIONS))]
        return [tried[k][i] for i, k in enumerate(better)], [lengths[k] for k in better], seconds[0]

    def join(self, arm):
        """The three in one run: its summary, and the model that all of them end with."""
        flags, rate = ARMS[arm]
        self.loop(*flags, "initial", self.path("base"), self.path(arm + "-begin"))
        steps = self.given.steps
        command = self.words("--steps", steps, "--rate", rate, *flags, "join", self.path("base"),
                             self.path("{region}.txt"), self.path(arm + "-{worker}"))
        with open(self.path(arm + ".yaml"), "w", encoding="utf-8") as file:
            file.write(TOPOLOGY.format(
                arm=arm, budget=tokens_of(self.given, len(REGIONS) * steps),
                model=json.dumps(self.path(arm + "-begin")), command=json.dumps(command),
                rtt=LINK[0], mbit=LINK[1], h=self.given.h, worker=WORKER[arm]))
        ended = subprocess.run(
            [os.path.join(self.given.build, "deploy", "longhaul"), "up", self.path(arm + ".yaml"),
             "--dir", self.path(arm), *(["--no-wan"] if self.given.no_wan else [])],
            env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"{ended.stdout[-4000:]}longhaul up ended with {ended.returncode}")
        with open(self.path(arm, "summary.json"), encoding="utf-8") as file:
            return json.load(file), self.path(f"{arm}-{REGIONS[0]}-0")


def measure(show, out):
    show.texts()
    out.row("showcase.base.seconds", "s", [show.base()])
    (base,), parameters = show.judge(show.path("base"))
    out.row("showcase.parameters", "1", [parameters])
    out.row("showcase.mean.base", "nat", [statistics.mean(base.values())])
    for arm in show.given.arms:
        alone, steps, seconds = show.alone(arm)
        summary, model = show.join(arm)
        (run,), _ = show.judge(model)
        out.row(f"showcase.mean.{arm}.alone", "nat",
                [statistics.mean(losses.values()) for losses in alone])
        out.row(f"showcase.mean.{arm}.run", "nat", [statistics.mean(run.values())])
        out.row(f"showcase.{arm}.alone_steps", "1", steps)
        for region, losses in zip(REGIONS, alone):
            for language, loss in losses.items():
                out.row(f"showcase.{arm}.{region}.{language}", "nat", [run[language]],
                        "the same region alone", loss)
        out.row(f"showcase.{arm}.seconds", "s", [summary["elapsed_s"]],
                "the three alone, at once", seconds)
        regions = summary["regions"].values()
        out.row(f"showcase.{arm}.tokens", "1", [sum(r["tokens"] for r in regions)],
                "the three models alone that are compared", tokens_of(show.given, sum(steps)))
        trained = summary["model"]["parameters"]
        out.row(f"showcase.{arm}.trained_parameters", "1", [trained])
        out.row(f"showcase.{arm}.sent_mb", "MB", [r["wire_up_bytes"] / 1e6 for r in regions],
                "fp32 of what is trained, every round",
                statistics.mean(r["rounds"] for r in regions) * 4 * trained / 1e6)


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", required=True, help="the build tree")
    flags.add_argument("--python", default=os.environ.get("LH_BENCH_PYTHON"),
                       help="one that has PyTorch ($LH_BENCH_PYTHON)")
    flags.add_argument("--text", default=os.path.join(ROOT, "data", "text"))
    flags.add_argument("--steps", type=int, default=240, help="of each region")
    flags.add_argument("--alone-also", type=int, default=0, help="each region alone is trained for "
                       "so many steps as well, and the better of both models counts; 0: it is not")
    flags.add_argument("--base-steps", type=int, default=400)
    flags.add_argument("--batch", type=int, default=4, help="samples of 256 bytes")
    flags.add_argument("--dim", type=int, default=256)
    flags.add_argument("--layers", type=int, default=6)
    flags.add_argument("--h", type=int, default=8, help="steps between two pushes of a shard")
    flags.add_argument("--own-bytes", type=int, default=20_000, help="of each language, a region")
    flags.add_argument("--held-bytes", type=int, default=60_000)
    flags.add_argument("--base-bytes", type=int, default=2_000_000)
    flags.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    flags.add_argument("--no-wan", action="store_true", help="loopback in place of links")
    flags.add_argument("--json")
    given = flags.parse_args()
    if not given.python:
        raise SystemExit("showcase: no Python with PyTorch: tests/run.sh --stage oracle makes one")
    out = report.Report("showcase", given.json)
    out.condition("base", f"Llama, dim {given.dim}, {given.layers} layers, bytes; English manual "
                  f"pages, {given.base_steps} steps of {given.batch} times 256 bytes")
    out.condition("regions", f"three; each has {given.own_bytes} bytes of each of de, fr, es, "
                  f"other pages than the others'; {given.steps} steps of {given.batch} times 256")
    out.condition("judged on", f"the last {given.held_bytes} bytes of each language's pages")
    out.condition("links", "loopback" if given.no_wan else
                  f"{LINK[0]} ms round trip, {LINK[1]} Mbit/s, emulated")
    out.condition("settings", f"defaults, but h_base {given.h}; adapters: codec dense-q4, rank 16")
    with tempfile.TemporaryDirectory(prefix="longhaul-showcase-") as folder:
        measure(Showcase(given, folder), out)
    out.finish()


if __name__ == "__main__":
    main()
