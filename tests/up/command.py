#!/usr/bin/env python3
"""A made-up training loop, beside a made-up worker: command.py [HOW].

Writes its environment into command.json beside the worker's status and ends when the status is
done. It keeps a child in a session of its own, as torchrun does. HOW: `fail` ends with 3 at once,
`break` once its worker knows it, `fall` the same after some training; `none` ends with 0 at once;
`spoil` ends with 3 when the run is done; `deaf` and its child ignore SIGTERM; `lost` never ends;
`refused` ends with 3 whenever its worker is expelled; `save FILE` writes FILE when the run is done,
and ignores SIGTERM.
"""
import json
import os
import signal
import subprocess
import sys
import time

how = sys.argv[1] if len(sys.argv) > 1 else ""
if how == "fail":
    print("no such model", flush=True)
    sys.exit(3)
if how == "none":
    sys.exit(0)
if how in ("deaf", "save"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = os.path.dirname(os.environ["LONGHAUL_SOCKET"])
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", __file__],
                         start_new_session=True)
found = {"pid": os.getpid(), "child": child.pid, "words": sys.argv[1:],
         "socket": os.environ["LONGHAUL_SOCKET"], "manifest": os.environ["LONGHAUL_MANIFEST"],
         "threads": os.environ.get("OMP_NUM_THREADS")}
with open(os.path.join(folder, "command.tmp"), "w", encoding="utf-8") as file:
    json.dump(found, file)
os.replace(os.path.join(folder, "command.tmp"), os.path.join(folder, "command.json"))


def expelled():
    path = os.path.join(os.path.dirname(folder), "coordinator", "status.json")
    with open(path, encoding="utf-8") as said:
        workers = json.load(said)["workers"]
    return any(w["expelled"] and w["name"] == os.path.basename(folder) for w in workers)


print("training", flush=True)
state = ""
while state != "done" or how == "lost":
    time.sleep(0.05)  # polls; the worker's state decides
    with open(os.path.join(folder, "status.json"), encoding="utf-8") as file:
        status = json.load(file)
    state = status["state"]
    if how == "refused" and expelled():
        sys.exit(3)
    if how in ("break", "fall") and status["trainer"]["life"] == str(os.getpid()):
        print(f"no such batch of {os.getpid()}", flush=True)
        sys.exit(3)
if how == "spoil":
    print("no space to save", flush=True)
    sys.exit(3)
if how == "save":
    print(f"saving {sys.argv[2]}", flush=True)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("a model")
print("saved", flush=True)
