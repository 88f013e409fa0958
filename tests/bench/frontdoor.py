#!/usr/bin/env python3
"""bench/frontdoor.py, shortened: `tests/bench/frontdoor.py BUILD PYTHON`.

The loop alone and longhaul's arm with a tiny model on loopback, two regions; the same and plain
DiLoCo with modelled steps, as the large sizes are measured: the real programs, equal parameters at
the end (the bench checks that itself). Every row exists and the document keeps its contract; no
time is judged. Before that, the bench's figures from known windows, the choice of the large sizes,
and the message if memory does not suffice.
"""
import json
import os
import subprocess
import sys
import tempfile
import types

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import frontdoor  # noqa: E402
import report  # noqa: E402

ROWS = {"alone.window_s", *(f"longhaul.{what}" for what in (
    "lost_s", "share_percent", "sent_bytes", "received_bytes", "cut_ms", "renew_ms"))}


def check(holds, text):
    if not holds:
        raise SystemExit(f"FAILED: {text}")


def loop(seconds, moved, **spent):
    """A loop that printed these windows; longhaul's also have the times spent."""
    windows = [{"seconds": s, "late": 0, **spent} for s in seconds]
    return types.SimpleNamespace(windows=windows, moved=moved, parameters=7)


def figures():
    """Skips the first window; `lost` is the excess over the loop alone, compared with DiLoCo's."""
    out = report.Report("frontdoor", None)
    made = frontdoor.Figures(out, types.SimpleNamespace(windows=2), frontdoor.SIZES["15m"])
    made.take("alone", [loop((9, 4, 4, 90), [None] * 4)])
    made.take("gloo", [loop((9, 6, 6), [(0, 0), (50, 1), (100, 2)])] * 2)
    made.take("longhaul", [loop((9, 5, 5), [(0, 0), (5, 3), (10, 6)], cut_s=0.03, renew_s=0.02,
                                memcpy_s=0.01)] * 2)
    rows = {row["name"]: row for row in out.rows}
    check(rows["frontdoor.alone.window_s"]["value"] == 4, rows)
    check("ratio" not in rows["frontdoor.gloo.lost_s"], "the peer stands beside itself")
    lost = rows["frontdoor.longhaul.lost_s"]
    check((lost["value"], lost["n"], lost["ratio"]) == (1, 4, 0.5), lost)
    check(rows["frontdoor.longhaul.share_percent"]["value"] == 25, rows)
    check(rows["frontdoor.longhaul.sent_bytes"]["ratio"] == 0.1, rows)
    check(rows["frontdoor.longhaul.received_bytes"]["value"] == 3, rows)
    check((rows["frontdoor.longhaul.cut_ms"]["value"], rows["frontdoor.longhaul.cut_ms"]["ratio"],
           rows["frontdoor.longhaul.renew_ms"]["ratio"]) == (30, 3, 2), rows)
    check("frontdoor.gloo.cut_ms" not in rows, "plain DiLoCo has no cuts")


def sizes():
    """100 M in three regions and 300 M in one, if there is memory for them."""
    def asked(gib, **given):
        frontdoor.free_gib = lambda: gib
        return frontdoor.sizes_of(types.SimpleNamespace(
            **{"size": "100m,300m", "regions": None, "modelled": False, **given}))
    large = {size.name: size for size in asked(24)}
    check([(name, size.regions, size.modelled, "longhaul" in size.arms, size.prefix)
           for name, size in large.items()] ==
          [("100m", 3, True, True, "frontdoor.100m"), ("300m", 1, True, True, "frontdoor.300m")],
          large)
    for gib, given, words in ((18.5, {}, "--size 300m needs 19 GiB of free memory, and there are"
                               " 18.5"), (24, {"size": "1b"}, "there are 300m, 100m, 15m, tiny"),
                              (24, {"regions": 3}, "--size 300m needs 57 GiB of free memory")):
        try:
            asked(gib, **given)
        except frontdoor.Failure as failure:
            check(words in str(failure), failure)
        else:
            check(False, f"{words}: not refused")


def smoke(build, python, folder, prefix, wanted, *flags):
    """The real bench, small."""
    path = os.path.join(folder, "out.json")
    subprocess.run([sys.executable, os.path.join(ROOT, "bench", "frontdoor.py"), "--build", build,
                    "--json", path, "--python", python, "--size", "tiny", "--h", "4", "--step-ms",
                    "30", "--windows", "3", "--loopback", "--keep", os.path.join(folder, "logs"),
                    *flags], check=True)
    subprocess.run([sys.executable, os.path.join(ROOT, "tests", "contracts", "validate.py"),
                    "bench", path], check=True)
    with open(path, encoding="utf-8") as file:
        rows = {row["name"]: row for row in json.load(file)["rows"]}
    check(set(rows) == {f"{prefix}.{name}" for name in wanted}, f"rows {sorted(rows)}")
    check(rows[f"{prefix}.longhaul.sent_bytes"]["min"] > 0, "nothing was sent")
    check("ratio" in rows[f"{prefix}.longhaul.cut_ms"], "no memcpy stands beside the cuts")


def main():
    figures()
    sizes()
    with tempfile.TemporaryDirectory() as folder:
        smoke(*sys.argv[1:], folder, "frontdoor", ROWS, "--arms", "alone,longhaul")
        smoke(*sys.argv[1:], folder, "frontdoor.tiny",
              ROWS | {"gloo.lost_s", "gloo.share_percent"}, "--arms", "alone,gloo,longhaul",
              "--regions", "2", "--modelled")


main()
