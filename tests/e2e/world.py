"""A small run of the real programs on loopback: files, processes, their status and logs.

Everything lives in one folder. Addresses are free ports that the programs print; a restarted
process gets its old address. close() ends and removes everything.
"""
import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

SHAPE = {"architecture": "transformer", "vocab": 256, "dim": 32, "layers": 2, "heads": 2,
         "kv_heads": 1, "ffn": 64, "context": 64, "tied": True}
REGIONS = ("asia", "europe", "america")
DENSITY = 0.1  # codec.density of the workers
PATIENCE_S = 150  # long enough for a busy machine


class Failure(Exception):
    pass


def check(holds, text):
    if not holds:
        raise Failure(text)


def until(what, condition, patience=PATIENCE_S):
    """Polls until the condition holds and gives its value."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"waited {patience} s in vain until {what}")
        time.sleep(0.05)


def held(servers):
    """shard -> (version, digest) that the servers end with. A digest takes time, and a status may
    be a second old."""
    def ended():
        shards = [s for server in servers for s in server.shards()]
        done = shards and all(s["phase"] == "ended" and s["digest"] for s in shards)
        return shards if done else None
    shards = until("the servers hold their last version", ended)
    return {s["shard"]: (s["version"], s["digest"]) for s in shards}


class Node:
    """One process of the run, over its restarts. Settings in capitals are environment variables."""

    def __init__(self, world, kind, region, name, settings):
        self.world, self.kind, self.region, self.name = world, kind, region, name
        self.dir = os.path.join(world.dir, name)
        self.log = os.path.join(world.dir, name + ".log")
        self.settings = settings
        self.program = "longhaul-worker" if kind == "worker" else "longhaul-server"
        self.before = []  # prefix of the command line; it must exec its arguments
        self.environment = None  # variables added to those of this process
        self.address = None
        self.process = None
        world.nodes.append(self)

    def start(self, *extra):
        line = [*self.before, self.world.program(self.program), "--config", self.write_settings()]
        for item in extra:
            line += ["--set", item]
        around = {key: value for key, value in self.settings.items() if key.isupper()}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=log, env={**os.environ,
                                                             **(self.environment or {}), **around})
        return self

    def listening(self):
        """Waits for the line with the bound address; fails if the process ends first."""
        line = self.process.stdout.readline().decode()
        if not line.startswith("listening "):
            self.process.wait(PATIENCE_S)
            raise Failure(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")
        self.address = line.split()[1]
        return self

    def write_settings(self):
        values = {key: value for key, value in self.settings.items() if not key.isupper()}
        if self.kind != "worker":
            values["listen"] = self.address or "127.0.0.1:0"
        path = os.path.join(self.world.dir, self.name + ".yaml")
        with open(path, "w", encoding="utf-8") as out:
            for key, value in values.items():
                out.write(f"{key}: {json.dumps(value)}\n")
        return path

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def ask_to_end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self, patience=PATIENCE_S):
        """Waits for the process to end and gives the exit status."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} has not ended after {patience} s:\n{self.tail()}") from None

    def must_end(self, patience=PATIENCE_S):
        """Waits for the process to end by itself; fails with its output if the status is not 0."""
        status = self.end(patience)
        check(status == 0, f"{self.name} ended with {status}:\n{self.tail(12)}")

    def must_stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.must_end()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def status(self):
        """The last status of the running process; {} before its first."""
        try:
            with open(os.path.join(self.dir, "status.json"), encoding="utf-8") as file:
                status = json.load(file)
        except FileNotFoundError:
            return {}
        return status if self.process and status["pid"] == self.process.pid else {}

    def shards(self):
        """The shards in a server's last status, which may also hold the coordinator's."""
        status = self.status()
        return status.get("server", status).get("shards", [])

    def last(self, key):
        """A key of the last status, also of a process that has ended."""
        with open(os.path.join(self.dir, "status.json"), encoding="utf-8") as file:
            return json.load(file)[key]

    def last_holdings(self):
        """shard -> (version, digest) of the last status, also of a process that has ended."""
        return {s["shard"]: (s["version"], s["digest"]) for s in self.last("shards")}

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def says(self, *words):
        """The log has a line with all these words."""
        return any(all(word in line for word in words) for line in self.text().splitlines())

    def tail(self, lines=25):
        return "\n".join(self.text().splitlines()[-lines:])


def make_text(folder, size):
    """Text of made-up words in the format of `longhaul data prepare`, `size` bytes in each region:
    three languages of different words, each quick to learn in part. They share their letters, so
    that training on one, in whatever order on a busy machine, does not unlearn the others.
    """
    draw = random.Random(11)
    os.makedirs(os.path.join(folder, "heldout"))
    for number, region in enumerate(REGIONS):
        words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 6))) for _ in range(40)]
        os.makedirs(os.path.join(folder, region, f"l{number}"))
        with open(os.path.join(folder, region, f"l{number}", "a.txt"), "wb") as out:
            out.write(" ".join(draw.choices(words, k=size // 3)).encode()[:size])
        with open(os.path.join(folder, "heldout", f"l{number}.txt"), "wb") as out:
            out.write(" ".join(draw.choices(words, k=2000)).encode())


class World:
    def __init__(self, build, run="e2e", units=48, keep=False, shape=None, unit_tokens=1024,
                 shards=2):
        self.build, self.run, self.keep = build, run, keep
        self.unit_tokens = unit_tokens
        self.dir = tempfile.mkdtemp(prefix="longhaul-e2e-")
        self.nodes = []
        self.make_data(units)
        self.tool("model", "init", "--shape", json.dumps(shape or SHAPE), "--shards",
                  str(shards), "--seed", "7", "--out", self.dir)
        self.make_ca()
        self.tool("certs", "key", "--out", self.path("job.keys"))

    # ------------------------------------------------------------ files
    def path(self, *names):
        return os.path.join(self.dir, *names)

    def program(self, name):
        room = {"longhaul": "deploy", "longhaul-server": "server", "longhaul-worker": "worker",
                "e2e_issue": "tests/e2e", "e2e_ask": "tests/e2e",
                "e2e_push": "tests/e2e", "e2e_say": "tests/e2e",
                "crash_exact_worker": "tests/crash",
                "crash_mass": "tests/crash", "external_loop": "tests/external",
                "external_example": "tests/external"}
        return os.path.join(self.build, room[name], name)

    def try_tool(self, *line):
        """(exit code, output, stderr) of the operator's tool."""
        done = subprocess.run([self.program("longhaul"), *line], capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout, done.stderr

    def tool(self, *line):
        code, said, complaint = self.try_tool(*line)
        if code:
            raise Failure(f"longhaul {' '.join(line)}: {code}: {complaint}")
        return said

    def admin(self, coordinator, name="boss", role="admin"):
        """The flags with which the tool calls this coordinator."""
        self.certificate(role, "europe", name)
        return ("--coordinator", coordinator.address, "--ca", self.path("ca", "ca.pem"), "--cert",
                self.path("certs", name + ".pem"), "--key", self.path("certs", name + ".key"))

    def make_ca(self):
        self.tool("certs", "init", "--dir", self.path("ca"), "--domain", "e2e.test")

    def make_data(self, units):
        make_text(self.path("text"), units // 3 * self.unit_tokens + 100)
        self.prepare_data()

    def prepare_data(self):
        self.tool("data", "prepare", "--text", self.path("text"), "--out", self.path("data"),
                  "--unit-tokens", str(self.unit_tokens), "--sequence", "64")
        self.read_units()

    def read_units(self):
        with open(self.path("data", "units.json"), encoding="utf-8") as file:
            self.units = json.load(file)["units"]

    def certificate(self, role, region, name):
        if not os.path.exists(self.path("certs", name + ".pem")):
            self.tool("certs", "issue", "--dir", self.path("ca"), "--run", self.run, "--role",
                      role, "--region", region, "--name", name, "--out", self.path("certs"))

    def ask(self, certificate, node, question):
        """(exit code, output, stderr) of a call under this certificate."""
        role = "server" if node.kind == "server" else "coordinator"
        done = subprocess.run(
            [self.program("e2e_ask"), self.path("ca", "ca.pem"),
             self.path("certs", certificate + ".pem"), self.path("certs", certificate + ".key"),
             "e2e.test", self.run, role, node.address, question],
            capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        return done.returncode, done.stdout, done.stderr

    # ------------------------------------------------------------ nodes

    def common(self, role, region, name):
        self.certificate(role, region, name)
        return {"tls.ca": self.path("ca", "ca.pem"),
                "tls.cert": self.path("certs", name + ".pem"),
                "tls.key": self.path("certs", name + ".key"), "seal.keys": self.path("job.keys"),
                "model.manifest": self.path("model.json"), "dir": self.path(name)}

    def coordinator(self, workers=3, **more):
        settings = self.common("coordinator", "europe", "coordinator")
        settings.update({"role": "coordinator", "coordinator.workers": workers,
                         "data.units": self.path("data", "units.json"),
                         "run.budget_tokens": sum(u["tokens"] for u in self.units),
                         "coordinator.worker_timeout_s": "5 s", "coordinator.h_base": 2,
                         "coordinator.cadence": "fixed"})
        settings.update(more)
        return Node(self, "coordinator", "europe", "coordinator", settings)

    def both(self, workers=1, **more):
        """Coordinator and all shards in one process, under the coordinator's certificate."""
        node = self.coordinator(workers, **more)
        node.settings.update({"role": "both", "shards": [0, 1],
                              "model.weights": self.path("weights.bin"),
                              "checkpoint.every_versions": 60})
        return node

    def server(self, shard, coordinator, region="europe", name=None, **more):
        name = name or f"shard-{shard}"
        settings = self.common("server", region, name)
        settings.update({"role": "shard", "shards": [shard], "coordinator": coordinator.address,
                         "model.weights": self.path("weights.bin"),
                         "checkpoint.every_versions": 60})
        settings.update(more)
        return Node(self, "server", region, name, settings)

    def worker(self, region, coordinator, **more):
        name = f"{region}-0"
        settings = self.common("worker", region, name)
        settings.update({"coordinator": coordinator.address,
                         "data.units": self.path("data", "units.json"),
                         "data.dir": self.path("data"), "codec.density": DENSITY,
                         "trainer.batch": 4, "trainer.learning_rate": 0.003})
        settings.update(more)
        return Node(self, "worker", region, name, settings)

    # ------------------------------------------------------------ the end

    def close(self, failed=False):
        for node in self.nodes:
            if node.alive():
                node.kill()
            if node.process:
                node.process.stdout.close()
        if failed or self.keep:
            print(f"kept: {self.dir}")
        else:
            shutil.rmtree(self.dir)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            for node in self.nodes:
                if os.path.exists(node.log):
                    print(f"---- {node.name}\n{node.tail()}")
        self.close(failed=kind is not None)


class Alike(World):
    """For runs that must end with the same bits: all data is one unit. With several units their
    order, and the end of a round, depend on how busy the machine is."""

    def __init__(self, build, tokens):
        super().__init__(build, unit_tokens=tokens)

    def make_data(self, units):
        make_text(self.path("text"), self.unit_tokens + 100)
        for region in REGIONS[1:]:
            shutil.rmtree(self.path("text", region))
        self.prepare_data()
        check(len(self.units) == 1, f"there are {len(self.units)} units")


def free_ports(first, count):
    """Ports without a listener, none of them in the range of outgoing connections."""
    found, port = [], first + os.getpid() % 4000
    while len(found) < count:
        port += 1
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                found.append(port)
            except OSError:
                pass
    return found


def flags_of(about, units=None, speed=None):
    """A test's command line. `units`, `speed`: the defaults of such flags; None: it has none."""
    flags = argparse.ArgumentParser(description=about,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", required=True, help="the build tree")
    flags.add_argument("--keep", action="store_true", help="keep the runs' folders")
    if units:
        flags.add_argument("--units", type=int, default=units)
    if speed:
        flags.add_argument("--speed", type=int, default=speed,
                           help="tokens a second of each worker")
    return flags


def main(about, run, **kind):
    """A test's main(): runs `run(world)` in a World of this class."""
    given = flags_of(about).parse_args()
    with World(given.build, keep=given.keep, **kind) as world:
        run(world)
    print("ok")
