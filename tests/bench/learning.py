#!/usr/bin/env python3
"""bench_learning on made-up text: learning.py LONGHAUL BENCH_LEARNING."""
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VALIDATE = os.path.join(ROOT, "tests", "contracts", "validate.py")
LONGHAUL, BENCH = sys.argv[1:3]
TOKENS = 4 * 7168  # four rounds
HOMES = {"asia": "ja", "europe": "de", "america": "en"}


def text(language: str, size: int) -> str:
    draw = random.Random(language)
    words = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 6))) for _ in range(40)]
    out = []
    while sum(map(len, out)) < size:
        out.append(" ".join(draw.choices(words, k=12)) + ".\n")
    return "".join(out)


def prepare(folder: str) -> str:
    source, data = os.path.join(folder, "text"), os.path.join(folder, "tokens")
    for region, language in HOMES.items():
        for path, size in ((f"{region}/{language}/a.txt", 120000),
                           (f"heldout/{language}.txt", 4000)):
            path = os.path.join(source, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text(language, size))
    subprocess.run([LONGHAUL, "data", "prepare", "--text", source, "--out", data,
                    "--unit-tokens", "2048"], check=True, stdout=subprocess.DEVNULL)
    return data


class Learning(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.dir = held.name
        self.data = prepare(self.dir)

    def bench(self, results: str, *flags: str) -> list[dict]:
        path = os.path.join(self.dir, results)
        subprocess.run([BENCH, "--data", self.data, "--results", path, "--tokens", str(TOKENS),
                        "--eval-bytes", "1024", "--seeds", "1", *flags], check=True,
                       stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def test_arms_learn_and_the_document_keeps_its_contract(self):
        out = os.path.join(self.dir, "out.json")
        arms = ["ours", "sync-sgd-1", "alone-america"]
        lines = self.small("a.jsonl", "--arms", ",".join(arms), "--json", out, "--pictures",
                           self.dir)
        self.assertEqual([line["arm"] for line in lines], arms)
        for line in lines:
            first, last = line["curve"][0][3], line["curve"][-1][3]
            self.assertLess(last, first - 0.2, line["arm"])
            share = 1 / 7 if line["arm"] == "alone-america" else 1
            self.assertEqual(line["trained"], TOKENS * share)
            self.assertEqual(set(line["language"]), set(HOMES.values()))
        self.assertGreater(lines[1]["up_bytes"], 5 * lines[0]["up_bytes"])  # fp32, a sixth of them
        subprocess.run([sys.executable, VALIDATE, "bench", out], check=True)
        with open(out, encoding="utf-8") as f:
            document = json.load(f)
        rows = {row["name"]: row for row in document["rows"]}
        missing = document["conditions"]["not run"].split()
        self.assertIn("single", missing)  # missing arms are listed
        self.assertFalse(set(missing) & set(arms))
        gap = rows["learning.gap_to_sync_dense_percent"]
        ours, sync = (sum(line["language"].values()) / 3 for line in lines[:2])
        self.assertAlmostEqual(gap["value"], 100 * (ours - sync) / sync, 6)
        self.assertNotIn("min", gap)  # one seed has no interval
        self.assertIn("learning.ours.ja", rows)
        for picture in ("tokens", "bytes", "wallclock"):
            with open(os.path.join(self.dir, f"learning-{picture}.svg"), encoding="utf-8") as f:
                self.assertEqual(f.read().count("<polyline"), 2)

        again = self.small("a.jsonl", "--arms", ",".join(arms))
        self.assertEqual(len(again), len(lines))  # finished arms are not run again
        other = self.small("b.jsonl", "--arms", "ours")
        self.assertEqual(other[0]["digest"], lines[0]["digest"])

    def test_an_arm_with_other_settings_is_another_arm(self):
        out = os.path.join(self.dir, "out.json")
        arms = ["ours", "ours:p=0.02:k=0:eta=1:floor=0.5"]
        plain, other = self.small("c.jsonl", "--arms", ",".join(arms), "--json", out)
        self.assertEqual([other["arm"], other["kappa"], other["eta"]], [arms[1], 0, 1])
        self.assertLess(other["up_bytes"], plain["up_bytes"] / 2)
        self.assertEqual(set(other["averaged"]), set(other["language"]))
        with open(out, encoding="utf-8") as f:
            names = {row["name"] for row in json.load(f)["rows"]}
        self.assertIn(f"learning.{arms[1]}.mean", names)

    def test_stagger_is_a_setting_of_both_modes(self):
        arms = ["ours", "ours:stagger=on", "ours:stagger=off",
                "bsp-topk", "bsp-topk:stagger=off", "bsp-topk:stagger=on"]
        lines = self.small("e.jsonl", "--arms", ",".join(arms))
        self.assertEqual([(line["mode"], line["stagger"]) for line in lines],
                         [("async", True), ("async", True), ("async", False),
                          ("bsp", False), ("bsp", False), ("bsp", True)])
        digest = [line["digest"] for line in lines]
        self.assertEqual(digest[0], digest[1])  # auto
        self.assertEqual(digest[3], digest[4])
        self.assertEqual(len(set(digest)), 4)
        for line in lines:
            self.assertEqual((line["trained"], line["refused"]), (TOKENS, 0), line["arm"])

    def small(self, results: str, *flags: str) -> list[dict]:
        """The same tokens in 16 rounds of a small model."""
        return self.bench(results, "--dim", "16", "--step-tokens", "128", "--jobs", "1", *flags)

    def test_a_mass_that_waits_keeps_a_part_of_itself(self):
        lines = self.small("f.jsonl", "--arms", "ours:s=0.5,ours-p64:s=0.25,ours-p64:s=0.25:beta=1")
        self.assertAlmostEqual(lines[0]["beta"], 0.5 ** (1 / 6), 6)
        self.assertAlmostEqual(lines[1]["beta"], 0.25 ** (1 / 64), 6)
        self.assertEqual(lines[1]["digest"], lines[2]["digest"])  # beta changes nothing

    def test_size_and_steps_are_settings_and_lines_of_others_do_not_count(self):
        out = os.path.join(self.dir, "out.json")
        plain, = self.bench("g.jsonl", "--arms", "sync-sgd-1", "--jobs", "1")
        arms = ("--arms", "ours,sync-sgd-1", "--json", out)
        lines = self.small("g.jsonl", *arms, "--points", "8", "--curve-bytes", "512")
        ours, sync = lines[1:]
        self.assertEqual((plain["dim"], plain["step_tokens"], plain["rounds"]), (96, 512, 4))
        self.assertEqual((sync["dim"], sync["step_tokens"], sync["rounds"]), (16, 128, 16))
        self.assertLess(sync["parameters"], plain["parameters"] / 10)
        self.assertEqual((sync["trained"], plain["trained"]), (TOKENS, TOKENS))
        self.assertEqual((len(sync["curve"]), sync["curve_bytes"]), (9, 512))
        self.assertAlmostEqual(sync["curve"][-1][4], sync["virtual_s"], 6)
        with open(out, encoding="utf-8") as f:
            document = json.load(f)
        rows = {row["name"]: row for row in document["rows"]}
        self.assertIn("dim 16,", document["conditions"]["model"])
        losses = [sum(line["language"].values()) / 3 for line in (ours, sync)]
        gap = rows["learning.gap_to_sync_dense_percent"]
        self.assertAlmostEqual(gap["value"], 100 * (losses[0] / losses[1] - 1), 6)

        other = self.small("g.jsonl", "--arms", "ours", "--rate", "0.003")
        self.assertEqual((len(other), round(other[-1]["rate"], 6)), (4, 0.003))  # another rate
        stable = self.small("g.jsonl", "--arms", "ours", "--decay", "0.25")  # another schedule
        self.assertEqual((len(stable), stable[-1]["decay"], ours["decay"]), (5, 0.25, 0))
        self.assertNotEqual(stable[-1]["digest"], ours["digest"])
        longer = self.small("l.jsonl", "--arms", "ours", "--h", "32")[0]
        self.assertEqual((longer["h"], longer["rounds"], longer["trained"]), (32, 4, TOKENS))
        self.assertAlmostEqual(longer["density"], 1 / 6, 6)
        rounds = self.small("h.jsonl", "--arms", "ours", "--rounds", "17")  # whole shares
        self.assertEqual((rounds[0]["tokens"], rounds[0]["rounds"]), (TOKENS, 16))

    def test_real_staleness(self):
        settings = ("rtt=20", "jitter=0.3", "slow=asia", "cut=asia",
                    "rtt=20:jitter=0.3:slow=europe", "rtt=20:damping=0")
        arms = ["ours"] + [f"ours:{setting}" for setting in settings]
        arms += [f"bsp-topk:{setting}" for setting in settings]
        lines = {line["arm"]: line for line in self.small("i.jsonl", "--arms", ",".join(arms))}
        self.assertEqual(list(lines), arms)
        plain = lines["ours"]
        self.assertEqual(len({line["digest"] for line in lines.values()}), len(arms))
        self.assertLess(plain["staleness"], 0.1)
        self.assertEqual((plain["round_trips"], plain["jitter"]), (1, 0))
        self.assertNotIn("slow", plain)
        for setting in ("rtt=20", "slow=asia", settings[4]):
            # A slow region folds others' pushes between its steps: only distance makes it stale.
            if setting != "slow=asia":
                self.assertGreater(lines[f"ours:{setting}"]["staleness"], 0, setting)
            bsp = lines[f"bsp-topk:{setting}"]
            self.assertEqual(bsp["staleness"], 0, setting)
            self.assertGreater(bsp["virtual_s"], lines[f"ours:{setting}"]["virtual_s"], setting)
        for line in lines.values():
            # With a slow region the draw's last turn, fewer than seven units, may be left out.
            self.assertLessEqual(line["trained"], TOKENS, line["arm"])
            self.assertGreater(line["trained"], TOKENS - 7 * 2048, line["arm"])
        equal = self.small("m.jsonl", "--arms", "bsp-topk,bsp-topk:h=equal")
        self.assertEqual([line["equal_h"] for line in equal], [False, True])
        # 24 steps in a round of 4 s, where 14 took one second; and the start.
        ratio = equal[1]["virtual_s"] / equal[0]["virtual_s"]
        self.assertTrue(1.3 < ratio < 2.6, ratio)
        slow = lines["bsp-topk:slow=asia"]
        self.assertEqual((slow["trained"], slow["slow"]), (TOKENS, "asia"))
        self.assertGreater(slow["virtual_s"], 2.5 * lines["ours"]["virtual_s"])
        self.assertEqual(lines["ours:cut=asia"]["cut"], "asia")
        again = self.small("j.jsonl", "--arms", arms[5])
        self.assertEqual(again[0]["digest"], lines[arms[5]]["digest"])

    def test_other_codecs_batches_and_more_workers(self):
        arms = ["sync-nesterov-0.6-0.5", "sync-nesterov-0.6-0.5:codec=dense-q4",
                "sync-nesterov-0.6-0.5:m=0.3", "sync-nesterov-0.6-0.5:copies=2", "single",
                "single:batch=4"]
        lines = self.small("n.jsonl", "--arms", ",".join(arms), "--tokens",
                           str(6 * TOKENS))  # more units of asia than one worker leases at once
        plain, q4, momentum, more, single, batch = lines
        self.assertEqual([line["trained"] for line in lines], [6 * TOKENS] * len(lines))
        self.assertEqual(len({line["digest"] for line in lines}), len(arms))
        self.assertTrue(7 < plain["up_bytes"] / q4["up_bytes"] < 8.5)
        self.assertEqual((plain["codec"], q4["codec"]), ("dense-fp32", "dense-q4"))
        self.assertEqual(momentum["up_bytes"], plain["up_bytes"])
        # The same units, in shares of two workers per region, the busier of which sends less.
        self.assertEqual((plain["copies"], more["copies"]), (1, 2))
        self.assertLess(more["up_bytes"], plain["up_bytes"])
        # A push is eight steps, whatever their batch size.
        self.assertEqual((single["batch"], batch["batch"]), (1, 4))
        self.assertTrue(3 < single["admitted"] / batch["admitted"] < 5)

    def test_the_curve_is_told_where_it_is_worst(self):
        path, out = os.path.join(self.dir, "k.jsonl"), os.path.join(self.dir, "out.json")
        curves = {"sync-sgd-1": [4.0, 3.0, 2.0, 2.0], "ours": [4.0, 3.03, 2.04, 1.9],
                  "ours-p64": [8.0, 3.0, 2.0, 2.0]}
        with open(path, "w", encoding="utf-8") as f:
            for arm, nats in curves.items():
                for seed in (1, 2, 3):
                    worse = 0.02 * (seed - 2) if arm == "ours" else 0
                    # The baseline has points at other places: between them a curve is a line.
                    at = [0, 3000, 5000, 9000] if arm == "ours" else [0, 3001, 5000, 9000]
                    if arm == "sync-sgd-1":
                        at = [0, 3000, 5000, 9000]
                    f.write(json.dumps({
                        "arm": arm, "seed": seed, "tokens": TOKENS, "load": 1, "warmup": 0.2,
                        "language": {"de": nats[-1]}, "curve": [
                            [t / 9000 * TOKENS, 0, 0, loss + worse * (t > 0)]
                            for t, loss in zip(at, nats)]}) + "\n")
        subprocess.run([BENCH, "--report", "--results", path, "--tokens", str(TOKENS),
                        "--json", out], check=True, stdout=subprocess.DEVNULL)
        with open(out, encoding="utf-8") as f:
            rows = {row["name"]: row for row in json.load(f)["rows"]}
        # Places: 3000, 6000 and 9000. The second is on the line from 5000 to 9000.
        worst = rows["learning.curve.worst_percent"]
        at = [100 * (3.03 + d - 3.0) / 3.0 for d in (-0.02, 0, 0.02)]
        self.assertAlmostEqual(worst["value"], 1.0, 6)
        self.assertAlmostEqual(worst["max"] - 1, 4.303 * (at[2] - at[1]) / 3 ** 0.5, 4)
        self.assertAlmostEqual(rows["learning.curve.worst_at_percent"]["value"], 100 / 3, 6)
        self.assertEqual(rows["learning.curve.points"]["value"], 3)
        self.assertGreater(rows["learning.curve.worst_percent.p64"]["value"], 0)

    def test_the_baseline_is_the_best_of_the_arms_with_the_most_seeds(self):
        losses = {"sync-sgd-0.7": [1.8], "sync-sgd-1": [2.0, 2.0, 2.0], "ours": [1.9, 2.0, 1.98],
                  "sync-sgd-1.4": [1.9, 2.1, 2.3]}
        path, out = os.path.join(self.dir, "d.jsonl"), os.path.join(self.dir, "out.json")
        with open(path, "w", encoding="utf-8") as f:
            for arm, means in losses.items():
                for seed, mean in enumerate(means, 1):
                    f.write(json.dumps({"arm": arm, "seed": seed, "tokens": TOKENS, "load": 1,
                                        "warmup": 0.2, "language": {"de": mean}}) + "\n")
            f.write(json.dumps({"arm": "sync-sgd-1", "seed": 4, "tokens": TOKENS, "load": 1,
                                "language": {"de": 1}}) + "\n")  # another warm-up: not counted
        subprocess.run([BENCH, "--report", "--results", path, "--tokens", str(TOKENS),
                        "--json", out], check=True, stdout=subprocess.DEVNULL)
        with open(out, encoding="utf-8") as f:
            document = json.load(f)
        rows = {row["name"]: row for row in document["rows"]}
        self.assertEqual(document["conditions"]["sync dense"],
                         "sync-sgd-1, the best by 3 seeds; tried on fewer: sync-sgd-0.7")
        gap = rows["learning.gap_to_sync_dense_percent"]  # -5, 0, -1 %
        self.assertAlmostEqual(gap["value"], -2, 9)
        self.assertAlmostEqual(gap["max"], -2 + 4.303 * (7 / 3) ** 0.5, 3)
        each = rows["learning.gap_to_sync_dense_percent.each_seeds_best"]  # 1.8, 2.0, 2.0
        self.assertAlmostEqual(each["value"], (100 * 0.1 / 1.8 - 1) / 3, 9)

    def test_a_folder_that_changes_meanwhile_names_no_commit(self):
        git = os.path.join(self.dir, "git")
        with open(git, "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\n[ "$1" = rev-parse ] || exit 0\necho . >>{self.dir}/asked\n'
                    f"wc -l <{self.dir}/asked\n")
        os.chmod(git, 0o755)
        kept = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", kept)
        os.environ["PATH"] = f"{self.dir}:{kept}"
        line = self.small("o.jsonl", "--arms", "alone-america")[0]
        self.assertEqual(line["commit"], "1-dirty")

    def test_an_unknown_arm_is_refused(self):
        for arm in ("theirs", "ours:zeta=1", "ours:k=", "ours:k=-1", "ours:stagger=1", "ours:p",
                    "ours:p=1.5", "ours:s=2", "ours:rtt=50", "ours:jitter=2", "ours:slow=mars",
                    "ours:cut=", "ours:eta=1x", "ours:h=8", "ours:codec=q4", "ours:copies=0",
                    "ours:copies=9", "ours:batch=x", "ours:m=2", "ours:damping=-1"):
            done = subprocess.run([BENCH, "--data", self.data, "--arms", arm],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, arm)
            self.assertIn(arm, done.stderr)

    def test_sizes_that_do_not_fit_are_refused(self):
        for flags, says in ((("--dim", "12"), "--dim 12: give a multiple of 8"),
                            (("--step-tokens", "384"), "384 does not divide"),
                            (("--step-tokens", "64"), "--step-tokens 64: give a multiple of 128"),
                            (("--h", "6"), "--h 6: give a multiple of 4"),
                            (("--points", "97"), "from 1 to 96"),
                            (("--rate", "0"), "--rate 0: give a number above 0"),
                            (("--decay", "1.1"), "--decay 1.1: give a number above 0, at most 1"),
                            (("--arms", "ours," * 1000), "run it in parts")):
            done = subprocess.run([BENCH, "--data", self.data, *flags], capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 2, flags)
            self.assertIn(says, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
