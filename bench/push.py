#!/usr/bin/env python3
"""How fast is a durable push? `bench/run.sh push [--json FILE]`.

Real programs on loopback under mutual TLS, a synthetic trainer (`trainer.kind`), one shard of 17
million parameters pushed as `dense-fp32`, 69 MB. A push is timed from its sealed frame in the
outbox to the later of its durable acknowledgement and its fold in the worker's replica, out of the
worker's log; a snapshot from the request to the loaded state. Beside them: one stream of TLS 1.3
over loopback, by OpenSSL alone in the same run. Needs 6 GB of memory and of disk.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import live  # noqa: E402
import report  # noqa: E402

SHAPES = {
    "full": "{dim: 512, layers: 5, heads: 8, kv_heads: 8, ffn: 1536, context: 64}",
    "tiny": "{dim: 32, layers: 2, heads: 2, kv_heads: 2, ffn: 64, context: 64}",
}
TOPOLOGY = """run: push
budget_tokens: {budget}
tokens_per_s: {speed}
model: {shape}
coordinator: {{region: here}}
servers:
  - {{name: s0, region: here, shards: [0]}}
regions: {{here: {{h: 1, workers: {workers}}}}}
server: {{checkpoint.every_versions: 100000, checkpoint.replay_ms: 0}}
worker:
  codec: {{name: {codec}}}
  trainer: {{kind: synthetic, learning_rate: 0.001, batch: 4}}
  data: {{window: 1, prefetch: 2}}
  seal.cipher: {cipher}
  replica.every_versions: 100000
  snapshot.every_rounds: 100000
  log: {{level: debug, format: json}}
"""


def run(tool, folder, name, pause, pushes, workers=1, shape="full", cipher="xchacha20",
        codec="dense-fp32"):
    text = TOPOLOGY.format(budget=workers * live.TOKENS * pushes, shape=SHAPES[shape],
                           speed=workers * live.TOKENS / pause, workers=workers, cipher=cipher,
                           codec=codec)
    return live.Run(tool, folder, name, text, [f"here-{i}" for i in range(workers)], "--no-wan")


def pushes(one, worker, until):
    """Seconds of each of a worker's pushes, from `push.made` to the last event of `until`."""
    ends = [one.times(event, [worker]) for event in until]
    made = one.times("push.made", [worker])
    out = []
    for start, after in zip(made, made[1:] + [float("inf")]):
        reached = [min((t for t in times if start < t < after), default=None) for times in ends]
        if None not in reached:
            out.append(max(reached) - start)
    return out


def tls_alone(build, folder):
    """GB/s of one stream of TLS 1.3 over loopback: push and pull."""
    path = os.path.join(folder, "transport.json")
    subprocess.run([os.path.join(build, "bench", "bench_transport_grpc"), "--json", path],
                   check=True, stdout=subprocess.DEVNULL)
    with open(path, encoding="utf-8") as file:
        rows = {row["name"]: row for row in json.load(file)["rows"]}
    return [rows[f"transport.{way}.64mib"]["against_value"] for way in ("push", "pull")]


def snapshot_seconds(one):
    asked, loaded = one.times("snapshot.asked"), one.times("replica.snapshot")
    return [min(t for t in loaded if t > start) - start for start in asked[-1:]]


def measure(out, tool, folder, build, shape, count):
    push_tls, pull_tls = tls_alone(build, folder)
    tls = "one stream of TLS 1.3, OpenSSL alone"
    pause = 1.5 if shape == "full" else 0.2
    for cipher in ("xchacha20", "aes256gcm"):
        one = run(tool, folder, cipher, pause, count + 2, shape=shape, cipher=cipher)
        size = one.summary["model"]["parameters"] * 4 / 1e9
        took = pushes(one, "here-0", ("push.decided", "record.folded"))[1:]
        out.row(f"push.durable.mtls.{cipher}", "GB/s", [size / s for s in took], tls, push_tls)
        if cipher == "xchacha20":
            single = sorted(took)[len(took) // 2]
            out.row("push.snapshot.mtls", "GB/s", [size / s for s in snapshot_seconds(one)], tls,
                    pull_tls)
            out.row("push.server.peak_bytes_per_parameter", "B",
                    [one.status("s0")["peak_bytes"] / one.summary["model"]["parameters"]])
    many = run(tool, folder, "many", pause / 4, count + 2, workers=8, shape=shape)
    first, last = many.times("push.made")[0], many.times("push.decided")[-1]
    out.row("push.durable.mtls.8workers", "GB/s",
            [size * len(many.times("push.decided")) / (last - first)], "one worker", size / single)
    small = run(tool, folder, "small", 0.05, 20 * count, shape="tiny", codec="dense-sign")
    acks = sorted(pushes(small, "here-0", ("push.decided",))[5:])
    out.row("push.ack.p50_ms", "ms", [1e3 * acks[len(acks) // 2]])
    out.row("push.ack.p99_ms", "ms", [1e3 * acks[len(acks) * 99 // 100]])
    out.condition("push_bytes", int(size * 1e9))
    out.condition("small_pushes", len(acks))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="full")
    parser.add_argument("--pushes", type=int, default=10)
    flags = parser.parse_args()
    tool = os.path.join(flags.build, "deploy", "longhaul")
    folder = tempfile.mkdtemp(prefix="longhaul-push-")
    out = report.Report("push", flags.json)
    out.condition("link", "loopback, mutual TLS")
    try:
        live.prepare(tool, folder, ("here/en",))
        measure(out, tool, folder, flags.build, flags.shape, flags.pushes)
    finally:
        shutil.rmtree(folder)
    out.finish()


if __name__ == "__main__":
    main()
