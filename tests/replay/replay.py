#!/usr/bin/env python3
"""The log of a small demo run, replayed bit for bit: `replay.py PROGRAM`.

demo/ has the files of two servers and three regions (made by make.py), whose codecs were topk-sign,
topk-q4 and topk-fp16: logs, model, initial parameters, job key, and the final digests of servers
and workers. Each form of the codecs' inner loops (scalar, avx2, avx512) folds the logs again and
must reach the same digests; so must each compiler, because every build runs this.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo")
FORMS = ("scalar", "avx2", "avx512")
CANNOT = 77
EARLY = "5"  # below the first DIGEST record, which stops a state that differs


def replay(program, form, demo, *more):
    """shard -> digest; None: this processor has no such form."""
    path = lambda name: os.path.join(demo, name)  # noqa: E731
    line = [program, form, "log", "replay", path("shard-0"), path("shard-1"), "--manifest",
            path("model.json"), "--run", "demo", "--domain", "e2e.test", "--keys",
            path("job.keys"), "--weights", path("weights.bin"), "-o", "json", *more]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode == CANNOT:
        return None
    if done.returncode:
        raise SystemExit(f"{form}: exit code {done.returncode}: {done.stderr}")
    return {str(row["shard"]): (row["version"], row["digest"]) for row in json.loads(done.stdout)}


def main():
    program, ran = sys.argv[1], []
    with open(os.path.join(HERE, "digests.json"), encoding="utf-8") as file:
        truth = {s: (d["version"], d["digest"]) for s, d in json.load(file).items()}
    with tempfile.TemporaryDirectory() as folder:
        demo = shutil.copytree(HERE, os.path.join(folder, "demo"))
        os.chmod(os.path.join(demo, "job.keys"), 0o600)  # in a checkout everybody can read it
        for form in FORMS:
            got = replay(program, form, demo)
            if got is None:
                print(f"{form}: this processor can't")
                continue
            if got != truth:
                raise SystemExit(f"{form}: {got}, the run ended with {truth}")
            print(f"{form}: bit for bit")
            ran.append(form)
        if "scalar" not in ran:
            raise SystemExit("the scalar form did not run")
        before = replay(program, "scalar", demo, "--to", EARLY)
        weights = os.path.join(demo, "weights.bin")
        with open(weights, "r+b") as file:
            first = file.read(1)[0]
            file.seek(0)
            file.write(bytes([first ^ 1]))
        if replay(program, "scalar", demo, "--to", EARLY) == before:
            raise SystemExit("another bit of the initial parameters changes no digest")


main()
