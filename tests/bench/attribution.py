#!/usr/bin/env python3
"""bench/learning/attribution.py on made-up losses, whose effects and intervals are known."""
import unittest

from made_up import MadeUp

EFFECT = "learning.attribution.effect."
CELLS = [(mode, kappa, stagger) for mode in ("async", "bsp") for kappa in (0.0, 0.25)
         for stagger in (True, False)]


def line(cell, seed, loss, eta=2.0, **other):
    mode, kappa, stagger = cell
    return {"arm": f"{mode}-{kappa}-{stagger}", "seed": seed, "mode": mode, "kappa": kappa,
            "stagger": stagger, "eta": eta, "commit": "abc1234", "tokens": 1000,
            "parameters": 10, "density": 0.075, "beta": 1.0, "rate": 0.006, "floor": 0.02,
            "warmup": 0.05, "language": {"de": loss - 0.5, "en": loss + 0.5}} | other


def baseline(seed, loss):
    return line(("bsp", 0.0, False), seed, loss, arm="sync-nesterov-0.6-0.5", density=1)


def side(on):
    return 1 if on else -1


class Attribution(MadeUp):
    PROGRAM = "attribution.py"

    def seed(self, seed, mode=0.0, kappa=0.0, stagger=0.0, both=0.0, mean=2.0):
        """Cells with these effects in percent; `both` is the interaction of mode and kappa."""
        return [line((m, k, s), seed, mean * (1 + (
            mode * side(m == "async") + kappa * side(k) + stagger * side(s)
            + both * side(m == "async") * side(k)) / 200)) for m, k, s in CELLS]

    def near(self, row, value, half=None):
        self.assertAlmostEqual(row["value"], value, 6)
        if half is None:
            self.assertNotIn("min", row)
        else:
            self.assertAlmostEqual(row["max"] - row["value"], half, 3)
            self.assertAlmostEqual(row["value"] - row["min"], half, 3)

    def test_effects_come_apart(self):
        rows, said = self.run_on(self.seed(201, mode=-0.3, kappa=-1.2, stagger=0.1, both=0.4))
        self.near(rows[EFFECT + "async"], -0.3)  # one seed: no interval
        self.near(rows[EFFECT + "kappa"], -1.2)
        self.near(rows[EFFECT + "stagger"], 0.1)
        self.near(rows[EFFECT + "async-kappa"], 0.4)
        for none in ("async-stagger", "kappa-stagger", "async-kappa-stagger"):
            self.near(rows[EFFECT + none], 0)
        self.assertNotIn(EFFECT + "kappa.pooled", rows)
        self.assertEqual((said["seeds"], said["eta"]), ("201", "2 in all cells, not screened"))

    def test_the_paired_interval_is_of_the_seeds_own_effects(self):
        rows, _ = self.run_on(self.seed(201, kappa=-1.0, mean=1.9) + self.seed(202, kappa=-2.0)
                              + self.seed(203, kappa=-1.5, mean=2.1))
        self.near(rows[EFFECT + "kappa"], -1.5, 4.303 * 0.5 / 3 ** 0.5)
        self.near(rows[EFFECT + "async"], 0, 0)
        self.assertEqual(rows[EFFECT + "kappa"]["n"], 3)

    def test_the_pooled_interval_is_of_what_seeds_and_cells_leave_over(self):
        rows, _ = self.run_on(self.seed(201, kappa=-1.0) + self.seed(202, kappa=-2.0))
        # Each of 16 values is 0.25 % from its cell's mean: 1 over 7 degrees of freedom.
        self.near(rows[EFFECT + "kappa.pooled"], -1.5, 2.365 * (1 / 7) ** 0.5 * 2 / 4)
        self.near(rows[EFFECT + "async.pooled"], 0, 2.365 * (1 / 7) ** 0.5 * 2 / 4)

    def test_gaps_are_paired_with_the_baseline_of_the_same_seed(self):
        rows, said = self.run_on(self.seed(201, mean=2.0) + self.seed(202, mean=3.0)
                                 + [baseline(201, 2.0), baseline(203, 9.0)])
        self.near(rows["learning.attribution.gap.async.k0.25.together"], 0)
        self.assertEqual(rows["learning.attribution.gap.async.k0.25.together"]["n"], 1)
        self.assertTrue(said["baseline"].endswith("seeds 201"))
        self.near(rows["learning.attribution.loss.bsp.k0.staggered"] | {}, 2.5, 0.5)

    def test_a_seed_that_lacks_a_cell_does_not_count(self):
        rows, said = self.run_on(self.seed(201) + self.seed(202)[:7])
        self.assertEqual((rows["learning.attribution.seeds"]["value"], said["seeds"]), (1, "201"))
        said, _ = self.run_on(self.seed(202)[:7])
        self.assertIn("no seed from 201 to 208 has all eight cells", said)

    def test_eta_is_chosen_on_the_screening_seeds_alone(self):
        one = CELLS[0]
        screen = [line(one, seed, loss, eta) for seed in (301, 302, 303)
                  for eta, loss in ((1.4, 2.0), (2.0, 2.1), (3.0, 2.2))]
        test = [x for x in self.seed(201) if (x["mode"], x["kappa"], x["stagger"]) != one]
        test += [line(one, 201, 1.8, 1.4), line(one, 201, 1.5, 3.0)]
        rows, said = self.run_on(screen + test)
        self.assertAlmostEqual(rows["learning.attribution.loss.async.k0.staggered"]["value"], 1.8)
        self.assertEqual(said["eta"], "async.k0.staggered 1.4; 2 where not screened")
        rows, said = self.run_on(screen[1:] + test + [line(one, 201, 1.9)])  # some were not run
        self.assertAlmostEqual(rows["learning.attribution.loss.async.k0.staggered"]["value"], 1.9)

    def test_lines_that_do_not_go_together_are_refused(self):
        good = self.seed(201)
        for extra, says in (
                (line(CELLS[0], 202, 2, commit="other"), "line 9: commit is other"),
                (line(CELLS[0], 202, 2, density=0.01), "density is 0.01"),
                (line(CELLS[0], 201, 2), "is there twice"),
                (baseline(201, 2) | {"commit": "old"}, "the baseline is of old"),
                ("{}", "line 9 is no arm"), ("1", "line 9 is no arm"),
                ('{"arm": "bsp', "line 9 is no JSON")):
            said, _ = self.run_on([*good, extra])
            self.assertIn(says, said)
        longer = [baseline(201, 2.0) | {"commit": "abc12345"}]  # the same commit, longer
        rows, _ = self.run_on([*good, *longer])
        self.assertEqual(rows["learning.attribution.gap.async.k0.25.together"]["n"], 1)
        rows, _ = self.run_on([*good, line(CELLS[0], 201, 1, kappa=0.5)])  # belongs to no cell
        self.assertEqual(rows["learning.attribution.seeds"]["value"], 1)

    def test_seeds_that_are_no_seeds_are_refused(self):
        for text in ("x", "208-201", ""):
            said, _ = self.run_on(self.seed(201), "--seeds", text)
            self.assertIn("names no seeds", said)


if __name__ == "__main__":
    unittest.main()
