#!/usr/bin/env python3
"""Import and export of models, against Hugging Face's own code: models.py TOOLS [unittest
arguments].

TOOLS: longhaul, oracle_headers and oracle_answer, joined by commas. Small models with random
weights are made here; nothing is downloaded.
"""
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import safetensors
import safetensors.torch
import torch
import transformers

TOOL, HEADERS, ANSWER = sys.argv.pop(1).split(",")
SIZES = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
GPT2 = {"vocab_size": 256, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
        "bos_token_id": 0, "eos_token_id": 0}
FAMILIES = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, rms_norm_eps=1e-5, rope_parameters={
        "rope_theta": 50000.0, "rope_type": "default"}),
    "llama-biases": lambda: transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True,
                                                     head_dim=16),
    "mistral": lambda: transformers.MistralConfig(**SIZES),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES),
    "qwen2-tied": lambda: transformers.Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, head_dim=8, attention_bias=True),
    "gpt2": lambda: transformers.GPT2Config(**GPT2),
    "gpt2-untied": lambda: transformers.GPT2Config(**GPT2, tie_word_embeddings=False),
    # not in our table: all floats are converted as they are
    "gemma": lambda: transformers.GemmaConfig(**SIZES, head_dim=8, tie_word_embeddings=False),
}
BUILT_IN = ("llama", "mistral", "qwen2", "qwen2-tied")


def run(*line):
    done = subprocess.run([*map(str, line)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{line}: {done.returncode}: {done.stderr}")
    return done.stdout


def make(name, dtype=torch.float32):
    """A model with random values in every parameter, unlike a fresh initialisation."""
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_config(FAMILIES[name]())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def logits(model):
    ids = torch.randint(0, 256, (2, 17), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(ids).logits


class Models(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="longhaul-models-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def round_trip(self, folder, *flags, like=True):
        run(TOOL, "model", "import", folder, "--out", self.dir / "in", "--shards", "3")
        run(TOOL, "export", "--to", "safetensors", "--out", self.dir / "out", "--manifest",
            self.dir / "in/model.json", "--parameters", self.dir / "in/weights.bin", *flags,
            *(["--like", folder] if like else []))
        return self.dir / "out"

    def load(self, folder, **flags):
        model, told = transformers.AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True, **flags)
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertFalse(told[kind], kind)
        return model.eval()

    def same(self, model, again):
        """Both as loaded: a model that was made in memory has its buffers in another type."""
        ours, theirs = again.state_dict(), model.state_dict()
        self.assertEqual(list(ours), list(theirs))
        for name, value in theirs.items():
            self.assertEqual(ours[name].dtype, value.dtype, name)
            self.assertTrue(torch.equal(ours[name], value), name)
        self.assertTrue(torch.equal(logits(again), logits(model)))

    def test_every_family_comes_back(self):
        for name in FAMILIES:
            short = (torch.bfloat16, torch.float16) if name in ("llama", "gpt2") else ()
            for dtype in (torch.float32, *short):
                with self.subTest(name=name, dtype=dtype):
                    shutil.rmtree(self.dir)
                    model = make(name, dtype)
                    model.save_pretrained(self.dir / "hf")
                    out = self.round_trip(self.dir / "hf")
                    # We write the same bytes as save_file() for the same tensors.
                    self.assertEqual((out / "model.safetensors").read_bytes(),
                                     (self.dir / "hf/model.safetensors").read_bytes())
                    self.assertEqual((out / "config.json").read_bytes(),
                                     (self.dir / "hf/config.json").read_bytes())
                    self.same(self.load(self.dir / "hf"), self.load(out))

    def test_files_of_several(self):
        model = make("qwen2-tied", torch.bfloat16)
        model.save_pretrained(self.dir / "hf", max_shard_size="20KB")
        self.assertGreater(len(list((self.dir / "hf").glob("*.safetensors"))), 2)
        out = self.round_trip(self.dir / "hf", "--max-shard-size", "15KB")
        files = sorted(path.name for path in out.glob("*.safetensors"))
        self.assertEqual(files[0], f"model-00001-of-{len(files):05}.safetensors")
        self.same(self.load(self.dir / "hf"), self.load(out))

    def test_another_type(self):
        make("llama").save_pretrained(self.dir / "hf")
        for flag, dtype in (("BF16", torch.bfloat16), ("F16", torch.float16)):
            shutil.rmtree(self.dir / "in", ignore_errors=True)
            shutil.rmtree(self.dir / "out", ignore_errors=True)
            out = self.round_trip(self.dir / "hf", "--dtype", flag)
            self.same(self.load(self.dir / "hf", dtype=dtype), self.load(out))

    def test_without_the_folder(self):
        model = make("gpt2", torch.bfloat16)
        model.save_pretrained(self.dir / "hf")
        out = self.round_trip(self.dir / "hf", like=False)
        self.assertEqual((out / "model.safetensors").read_bytes(),
                         (self.dir / "hf/model.safetensors").read_bytes())

    def test_the_built_in_trainer_computes_the_same(self):
        for name in FAMILIES:
            shutil.rmtree(self.dir)
            model = make(name)
            model.save_pretrained(self.dir / "hf")
            self.round_trip(self.dir / "hf")
            manifest = json.loads((self.dir / "in/model.json").read_text())
            self.assertEqual(manifest["model"]["architecture"] == "transformer", name in BUILT_IN)
            if name not in BUILT_IN:
                continue
            ids = np.random.default_rng(3).integers(0, 256, (2, 18)).astype("<u4")
            head = json.dumps({"model": manifest["model"], "sequences": 2, "length": 17}).encode()
            (self.dir / "case").write_bytes(
                b"LKCASE1\n" + struct.pack("<I", len(head)) + head + ids.tobytes() +
                (self.dir / "in/weights.bin").read_bytes())
            run(ANSWER, "case", self.dir / "case", self.dir / "answer")
            ours = np.fromfile(self.dir / "answer", "<f4", 2 * 17 * 256).reshape(2, 17, 256)
            with torch.no_grad():
                theirs = model.double()(torch.tensor(ids[:, :17].astype(np.int64))).logits.numpy()
            away = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
            self.assertLess(away, 1e-5, name)

    def test_rounding_is_pytorchs(self):
        """Every F16 and BF16, the values between and beside them, and values too large for them."""
        for name, dtype in (("F16", torch.float16), ("BF16", torch.bfloat16)):
            every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
            every = every[~every.isnan()].float()
            bits = every.view(torch.int32)
            near = torch.cat([(bits + i).view(torch.float32) for i in range(-3, 4)])
            step = {"F16": 1 << 12, "BF16": 1 << 15}[name]
            middle = torch.cat([(bits + step + i).view(torch.float32) for i in range(-1, 2)])
            values = torch.cat([near, middle, torch.randn(1 << 16) * 1e-6, torch.randn(1 << 16)])
            values = values[~values.isnan()]
            (self.dir / "values").write_bytes(values.numpy().tobytes())
            run(HEADERS, "convert", name, self.dir / "values", self.dir / "made")
            made = np.fromfile(self.dir / "made", "<i2")
            wanted = values.to(dtype).view(torch.int16).numpy()
            self.assertTrue(np.array_equal(made, wanted), name)


def describe(data):
    """The reference's reading of a file: its tensors, or None if it refuses."""
    try:
        return {name: [about["dtype"], list(about["shape"]), len(about["data"])]
                for name, about in safetensors.deserialize(data)}
    except safetensors.SafetensorError:
        return None


class Headers(unittest.TestCase):
    COUNT = 2000

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="longhaul-headers-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def ours(self, files):
        paths = []
        for i, data in enumerate(files):
            paths.append(self.dir / f"{i:05}.safetensors")
            paths[-1].write_bytes(data)
        return [json.loads(line) for line in run(HEADERS, *paths).splitlines()]

    def compare(self, files):
        """Counts of (both read, both refuse); files that only we refuse must be on the short
        list."""
        read = refused = 0
        for data, said in zip(files, self.ours(files), strict=True):
            theirs = describe(data)
            if "tensors" in said:
                self.assertIsNotNone(theirs, data)
                self.assertEqual({name: [t[0], t[1], t[3]] for name, t in said["tensors"].items()},
                                 theirs, data)
                read += 1
            elif theirs is None:
                refused += 1
            else:
                self.assertRegex(said["refused"], "duplicate object key|at most 8 dimensions|"
                                 r"\\u0000|NUL", data)
        return read, refused

    def good(self):
        every = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16,
                 "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn,
                 "F8_E5M2": torch.float8_e5m2, "I64": torch.int64, "I32": torch.int32,
                 "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
                 "C64": torch.complex64, "U16": torch.uint16, "U32": torch.uint32,
                 "U64": torch.uint64}
        types = {f"t.{name}": torch.zeros(2, 3, dtype=dtype) for name, dtype in every.items()}
        return [safetensors.torch.save(types, {"format": "pt"}),
                safetensors.torch.save({"s": torch.tensor(1.0), "e": torch.zeros(0, 4)}),
                safetensors.torch.save({"\u00e4 \U0001f600/\"": torch.zeros(3)}, {"k": "v"}),
                safetensors.torch.save({})]

    def test_good_files_are_read_alike(self):
        files = self.good()
        self.assertEqual(self.compare(files), (len(files), 0))

    def test_changed_files_are_judged_alike(self):
        rng = random.Random(7)
        pieces = [b"0", b"-1", b"18446744073709551615", b"4294967296", b"[]", b"{}", b'"F64"',
                  b"null", b"1e9", b",", b'"', b"}", b"\xc0", b" ", b"F32", b"dtype"]
        files, seeds = [], self.good()
        while len(files) < self.COUNT:
            data = bytearray(rng.choice(seeds))
            for _ in range(rng.randint(1, 2)):
                at = rng.randrange(len(data))
                piece = rng.choice(pieces)
                kind = rng.randrange(4)
                if kind == 0:
                    data[at] = rng.randrange(256)
                elif kind == 1:
                    data[at:at + len(piece)] = piece
                elif kind == 2:
                    del data[at:at + rng.randrange(1, 9)]
                else:
                    data[at:at] = data[at:at + rng.randrange(1, 9)]
                if not data:
                    break
            files.append(bytes(data))
        read, refused = self.compare(files)
        self.assertGreater(read, 50)
        self.assertGreater(refused, 1000)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    unittest.main()
