#!/usr/bin/env python3
"""The package's examples in a real run: train.py --build BUILD --package DIR --model KIND.

Three regions on loopback, workers of `trainer.kind: external`, the package's plain loop beside
each; one trainer is killed with -9 in the middle, one worker and one server too. All replicas are
equal, every unit is credited once, each trainer ends with the run's final parameters, and its loss
has fallen. With --script finetune.py the loop is an ordinary Hugging Face script, which
finetune.diff has brought into the run. With --spared no process is killed. With --trainer one
region trains on its own text, by another example (transformers' Trainer unless --script names it),
and an operator ends the run. lora.py and jax_loop.py write the run's initial parameters themselves.
"""
import argparse
import contextlib
import glob
import json
import math
import os
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys

import numpy
import torch
from safetensors.torch import load_file
from transformers import (AutoModelForCausalLM, DeepseekV3Config, GPT2Config, LlamaConfig,
                          Qwen3MoeConfig)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "tests", "e2e"))
from loopback import check_credit, check_replicas  # noqa: E402
from world import REGIONS, Failure, World, check, until  # noqa: E402

SMALL = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
MODELS = {"llama": LlamaConfig(**SMALL),
          "gpt2": GPT2Config(vocab_size=256, n_positions=64, n_embd=32, n_layer=2, n_head=2),
          "qwen3_moe": Qwen3MoeConfig(**SMALL, head_dim=16, moe_intermediate_size=16,
                                      num_experts=8, num_experts_per_tok=2),
          "deepseek_v3": DeepseekV3Config(
              **{**SMALL, "num_key_value_heads": 2}, q_lora_rank=16, kv_lora_rank=16,
              qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16, moe_intermediate_size=16,
              n_routed_experts=8, num_experts_per_tok=2, n_group=2, topk_group=1,
              first_k_dense_replace=1)}
# Experts' names differ between file and model, so a run starts from the model itself.
EXPERTS = ("qwen3_moe", "deepseek_v3")
KEEP = {"loop.py": "--keep", "fsdp.py": "{out}.optimizer", "trainer.py": "{out}.optimizer",
        "accelerate_loop.py": "{out}.optimizer"}  # words of the command line
# Environment that `accelerate launch --use_fsdp --fsdp_version 2` gives a script.
FSDP2 = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2",
         "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}
GOES_ON = "the optimizer goes on from"
OWN_INITIAL = ("lora.py", "jax_loop.py")


class Trainer:
    """A training script beside a worker, over its restarts."""

    def __init__(self, world, worker, given, script, data):
        package, ranks = given.package, given.ranks
        self.world, self.worker, self.package = world, worker, package
        self.out = world.path(worker.name + ".model")
        self.log = world.path(worker.name + ".trainer.log")
        self.ranked = ranks > 1 or given.hosts > 1
        path = self.joined() if script == "finetune.py" else os.path.join(
            package, "examples", script)
        script = [path,
                  *([] if script == "jax_loop.py" else [world.path("hf")]), data, self.out,
                  *KEEP.get(script, "").format(out=self.out).split(),
                  *(["--accumulate", str(given.accumulate)] if given.accumulate else []),
                  *(["--offload"] if given.offload else [])]
        words = [[*self.torchrun(given, host), *script] for host in range(given.hosts)]
        self.line = [world.program("longhaul"), "run", "--config",
                     world.path(worker.name + ".yaml"), "--", *words[0]]
        self.elsewhere = words[1:]  # hosts without a worker
        self.env = {**os.environ, **(FSDP2 if given.fsdp2 else {}), "PYTHONPATH": package,
                    "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo",
                    "LONGHAUL_LIBRARY": os.path.join(world.build, "worker", "client",
                                                     "liblonghaul.so.1")}
        self.process, self.others = None, []

    def joined(self):
        """finetune.py in a run: at most five new lines, those in the package's README."""
        path, examples = self.world.path("finetune.py"), os.path.join(self.package, "examples")
        with open(os.path.join(examples, "finetune.diff"), encoding="utf-8") as file:
            lines = file.read().splitlines()[2:]
        added = [line for line in lines if line.startswith("+")]
        check(0 < len(added) <= 5, f"the diff has {len(added)} new lines")
        with open(os.path.join(self.package, "README.md"), encoding="utf-8") as file:
            shown = file.read().split("```diff\n")[1].split("```")[0].splitlines()
        wanted = [line.rstrip() for line in lines if not line.startswith("@@")]
        while not wanted[-1]:
            wanted.pop()
        check(shown == wanted,
              f"the README shows another diff: {shown}")
        shutil.copy(os.path.join(examples, "finetune.py"), path)
        subprocess.run(["patch", "-s", path, os.path.join(examples, "finetune.diff")], check=True)
        return path

    def torchrun(self, given, host):
        """The words that start the script on this host. Neither torchrun nor gloo may depend on a
        host name that resolves."""
        several = ["--nnodes", str(given.hosts), "--node-rank", str(host), "--master-addr",
                   "127.0.0.1", "--master-port", str(given.port)]
        ranked = ["-m", "torch.distributed.run", "--local-addr", "127.0.0.1", "--nproc-per-node",
                  str(given.ranks), *(several if given.hosts > 1 else ["--standalone"])]
        gpus = [os.path.join(ROOT, "tests", "python", "gpus.py")] if given.fsdp2 else []
        return [sys.executable, *(ranked if self.ranked else []), *gpus]

    def begin(self, words, env):
        with open(self.log, "ab") as log:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    env=env, start_new_session=True)

    def start(self):
        self.process = self.begin(self.line, self.env)
        manifest = {"LONGHAUL_MANIFEST": self.world.path("model.json")}
        self.others = [self.begin(words, {**self.env, **manifest}) for words in self.elsewhere]
        return self

    def ranks(self, process=None):
        """The processes that torchrun started."""
        pid = (process or self.process).pid
        with open(f"/proc/{pid}/task/{pid}/children",
                  encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]

    def kill(self):
        """With several ranks kills only the last one: torchrun ends the others, and itself."""
        if not self.ranked:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            os.kill(self.ranks()[-1], signal.SIGKILL)
        check(self.process.wait(120) != 0, f"the trainer of {self.worker.name} does not mind a "
              "kill")

    def end_all(self):
        """Ends all processes, however the test ends."""
        for process in [p for p in (self.process, *self.others) if p and p.poll() is None]:
            ranks = self.ranks(process) if self.ranked else []
            os.killpg(process.pid, signal.SIGKILL)
            for pid in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(20)

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def losses(self):
        return [float(v) for v in re.findall(r"loss'?:? '?([0-9.]+)", self.text())]

    def cuts(self):
        return self.worker.status().get("trainer", {}).get("cuts", 0)

    def trains(self, cuts):
        """Whether this life of the worker has made this many cuts; fails if the trainer ended."""
        ended = self.process.poll()
        check(ended is None, f"the trainer of {self.worker.name} ended with {ended}:\n" +
              self.text()[-3000:])
        return self.cuts() >= cuts

    def end(self, patience=180):
        try:
            status = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise Failure(f"the trainer of {self.worker.name} has not ended") from None
        status = [status, *(p.wait(patience) for p in self.others)]
        check(not any(status), f"the trainer of {self.worker.name} ended with {status}:\n" +
              self.text()[-3000:])


def make_units(world, given):
    """Makes the texts' units again, with a tokenizer of more tokens than bytes, which ends
    documents by its own mark."""
    sys.path.insert(0, given.package)
    import longhaul  # pylint: disable=import-outside-toplevel

    def documents(language):
        for path in glob.glob(os.path.join(language, "*.txt")):
            with open(path, "rb") as file:
                for line in file:
                    yield [given.vocabulary - 256 + byte for byte in line] + [0]

    shutil.rmtree(world.path("data"))
    longhaul.save_units({
        region: {os.path.basename(language): documents(language)
                 for language in glob.glob(world.path("text", region, "*"))}
        for region in os.listdir(world.path("text")) if region != "heldout"},
        world.path("data"), given.vocabulary, unit_tokens=world.unit_tokens)
    world.read_units()


def make_base(world, given):
    """A model in hf; the base for adapters has first learned a little from all texts."""
    torch.manual_seed(7)
    config = MODELS[given.model]
    config.vocab_size = given.vocabulary
    model = AutoModelForCausalLM.from_config(config)
    if given.script == "lora.py":
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        texts = [open(path, "rb").read() for path in  # pylint: disable=consider-using-with
                 glob.glob(world.path("text", "heldout", "*.txt"))]
        pieces = torch.tensor([list(text[:3840]) for text in texts]).view(len(texts), -1, 64)
        for batch in pieces.transpose(0, 1):
            model(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    model.save_pretrained(world.path("hf"))


def make_model(world, given):
    """Makes the base, unless the example needs none, and the servers' initial parameters."""
    if given.script != "jax_loop.py":
        make_base(world, given)
    if given.script in OWN_INITIAL:
        base = [world.path("hf")] if given.script == "lora.py" else []
        subprocess.run([sys.executable, os.path.join(given.package, "examples", given.script),
                        "--initial", world.path("imported"), *base], check=True,
                       env={**os.environ, "PYTHONPATH": given.package, "HF_HUB_OFFLINE": "1"})
    elif given.model in EXPERTS:
        sys.path.insert(0, given.package)
        import longhaul  # pylint: disable=import-outside-toplevel
        longhaul.save_initial(AutoModelForCausalLM.from_pretrained(
            world.path("hf"), dtype=torch.float32), world.path("imported"), shards=2)
    else:
        world.tool("model", "import", world.path("hf"), "--shards", "2", "--out",
                   world.path("imported"))
    for name in ("model.json", "weights.bin"):
        shutil.copy(world.path("imported", name), world.path(name))


def run_tensors(world, worker):
    """The run's final parameters by their names in the manifest."""
    with open(world.path("model.json"), encoding="utf-8") as file:
        rows = json.load(file)["tensors"]
    values = torch.from_file(os.path.join(worker.dir, "final.weights"), dtype=torch.float32,
                             size=sum(math.prod(t["shape"]) for t in rows))
    sizes = [math.prod(t["shape"]) for t in rows]
    return {t["name"]: v.view(t["shape"]) for t, v in zip(rows, values.split(sizes))}


def saved_and_run(world, given, worker, trainer):
    """The example's saved model, and the run's final parameters under the same names."""
    if given.script == "jax_loop.py":
        saved = numpy.load(trainer.out + ".npz")
        return {n: torch.from_numpy(saved[n]) for n in saved}, run_tensors(world, worker)
    if given.script == "lora.py":
        return load_file(os.path.join(trainer.out, "adapter_model.safetensors")), {
            n.replace(".default", ""): v for n, v in run_tensors(world, worker).items()}
    if given.model in EXPERTS:
        saved = AutoModelForCausalLM.from_pretrained(trainer.out, dtype=torch.float32)
        return dict(saved.named_parameters()), run_tensors(world, worker)
    world.tool("export", "--to", "safetensors", "--like", world.path("hf"), "--out",
               trainer.out + ".run", "--manifest", world.path("model.json"), "--parameters",
               os.path.join(worker.dir, "final.weights"))
    return [load_file(os.path.join(d, "model.safetensors")) for d in (trainer.out,
                                                                      trainer.out + ".run")]


def check_final(world, given, workers, trainers):
    """The saved models are the run's final parameters."""
    for worker, trainer in zip(workers, trainers):
        mine, run = saved_and_run(world, given, worker, trainer)
        check(set(mine) == set(run), f"{trainer.out} has other tensors: {set(mine) ^ set(run)}")
        for name, values in run.items():
            check(torch.equal(values, mine[name]), f"{name} of {trainer.out} is not the run's")


def check_other_base(world, given, trainer):
    """lora.py beside the same worker, with another base: refused by name."""
    torch.manual_seed(8)
    other = world.path("other")
    AutoModelForCausalLM.from_config(MODELS[given.model]).save_pretrained(other)
    line = [other if word == world.path("hf") else word for word in trainer.line]
    ended = subprocess.run(line, env=trainer.env, stdin=subprocess.DEVNULL, capture_output=True,
                           text=True, timeout=120, check=False)
    check(ended.returncode and "parameters or buffers are others" in ended.stderr,
          f"another base was not refused: {ended.returncode}, {ended.stderr[-2000:]}")


def check_adapters(world, given, trainer):
    """At some time adapters were better on the region's text than fresh ones. So few values hold
    one language at a time: at the end it is that of the worker that trained last, so neither the
    last losses nor the final adapters would show it."""
    with open(*glob.glob(world.path("text", trainer.worker.name[:-2], "*", "a.txt")), "rb") as file:
        text = torch.tensor(list(file.read(16384))).view(-1, 64)
    sys.path.insert(0, given.package)
    fresh = runpy.run_path(os.path.join(given.package, "examples", "lora.py"))["load"](
        world.path("hf"))
    with torch.no_grad():
        before = fresh(input_ids=text, labels=text).loss.item()
    losses = trainer.losses()
    best = min(sum(losses[i:i + 20]) / 20 for i in range(len(losses) - 20))
    print(f"{trainer.worker.name}: {len(losses)} losses, {before:.3f} -> {best:.3f}")
    check(best < 0.97 * before,
          f"{trainer.worker.name}'s losses are {best} at best, {before} with fresh adapters")


def check_losses(trainers, ratio):
    """The printed losses fell; checked only if they fall by much more than batches differ."""
    for t in trainers:
        losses = t.losses()
        check(len(losses) > 20, f"{t.worker.name} said {len(losses)} losses")
        first, last = sum(losses[:5]) / 5, sum(losses[-5:]) / 5
        print(f"{t.worker.name}: {len(losses)} losses, {first:.3f} -> {last:.3f}")
        check(last < ratio * first, f"the loss of {t.worker.name} did not fall below {ratio} of it")


def check_server(server, trainers):
    """A server is killed and restarted: pushes are decided again."""
    cuts = [t.cuts() for t in trainers]
    server.kill()
    server.start().listening()
    until("cuts come after the server's death", lambda: all(
        t.trains(before + 2) for t, before in zip(trainers, cuts)), 120)


def check_kept(trainer):
    """The trainer or one of its ranks is killed: all go on with the optimizer state that they
    kept."""
    trainer.kill()
    trainer.start()
    until("every rank goes on with what it kept", lambda: trainer.trains(0) and
          trainer.text().count(GOES_ON) == trainer.worker.settings["ranks.count"], 120)


def comes_back(trainer, others):
    """Restarts the killed loop and waits for it. On a busy machine that takes long, and the others
    would train all remaining units, so they are stopped meanwhile."""
    def lives():
        return trainer.worker.status().get("trainer", {}).get("lives", 0)
    if not others:
        trainer.start()
        return
    before = lives()
    for t in others:
        t.process.send_signal(signal.SIGSTOP)
    try:
        trainer.start()
        until("the killed loop is back", lambda: lives() > before, 120)
    finally:
        for t in others:
            t.process.send_signal(signal.SIGCONT)


def play(world, given, trainers):
    if given.vocabulary != 256:
        make_units(world, given)
    make_model(world, given)
    regions = REGIONS[:1] if given.trainer else REGIONS[:given.regions]
    coordinator = world.coordinator(len(regions), **{
        "coordinator.h_base": 4,
        "coordinator.data": "own" if given.trainer else "leased"}).start().listening()
    servers = [world.server(i, coordinator).start().listening() for i in range(2)]
    workers = [world.worker(r, coordinator, **{
        "trainer.kind": "external", "ranks.count": given.ranks}).start()
               for r in regions]
    script = given.script or ("trainer.py" if given.trainer else "loop.py")
    data = world.path("text", "asia", "l0", "a.txt") if given.trainer else \
        world.path("data", "units.json")
    trainers += [Trainer(world, w, given, script, data) for w in workers]
    if script == "lora.py":
        check_other_base(world, given, trainers[0])
    for t in trainers:
        t.start()
    until("every trainer's cuts come", lambda: all(t.trains(3) for t in trainers), 120)
    schedule = "local" if script == "trainer.py" else "unknown"  # by the Trainer's scheduler
    until(f"the workers say that rates are {schedule}", lambda: all(
        t.worker.status().get("trainer", {}).get("schedule") == schedule for t in trainers), 60)
    if given.trainer:
        wanted = 80 if script == "accelerate_loop.py" else 25
        until("the trainer says losses", lambda: len(trainers[0].losses()) > wanted, 120)
        if script == "trainer.py":  # its callback reports them
            until("the worker's status has the loss",
                  lambda: trainers[0].worker.status().get("loss", 0) > 0, 60)
        if script in KEEP and given.hosts == 1:
            check_kept(trainers[0])
        check_server(servers[0], trainers)
        world.tool("drain", "run", "--end", *world.admin(coordinator))
    elif not given.spared:
        trainers[0].kill()
        workers[-1].kill()
        servers[1].kill()
        servers[1].start().listening()
        workers[-1].start()
        comes_back(trainers[0], trainers[1:])
        until("they train on", lambda: all(t.trains(3) for t in trainers), 120)
    for t in trainers:
        t.end()
    for w in workers:
        w.must_end(120)
    check_replicas(servers, workers)
    if not given.trainer:
        check_credit(world, coordinator, servers)
    check_final(world, given, workers, trainers)
    if script == "loop.py" and not given.spared:
        check(GOES_ON in trainers[0].text(), "the killed trainer's optimizer began anew")
        check(os.path.exists(os.path.join(workers[0].dir, "optimizer.pt")),
              "the optimizer's state is not in the worker's directory")
    if script == "lora.py":
        for t in trainers:
            check_adapters(world, given, t)
    else:
        check_losses(trainers, 0.9)
    for node in [coordinator, *servers]:
        node.must_stop()


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--build", required=True)
    flags.add_argument("--package", required=True, help="the folder of the package")
    flags.add_argument("--model", choices=MODELS, default="llama")
    flags.add_argument("--trainer", action="store_true")
    flags.add_argument("--ranks", type=int, default=1, help="torchrun's, of a host")
    flags.add_argument("--hosts", type=int, default=1, help="torchrun's, of which one has a worker")
    flags.add_argument("--fsdp2", action="store_true", help="accelerate shares the model out")
    flags.add_argument("--offload", action="store_true", help="fsdp.py on the host's memory")
    flags.add_argument("--regions", type=int, default=3)
    flags.add_argument("--spared", action="store_true", help="nobody is killed")
    flags.add_argument("--script", help="another of the package's examples")
    flags.add_argument("--accumulate", type=int, help="batches of a step; of loop.py")
    flags.add_argument("--vocabulary", type=int, default=256, help="of another tokenizer")
    flags.add_argument("--units", type=int, default=360)
    given = flags.parse_args()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        given.port = taken.getsockname()[1]  # for torchrun's first host
    trainers = []
    with World(given.build, units=given.units) as world:
        try:
            play(world, given, trainers)
        except BaseException:
            for t in trainers:
                print(f"---- trainer of {t.worker.name}\n{t.text()[-2000:]}")
            raise
        finally:
            for t in trainers:
                t.end_all()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
