#!/usr/bin/env python3
"""`longhaul up` with external training loops.

    loops.py --build DIR line|alone|private|records|pytorch [--wan]

line      two regions train the example of worker/client/examples, which needs only the C
          library, on its own data; every fault of the drill, to commands too.
private   deploy/examples/private.yaml: three private regions spend their budgets; the audit of
          the logs agrees with the regions' reports, and finds no more than the plan.
records   deploy/examples/private-records.yaml: the built-in trainer beside a private one, on
          its own documents; no other process knows their place.
alone     the same loops end by themselves, and the run with them; nothing is started afterwards.
pytorch   deploy/examples/pytorch.yaml with a tiny model (--model) and fewer tokens: three regions
          lease units, the losses of their languages fall, all end with the same model. Needs
          PyTorch. If the built-in evaluation does not know the model, the loops' losses are judged.
"""
import argparse
import json
import math
import os
import random
import re
import struct
import subprocess
import sys

import real
from real import check

LINE = """run: line
budget_tokens: {budget}
model: {{import: {model}}}
coordinator: {{region: europe}}
servers:
  - {{name: s0, region: europe, shards: [0]}}
  - {{name: s1, region: america, shards: [1]}}
regions:
  europe: {{command: "{program} 1000000 5"}}
  america: {{command: ["{program}", "1000000", "5"]}}
link: {{rtt_ms: 60, mbit: 100}}
server: {{coordinator: {{h_base: 4, data: own}}, checkpoint.every_versions: 40}}
"""
IN, OUT = 8, 4  # of the example
LEXICON = [a + b + c for a in "bdfg" for b in "aeo" for c in ("n", "ls", "rt", "mp")]


class World(real.World):
    """A run's folder, with other texts and this test's topology."""

    def __init__(self, build):
        super().__init__(build, "loops", 1000, 1000, "{}")

    def up(self, *flags, **more):
        process = subprocess.Popen(
            [os.path.abspath(self.tool), "up", self.path("t.yaml"), "--dir", self.path("run"),
             "--data", self.path("tokens"), "--json", self.path("summary.json"), *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
        self.ups.append(process)
        return process

    def summary(self, up):
        said, _ = up.communicate(timeout=real.PATIENCE_S)
        check(up.returncode == 0, f"up ended with {up.returncode}:\n{said}")
        validate = os.path.join(real.HERE, "..", "contracts", "validate.py")
        subprocess.run([sys.executable, validate, "summary", self.path("summary.json")],
                       check=True)
        check(not self.left(), f"processes are left: {self.left()}")
        with open(self.path("summary.json"), encoding="utf-8") as file:
            return said, json.load(file)

    def log(self, worker):
        with open(self.path("run", worker + ".trainer.log"), encoding="utf-8") as file:
            return file.read()


def write_line_model(folder):
    os.makedirs(folder)
    tensors = [{"name": "weight", "shape": [OUT, IN]}, {"name": "bias", "shape": [OUT]}]
    with open(os.path.join(folder, "model.json"), "w", encoding="utf-8") as file:
        json.dump({"schema": "longhaul.manifest/1", "model": {}, "chunk": 4096, "shards": 1,
                   "tensors": tensors}, file)
    with open(os.path.join(folder, "weights.bin"), "wb") as file:
        file.write(bytes(4 * (IN * OUT + OUT)))


def check_drill(summary, wan):
    faults = summary["faults"]
    kinds = ["shard server", "command", "worker", "command, worker", "coordinator", "region"]
    check(len(faults) == len(kinds) and all(k in f["what"] for k, f in zip(kinds[:5], faults)),
          f"every fault came: {faults}")
    check(faults[-1]["what"].startswith("20 s cut" if wan else "20 s pause"), f"{faults[-1]}")
    check(all(f["recovered_s"] is not None for f in faults), f"and healed: {faults}")


def check_line(world):
    """The run's final parameters are the line."""
    with open(world.path("run", "final.bin"), "rb") as file:
        values = struct.unpack(f"<{IN * OUT + OUT}f", file.read())
    wrong = max(abs(values[o * IN + i] - (i - o)) for o in range(OUT) for i in range(IN))
    wrong = max(wrong, *(abs(values[IN * OUT + o] - o) for o in range(OUT)))
    check(wrong < 0.05, f"a parameter is off by {wrong}")
    print(f"the line was found: no parameter is off by more than {wrong:.4f}")


def check_commands(summary, workers):
    commands = {c["name"]: c for c in summary["commands"]}
    check(sorted(commands) == sorted(w + ".trainer" for w in workers), f"{commands}")
    check(all(c["ended"] == "exit 0" for c in commands.values()), f"{commands}")
    return commands


def line(world, wan, budget):
    write_line_model(world.path("model"))
    world.write("t.yaml", LINE.format(
        budget=budget or 450000, model=world.path("model"),
        program=os.path.join(world.build, "tests", "external", "external_example")))
    said, summary = world.summary(world.up("--with-faults", *([] if wan else ["--no-wan"])))
    check(summary["ok"] and summary["replicas"]["compared"] == 3, "three holders agree")
    check("their own data" in summary["unjudged"] and not summary["heldout"],
          "no language is judged, and that is said")
    check("held-out losses are not judged" in said and "no unit of data is claimed" in said, said)
    rows = re.findall(r"^ *europe +training +\d+ +(\S+)", said, re.M)
    check(rows and set(rows) == {"-"}, f"a loss that no loop told is shown: {rows}")
    check_drill(summary, wan)
    commands = check_commands(summary, ("europe-0", "america-0"))
    check(commands["europe-0.trainer"]["restarts"] >= 2, f"killed twice: {commands}")
    tokens = sum(r["tokens"] for r in summary["regions"].values())
    check(tokens >= (budget or 450000), f"{tokens} tokens were trained")
    for worker in ("europe-0", "america-0"):
        losses = re.findall(r"after the run ([0-9.]+)", world.log(worker))
        check(losses and float(losses[-1]) < 0.01, f"{worker} ends with loss {losses}")
    check_line(world)
    killed = world.answer("events", "--kind", "kill", "--who", "trainer/")
    check(len(killed) >= 2, f"the events tell of the kills: {killed}")


def alone(world, _wan, budget):
    """Loops that end by themselves end the run, though its budget is not spent."""
    write_line_model(world.path("model"))
    program = os.path.join(world.build, "tests", "external", "external_example")
    text = LINE.format(budget=budget or 10**9, model=world.path("model"), program=program)
    world.write("t.yaml", text.replace("1000000 5", "400 2").replace('"1000000", "5"', '"400"'))
    said, summary = world.summary(world.up("--no-wan"))
    check("all commands' loops have ended: ending the run" in said, said)
    commands = check_commands(summary, ("europe-0", "america-0"))
    check(all(c["restarts"] == 0 for c in commands.values()), f"{commands}")
    check(summary["ok"] and summary["replicas"]["compared"] == 3, "three holders agree")
    said, summary = world.summary(world.up("--no-wan"))  # it has ended: nothing is restarted
    check(all(c["ended"] == "not started" for c in summary["commands"]), f"{summary['commands']}")
    check(summary["ok"], said)


def private(world, _wan, _budget):
    """Regions under differential privacy, which leave once their budgets are spent."""
    write_line_model(world.path("model"))
    program = os.path.join(world.build, "tests", "external", "external_example")
    tree = os.path.dirname(os.path.dirname(real.HERE))
    with open(os.path.join(tree, "deploy", "examples", "private.yaml"), encoding="utf-8") as file:
        text = file.read()
    text = text.replace("import: model}", f"import: {world.path('model')}}}")
    world.write("t.yaml", text.replace("./line", program))
    said, summary = world.summary(world.up("--no-wan"))
    check(summary["ok"], said)
    audit = json.loads(subprocess.run(
        [world.tool, "privacy", "audit", world.path("run", "shard-0"),
         world.path("run", "shard-1"), "-o", "json"], check=True, capture_output=True).stdout)
    check(len(audit) == 3, f"three regions charged: {audit}")
    for row in audit:
        check(row["verdict"] == "within the plan", f"{row}")
        check(0 < row["charged"] <= 50 and 0 < row["epsilon"] <= 8, f"{row}")
        check(row["releases"] / 2 <= row["charged"], f"a release was not charged: {row}")
    for worker in ("asia-0", "europe-0", "america-0"):
        with open(world.path("run", worker, "status.json"), encoding="utf-8") as file:
            said = json.load(file)["privacy"]
        check(said["state"] == "spent" and said["charged"] == 50, f"{worker}: {said}")
        check(said["noise_energy"] > said["delta_energy"], f"{worker}: {said}")
        check(os.path.exists(world.path("run", worker + ".budget")), "the budget stays")
    print("\n".join(f"{r['worker']}: {r['charged']} steps, epsilon {r['epsilon']:.3f}"
                    for r in audit))


def records(world, _wan, _budget):
    """A region that is private at record level beside two that lease units: it leaves at its
    budget, if the run lasts that long, and the others learn."""
    tree = os.path.dirname(os.path.dirname(real.HERE))
    with open(os.path.join(tree, "deploy", "examples", "private-records.yaml"),
              encoding="utf-8") as file:
        text = file.read()
    text = text.replace("700_000", "450_000")  # the run may end before asia's budget is spent
    world.write("t.yaml", text.replace("data: records", f"data: {world.path('records')}"))
    words = random.Random(3)
    lines = [" ".join(words.choices(LEXICON, k=words.randrange(2, 30))) for _ in range(2000)]
    world.write("private/asia/ja/notes.txt", "\n".join(lines))
    subprocess.run([world.tool, "data", "prepare", "--text", world.path("private"), "--out",
                    world.path("records"), "--documents", "line"], check=True,
                   stdout=subprocess.DEVNULL)
    for language in ("de", "en"):
        place = {"de": "europe", "en": "america"}[language]
        world.write(f"public/{place}/{language}/a.txt", " ".join(words.choices(LEXICON, k=20000)))
        world.write(f"public/heldout/{language}.txt", " ".join(words.choices(LEXICON, k=3000)))
    subprocess.run([world.tool, "data", "prepare", "--text", world.path("public"), "--out",
                    world.path("tokens"), "--unit-tokens", "1024", "--sequence", "64"], check=True,
                   stdout=subprocess.DEVNULL)
    said, summary = world.summary(world.up("--no-wan"))
    check(summary["ok"] and summary["data"]["credited_once"], said)
    check("record level: sigma 0.69" in said and "2000 records" in said and
          "the sampler adds" in said, f"the plan says what privacy costs:\n{said}")
    row, = json.loads(subprocess.run(
        [world.tool, "privacy", "audit", world.path("run", "shard-0"),
         world.path("run", "shard-1"), "-o", "json"], check=True, capture_output=True).stdout)
    check(row["level"] == "record" and row["verdict"] == "within the plan", f"{row}")
    check(0 < row["charged"] <= 100 and 0 < row["epsilon"] <= 4, f"{row}")
    receipt = json.loads(subprocess.run(
        [world.tool, "privacy", "statement", "--config", world.path("run", "coordinator.yaml"),
         "--budget", world.path("run", "asia-0.budget"), "--records", "2000", "-o", "json"],
        check=True, capture_output=True).stdout)
    check(receipt["steps_charged"] >= row["charged"] and receipt["passes"] > 40, f"{receipt}")
    for node in ("coordinator", "shard-0", "shard-1", "europe-0", "america-0"):
        with open(world.path("run", node + ".yaml"), encoding="utf-8") as file:
            check(world.path("records") not in file.read(), f"{node} knows of the records")
    print(f"{row['charged']} steps, epsilon {row['epsilon']:.3f}")


def make_model(world, kind):
    import torch  # pylint: disable=import-outside-toplevel
    import transformers  # pylint: disable=import-outside-toplevel

    torch.manual_seed(7)
    small = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
             "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
    config = {"llama": lambda: transformers.LlamaConfig(**small),
              "gpt2": lambda: transformers.GPT2Config(vocab_size=256, n_positions=64, n_embd=32,
                                                      n_layer=2, n_head=2)}[kind]()
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(world.path("hf"))
    subprocess.run([world.tool, "model", "import", world.path("hf"), "--out",
                    world.path("model")], check=True, stdout=subprocess.DEVNULL)


def same_models(world, workers):
    """Every region's saved model equals the run's, as `longhaul export` writes it."""
    from safetensors.torch import load_file  # pylint: disable=import-outside-toplevel
    import torch  # pylint: disable=import-outside-toplevel

    subprocess.run([world.tool, "export", "--to", "safetensors", "--out", world.path("out"),
                    "--like", world.path("hf"), "--dir", world.path("run")], check=True,
                   stdout=subprocess.DEVNULL)
    run = load_file(world.path("out", "model.safetensors"))
    for worker in workers:
        mine = load_file(world.path("run", worker + ".model", "model.safetensors"))
        check(set(mine) == set(run), f"{worker} has other tensors: {set(mine) ^ set(run)}")
        check(all(torch.equal(mine[n], run[n]) for n in run), f"{worker} saved another model")


def check_learned(world, summary, workers, kind):
    """The losses of every region's languages fell."""
    if kind == "gpt2":  # the built-in evaluation does not support it
        check("unjudged" in summary, "what was not judged is said")
        for worker in workers:
            losses = [float(v) for v in re.findall(r"loss ([0-9.]+)", world.log(worker))]
            # A loop that joined late starts from the others' progress.
            first, last = math.log(256), sum(losses[-10:]) / 10
            print(f"{worker}: {losses[0]:.3f} -> {last:.3f}")
            check(last < first - 1, f"{worker} learned: {losses[0]} -> {last}, {first} before")
        return
    check("unjudged" not in summary, "the losses are judged")
    for language, loss in summary["heldout"].items():
        print(f"{language}: {loss['before']:.3f} -> {loss['after']:.3f}")
        check(loss["after"] < loss["before"] - 1, f"{language} was learned: {loss}")


def pytorch(world, given):
    wan, budget, faults = given.wan, given.budget, given.faults
    workers = ("asia-0", "europe-0", "america-0")
    tree = os.path.dirname(os.path.dirname(real.HERE))
    with open(os.path.join(tree, "deploy", "examples", "pytorch.yaml"), encoding="utf-8") as file:
        world.write("t.yaml", file.read().replace("2_000_000", str(budget or 200000)))
    os.symlink(os.path.join(tree, "worker"), world.path("worker"))
    make_model(world, given.model)
    environment = {**os.environ, "PYTHONPATH": os.path.join(tree, "worker", "python"),
                   "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
                   "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
                   "LONGHAUL_LIBRARY": os.path.join(world.build, "worker", "client",
                                                    "liblonghaul.so.1")}
    flags = [*([] if wan else ["--no-wan"]), *(["--with-faults"] if faults else [])]
    _, summary = world.summary(world.up(*flags, cwd=world.dir, env=environment))
    check(summary["ok"], "three regions agree")
    check_learned(world, summary, workers, given.model)
    check(summary["data"]["credited_once"] and summary["data"]["credited"] > 0,
          f"units are credited: {summary['data']}")
    check_commands(summary, workers)
    same_models(world, workers)
    if faults:
        check_drill(summary, wan)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--wan", action="store_true")
    parser.add_argument("--budget", type=int, default=0, help="tokens; 0: the play's own")
    parser.add_argument("--faults", action="store_true", help="of pytorch; line has them always")
    parser.add_argument("--model", choices=["llama", "gpt2"], default="llama",
                        help="of pytorch")
    parser.add_argument("what", choices=["line", "alone", "private", "records", "pytorch"])
    flags = parser.parse_args()
    world = World(flags.build)
    failed = True
    try:
        if flags.what == "pytorch":
            pytorch(world, flags)
        else:
            plays = {"line": line, "alone": alone, "private": private, "records": records}
            plays[flags.what](world, flags.wan, flags.budget)
        failed = False
    finally:
        world.close(failed)
    print("ok")


if __name__ == "__main__":
    main()
