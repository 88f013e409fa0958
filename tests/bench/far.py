#!/usr/bin/env python3
"""bench/learning/far.py on made-up curves, whose times and intervals are known."""
import unittest

from made_up import MadeUp

OURS = "ours:rtt=1.2"
OTHERS = ["bsp-topk:rtt=1.2", "bsp-topk:rtt=1.2:h=equal", "sync-nesterov-0.6-0.5:rtt=1.2",
          "sync-nesterov-0.6-0.5:rtt=1.2:h=equal"]


def line(arm, seed, curve, loss=2.0, **other):
    """`curve`: (second, nats), ..."""
    return {"arm": arm, "seed": seed, "commit": "abc1234", "tokens": 1000, "parameters": 50000,
            "dim": 32, "step_tokens": 128, "h": 8, "base_rate": 0.006, "curve_bytes": 4096,
            "eval_bytes": 65536, "trained": 1000, "virtual_s": curve[-1][0],
            "curve": [[i, 0, 0, nats, second] for i, (second, nats) in enumerate(curve)],
            "language": {"de": loss - 0.5, "en": loss + 0.5}} | other


def all_arms(seed=401, other=((0, 5.0), (300, 3.0), (400, 2.0))):
    return [line(OURS, seed, ((0, 5.0), (100, 3.0), (200, 2.0)))] + [
        line(arm, seed, other) for arm in OTHERS]


class Far(MadeUp):
    PROGRAM = "far.py"

    def run_on(self, lines, *flags):
        return super().run_on(lines, *flags)[0]

    def longer(self, lines):
        return self.run_on(lines)[f"learning.far.times_longer.{OTHERS[1]}"]

    def test_the_loss_is_one_that_both_reach(self):
        lines = all_arms()
        row = self.longer(lines)
        self.assertAlmostEqual(row["value"], 2, 6)  # 2.0 nats: after 400 and 200 s
        self.assertNotIn("min", row)
        lines[2] = line(OTHERS[1], 401, ((0, 5.0), (300, 3.0), (400, 2.5)))
        self.assertAlmostEqual(self.longer(lines)["value"], 400 / 150, 6)
        lines[2] = line(OTHERS[1], 401, ((0, 5.0), (300, 3.0), (400, 1.0)))
        self.assertAlmostEqual(self.longer(lines)["value"], 350 / 200, 6)

    def test_seeds_are_paired(self):
        lines = all_arms() + all_arms(402, ((0, 5.0), (300, 3.0), (600, 2.0)))
        row = self.longer(lines)  # ratios 2 and 3
        self.assertAlmostEqual(row["value"], 2.5, 6)
        self.assertAlmostEqual(row["max"] - row["value"], 12.706 / 2, 3)
        lines[0]["language"] = {"de": 1.98}
        rows = self.run_on(lines)
        row = rows[f"learning.far.loss.{OTHERS[0]}"]  # -1 and 0 %
        self.assertAlmostEqual(row["value"], -0.5, 6)
        self.assertAlmostEqual(row["value"] - row["min"], 12.706 / 2, 3)
        self.assertEqual(rows["learning.far.seeds"]["value"], 2)
        self.assertEqual(self.run_on(lines, "--seeds", "402")["learning.far.seeds"]["value"], 1)

    def test_lines_that_do_not_go_together_are_refused(self):
        good = all_arms()
        for extra, says in (
                (line(OURS, 402, ((0, 5), (1, 2)), commit="other"), "line 6: commit is other"),
                (line(OURS, 402, ((0, 5), (1, 2)), tokens=7), "tokens is 7"),
                (good[0], "is there twice"), (line(OURS, 402, ((0, 5),)), "line 6 is no arm"),
                ("{}", "line 6 is no arm")):
            self.assertIn(says, self.run_on([*good, extra]))
        self.assertIn("no line of bsp-topk:rtt=1.2 with", self.run_on([good[0], *good[2:]]))
        self.assertIn("not clean", self.run_on([x | {"commit": "a-dirty"} for x in good]))
        apart = [x | {"seed": 402} if x["arm"] == OTHERS[0] else x for x in good]
        self.assertIn("no seed in common", self.run_on(apart))


if __name__ == "__main__":
    unittest.main()
