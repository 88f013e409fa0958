#!/usr/bin/env python3
"""How busy are four workers on shaped links? `bench/run.sh grid --json FILE`.

The grid that github.com/Adnan082/diloco-measured published in August 2026 for DiLoCo on four GPUs,
with the same number of workers and parameters, step, H and bandwidths, and four systems measured
alternately in each cell: longhaul, plain DiLoCo over gloo, torchft and hivemind; and the loops
alone, which synchronise nothing and show the machine's own limit (bench/grid/README.md).

    busy = seconds in steps / elapsed seconds

A measured cell is a line of FILE.runs and is not measured again; FILE has the rows of all lines.
Needs root, iproute2 and a kernel with sch_tbf, unless --loopback.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "grid")]
import frontdoor  # noqa: E402
import net  # noqa: E402
import report  # noqa: E402

REGIONS = frontdoor.REGIONS
SYSTEMS = ("longhaul", "gloo", "torchft", "hivemind", "alone")
MBITS, HS, STEP_MS = (50, 200, 1000, 5000), (32, 128), 26.3
WARM = 1  # windows of a peer that are left out
LOSS_STEPS, LOSS_SIZE = 2560, 0.6648 / 30.80  # of the grid's parameters
LOSSES = tuple((system, h, p) for h in HS for system, p in (
    ("gloo", 1), ("longhaul", 0.015625), ("longhaul", 0.075)))
T95 = (0, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  # by degrees of freedom


def density(h, mbit):
    """Longhaul's density: the shipped one, if the link carries it with room to spare."""
    return 0.015625 if mbit * h < 6400 else 0.075


def windows(system, h, mbit):
    """The number of counted windows: about half a minute of longhaul's; fewer for a peer whose
    windows take half a minute each to send."""
    if system in ("longhaul", "alone"):
        return 36 if h == 32 else 10
    return {50: 2, 200: 4}.get(mbit, 6 if h == 32 else 4)


def warm(system, h):
    """Windows that are left out: the first ones, in which longhaul's loops begin one by one."""
    return (6 if h == 32 else 3) if system == "longhaul" else WARM


# ---------------------------------------------------------------- cells

class Cell(frontdoor.Bench):
    """One system at one place of the grid."""

    pushes = 0.1  # fewer exchanges than windows are reported, not refused
    flags_of_loops = ("--bare",)
    before_workers = ("chrt", "--idle", "0")  # a region's steps have priority over its codec

    def __init__(self, flags, system, h, mbit, links, folder):
        given = types.SimpleNamespace(**{
            **vars(flags), "h": h, "delay": 0,
            "windows": (flags.windows or windows(system, h, mbit)) + warm(system, h) - 1})
        size = frontdoor.Size(flags.size, flags.regions, (), 0, True)
        super().__init__(given, size, links, folder)
        self.system, self.h, self.mbit = system, h, mbit
        self.servers = tuple(self.regions)
        self.settings = {"codec.density": flags.density or density(h, mbit)}
        self.said, self.losses, self.trained = [], [], []

    def ended(self, workers):
        """Notes the workers' final figures on their exchanges."""
        for node in workers:
            took = node.last("push_seconds")
            self.said.append({**{name: node.last(name) for name in (
                "rounds", "stall_s", "damped", "returned", "payload_up_bytes",
                "payload_down_bytes")}, "push_seconds": took})

    def run(self):
        """The line of FILE.runs: seconds of each region's windows, and the conditions."""
        line = {"system": self.system, "h": self.h, "mbit": self.mbit, "step_ms":
                self.flags.step_ms, "commit": report.commit(), "load": [os.getloadavg()[0]]}
        try:
            loops = (frontdoor.longhaul if self.system == "longhaul" else
                     lambda bench: frontdoor.peers(bench, self.system))(self)
        except frontdoor.Failure as failure:
            return line | {"why": " ".join(str(failure).split())[-400:]}
        finally:
            self.end()
        first, last = warm(self.system, self.h), self.flags.windows + 1
        line["load"].append(os.getloadavg()[0])
        self.losses, self.trained = [loop.loss for loop in loops], [len(l.windows) for l in loops]
        line["parameters"] = loops[0].parameters
        line["seconds"] = [[w["seconds"] for w in loop.windows[first:last]] for loop in loops]
        moved = loops[0].moved[first - 1:last]
        if moved[0] is not None:
            line["sent"], line["received"] = (list(way) for way in frontdoor.differences(moved))
        if self.system != "longhaul" and loops[0].proof.get("synced", 1e9) <= self.flags.windows:
            line["missed"] = f"{loops[0].proof['synced']} of {self.flags.windows + 1}"
        if self.system == "longhaul":
            line["density"] = self.settings["codec.density"]
            line["workers"] = self.said
            line["windows"] = self.trained
            for what in ("cut_s", "renew_s"):
                line[what] = [[w[what] for w in loop.windows[first:last]] for loop in loops]
        return line


class Distant(frontdoor.Emulated):
    """Regions with a round-trip time between any two of them."""

    def __init__(self, build, folder, mbit, rtt_ms):
        path = os.path.join(folder, "distant.world")
        with open(path, "w", encoding="utf-8") as out:
            out.writelines(f"region {region}\n" for region in ("hub", *REGIONS))
            out.write(f"link all all rtt={rtt_ms:.0f}ms rate={mbit:.3f}mbit\n")
        frontdoor.Links.__init__(self, build, path, f"grid-{os.getpid()}")


class Learning(Cell):
    """The same with a small model that learns: gives its held-out loss. The link is narrower in
    proportion to the model, and its delay makes a push take the same share of a window as in the
    grid."""

    def __init__(self, flags, of, mbit, links, folder):
        _, system, h, p, seed = of
        given = types.SimpleNamespace(**{**vars(flags), "size": "bytes", "density": p, "windows":
                                         LOSS_STEPS // h})
        super().__init__(given, system, h, mbit, links, folder)
        self.flags.windows = LOSS_STEPS // h - 1  # none is left out
        self.size.modelled = False
        self.seed = seed
        self.flags_of_loops = ("--bare", "--text", text_of(folder), "--seed", str(seed))

    def run(self):
        line = super().run()
        if "why" not in line:
            line |= {"loss": statistics.fmean(self.losses), "windows": self.trained}
        return line | {"seed": self.seed, "density": self.settings["codec.density"]}


def loss_mbit(system, h, p):
    """The narrowest link of the grid that carries this density, scaled to the model's size. Plain
    DiLoCo waits for its link, and learns the same on any."""
    if system == "gloo":
        return 1000
    return LOSS_SIZE * next(mbit for mbit in MBITS if density(h, mbit) >= p)


def loss_rtt_ms(cells, flags, h, p):
    """The round-trip time with which a push takes the same share of a window as the largest one in
    the grid's cells with this H and density; 0: there is no such cell."""
    took = [share for of, line in cells.items() if of[0] == "longhaul" and of[1] == h
            and line.get("density") == p and "seconds" in line for share in push_windows(line)]
    return max(took, default=0) * h * flags.step_ms


def text_of(folder):
    """The tree's pages as one file."""
    path = os.path.join(folder, "text")
    if not os.path.exists(path):
        names = subprocess.run(["git", "ls-files", "*.md"], cwd=frontdoor.ROOT, check=True,
                               capture_output=True, text=True).stdout.split()
        with open(path, "wb") as out:
            for name in sorted(names):
                with open(os.path.join(frontdoor.ROOT, name), "rb") as file:
                    out.write(file.read())
    return path


def rate(links):
    """The measured rate of a link of the grid."""
    return {"link_mbit": links.measured()} if isinstance(links, net.Shaped) else {}


def key(line):
    """A cell's identity."""
    if "seed" in line:
        return "loss", line["system"], line["h"], line["density"], line["seed"]
    return line["system"], line["h"], line["mbit"]


def kept(path):
    """The cells of FILE.runs; the last line of a cell counts."""
    if not path or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return {key(line): line for line in map(json.loads, file)}


# ---------------------------------------------------------------- figures

def busy(line):
    """(per cent over all regions and windows, half of its 95 % interval over the windows)"""
    step_s = line["step_ms"] / 1e3 * line["h"]
    each = [100 * step_s * len(at) / sum(at) for at in zip(*line["seconds"])]
    count = len(each)
    total = sum(map(sum, line["seconds"]))
    whole = 100 * step_s * count * len(line["seconds"]) / total
    if count < 2:
        return whole, None, count
    t = T95[count - 1] if count - 1 < len(T95) else 2.0
    return whole, t * statistics.stdev(each) / count ** 0.5, count


def name_of(system, h, mbit):
    """The prefix of a cell's rows."""
    return f"grid.h{h}.{mbit}mbit.{system}"


def push_windows(line):
    """The number of windows that each worker's pushes took, on average."""
    window_s = statistics.median(s for region in line["seconds"] for s in region)
    took = [w["push_seconds"]["sum"] / sum(w["push_seconds"]["count"]) for w in line["workers"]]
    return [s / window_s for s in took]


def rows_of_longhaul(out, line, begin):
    """Rows besides busy: the density, exchanges in a window, windows from a cut to the server's
    answer, and the loop's time for them."""
    pushed = [w["rounds"] / n for w, n in zip(line["workers"], line["windows"])]
    out.row(f"{begin}.density", "1", [line["density"]])
    out.row(f"{begin}.pushes_per_window", "1", pushed)
    out.row(f"{begin}.push_windows", "1", push_windows(line))
    for what in ("cut", "renew"):
        out.row(f"{begin}.{what}_ms", "ms",
                [1e3 * s for region in line[f"{what}_s"] for s in region])


def tell(out, cells):
    """Every row of every cell; ours compared with the busiest peer of the cell."""
    for h, mbit in sorted({(h, mbit) for _, h, mbit in cells}):
        here = {s: cells[s, h, mbit] for s in SYSTEMS if (s, h, mbit) in cells}
        measured = {s: busy(line) for s, line in here.items() if "seconds" in line}
        best = max((v[0] for s, v in measured.items() if s not in ("longhaul", "alone")), default=0)
        for system, (value, half, count) in measured.items():
            begin, line = name_of(system, h, mbit), here[system]
            out.estimate(f"{begin}.busy", "%", value, half, count)
            if system == "longhaul" and best:
                out.rows[-1] |= {"against": "the busiest peer of the cell",
                                 "against_value": best, "ratio": value / best}
            if "sent" in line and system != "alone":
                out.row(f"{begin}.sent_bytes", "B", line["sent"])
            if system == "longhaul":
                rows_of_longhaul(out, line, begin)
        for system, line in here.items():
            if "missed" in line:
                out.condition(f"h{h}.{mbit}mbit.{system}", f"{line['missed']} windows ended with "
                              "all regions synchronised")
            if "why" in line:
                out.condition(f"h{h}.{mbit}mbit.{system}", f"not measured: {line['why']}")


def tell_losses(out, lines):
    """Held-out losses, ours compared with plain DiLoCo with the same H and seeds."""
    plain = {(line["h"], line["seed"]): line["loss"] for line in lines if line["system"] == "gloo"}
    for system, h, p in LOSSES:
        these = sorted((line for line in lines if (line["system"], line["h"], line["density"]) ==
                        (system, h, p)), key=lambda line: line["seed"])
        if not these:
            continue
        name = f"grid.loss.h{h}.{system}" + (f".p{p:g}" if system == "longhaul" else "")
        beside = [plain.get((h, line["seed"])) for line in these] if system == "longhaul" else []
        whole = bool(beside) and None not in beside
        out.row(name, "nats/byte", [line["loss"] for line in these],
                "plain DiLoCo, same H and seeds" if whole else None, beside if whole else 0)
        if system == "longhaul":
            took = [w["push_seconds"]["sum"] / sum(w["push_seconds"]["count"]) /
                    (h * line["step_ms"] / 1e3) for line in these for w in line["workers"]]
            out.row(f"{name}.push_windows", "1", took)
            out.row(f"{name}.rtt_ms", "ms", [line["rtt_ms"] for line in these])
            out.row(f"{name}.windows", "1", [n for line in these for n in line["windows"]])


# ---------------------------------------------------------------- the bench

def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="these, with commas")
    parser.add_argument("--h", default=",".join(map(str, HS)), help="steps of a window")
    parser.add_argument("--mbit", default=",".join(map(str, MBITS)), help="bandwidths")
    parser.add_argument("--size", default="30m", help="of bench/frontdoor")
    parser.add_argument("--step-ms", type=float, default=STEP_MS, help="the modelled step")
    parser.add_argument("--loss", action="store_true", help="the small model that learns, in "
                        "place of the grid")
    parser.add_argument("--seeds", default="1,2,3", help="of --loss")
    parser.add_argument("--density", type=float, help="of longhaul's pushes, in all cells")
    parser.add_argument("--windows", type=int, help="that are counted, in all cells")
    parser.add_argument("--python", help="in place of .venv-peers; nothing is installed then")
    parser.add_argument("--regions", type=int, choices=(2, 3, 4), default=4)
    parser.add_argument("--loopback", action="store_true", help="no shaped links")
    parser.add_argument("--again", action="store_true", help="measures cells that are there, too")
    parser.add_argument("--keep", help="a folder for the loops' logs")
    return parser.parse_args()


def main():
    flags = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = flags.keep or os.path.join(frontdoor.ROOT, "run", f"grid-{os.getpid()}")
    os.makedirs(folder, exist_ok=True)
    try:
        run(flags, folder)
    except frontdoor.Failure as failure:
        raise SystemExit(f"grid: {failure}") from None
    finally:
        if not flags.keep:
            shutil.rmtree(folder)


def asked(flags):
    """The requested cells, as keys of key()."""
    systems, hs = flags.systems.split(","), [int(h) for h in flags.h.split(",")]
    if flags.loss:
        return [("loss", system, h, p, int(seed)) for seed in flags.seeds.split(",")
                for system, h, p in LOSSES if h in hs and system in systems]
    return [(system, h, int(mbit)) for h in hs for mbit in flags.mbit.split(",")
            for system in systems]


def links_of(flags, mbit, rtt_ms, folder):
    """The links of one cell."""
    if flags.loopback:
        return frontdoor.Loopback()
    if rtt_ms:
        return Distant(flags.build, folder, mbit, rtt_ms)
    return net.Shaped(REGIONS, mbit, f"grid{os.getpid()}")


def measure(flags, of, folder, lacks, cells):
    """Measures one cell; `lacks`: the reason why a system can't be measured."""
    loss = of[0] == "loss"
    system, h = of[1:3] if loss else of[:2]
    mbit = loss_mbit(system, h, of[3]) if loss else of[2]
    if system in lacks:
        return {"system": system, "h": h, "mbit": mbit, "why": lacks[system]}
    rtt_ms = loss_rtt_ms(cells, flags, h, of[3]) if loss and system == "longhaul" else 0
    links = links_of(flags, mbit, rtt_ms, folder)
    try:
        cell = Learning(flags, of, mbit, links, folder) if loss else \
            Cell(flags, system, h, mbit, links, folder)
        return {**rate(links), "rtt_ms": rtt_ms, **cell.run()}
    finally:
        links.close()


def run(flags, folder):
    """Measures the missing cells, then writes the document of all."""
    path = flags.json and f"{flags.json}.runs"
    cells = kept(path)
    missing = [of for of in asked(flags) if flags.again or of not in cells]
    lacks = frontdoor.install(frontdoor.Bench(
        flags, frontdoor.SIZES["tiny"], frontdoor.Loopback(), folder), flags) if missing else {}
    for of in missing:
        line = measure(flags, of, folder, lacks, cells)
        cells[of] = line
        said = line.get("why") or (f"loss {line['loss']:.4f}" if "loss" in line else
                                   f"{busy(line)[0]:.2f} % busy")
        print(f"{'.'.join(map(str, of))}: {said}", flush=True)
        if path:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    out = report.Report("grid", flags.json)
    describe(out, flags, cells)
    tell(out, {of: line for of, line in cells.items() if of[0] != "loss"})
    tell_losses(out, [line for of, line in cells.items() if of[0] == "loss" and "loss" in line])
    out.finish()


def describe(out, flags, cells):
    """Conditions of all cells."""
    lines = [line for line in cells.values() if "seconds" in line]
    loads = [load for line in lines for load in line["load"]]
    out.condition("workers", f"{flags.regions} of one process each; modelled steps of "
                  f"{flags.step_ms:g} ms, in which every parameter changes once in a window")
    out.condition("parameters", ", ".join(sorted({str(line["parameters"]) for line in lines})))
    for mbit in MBITS:
        rates = [line["link_mbit"] for line in lines
                 if line["mbit"] == mbit and "link_mbit" in line]
        if rates:
            out.condition(f"link.{mbit}mbit", f"one TCP flow measured {min(rates):.0f} to "
                          f"{max(rates):.0f} Mbit/s")
    out.condition("load", f"{min(loads, default=0):.1f} to {max(loads, default=0):.1f} while "
                  "measured (others compiled beside it, at a lower priority)")
    out.condition("longhaul", "a server of one of the shards in each region; workers under "
                  "`chrt --idle`")
    seeds = sorted({line["seed"] for line in lines if "seed" in line})
    if seeds:
        out.condition("loss.seeds", " ".join(map(str, seeds)))
    out.condition("kernel", os.uname().release)
    out.condition("commits", ", ".join(sorted({line["commit"] for line in lines})))


if __name__ == "__main__":
    main()
