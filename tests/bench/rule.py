#!/usr/bin/env python3
"""bench/learning/rule.py on made-up losses, whose gaps and intervals are known."""
import unittest

from made_up import MadeUp


def line(arm, seed, loss, rounds=400, curve=(4.0, 3.0, 2.0), **other):
    tokens = rounds * 14
    return {"arm": arm, "seed": seed, "rounds": rounds, "commit": "abc1234", "tokens": tokens,
            "parameters": 100000, "dim": 48, "step_tokens": 128, "h": 8, "density": 0.075,
            "kappa": 0.25, "beta": 1.0, "eta": 2.0, "rate": 0.006, "base_rate": 0.006,
            "floor": 0.02, "curve_bytes": 4096, "eval_bytes": 65536, "decay": 0.0,
            "curve": [[i * tokens // max(len(curve) - 1, 1), 0, 0, nats, i]
                      for i, nats in enumerate(curve)],
            "language": {"de": loss - 0.5, "en": loss + 0.5}} | other


def seeds(arm, losses, **other):
    return [line(arm, seed, loss, **other) for seed, loss in enumerate(losses, 301)]


class Rule(MadeUp):
    PROGRAM = "rule.py"

    def near(self, row, value, half=None):
        self.assertAlmostEqual(row["value"], value, 6)
        if half is None:
            self.assertNotIn("min", row)
        else:
            self.assertAlmostEqual(row["max"] - row["value"], half, 3)
            self.assertAlmostEqual(row["value"] - row["min"], half, 3)

    def test_the_cost_of_another_rate(self):
        rows, _ = self.run_on(
            seeds("sync-sgd-1", [2.0, 4.0]) + seeds("sync-sgd-1:rate=0.012", [2.02, 4.04])
            + seeds("ours", [2.0, 4.0]) + seeds("ours:rate=0.012", [2.06, 4.04])
            + seeds("ours:rate=0.004", [1.98, 3.96]) + seeds("ours:k=0", [2.0, 4.0]))
        self.near(rows["learning.rule.rate.n400.sync-sgd-1:rate=0.012"], 1, 0)
        self.near(rows["learning.rule.rate.n400.ours:rate=0.004"], -1, 0)
        self.near(rows["learning.rule.rate.n400.ours:rate=0.012"], 2, 12.706)
        self.near(rows["learning.rule.rate_2x.n400.ours"], 1, 12.706)
        self.assertEqual([name for name in rows if ".rate_2x." in name],
                         ["learning.rule.rate_2x.n400.ours"])  # others have no run at twice it

    def test_twice_a_rate_of_its_own(self):
        rows, _ = self.run_on(
            seeds("sync-sgd-1", [2.0, 4.0]) + seeds("sync-sgd-1:rate=0.0015", [1.8, 3.6])
            + seeds("sync-sgd-1:rate=0.003", [1.818, 3.636]) + seeds("ours", [2.1, 4.2])
            + seeds("ours:rate=0.0015", [1.8, 3.6]) + seeds("ours:rate=0.003", [1.854, 3.708]))
        # The baseline is best at 0.0015; 0.006, of which 0.003 is half, is the common rate.
        self.near(rows["learning.rule.rate_2x.n400.ours:rate=0.0015"], 2, 0)
        self.near(rows["learning.rule.rate_2x.n400.ours:rate=0.003"],
                  100 * (2.1 / 1.854 - 2 / 1.818), 0)
        self.assertEqual(len([name for name in rows if ".rate_2x." in name]), 2)

    def test_gaps_are_paired_and_of_their_length(self):
        rows, said = self.run_on(
            seeds("sync-sgd-1", [2.0, 4.0, 2.0]) + seeds("sync-sgd-2", [2.1, 4.1, 2.1])
            + seeds("ours", [2.02, 4.08, 2.06]) + seeds("ours:s=0.5", [2.02, 4.0])
            + seeds("ours", [3.0], rounds=1600) + seeds("sync-sgd-2", [2.0], rounds=1600))
        self.near(rows["learning.rule.n400"], 2, 4.303 / 3 ** 0.5)  # 1, 2, 3 %
        self.near(rows["learning.rule.n400.ours:s=0.5"], 0.5, 12.706 * 0.5)
        self.near(rows["learning.rule.n1600"], 50)  # one seed: no interval
        beside = [0, 100 * (4 / 4.08 - 1)]
        self.near(rows["learning.rule.shipped.n400.ours:s=0.5"], sum(beside) / 2,
                  12.706 * abs(beside[1]) / 2)
        self.near(rows["learning.rule.n400.sync-sgd-2"], (5 + 2.5 + 5) / 3, 4.303 * 2.5 / 3)
        self.assertEqual(rows["learning.rule.loss.n400.ours"]["n"], 3)
        self.assertEqual(rows["learning.rule.seeds.n1600"]["value"], 1)
        self.assertTrue(said["baseline, N 400"].startswith("sync-sgd-1;"))
        self.assertIn("sync-sgd-2 (3)", said["baseline, N 400"])
        self.assertTrue(said["baseline, N 1600"].startswith("sync-sgd-2;"))
        self.assertIn("beta 1", said["ours, N 400"])
        self.assertEqual(said["seeds"], "301 302 303")

    def test_a_dense_arm_of_fewer_seeds_is_no_baseline(self):
        rows, _ = self.run_on(seeds("sync-sgd-1", [2.0, 2.0]) + seeds("sync-sgd-2", [1.0])
                              + seeds("ours", [2.0, 2.0]))
        self.near(rows["learning.rule.n400"], 0, 0)

    def test_the_curve_is_told_where_it_is_worst(self):
        rows, _ = self.run_on([
            line("sync-sgd-1", 301, 2.0, curve=(4.0, 3.0, 2.0)),
            line("sync-sgd-1", 302, 2.0, curve=(4.0, 3.0, 2.0)),
            line("ours", 301, 2.0, curve=(9.0, 3.3, 2.0)),  # the start does not count
            line("ours", 302, 2.0, curve=(9.0, 3.0, 2.0))])
        self.near(rows["learning.rule.curve.n400.ours"], 5, 12.706 * 5)

    def test_the_middle_of_the_curve_is_a_mean(self):
        dense = [line("sync-sgd-1", seed, 2.0, curve=(2.0,) * 5) for seed in (301, 302)]
        rows, _ = self.run_on(dense + [
            line("ours", 301, 2.0, curve=(9.0, 2.0, 2.2, 2.0, 9.0)),  # 0 at 25 %, 10 at 50 %
            line("ours", 302, 2.0, curve=(9.0, 2.0, 2.0, 2.0, 9.0))])
        mean = 10 * sum(1 - abs(i) / 5 for i in range(-5, 6)) / 11
        self.near(rows["learning.rule.middle.n400.ours"], mean / 2, 12.706 * mean / 2)

    def test_seeds_that_were_not_asked_for_do_not_count(self):
        lines = seeds("sync-sgd-1", [2.0]) + seeds("ours", [2.1])
        lines += [line("ours", 300, 9.0, commit="tuning"), line("sync-sgd-1", 300, 2.0)]
        rows, _ = self.run_on(lines)
        self.near(rows["learning.rule.n400"], 5)
        said, _ = self.run_on(lines, "--seeds", "400")
        self.assertIn("no arm of seeds 400 to 400", said)

    def test_picked_arms_are_judged_by_other_seeds(self):
        lines = (seeds("sync-sgd-1", [2.0]) + seeds("sync-sgd-2", [2.1]) + seeds("ours", [2.2])
                 + [line("sync-sgd-1", 304, 2.0), line("sync-sgd-2", 304, 1.0),
                    line("ours", 304, 2.02), line("ours:s=0.5", 304, 2.04)])
        rows, said = self.run_on(lines, "--test", "304-308")
        self.near(rows["learning.rule.n400"], 10)
        self.near(rows["learning.rule.test.n400"], 1)  # compared with the earlier baseline
        self.near(rows["learning.rule.test.n400.ours:s=0.5"], 2)
        self.near(rows["learning.rule.test.shipped.n400.ours:s=0.5"], 100 * (2.04 / 2.02 - 1))
        self.assertEqual((said["seeds"], said["test"]), ("301", "304"))
        self.near(rows["learning.rule.test.curve.n400.ours"], 0)  # all curves are the same here
        rows, said = self.run_on(lines, "--test", "304-308", "--shipped", "400=ours:s=0.5")
        self.near(rows["learning.rule.test.n400"], 2)  # the present rule
        self.near(rows["learning.rule.test.n400.ours"], 1)
        self.near(rows["learning.rule.test.shipped.n400.ours"], 100 * (2.02 / 2.04 - 1))
        self.assertEqual(said["shipped, N 400"], "ours:s=0.5")
        said, _ = self.run_on(lines, "--shipped", "1600=ours:s=0.5")
        self.assertIn("has no such arm of that length", said)
        said, _ = self.run_on(lines, "--shipped", "ours")
        self.assertIn("is not N=ARM", said)
        said, _ = self.run_on(lines, "--test", "303-304")
        self.assertIn("have seeds in common", said)
        rows, _ = self.run_on([*lines, line("sync-sgd-1", 305, 2, commit="abc12345"),
                               line("ours", 305, 2.1, commit="abc12345")], "--test", "305")
        self.near(rows["learning.rule.test.n400"], 5)  # the same commit, abbreviated otherwise
        said, _ = self.run_on([*lines, line("ours", 305, 2, commit="other")], "--test", "305")
        self.assertIn("run them on one commit", said)

    def test_distant_regions_are_counted_apart(self):
        away = {"staleness": 2.5, "virtual_s": 500.0}
        lines = (seeds("sync-sgd-1", [2.0, 4.0]) + seeds("ours", [2.1, 4.1])
                 + seeds("ours:rtt=5", [2.2, 4.4], **away)
                 + seeds("ours:p=0.1:slow=asia", [2.0], **away)
                 + seeds("sync-sgd-1:rtt=5", [1.0, 2.0], virtual_s=900.0))
        rows, said = self.run_on(lines)
        self.near(rows["learning.rule.n400"], 3.75, 12.706 * 1.25)  # 5 and 2.5 %
        self.assertFalse([name for name in rows if "rtt" in name or "slow" in name])
        rows, said = self.run_on(lines, "--stale")
        self.assertTrue(said["baseline, N 400"].startswith("sync-sgd-1;"))  # dense, unchanged
        self.near(rows["learning.stale.n400.ours:rtt=5"], 10, 0)
        self.near(rows["learning.stale.n400.ours:p=0.1:slow=asia"], 0)
        beside = [100 * (2.2 / 2.1 - 1), 100 * (4.4 / 4.1 - 1)]
        self.near(rows["learning.stale.plain.n400.ours:rtt=5"], sum(beside) / 2,
                  12.706 * abs(beside[0] - beside[1]) / 2)
        self.assertNotIn("learning.stale.plain.n400.ours:p=0.1:slow=asia", rows)  # it was not run
        self.assertEqual(rows["learning.stale.versions.n400.ours:rtt=5"]["value"], 2.5)
        self.assertEqual(rows["learning.stale.seconds.n400.sync-sgd-1:rtt=5"]["value"], 900)
        self.assertNotIn("learning.stale.n400.ours", rows)
        said, _ = self.run_on(lines[:4], "--stale")
        self.assertIn("has no arm that counts with --stale", said)

    def test_a_baseline_that_is_named(self):
        lines = (seeds("sync-sgd-1", [2.0, 2.0]) + seeds("ours", [2.1, 2.1])
                 + seeds("sync-sgd-1:codec=dense-q4", [1.9, 1.9]))
        rows, _ = self.run_on(lines)
        self.near(rows["learning.rule.n400"], 100 * (2.1 / 1.9 - 1), 0)
        rows, said = self.run_on(lines, "--base", "sync-sgd-1")
        self.near(rows["learning.rule.n400"], 5, 0)
        self.near(rows["learning.rule.n400.sync-sgd-1:codec=dense-q4"], -5, 0)
        self.assertTrue(said["baseline, N 400"].startswith("sync-sgd-1;"))
        said, _ = self.run_on(lines, "--base", "sync-sgd-2")
        self.assertIn("--base sync-sgd-2", said)

    def test_equal_wall_clock_and_damping(self):
        def clocked(arm, loss, curve, of=(301, 302), every=10):
            return [line(arm, seed, loss, virtual_s=2.0 * every, trained=1000, curve=curve) | {
                "curve": [[i * 2800, 0, 0, nats, i * every] for i, nats in enumerate(curve)]}
                for seed in of]
        lines = (clocked("sync-sgd-1", 2, (4, 3, 2))
                 + clocked("ours:rtt=5", 2.0, (4.0, 3.0, 2.0))
                 + clocked("ours:rtt=5:damping=0", 1.9, (4.0, 2.7, 1.9))
                 + clocked("bsp-topk:rtt=5", 2.0, (4.0, 3.0, 2.0), every=40))
        rows, _ = self.run_on(lines, "--stale")
        self.near(rows["learning.stale.undamped.n400.ours:rtt=5:damping=0"], -5, 0)
        self.assertLess(rows["learning.stale.undamped.middle.n400.ours:rtt=5:damping=0"]["value"],
                        -5)
        self.near(rows["learning.stale.times_longer.n400.bsp-topk:rtt=5"], 4, 0)
        self.assertNotIn("learning.stale.times_longer.n400.ours:rtt=5", rows)
        later = [x | {"seed": x["seed"] + 10} for x in lines]
        rows, said = self.run_on(lines + later, "--stale", "--test", "311-312")
        self.assertEqual(said["test"], "311 312")
        self.near(rows["learning.stale.test.n400.ours:rtt=5:damping=0"], -5, 0)
        self.near(rows["learning.stale.test.undamped.n400.ours:rtt=5:damping=0"], -5, 0)

    def test_a_schedule_has_rows_and_lines_of_its_own(self):
        lines = [x | {"decay": 0.2} for x in seeds("sync-sgd-1", [2.0]) + seeds("ours", [2.1])]
        rows, said = self.run_on(lines, "--name", "learning.schedule")
        self.near(rows["learning.schedule.n400"], 5)
        self.assertIn("the rate falls in the last 20%", said["step"])
        said, _ = self.run_on(lines + seeds("ours:s=0.5", [2.0]))
        self.assertIn("line 3: decay is 0.0, others have 0.2", said)

    def test_lines_that_do_not_go_together_are_refused(self):
        good = seeds("sync-sgd-1", [2.0]) + seeds("ours", [2.0])
        for extra, says in (
                (line("ours", 302, 2, commit="other"), "line 3: commit is other"),
                (line("ours", 302, 2, dim=96), "dim is 96"),
                (line("ours", 302, 2, base_rate=0.003), "base_rate is 0.003"),
                (line("ours", 301, 2), "is there twice"),
                (line("ours", 302, 2, curve=(2.0,)), "line 3 is no arm"),
                ("{}", "line 3 is no arm"), ('{"arm": "ours', "line 3 is no JSON")):
            said, _ = self.run_on([*good, extra])
            self.assertIn(says, said)
        said, _ = self.run_on([x | {"commit": "abc1234-dirty"} for x in good])
        self.assertIn("line 1: the tree was not clean", said)


if __name__ == "__main__":
    unittest.main()
