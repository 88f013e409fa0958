"""Prepares a first run on one machine, of three regions and two servers. Needs only the two wheels
and PyTorch.

    python3 -m longhaul.first FOLDER [--tokens N]

Creates FOLDER with these files, and prints the command that starts the run:

    train.py    the training loop
    model       the model's initial parameters, for the servers
    run.yaml    the topology of the run
    text        modules of this Python's standard library, a third of them for each region
    data        the texts' units

Replace train.py, model and text by your own.
"""
from __future__ import annotations

import argparse
import glob
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import typing

from .initial import save_initial

REGIONS = ("asia", "europe", "america")
LEAST, MOST = 100_000, 300_000  # bytes of text a region

_TOPOLOGY = """# Three regions train one model with train.py, each on texts of its own.
run: first
budget_tokens: {tokens}
model: {{import: {model}, context: 64}}
command: {command}
coordinator: {{region: europe}}
servers:
  - {{name: shard-0, region: europe, shards: [0]}}
  - {{name: shard-1, region: america, shards: [1]}}
regions: {{asia: {{}}, europe: {{}}, america: {{}}}}
link: {{rtt_ms: 150, mbit: 100}} # between regions; with --no-wan there is no link
server:
  coordinator: {{h_base: 8}} # steps between two pushes of a shard
"""


def tool() -> str:
    """Gives the path of the program `longhaul`, in this Python's environment or in PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "longhaul")
    found = beside if os.access(beside, os.X_OK) else shutil.which("longhaul")
    if not found:
        raise SystemExit("longhaul.first: the program `longhaul` is neither beside this Python nor "
                         "in PATH: install the wheel longhaul_programs")
    return found


def texts() -> dict[str, bytes]:
    """Gives a text for each region, and one from the ends of their modules for `heldout`."""
    paths = sorted(glob.glob(os.path.join(sysconfig.get_path("stdlib"), "*.py")))
    made, kept = {}, b""
    for i, region in enumerate(REGIONS):
        text = b""
        for path in paths[i::len(REGIONS)]:
            with open(path, "rb") as file:
                text += file.read()
        if len(text) < LEAST:
            raise SystemExit(f"longhaul.first: this Python's modules give {len(text)} bytes of "
                             f"text for {region}, and at least {LEAST} are needed")
        made[region] = text[:min(MOST, len(text) - 10_000)]
        kept += text[-10_000:]
    return {**made, "heldout": kept}


def _write(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def make(folder: str, tokens: int) -> str:
    """Creates the folder with all files; gives the command that starts the run."""
    try:
        import numpy  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError as missing:
        raise SystemExit(f"longhaul.first: {missing}: pip install torch numpy") from None
    from . import first_loop  # pylint: disable=import-outside-toplevel

    folder = os.path.abspath(folder)
    program = tool()
    os.makedirs(folder)
    for region, text in texts().items():
        place = ("heldout", "modules.txt") if region == "heldout" else (region, region, "a.txt")
        _write(os.path.join(folder, "text", *place), text)
    subprocess.run([program, "data", "prepare", "--text", os.path.join(folder, "text"), "--out",
                    os.path.join(folder, "data"), "--unit-tokens", "2048"], check=True)
    torch.manual_seed(1)
    save_initial(first_loop.Model(), os.path.join(folder, "model"), shards=2)
    shutil.copyfile(first_loop.__file__, os.path.join(folder, "train.py"))
    command = [sys.executable, os.path.join(folder, "train.py"), "{data}/units.json",
               "{dir}/{worker}.pt"]
    _write(os.path.join(folder, "run.yaml"), topology(folder, tokens, command).encode())
    return shlex.join(start_words(program, folder))


def topology(folder: str, tokens: int, command: list[str]) -> str:
    """Gives the text of run.yaml. YAML has no pairs of surrogates, as JSON's escapes may be."""
    return _TOPOLOGY.format(
        tokens=tokens, model=json.dumps(os.path.join(folder, "model"), ensure_ascii=False),
        command=json.dumps(command, ensure_ascii=False))


def start_words(program: str, folder: str) -> list[str]:
    """Gives the words of the command that starts the run."""
    return [program, "up", f"{folder}/run.yaml", "--data", f"{folder}/data", "--dir",
            f"{folder}/run", "--no-wan"]


def main(words: typing.Sequence[str] | None = None) -> None:
    flags = argparse.ArgumentParser(prog="python3 -m longhaul.first", description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("folder", help="the new folder")
    flags.add_argument("--tokens", type=int, default=300_000,
                       help="credited tokens at which the run ends (300000)")
    given = flags.parse_args(words)
    if os.path.exists(given.folder):
        raise SystemExit(f"longhaul.first: {given.folder} exists already: name another folder")
    print("Now start it (without --no-wan, as root: emulated links of 150 ms):\n\n    " +
          make(given.folder, given.tokens))


if __name__ == "__main__":
    main()
