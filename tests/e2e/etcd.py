#!/usr/bin/env python3
"""A run whose coordinator's state is in etcd: three members, two coordinators of which one leads.

The store's conformance suite first runs against the same etcd, and against one that asks for a
certificate and a password. Then a run trains, and a restart moves its coordinator's file store into
etcd. One member of etcd is killed with -9, then the leading coordinator: the other one leads, and
the run goes on. The killed one restarts as a standby; the leader is asked to end, and the standby
leads at once. The leader is stopped (SIGSTOP) until the other one leads, and a server and a worker
that heard of it are restarted; then the old leader wakes up, and nobody obeys it. A leader
registers a server's epoch and is killed before a worker heard of it: the other one names the epoch.
The leader is cut off from etcd alone: it steps down. Then two members are down: nothing is
acknowledged, nobody leads, training goes on; the members come back, and one coordinator leads
again. Last, the state moves back into a file. At the end every unit is credited once, no push is
lost, and all replicas have the servers' digests.
"""
import json
import os
import pathlib
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

from relay import Relay
from loopback import check_replicas, mark, trained_on
from world import REGIONS, Node, World, check, flags_of, free_ports, until


def program(build):
    """This machine's etcd, or Debian's, unpacked in the build folder: nothing is installed."""
    there = shutil.which("etcd")
    if there:
        return there
    place = pathlib.Path(build).resolve().parent / "etcd"
    if not (place / "usr/bin/etcd").exists():
        with tempfile.TemporaryDirectory() as loads:
            subprocess.run(["apt-get", "-qq", "download", "etcd-server"], cwd=loads, check=True,
                           stderr=subprocess.DEVNULL)
            for package in pathlib.Path(loads).glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, place], check=True)
    return str(place / "usr/bin/etcd")


class Member:
    """One member of an etcd on loopback."""

    def __init__(self, cluster, number):
        self.name, self.folder = f"m{number}", os.path.join(cluster.folder, f"m{number}")
        self.client, self.peer = cluster.ports[2 * number:2 * number + 2]
        self.cluster, self.process = cluster, None

    def start(self):
        client, peer = f"http://127.0.0.1:{self.client}", f"http://127.0.0.1:{self.peer}"
        with open(self.folder + ".log", "ab") as log:
            self.process = subprocess.Popen(
                [self.cluster.program, "--name", self.name, "--data-dir", self.folder,
                 "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                 "--initial-cluster", self.cluster.members(), "--initial-cluster-token", "e2e"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def healthy(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.client}/health", timeout=5) as got:
                return json.load(got)["health"] in ("true", True)
        except (OSError, ValueError):
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()


class Etcd:
    """Three members; the folder is kept after they stop."""

    def __init__(self, folder, build):
        self.folder, self.program = folder, program(build)
        self.ports = free_ports(25000, 6)
        os.makedirs(folder)
        self.member = [Member(self, number) for number in range(3)]
        self.way = []

    def members(self):
        return ",".join(f"{m.name}=http://127.0.0.1:{m.peer}" for m in self.member)

    def setting(self, prefix, relays=None):
        at = [relay.address for relay in relays or ()] or \
            [f"127.0.0.1:{m.client}" for m in self.member]
        return "etcd://" + ",".join(at) + "/" + prefix

    def relays(self):
        """A new relay to each member."""
        self.way.append([Relay(m.client) for m in self.member])
        return self.way[-1]

    def start(self, *members):
        for member in members or self.member:
            member.start()
        until("etcd is healthy", lambda: all(m.healthy() for m in members or self.member))

    def close(self):
        for member in self.member:
            if member.process and member.process.poll() is None:
                member.kill()
        for relay in [relay for way in self.way for relay in way]:
            relay.close()


def openssl(folder, *line):
    subprocess.run(["openssl", *line], cwd=folder, check=True, stderr=subprocess.DEVNULL)


def make_secrets(folder):
    """Makes a CA, a member's certificate, and a client's folder."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    os.makedirs(os.path.join(folder, "secrets"))
    openssl(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "secrets/ca.pem", "-subj",
            "/CN=a CA", "-days", "2")
    for name, uses in (("member", "subjectAltName=IP:127.0.0.1\n"
                                  "extendedKeyUsage=serverAuth,clientAuth\n"),
                       ("client", "extendedKeyUsage=clientAuth\n")):
        with open(os.path.join(folder, "uses"), "w", encoding="utf-8") as out:
            out.write(uses)
        openssl(folder, "req", *key, "-keyout", name + ".key", "-out", "request", "-subj",
                "/CN=" + name)
        openssl(folder, "x509", "-req", "-in", "request", "-CA", "secrets/ca.pem", "-CAkey",
                "ca.key", "-CAcreateserial", "-out", name + ".pem", "-days", "2", "-extfile",
                "uses")
    os.rename(os.path.join(folder, "client.pem"), os.path.join(folder, "secrets", "cert.pem"))
    os.rename(os.path.join(folder, "client.key"), os.path.join(folder, "secrets", "key.pem"))
    with open(os.path.join(folder, "secrets", "login"), "w", encoding="utf-8") as out:
        out.write("root:pass:word\n")
    for name in ("key.pem", "login"):
        os.chmod(os.path.join(folder, "secrets", name), 0o600)
    return os.path.join(folder, "secrets")


class Secured:
    """One member that requires a certificate and, after lock(), a password."""

    def __init__(self, folder, name):
        os.makedirs(folder)
        self.secrets, (port, peer) = make_secrets(folder), free_ports(25000, 14)[12:]
        self.at, peer = f"127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
        self.tls = ssl.create_default_context(cafile=os.path.join(self.secrets, "ca.pem"))
        self.tls.load_cert_chain(os.path.join(self.secrets, "cert.pem"),
                                 os.path.join(self.secrets, "key.pem"))
        with open(os.path.join(folder, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [name, "--data-dir", os.path.join(folder, "data"), "--cert-file", "member.pem",
                 "--key-file", "member.key", "--trusted-ca-file", "secrets/ca.pem",
                 "--client-cert-auth", "--listen-client-urls", "https://" + self.at,
                 "--advertise-client-urls", "https://" + self.at, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until("the secured etcd answers", self.answers)

    def ask(self, path, question=None):
        body = None if question is None else json.dumps(question).encode()
        with urllib.request.urlopen(f"https://{self.at}/{path}", body, 5, context=self.tls) as got:
            return json.load(got)

    def answers(self):
        try:
            return self.ask("health")["health"] == "true"
        except (OSError, ValueError):
            return False

    def lock(self):
        self.ask("v3/auth/user/add", {"name": "root", "password": "pass:word"})
        self.ask("v3/auth/role/add", {"name": "root"})
        self.ask("v3/auth/user/grant", {"user": "root", "role": "root"})
        self.ask("v3/auth/enable", {})


def suite(world, setting, secrets):
    done = subprocess.run([os.path.join(world.build, "tests", "unit_backends"), setting, secrets],
                          capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"the store's suite: {done.stdout}{done.stderr}")


def secured(world, etcd):
    one = Secured(world.path("secured"), etcd.program)
    try:
        one.lock()
        suite(world, f"etcd://{one.at}/suite", one.secrets)
    finally:
        one.process.kill()
        one.process.wait()


def coordinators(world, etcd):
    """Two coordinators that share all settings but names, certificates, folders and addresses."""
    first = world.coordinator()
    settings = {**first.settings, **world.common("coordinator", "asia", "coordinator-b")}
    second = Node(world, "coordinator", "asia", "coordinator-b", settings)
    for node, port in zip((first, second), free_ports(25000, 8)[6:]):
        node.address, node.relays = f"127.0.0.1:{port}", etcd.relays()
        node.settings["coordinator.store"] = etcd.setting("runs", node.relays)
    return first, second


class Both:
    """Two addresses in one setting, as a worker's or server's setting has them."""

    def __init__(self, *nodes):
        self.address = ",".join(node.address for node in nodes)


def leads(node):
    return node.alive() and node.status().get("leads") is True


def number_of(node):
    return node.status()["leader"]["number"]


def roles(pair):
    """(the leader, the standby that names it). On a busy machine the two may change roles."""
    def found():
        for lead, other in (pair, pair[::-1]):
            status = other.status() if other.alive() else {}
            if leads(lead) and status.get("phase") == "standby" and \
                    status["leader"]["name"] == lead.name:
                check(not status.get("ready"), "one that stands by calls itself ready")
                return lead, other
        return None
    return until("one leads and the other stands by", found)


def takes_over(node, before):
    since = time.monotonic()
    until(f"{node.name} leads", lambda: leads(node) and number_of(node) > before)
    return time.monotonic() - since


def credited(pair):
    return max(node.status().get("credited", 0) for node in pair)


def goes_on(pair, workers):
    """Checks that workers train, and that the coordinator credits and leases."""
    since, before = mark(workers), credited(pair)
    until("all workers train on", trained_on(workers, since, 3))
    until("units are credited", lambda: credited(pair) > before)


def members_die(world, etcd, pair, workers):
    etcd.member[0].kill()
    goes_on(pair, workers)
    lead, other = roles(pair)
    before = number_of(lead)
    since = time.monotonic()
    lead.kill()
    world.tool("get", "workers", *world.admin(Both(*pair)))  # waits until one coordinator leads
    takes_over(other, before)
    print(f"kill -9 of the leader: the other leads after {time.monotonic() - since:.2f} s at most")
    goes_on(pair, workers)

    lead.start()
    lead, other = roles(pair)
    before = number_of(lead)
    lead.must_stop()
    print(f"SIGTERM to the leader: the other leads after {takes_over(other, before):.2f} s")
    lead.start()
    goes_on(pair, workers)


def heard(node):
    """The highest leader number on a node's disk; 0: none yet."""
    try:
        with open(os.path.join(node.dir, "leader"), "rb") as file:
            return struct.unpack("<IHHQI", file.read())[3]
    except FileNotFoundError:
        return 0


def led(pair, number):
    """Waits until one leads with at least this number and the other one stands by."""
    until("one leads, with a number that is no lower", lambda: number_of(roles(pair)[0]) >= number)


def leader_stands_still(pair, servers, workers):
    lead, other = roles(pair)
    before = number_of(lead)
    lead.process.send_signal(signal.SIGSTOP)
    print(f"SIGSTOP of the leader: the other leads after {takes_over(other, before):.2f} s")
    number = number_of(other)
    told = [servers[0], workers[0]]
    until("they have heard the new leader", lambda: all(heard(n) >= number for n in told))
    for node in told:
        node.kill()
        node.start()
    servers[0].listening()
    lead.process.send_signal(signal.SIGCONT)
    led(pair, number)
    goes_on(pair, workers)
    check(all(heard(n) >= number for n in told), "a restart forgot the leader")


def epoch_of(server):
    return min((shard["epoch"] for shard in server.shards()), default=0)


def epoch_outlives_its_coordinator(pair, servers, workers):
    """A coordinator registers an epoch and is killed before any worker has heard of it."""
    lead, other = roles(pair)
    server, before, number = servers[0], epoch_of(servers[0]), number_of(lead)
    for worker in workers:
        worker.process.send_signal(signal.SIGSTOP)
    server.kill()
    lead.kill()
    takes_over(other, number)
    server.start().listening()  # the new leader does not know that epoch, so opens another
    until("the server has a new epoch", lambda: epoch_of(server) > before)
    number = number_of(other)
    other.kill()
    lead.start()
    for worker in workers:
        worker.process.send_signal(signal.SIGCONT)
    took = takes_over(lead, number)
    since = time.monotonic()
    goes_on(pair, workers)
    until("all workers are in it", lambda: all(
        shard["epoch"] > before for worker in workers for shard in worker.shards()[:1]))
    print(f"the leader is killed after it registered an epoch: the other leads after {took:.2f} s, "
          f"and workers push {time.monotonic() - since:.2f} s later")
    other.start()
    roles(pair)


def leader_is_cut_off(pair, workers):
    """The leader is cut off from etcd alone: servers and workers still reach it."""
    lead, other = roles(pair)
    before = number_of(lead)
    for relay in lead.relays:
        relay.cut()
    print(f"the leader's way to etcd is cut: the other leads after "
          f"{takes_over(other, before):.2f} s")
    until("the one that is cut off does not lead", lambda: not leads(lead))
    goes_on(pair, workers)
    for relay in lead.relays:
        relay.mend()
    roles(pair)


def back_into_a_file(world, pair, workers):
    first, second = pair
    before = credited(pair)
    line = ("state", "to-file", "--config", first.write_settings())
    for node in pair:
        node.must_stop()
    until("its lease is over", lambda: world.try_tool(*line)[0] == 0)
    check("before" in world.tool(*line), "it moved twice")
    second.start()
    check(second.end() != 0 and second.says("moved to a file"), second.tail())
    del first.settings["coordinator.store"]
    first.start().listening()
    until("it knows what was credited", lambda: credited([first]) >= before)
    goes_on([first], workers)


def etcd_is_away(etcd, pair, workers):
    """Two of three members are down: etcd has no majority."""
    etcd.start(etcd.member[0])
    for member in etcd.member[1:]:
        member.kill()
    until("nobody leads", lambda: not any(leads(node) for node in pair))
    until("both tell it", lambda: all(node.status().get("store_away") for node in pair))
    check(all(node.says("store.away") for node in pair), "the log does not say it")
    until("all workers train on", trained_on(workers, mark(workers), 3))
    etcd.start(*etcd.member[1:])
    roles(pair)
    goes_on(pair, workers)


def run(world, etcd):
    suite(world, etcd.setting("suite"), "")
    secured(world, etcd)
    pair = coordinators(world, etcd)
    both = Both(*pair)
    first = pair[0].start("coordinator.store=").listening()
    servers = [world.server(i, both).start().listening() for i in (0, 1)]
    workers = [world.worker(region, both, **{"trainer.tokens_per_s": 4000}).start()
               for region in REGIONS]
    until("all workers train", trained_on(workers, {}, 4))
    until("a unit is credited", lambda: credited(pair) > 0)
    before = credited(pair)
    first.must_stop()
    first.start().listening()
    pair[1].start()
    check(first.says("store.moved") and os.path.exists(os.path.join(first.dir, "store.moved")),
          "the file store has not moved")
    until("it knows what was credited", lambda: leads(first) and credited(pair) >= before)
    roles(pair)
    goes_on(pair, workers)

    members_die(world, etcd, pair, workers)
    leader_stands_still(pair, servers, workers)
    epoch_outlives_its_coordinator(pair, servers, workers)
    leader_is_cut_off(pair, workers)
    etcd_is_away(etcd, pair, workers)
    back_into_a_file(world, pair, workers)
    until("the run is told to end", lambda: world.try_tool(
        "drain", "run", "--end", *world.admin(both))[0] == 0)
    for worker in workers:
        worker.must_end(120)
    check_replicas(servers, workers)
    check(all(w.last("lost") == 0 for w in workers), "a push was lost")
    until("the coordinator knows that it ended", lambda: first.status().get("phase") == "ended")
    logged = sum(s["credited"] for n in servers for s in n.status()["shards"])
    check(credited([first]) == logged, f"{credited([first])} credited, {logged} in the logs")
    for node in [first, *servers]:
        node.must_stop()


def main():
    given = flags_of(__doc__).parse_args()
    with World(given.build, units=6000, keep=given.keep) as world:
        etcd = Etcd(world.path("etcd"), given.build)
        try:
            etcd.start()
            run(world, etcd)
        finally:
            etcd.close()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
