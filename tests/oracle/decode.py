#!/usr/bin/env python3
"""Decodes a run from the logs and checkpoints of its servers and verifies everything in them.

    decode.py --job DIR --run NAME --domain DOMAIN [--expect FILE] [--digests FILE] [--tamper [N]]
        SERVER_DIR ...

It was written from two pages alone, common/docs/0001-formats.md and kernels/docs/0001-payload.md,
and shares no code with the programs. It reads every segment, computes every chain again, unseals
and folds every payload, keeps the ledger, and compares all digests, checkpoints and signatures. A
log whose beginning was removed is folded from the oldest checkpoint that it goes on from. The job's
folder has model.json, weights.bin and job.keys. Exit code 1: something differs or cannot be read.
"""
import argparse
import sys
from pathlib import Path

from decoder.plain import Differs, Unreadable
from decoder.tamper import tamper
from decoder.verify import Run


def main():
    """Reads the command line, verifies, and reports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dirs", nargs="+", type=Path, metavar="SERVER_DIR")
    parser.add_argument("--job", required=True, type=Path,
                        help="the folder with model.json, weights.bin and job.keys")
    parser.add_argument("--run", required=True, help="the run's name")
    parser.add_argument("--domain", default="longhaul.local", help="its trust domain")
    parser.add_argument("--expect", type=Path,
                        help="a line for every version: shard, version, chain, digest")
    parser.add_argument("--digests", type=Path,
                        help="JSON: the last version of each shard and its digest")
    parser.add_argument("--tamper", nargs="?", type=int, const=10, default=0, metavar="N",
                        help="flip bits in memory, N of each kind, all of which must be noticed")
    args = parser.parse_args()
    try:
        run = Run(args.dirs, args.job, args.run, args.domain, args.expect, args.digests)
        print("\n".join(run.verify()))
        if args.tamper:
            print(f"tamper: noticed all: {tamper(run, args.tamper)}")
    except (OSError, Unreadable) as found:
        print(f"cannot read: {found}")
        return 1
    except Differs as found:
        print(f"differs: {found}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
