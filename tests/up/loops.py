#!/usr/bin/env python3
"""`longhaul up` with training loops of other people's: `loops.py --build DIR line [--wan]`.

line   two regions train the example of worker/client/examples, which needs no more than the C
       library, on data of its own; every fault of the drill, to commands too.
"""
import argparse
import json
import os
import re
import struct
import subprocess
import sys

import real
from real import check

LINE = """run: line
budget_tokens: {budget}
data.own: true
model: {{import: {model}}}
coordinator: {{region: europe}}
servers:
  - {{name: s0, region: europe, shards: [0]}}
  - {{name: s1, region: america, shards: [1]}}
regions:
  europe: {{command: "{program} 1000000 5"}}
  america: {{command: ["{program}", "1000000", "5"]}}
link: {{rtt_ms: 60, mbit: 100}}
server: {{coordinator.h_base: 4, checkpoint.every_versions: 40}}
"""
IN, OUT = 8, 4  # the example's


class World(real.World):
    """A run's folder; its text is another's, its topology ours."""

    def __init__(self, build, topology, **words):
        super().__init__(build, "loops", 1000, 1000, "{}")
        self.write("t.yaml", topology.format(**words))

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


def line(build, wan, budget):
    model = "/nowhere"
    world = World(build, LINE, budget=budget, model=model,
                  program=os.path.join(os.path.abspath(build), "tests/external/external_example"))
    failed = True
    try:
        write_line_model(world.path("model"))
        world.write("t.yaml", LINE.format(
            budget=budget, model=world.path("model"),
            program=os.path.join(os.path.abspath(build), "tests/external/external_example")))
        said, summary = world.summary(world.up("--with-faults", *([] if wan else ["--no-wan"])))
        check(summary["ok"] and summary["replicas"]["compared"] == 3, "three holders agree")
        check("data of their own" in summary["unjudged"] and not summary["heldout"],
              "no language is judged, and that is said")
        check("no language's loss is judged" in said and "no unit of data is claimed" in said, said)
        check_drill(summary, wan)
        commands = {c["name"]: c for c in summary["commands"]}
        check(sorted(commands) == ["america-0.trainer", "europe-0.trainer"], f"{commands}")
        check(all(c["ended"] == "exit 0" for c in commands.values()), f"{commands}")
        check(commands["europe-0.trainer"]["restarts"] >= 2, f"killed twice: {commands}")
        tokens = sum(r["tokens"] for r in summary["regions"].values())
        check(tokens >= budget, f"{tokens} tokens were trained of {budget}")
        for worker in ("europe-0", "america-0"):
            losses = re.findall(r"after the run ([0-9.]+)", world.log(worker))
            check(losses and float(losses[-1]) < 0.01, f"{worker} ends with loss {losses}")
        check_line(world)
        killed = world.answer("events", "--kind", "kill", "--who", "trainer/")
        check(len(killed) >= 2, f"the events tell of the kills: {killed}")
        print(json.dumps(summary["faults"]))
        failed = False
    finally:
        world.close(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--wan", action="store_true")
    parser.add_argument("--budget", type=int, default=300000)
    parser.add_argument("what", choices=["line"])
    flags = parser.parse_args()
    line(flags.build, flags.wan, flags.budget)
    print("ok")


if __name__ == "__main__":
    main()
