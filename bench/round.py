#!/usr/bin/env python3
"""How long does one full exchange take? `bench/run.sh round [--json FILE] [--size 10m|100m]`.

Three regions in emulated namespaces, real programs, a synthetic trainer (`trainer.kind`), pushes of
64 of 4096 values as signs. One exchange: every region cuts at the same time, its push is durably
answered, and every region has folded the records of all three. That is a round of BSP, so the times
are measured there, from the first cut to the last fold, from the logs of the workers, and so are
those of its stages, beside the link's own share (stages.py); training's waiting time is measured in
an asynchronous run. Another run, at 10 million parameters, has kills (bench/kills.py): a worker,
then a server, is killed with -9 while a push of it or to it is under way, and `longhaul up`
restarts it. Needs root and /dev/net/tun, and 10 GB of memory for 100 million parameters.
"""
import argparse
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import kills  # noqa: E402
import live  # noqa: E402
import report  # noqa: E402
import stages  # noqa: E402

WARM_UP, ROUNDS = 2, 10
REGIONS = ("asia", "europe", "america")
SHAPES = {  # parameters, shape, seconds between two cuts
    "tiny": ("{dim: 32, layers: 2, heads: 2, kv_heads: 2, ffn: 64, context: 64}", 0.3),  # for tests
    "10m": ("{dim: 384, layers: 6, heads: 6, kv_heads: 6, ffn: 1024, context: 64}", 1.5),
    "100m": ("{dim: 768, layers: 14, heads: 12, kv_heads: 12, ffn: 2048, context: 64}", 6.0),
}
LINKS = {"90ms-1gbit": (90, 1000), "150ms-100mbit": (150, 100)}
PLAN = {"tiny": "90ms-1gbit", "10m": "90ms-1gbit", "100m": "150ms-100mbit"}
TOPOLOGY = """run: round
budget_tokens: {budget}
tokens_per_s: {speed}
model: {shape}
coordinator: {{region: europe}}
servers:
  - {{name: s0, region: asia, shards: [0]}}
  - {{name: s1, region: europe, shards: [1]}}
  - {{name: s2, region: america, shards: [2]}}
regions: {{asia: {{}}, europe: {{}}, america: {{}}}}
link: {{rtt_ms: {rtt}, mbit: {mbit}}}
server:
  coordinator.h_base: 1
  update.mode: {mode}
  checkpoint.every_versions: off
  log: {{level: debug, format: json}}
worker:
  codec: {{name: topk-sign, density: 0.015625}}
  trainer: {{kind: synthetic, learning_rate: 0.001, batch: 4}}
  data: {{window: 1}}
  log: {{level: debug, format: json}}
"""


def exchanges(run, pause):
    """Seconds from the first cut of each round to the last fold before the next round."""
    folds, starts, previous = run.times("record.folded"), [], None
    for cut in run.times("push.cut"):
        if previous is None or cut - previous > pause / 2:
            starts.append(cut)
        previous = cut
    ends = [max((fold for fold in folds if start < fold < after), default=None)
            for start, after in zip(starts, starts[1:])]
    return [end - start for start, end in zip(starts, ends) if end]


def run_one(tool, folder, size, link, mode, rounds, drill=None):
    shape, pause = SHAPES[size]
    rtt, mbit = LINKS[link]
    text = TOPOLOGY.format(budget=len(REGIONS) * live.TOKENS * rounds, rtt=rtt, mbit=mbit,
                           speed=len(REGIONS) * live.TOKENS / pause, shape=shape, mode=mode)
    return live.Run(tool, folder, f"{size}-{mode}{'-drill' if drill else ''}", text,
                    [f"{r}-0" for r in REGIONS], during=drill)


def measure(out, tool, folder, size, link, rounds):
    rtt, mbit = LINKS[link]
    bsp = run_one(tool, folder, size, link, "bsp", rounds + WARM_UP + 1)
    seconds = exchanges(bsp, SHAPES[size][1])[WARM_UP:WARM_UP + rounds]
    if len(seconds) < rounds:
        raise SystemExit(f"only {len(seconds)} whole rounds of {rounds} are in the logs")
    free = run_one(tool, folder, size, link, "async", rounds + WARM_UP)
    name = f"round.{size}.{link}"
    regions = [free.summary["regions"][region] for region in REGIONS]
    moved = [r["payload_up_bytes"] + r["payload_down_bytes"] for r in regions]
    done = [max(1, r["rounds"]) for r in regions]
    up = max(r["payload_up_bytes"] / n for r, n in zip(regions, done))
    down = max(r["payload_down_bytes"] / n for r, n in zip(regions, done))
    ceiling = (up + down) * 8 / (mbit * 1e6) + rtt / 1e3
    out.row(f"{name}.seconds", "s", seconds, "the same bytes one after the other, and one trip",
            ceiling)
    places = [(f"s{i}", region) for i, region in enumerate(REGIONS)]
    for stage, (took, link) in stages.measure(bsp, places, rtt, mbit).items():
        out.row(f"{name}.stage.{stage}_s", "s", took, "what the link takes of it", link)
    out.row(f"{name}.bytes_per_region", "B", [m / n for m, n in zip(moved, done)])
    ends = [free.status(f"{region}-0") for region in REGIONS]
    out.row(f"{name}.cpu_s", "s", [end["cpu_s"] / n for end, n in zip(ends, done)])
    out.row(f"{name}.stall_s", "s", [r["stall_s"] / n for r, n in zip(regions, done)])
    out.row(f"{name}.between_s", "s", [end["between_s"] / n for end, n in zip(ends, done)])
    out.row(f"{name}.peak_bytes", "B", [end["peak_bytes"] for end in ends])
    out.condition(f"{size}.parameters", free.summary["model"]["parameters"])
    out.condition(f"{size}.seconds_between_cuts", SHAPES[size][1])


def measure_kills(out, tool, folder, size, link, count):
    """`count` kills of a worker and as many of a server, in one asynchronous run."""
    drill = kills.Drill(tool, [f"{region}-0" for region in REGIONS], SHAPES[size][1])
    for _ in range(count):
        drill.plan_worker("america-0")
        drill.plan_server("s1", 1, ["asia-0", "america-0"])
    rounds = WARM_UP + 2 * count * kills.ROUNDS_EACH
    run = run_one(tool, folder, size, link, "async", rounds, drill)
    for what in ("kill-worker", "kill-server"):
        drill.rows(out, run, f"round.{size}", what)
    out.condition(f"{size}.kills", f"{count} of a worker, {count} of a server, async, {link}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json")
    parser.add_argument("--join", action="store_true",
                        help="add to FILE's rows of the same commit: a size at a time")
    parser.add_argument("--size", choices=sorted(SHAPES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--kills", type=int, default=3, help="of each kind; 0: none")
    flags = parser.parse_args()
    tool = os.path.join(flags.build, "deploy", "longhaul")
    folder = tempfile.mkdtemp(prefix="longhaul-round-")
    out = report.Report("round", flags.json, flags.join)
    out.condition("density", "64 of 4096, sign")
    try:
        live.prepare(tool, folder, ("asia/ja", "europe/de", "america/en"))
        for size in [flags.size] if flags.size else ["10m", "100m"]:
            measure(out, tool, folder, size, PLAN[size], flags.rounds)
        if flags.kills and flags.size != "100m":
            size = flags.size or "10m"
            measure_kills(out, tool, folder, size, PLAN[size], flags.kills)
    finally:
        shutil.rmtree(folder)
    out.finish()


if __name__ == "__main__":
    main()
