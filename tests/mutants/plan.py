"""The mutated files, and the tests that can detect a change of each, in the order of their runs.

A unit test of a file's own name comes first, then quick tests that detect much, then slow ones.
Names of tests are ctest's. `sim:` rows are runs of the simulator, with fewer seeds than ctest's.
"""
import fnmatch
import functools
import glob
import os
import re

# The protocol's code. Left out: files that print, serve, set up, train or read data.
FILES = (
    "server/*.c", "server/*/*.c", "server/*/*/*.c", "worker/*.c", "worker/*/*.c",
    "worker/ranks/comm/*.c", "worker/ranks/stream/*.c", "worker/push/cut/*.c",
    "common/env/env.c", "common/format/frame.c", "common/security/identity.c",
    "common/format/ledger.c", "common/env/numbers.c", "common/format/plan.c",
    "common/format/record.c", "common/net/state_seal.c",
    "worker/python/longhaul/*.py", "kernels/cuda/*.cu", "kernels/cuda/*.cuh",
    "kernels/cuda/crossing.c",
)
LEFT_OUT = (
    "kernels/cuda/dialect.cuh", "kernels/cuda/plugin.cu", "*/main.c", "*/node.c", "*/settings.c",
    "worker/backend.c", "server/answer.c", "server/status.c",
    "worker/data/cache.c", "worker/train/evaluation.c", "worker/data/fetch.c",
    "worker/data/loader.c", "worker/data/mix.c", "worker/train/model.c", "worker/train/noise.c",
    "worker/train/passes.c", "worker/ranks/rank.c", "worker/ranks/reduce*.c",
    "worker/train/schedule.c", "worker/data/source_file.c", "worker/train/stats.c",
    "worker/train/trainer_*.c", "worker/train/transformer.c", "worker/train/update.c",
)
# Unit tests besides those of the file's own name, and the cores that run first for it.
UNITS = {
    "common/env/env.c": ("env_real_files", "numbers", "slot"),
    "common/format/frame.c": ("ledger", "decide", "outbox"),
    "common/format/ledger.c": ("decide", "checkpoint"),
    "common/format/record.c": ("wal", "wal_scan", "ledger"),
    "common/format/plan.c": ("ledger",),
    "server/wal/wal.c": ("wal_ahead", "wal_bounds", "wal_scan"),
    "server/wal/wal_scan.c": ("wal", "wal_bounds"),
    "server/recovery/replay.c": ("log_command",),
    "server/coordinator/commit.c": ("store",),
    "server/coordinator/balance/assign.c": ("coordinator_grant",),
    "server/coordinator/balance/level.c": ("coordinator_grant", "balance_view"),
    "server/coordinator/balance/lease.c": ("coordinator_grant", "coordinator_status"),
    "server/coordinator/balance/twice.c": ("coordinator_grant",),
    "server/coordinator/balance/crossed.c": ("balance_view", "coordinator_grant"),
    "server/coordinator/balance/stock.c": ("coordinator_grant",),
    "server/coordinator/core.c": ("coordinator_status", "coordinator_grant"),
    "server/coordinator/silence.c": ("coordinator_status",),
    "server/coordinator/watch/states.c": ("coordinator_status",),
    "server/coordinator/watch/expelled.c": ("coordinator_status",),
    "server/coordinator/store/file.c": ("store_crash", "store", "backends"),
    "server/coordinator/store/etcd.c": ("backends", "pair"),
    "server/coordinator/store/etcd_log.c": ("backends", "pair"),
    "server/coordinator/store/number.c": ("backends",),
    "server/coordinator/store/bytes.c": ("store_crash", "store"),
    "server/coordinator/store/lead.c": ("pair",),
    "worker/replica/durable_copy.c": (), "server/state/disk_full.c": ("keep",),
    "worker/units/grants.c": ("worker_units",),
    "worker/external/channel.c": ("external",), "worker/external/life.c": ("external",),
    "worker/external/external.c": ("life",),
    "worker/external/correction.c": ("channel", "external"),
    "worker/ranks/region.c": ("trainer_ranks",), "worker/ranks/region_leader.c": ("trainer_ranks",),
    "worker/ranks/region_phase.c": ("trainer_ranks",),
}
# Tests of the same name that test another room's file.
NOT_UNITS = {"worker/replica/durable_copy.c", "worker/push/view.c", "server/coordinator/drain.c",
             "server/coordinator/plan.c", "server/server.c", "worker/worker.c"}
# Files whose n-th allocation, file operation or wait fails in a test of tests/fault.
FAILED = dict.fromkeys(("common/env/env.c", "common/format/ledger.c", "common/format/plan.c",
                        "common/format/record.c", "server/wal/wal.c", "server/wal/wal_scan.c"),
                       "log") | {"worker/external/external.c": "external",
                                 "server/push/hello.c": "cores", "server/push/receive.c": "cores",
                                 "server/coordinator/grant.c": "cores",
                                 "server/recovery/restore.c": "cores",
                                 "server/coordinator/balance/stock.c": "cores",
                                 "server/coordinator/store/move.c": "store",
                                 "worker/replica/snapshot.c": "cores",
                                 "worker/ranks/comm/comm_tcp.c": "ranks"}
# Tests of files that few cores and no simulation run: the two ends of the boundary with a trainer
# beside the worker, the state machine of a region's ranks, and the forecast.
BOUNDARY = (("external.client",), ("external.describe",), ("external.deaths",), ("cores.beside",),
            ("cores.beside_ends",))
ELSEWHERE = {"worker/client/*": (*BOUNDARY, ("external.cuda",), ("external.cuda_errors",)),
             "worker/external/*": BOUNDARY,
             "worker/ranks/region*": (("region.seeds", "--seeds", "600"),),
             "server/coordinator/balance/forecast.c": (("cores.balance",), ("cores.ahead",))}
TARGETS = {"region.seeds": "region"}
# C that queues work on a device: the emulated one (tests/simt) reveals missing waits. Values are
# programs of tests/gpu, `_nccl` with the tests' NCCL on it.
QUEUES = {
    "worker/state/state_device.c": ("state", "pipeline"),
    "kernels/cuda/crossing.c": ("pipeline", "state"),
} | dict.fromkeys(("worker/ranks/comm/comm.c", "worker/ranks/comm/comm_nccl.c",
                   "worker/ranks/comm/comm_host.c", "worker/ranks/comm/ready.c",
                   "worker/ranks/peer.c"), ("ranks", "ranks_nccl")) | {
    "worker/train/device.c": ("trainer", "ranks", "ranks_nccl")}
# The suites of tests/parity, and those that run first for a file.
PARITY = ("dense", "guard", "each", "optimizer", "layers", "fold", "transfer", "large", "encode")
PARITY_FIRST = {"fold.cu": ("fold",), "transfer.cu": ("transfer",), "encode.cu": ("encode",),
                "layers.cu": ("layers",), "layers_grad.cu": ("layers",), "rows.cuh": ("layers",)}
CORES = {
    "server/recovery/owner_stream.c": ("copy", "standby"), "server/recovery/held.c": ("held",),
    "server/recovery/standby.c": ("copy",),
    "server/push/insync.c": ("copy", "owner"), "server/recovery/move.c": ("move", "moves"),
    "server/coordinator/owners/move.c": ("move",),
    "server/coordinator/owners/insync.c": ("owner", "copy", "move"),
    "server/coordinator/owners/owner.c": ("owner", "copy", "move"),
    "server/coordinator/drain.c": ("drain",),
    "server/coordinator/member.c": ("lease", "join", "density"),
    "server/coordinator/grant.c": ("ahead", "ride_out", "lease"),
    "worker/member.c": ("ahead", "lease"),
    "worker/units/units.c": ("ahead", "resume", "left_over"), "worker/units/travel.c": ("travel",),
    "worker/units/homes.c": ("away", "travel", "stored_units"),
    "worker/units/givers.c": ("travel",), "worker/push/beside.c": ("beside", "beside_ends"),
    "worker/push/cut/cut_encode.c": ("beside_ends",), "worker/replica/follow.c": ("outbox",),
    "worker/push/history.c": ("older", "histories"),
    "server/coordinator/watch/states.c": ("hook",), "server/coordinator/watch/hook.c": ("hook",),
    "server/coordinator/balance/away.c": ("away", "reach"),
    "server/coordinator/balance/lease.c": ("rows", "twice", "lease"),
    "server/coordinator/balance/twice.c": ("twice",),
    "server/coordinator/balance/override.c": ("override",),
    "server/coordinator/balance/crossed.c": ("crossed",),
    "server/coordinator/cadence.c": ("cadence", "pace"),
    "server/coordinator/watch/stall.c": ("stall", "drain", "bsp"),
    "server/coordinator/watch/retired.c": ("retire",),
    "server/coordinator/watch/expelled.c": ("expel",), "server/recovery/refold.c": ("refold",),
    "server/coordinator/plan.c": ("lease", "drain"), "server/state/digest.c": ("digest",),
    "server/coordinator/owners/epochs.c": ("epochs",),
    "server/coordinator/servers.c": ("epochs", "owner"),
    "server/push/hello.c": ("greet", "hostile"), "server/push/unseal.c": ("late",),
    "server/push/receive.c": ("greet", "hostile", "late"),
    "server/state/checkpointer.c": ("keep", "shards"), "server/wal/quarantine.c": ("shards",),
    "server/state/disk_full.c": ("keep", "room"),
    "server/push/push_memory.c": ("hostile",), "server/push/follow.c": ("late", "join", "hostile"),
    "server/push/snapshot.c": ("join", "sealed"), "server/coordinator/silence.c": ("trips",),
    "server/coordinator/status.c": ("status", "commit"), "worker/push/round.c": ("drain", "views"),
    "server/recovery/recover.c": ("recover", "epochs"),
    "server/recovery/rebuild.c": ("patience", "recover", "older", "late", "move"),
    "server/recovery/epoch.c": ("ticket", "epochs"), "server/recovery/choose.c": ("voices",),
    "server/push/grants.c": ("rights",),
    "server/recovery/identity.c": ("copy",), "server/recovery/settle.c": ("recover",),
    "server/push/older_copy.c": ("older", "copy", "owner"),
    "server/push/group_commit.c": ("move", "digest"),
    "server/recovery/restore.c": ("patience", "recover", "late"),
    "worker/replica/snapshot.c": ("sealed",),
    "worker/push/outbox.c": ("outbox",), "worker/push/outcome.c": ("outbox",),
    "worker/push/session.c": ("greet",), "worker/start.c": ("outbox", "join", "snapshot"),
    "worker/replica/offer.c": ("recover",), "worker/replica/durable_copy.c": ("copy",),
    "common/net/state_seal.c": ("sealed",),
}
CORES_OF = {"server/coordinator/balance/*": ("balance", "budget", "crossed", "reach", "wanted")}
# The simulator: (name, flags). `first` is run before the cores, `then` after them.
BASE = ("sim:base", "--seeds 60")
MIXES = {
    "standby": "--seeds 100 --faults standby,kill,power,crash,worker_kill,worker_power,coordinator,"
               "partition,network,disk_full,io,refuse",
    "move": "--seeds 60 --faults move,kill,power,crash,worker_kill,worker_power,coordinator,"
            "partition,network,disk_full,io,refuse",
    "move_standby": "--seeds 60 --faults move,standby,kill,power,crash,worker_kill,coordinator,"
                    "partition,network,disk_full,io,refuse",
    "rebuild": "--seeds 60 --faults disk_loss,damage,tail,kill,power,crash,network,coordinator",
    "resume": "--seeds 100 --faults worker_kill,crash",
    "leases": "--seeds 60 --faults power,kill,worker_kill,worker_power,coordinator",
    "ahead": "--seeds 60 --faults ahead,worker_kill,crash,coordinator,network",
    "io": "--seeds 60 --faults io,power,kill",
    "io_worker": "--seeds 60 --faults io,worker_power,worker_kill",
    "exact": "--exact --seeds 60",
    "steps": "--exact --faults refuse,network --from 2 --crash-steps 60",
    "drain": "--seeds 60 --faults all,drain",
    "tight": "--tight-disks --seeds 40 --faults all,slow --from 181",
    "tail_bsp": "--bsp --seeds 60 --faults tail,kill,network,worker_kill,worker_power,worker_lost,"
                "refuse",
    "slow": "--seeds 60 --faults all,slow",
    "slow_standby": "--seeds 60 --faults standby,slow,kill,power,crash,worker_kill,worker_power,"
                    "coordinator,partition,network,disk_full,io,refuse",
    "base_more": "--from 61 --seeds 240",
}
DEEP = {"base_deep": "--from 301 --seeds 1200", "bsp": "--bsp --seeds 150",
        "standby_deep": "--from 101 --seeds 300 " + MIXES["standby"].split(" ", 2)[2],
        "rebuild_deep": "--from 61 --seeds 200 " + MIXES["rebuild"].split(" ", 2)[2],
        "exact_deep": "--exact --from 61 --seeds 200"}
COPIES = ("standby", "slow_standby", "move_standby", "base_more", "rebuild")
MATCHING = (
    ("server/coordinator/drain.c", ("drain", "leases", "base_more")),
    ("server/coordinator/status.c", ("leases", "drain", "base_more")),
    ("server/coordinator/grant.c", ("ahead", "leases", "drain", "base_more")),
    ("worker/member.c", ("ahead", "resume", "drain", "base_more")),
    ("worker/units/units.c", ("ahead", "resume", "drain", "base_more")),
    ("server/coordinator/store/store.c", ("leases", "io", "standby", "move", "base_more")),
    ("server/coordinator/owners/move.c", ("move", "move_standby")),
    ("server/coordinator/owners/insync.c", ("standby", "move_standby", "slow_standby", "rebuild")),
    ("server/coordinator/owners/owner.c", ("standby", "move_standby", "slow_standby", "rebuild")),
    ("server/coordinator/*", ("leases", "standby", "move", "rebuild", "drain", "base_more")),
    ("server/recovery/move.c", ("move", "move_standby")),
    ("server/push/insync.c", COPIES),
    ("server/push/older_copy.c", COPIES),
    ("server/push/snapshot.c", COPIES),
    ("server/recovery/owner_stream.c", COPIES),
    ("server/recovery/standby.c", COPIES),
    ("server/*", ("rebuild", "standby", "tight", "io", "move", "slow", "exact", "base_more")),
    ("worker/*", ("resume", "exact", "steps", "io_worker", "tail_bsp", "rebuild", "drain",
                  "base_more")),
    ("common/*", ("exact", "standby", "move", "tail_bsp", "rebuild", "io", "io_worker",
                  "base_more")),
)


def files(root):
    """The protocol's files, from the root."""
    found = {os.path.relpath(path, root) for pattern in FILES
             for path in glob.glob(os.path.join(root, pattern))}
    return sorted(f for f in found if not any(fnmatch.fnmatch(f, p) for p in LEFT_OUT))


@functools.cache
def unit_tests(root):
    """The unit tests: name -> path from the root. `// ctest: NAME` gives one another name."""
    found = {}
    for path in glob.glob(os.path.join(root, "tests/unit/**/*.c"), recursive=True):
        with open(path, encoding="utf-8") as file:
            called = re.search(r"^// ctest: (\w+)$", file.read(), re.M)
        name = called.group(1) if called else os.path.basename(path)[:-2]
        found[name] = os.path.relpath(path, root)
    return found


@functools.cache
def core_names(root):
    """The tests in tests/cores, in their order: all files except shared ones."""
    with open(os.path.join(root, "tests/cores/CMakeLists.txt"), encoding="utf-8") as file:
        said = file.read()
    shared = (re.search(r"set\(shared ([^)]*)\)", said).group(1).split()
              + re.search(r"REMOVE_ITEM programs \S+ ?([^)]*)\)", said).group(1).split())
    found = glob.glob(os.path.join(root, "tests/cores/*.c"))
    return sorted(os.path.basename(p)[:-2] for p in found if os.path.basename(p) not in shared)


class Test:
    """A test: its name, the target that it needs, its command from the tree's root."""

    def __init__(self, name, target, command):
        self.name, self.target, self.command = name, target, command

    def __repr__(self):
        return self.name


# Tests of the Python package (tests/python) that need no run, the quick ones first, and those that
# run first for a file. Tests with a worker of their own need its program.
PYTHON = ("given", "base", "initial", "wrapped", "finite", "handed", "watched", "described",
          "boundaries", "prepared", "kept", "evaluated", "crossed", "units", "around", "ranked",
          "tuned")
PYTHON_FIRST = {
    "buffers": ("handed",), "client": ("units", "given"), "data": ("units",), "final": ("units",),
    "finite": ("finite",), "first": ("units",), "functional": ("initial",), "group": ("ranked",),
    "heldout": ("evaluated",), "hosts": ("hosts", "ranked"), "initial": ("initial", "base"),
    "kept": ("kept",), "parameters": ("described", "wrapped", "units"), "prepare": ("prepared",),
    "rates": ("boundaries", "client"), "watch": ("watched",),
    "diloco": ("boundaries", "units", "watched"), "hf": ("around",), "accelerate": ("around",),
    "hooks": ("wrapped",), "library": ("client",), "errors": ("client", "given"),
    "lanes": ("crossed",), "checks": ("given", "described"),
}
PYTHON_WORKER = ("client", "ends", "hosts")
PYTHON_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.venv/bin/python")


def python_tests(file):
    """The tests that can detect a change of a file of the Python package."""
    stem = os.path.basename(file)[:-3]
    names = dict.fromkeys((*PYTHON_FIRST.get(stem, ()), *PYTHON, *PYTHON_WORKER))
    made = []
    for name in names:
        given = ["build/release/worker/client/liblonghaul.so", "worker/python"]
        target = "longhaul_client"
        if name == "client":  # without PyTorch; it calls the programs of a build
            given, target = ["build/release", "worker/python"], f"{target} external_worker longhaul"
        elif name in PYTHON_WORKER:
            given.append("build/release/tests/external/external_worker")
            target = "external_worker"
        made.append(Test(f"python.{name}", target, [
            os.path.abspath(PYTHON_PROGRAM), f"tests/python/{name}.py", *given]))
    return made


def parity_tests(file):
    """The tests that can detect a change of a CUDA kernel, by comparing emulator and CPU."""
    names = dict.fromkeys((*PARITY_FIRST.get(os.path.basename(file), ()), *PARITY))
    # more than one range of the hashes; otherwise `large` would be as large as on a GPU
    return [Test(f"parity.{name}", "parity", ["/usr/bin/env", "LH_PARITY_VALUES=1052672",
                                              "build/release/tests/parity/parity", name])
            for name in names]


def device_tests(file):
    """The tests that detect a change of the order of queued work, with a device that is late."""
    made = []
    for name in QUEUES[file]:
        program, _, nccl = name.partition("_")
        plugin = "build/release/tests/" + ("nccl/libnccl_emulated.so" if nccl else
                                           "gpu/libgpu_emulated.so")
        said = [f"LH_TEST_EMULATED_PLUGIN={plugin}", f"LH_FAKE_PLUGIN_REAL={plugin}",
                "LH_TEST_FAKE_PLUGIN=build/release/tests/gpu/libgpu_fake.so"]
        said += [f"LH_TEST_NCCL={plugin}"] if nccl else []
        target = f"gpu_{program} gpu_fake {'nccl' if nccl else 'gpu'}_emulated"
        for late in ("", "_late") if program == "ranks" else ("",):
            late_said = ["LH_SIMT_LATE=1", "LH_TEST_QUICK=1"] if late else []
            made.append(Test(f"gpu.{name}{late}", target, [
                "/usr/bin/env", *said, *late_said, f"build/release/tests/gpu/gpu_{program}"]))
    return made


def tests(root, file, deep=False):
    """The tests that can detect a change of `file`, as [Test], in the order of their runs."""
    if file.endswith(".py"):
        return python_tests(file)
    if fnmatch.fnmatch(file, "*.cu*"):
        return parity_tests(file)
    folder, stem = os.path.split(file)
    have = {name: os.path.basename(path)[:-2] for name, path in unit_tests(root).items()}
    own = sorted(n for n, s in have.items()  # wal.c, wal_bounds.c
                 if f"{s}_".startswith(f"{stem[:-2]}_"))
    own = [] if file in NOT_UNITS else own
    units = [u for u in (*own, *UNITS.get(file, ())) if u in have]
    names = core_names(root)
    of_folder = next((row for p, row in CORES_OF.items() if fnmatch.fnmatch(file, p)), ())
    liked = dict.fromkeys((*CORES.get(file, ()), stem[:-2], *of_folder))  # its own name, too
    liked = [n for n in liked if n in names]
    first = [Test(f"unit.{u}", f"unit_{u}", [f"tests/unit_{u}"]) for u in dict.fromkeys(units)]
    if file in FAILED:
        fault = f"fault_{FAILED[file]}"
        first.append(Test(f"fault.{FAILED[file]}", fault, [f"tests/fault/{fault}"]))

    def core(name):
        return Test(f"cores.{name}", f"cores_{name}", [f"tests/cores/cores_{name}"])

    def sim(name, flags):
        return Test(name, "sim", ["tests/sim/sim", *flags.split()])

    def other(name, *flags):
        target = TARGETS.get(name, name.replace(".", "_"))
        return Test(name, target, [f"tests/{name.partition('.')[0]}/{target}", *flags])

    if file in QUEUES:
        first += device_tests(file)
    if file.startswith("kernels/"):
        return first + parity_tests("transfer.cu")[:1]
    for pattern, rows in ELSEWHERE.items():
        if fnmatch.fnmatch(file, pattern):
            return first + [other(*row) for row in rows]
    mixes = next(mixes for pattern, mixes in MATCHING if fnmatch.fnmatch(file, pattern))
    runs = [sim(f"sim:{m}", MIXES[m]) for m in mixes]
    if deep:
        runs += [sim(f"sim:{m}", flags) for m, flags in (MIXES | DEEP).items() if m not in mixes]
    return (first + [core(n) for n in liked] + [sim(*BASE)]
            + [core(n) for n in names if n not in liked] + runs)


def stages(made):
    """The quick tests, up to the simulator's first run, and the others: few mutants need those."""
    at = next((k + 1 for k, t in enumerate(made) if t.name == BASE[0]), min(len(made), 6))
    return [part for part in (made[:at], made[at:]) if part]
