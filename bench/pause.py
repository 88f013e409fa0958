#!/usr/bin/env python3
"""How long does a checkpoint keep a server from folding? `bench/run.sh pause [--json FILE]`.

Real programs on loopback under mutual TLS: one shard of 257 million parameters (1 GB), pushed as 64
of 4096 signs by one worker of a synthetic trainer, with a checkpoint every few versions, whose
state is copied in slices beside the folding (server/state/checkpointer.c). Folding is on the
server's loop, so the measured value is the longest time that any one function kept that loop:
`loop_longest_ms` of its status.json, renewed every second. A fold of four million values is such a
function itself, so the seconds in which a checkpoint was made are compared with those in which none
was. Needs 12 GB of memory and 10 GB of disk.
"""
import argparse
import datetime
import os
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import live  # noqa: E402
import report  # noqa: E402



class Looking:
    """Reads statuses while the run goes on: see `during` of live.Run."""

    def __init__(self):
        self.seen = {}  # a status's time: its longest function, in milliseconds

    def __call__(self, run):
        while run.child.poll() is None:
            try:
                status = run.status("s0")
                self.seen[status["time_s"]] = status["loop_longest_ms"]
            except (OSError, ValueError, KeyError):  # not there yet
                pass
            time.sleep(0.2)

    def split(self, spans):
        """Each second's longest function: in seconds that a span touches, and in those in
        between."""
        touched, others = [], []
        for second, ms in sorted(self.seen.items()):
            if spans[0][0] < second < spans[-1][1]:
                beside = any(start - 1 <= second <= end + 1 for start, end in spans)
                (touched if beside else others).append(ms)
        return touched, others

    def both(self, spans):
        """The same; fails with a message if the run was too short for either."""
        touched, others = self.split(spans) if spans else ([], [])
        if touched and others:
            return touched, others
        raise SystemExit(f"{len(spans)} checkpoints between the first and the last, {len(touched)} "
                         f"seconds beside them, {len(others)} others: nothing to compare; give "
                         "more --checkpoints, or more versions from one to the next (--every)")


def when(line):
    return datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp()


def spans_of(log):
    """When checkpoints were begun and written, without the first one (caches are cold) and the last
    (the run has ended, and the server computes its digest)."""
    begun, out = None, []
    for line in log:
        if line["event"] == "checkpoint.begun":
            begun = when(line)
        elif line["event"] == "checkpoint.written" and begun is not None:
            out.append((begun, when(line)))
            begun = None
    return out[1:-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--json")
    parser.add_argument("--shape", choices=sorted(live.LONE), default="full")
    parser.add_argument("--checkpoints", type=int, default=8)
    parser.add_argument("--every", type=int, default=5, help="versions from one to the next")
    flags = parser.parse_args()
    tool = os.path.join(flags.build, "deploy", "longhaul")
    pause = live.LONE[flags.shape][1]
    folder, looking = tempfile.mkdtemp(prefix="longhaul-pause-"), Looking()
    out = report.Report("pause", flags.json)
    text = live.lone("pause", flags.shape, flags.every * (flags.checkpoints + 2),
                     {"checkpoint.every_versions": flags.every})
    try:
        live.prepare(tool, folder, ("here/en",))
        run = live.Run(tool, folder, "run", text, ["here-0"], "--no-wan", during=looking)
        spans, causes = spans_of(run.log("s0")), run.status("s0")["loop_longest"]
    finally:
        shutil.rmtree(folder)
    beside, others = looking.both(spans)
    out.condition("parameters", run.summary["model"]["parameters"])
    out.condition("seconds between two cuts", pause)
    out.condition("seconds with a checkpoint and without", f"{len(beside)}, {len(others)}")
    out.condition("longest of each since the start",
                  ", ".join(f"{cause[:-3]} {ms:.0f} ms" for cause, ms in causes.items()))
    out.row("pause.checkpoints", "checkpoints", [len(spans)])
    out.row("pause.none.each_second_ms", "ms", others)
    out.row("pause.checkpoint.each_second_ms", "ms", beside)
    out.row("pause.none.longest_ms", "ms", [max(others)])
    out.row("pause.checkpoint.longest_ms", "ms", [max(beside)], "the longest without a checkpoint",
            max(others))
    out.row("pause.added_ms", "ms", [max(0.0, max(beside) - max(others))])
    out.finish()


if __name__ == "__main__":
    main()
