#!/usr/bin/env python3
"""What a fine-tune ends with, in the hands of other programs: check.py [--dir run/finetune]

peft loads the adapters over the base; merged into it they are a folder of transformers, as the end
of `finetune.py --full` is already. That folder goes to ONNX, of which onnxruntime gives the logits
to 1e-3; and, with --llama FOLDER (sources of llama.cpp), through its converter to GGUF. Without it
that is said, and not counted as good.
"""
import argparse
import glob
import os
import subprocess
import sys

import peft
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TEXT = "Das Programm liest eine Datei und schreibt das Ergebnis."


class Logits(torch.nn.Module):
    """Ids to logits, without a cache."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, use_cache=False).logits


def far(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


def merged(folder: str, trained: str, ids: torch.Tensor) -> torch.Tensor:
    """Writes the merged folder; gives the logits of what was trained: a whole model, or the base
    with its adapters beside it."""
    base, whole = os.path.join(folder, "hf"), trained.endswith(".model")
    model = AutoModelForCausalLM.from_pretrained(trained if whole else base, dtype=torch.float32)
    if not whole:
        model = peft.PeftModel.from_pretrained(model, trained)
        print(f"peft: {trained} is over {base}")
    with torch.no_grad():
        wanted = model.eval()(ids).logits
    out = os.path.join(folder, "merged")
    (model if whole else model.merge_and_unload()).save_pretrained(out)
    AutoTokenizer.from_pretrained(base).save_pretrained(out)
    return wanted


def onnx(folder: str, model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """The exported model's logits, of a sequence of another length than it was exported with."""
    import onnxruntime  # pylint: disable=import-outside-toplevel

    path = os.path.join(folder, "merged.onnx")
    torch.onnx.export(Logits(model).eval(), (ids[:, :-3],), path, input_names=["ids"],
                      output_names=["logits"], dynamo=True, verbose=False,
                      dynamic_shapes=({1: torch.export.Dim("length", min=2, max=2048)},))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"ids": ids.numpy()})[0])


def gguf(folder: str, llama: str, model: torch.nn.Module) -> str:
    """llama.cpp's converter over the merged folder, and its file read again."""
    from gguf import GGUFReader  # pylint: disable=import-outside-toplevel

    path = os.path.join(folder, "merged.gguf")
    subprocess.run([sys.executable, os.path.join(llama, "convert_hf_to_gguf.py"), "--outtype",
                    "f32", "--outfile", path, os.path.join(folder, "merged")], check=True,
                   env={**os.environ, "PYTHONPATH": os.pathsep.join(
                       [os.path.join(llama, "gguf-py"), os.environ.get("PYTHONPATH", "")])})
    tensors = {t.name: t.data for t in GGUFReader(path).tensors}
    mine = model.get_submodule("model.layers.0.mlp.up_proj").weight.detach()
    if not torch.equal(torch.from_numpy(tensors["blk.0.ffn_up.weight"].copy()), mine):
        raise SystemExit(f"check: {path} has another blk.0.ffn_up.weight")
    return f"{len(tensors)} tensors in {path}"


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--dir", default=os.path.join(ROOT, "run", "finetune"))
    flags.add_argument("--llama", help="sources of llama.cpp: its convert_hf_to_gguf.py")
    given = flags.parse_args()
    trained = sorted(p for kind in ("*.adapter", "*.model") for p in glob.glob(
        os.path.join(given.dir, "together", kind)))
    if not trained:
        raise SystemExit(f"check: {given.dir} has nothing trained: run finetune.py first")
    ids = AutoTokenizer.from_pretrained(os.path.join(given.dir, "hf"))(
        TEXT, return_tensors="pt")["input_ids"]
    wanted = merged(given.dir, trained[0], ids)
    model = AutoModelForCausalLM.from_pretrained(os.path.join(given.dir, "merged"),
                                                 dtype=torch.float32)
    with torch.no_grad():
        logits = model(ids).logits
    found = {"merged, transformers": far(logits, wanted),
             "ONNX, onnxruntime": far(onnx(given.dir, model, ids), wanted)}
    for name, difference in found.items():
        print(f"{name}: logits differ by {difference:.2e} at most")
    print(f"GGUF: {gguf(given.dir, given.llama, model)}" if given.llama else
          "GGUF: not run, --llama names no sources of llama.cpp")
    return 0 if all(d < 1e-3 for d in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
