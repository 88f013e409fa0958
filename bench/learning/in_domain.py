#!/usr/bin/env python3
"""A folder of text whose held-out part is of the training text's own kind.

    bench/learning/in_domain.py --text DIR --out DIR [--bytes N]

DIR is what deploy/text/corpora.sh makes: it trains on manual pages and holds the handbook out, text
of another kind. OUT has the same training text without the last N bytes of each language, in whole
lines, and these are what OUT holds out, lines of more than 80 bytes only, as the handbook's are.
Pages stand in an order that mixes sections and names, and no paragraph of more than 40 letters is
there twice, so the held-out lines are like the others, and are not among them. Then:

    longhaul data prepare --text OUT --out TOKENS --unit-tokens 2048 \\
        --limit-bytes-per-language 1400000
    bench_learning --data TOKENS ...
"""
import argparse
import os
import sys

LINE_BYTES_MIN = 81


def split(data, size):
    """Whole lines: what is trained on, and the last `size` bytes or a little more of them."""
    at = data.rfind(b"\n", 0, max(len(data) - size, 0)) + 1
    return data[:at], data[at:]


def long_lines(data):
    return b"".join(line for line in data.splitlines(keepends=True)
                    if len(line.rstrip(b"\n")) >= LINE_BYTES_MIN)


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def one(folder, out, region, language, size):
    held, kept = b"", b""
    for name in sorted(os.listdir(os.path.join(folder, region, language))):
        with open(os.path.join(folder, region, language, name), "rb") as file:
            train, last = split(file.read(), size)
        write(os.path.join(out, region, language, name), train)
        held, kept = held + long_lines(last), kept + train
    if not held or not kept:
        sys.exit(f"in_domain.py: {folder}/{region}/{language} has too little text to hold out "
                 f"{size} bytes of each file")
    write(os.path.join(out, "heldout", language + ".txt"), held)
    print(f"{language:<10}{region:<10}{len(kept):>12}{len(held):>12}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--text", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--bytes", type=int, default=98304)
    args = parser.parse_args()
    if args.bytes < 1:
        sys.exit("in_domain.py: --bytes has to be 1 or more")
    if not os.path.isdir(args.text):
        sys.exit(f"in_domain.py: {args.text} is no folder; ./deploy/text/corpora.sh --out "
                 f"{args.text} makes it")
    if os.path.exists(args.out):
        sys.exit(f"in_domain.py: {args.out} is there; remove it, or name another folder")
    print(f"{'language':<10}{'home':<10}{'bytes':>12}{'held out':>12}")
    for region in sorted(os.listdir(args.text)):
        top = os.path.join(args.text, region)
        if region == "heldout" or region.startswith(".") or not os.path.isdir(top):
            continue
        for language in sorted(os.listdir(top)):
            one(args.text, args.out, region, language, args.bytes)


if __name__ == "__main__":
    main()
