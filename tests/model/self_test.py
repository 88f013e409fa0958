#!/usr/bin/env python3
"""A short run of the model: the rules hold for a range of seeds, and planted bugs are caught.

The full runs are in README.md; this one keeps the model and the rules in step.
"""
import pathlib
import re
import sys
import unittest

import charge
import coordinator
import goes_on
import held
import leader
import names
import ownership
import partners
import protocol
import reported

SEEDS, STEPS = 2500, 130
# Planted bugs that need hundreds or thousands of seeds to show (README.md), too many here.
RARE = {"no_resync", "trim_esnap", "rebuild_any_branch", "tail_silent", "ledger_sticky",
        "group_left", "old_hello_forgotten", "unknown_goes_on", "damaged_unread"}
BUG_SEEDS = 60  # enough for every other bug; the slowest needs 14


class Protocol(unittest.TestCase):
    def first_violation(self, seeds: int, **model) -> tuple[int, str] | None:
        for seed in range(seeds):
            why, _ = protocol.run_seed(protocol.Model(**model), seed, STEPS)
            if why:
                return seed, why
        return None

    def test_the_rules_hold(self):
        self.assertIsNone(self.first_violation(SEEDS))

    def test_planted_bugs_are_caught_and_their_controls_pass(self):
        for bug in protocol.BUGS.keys() - RARE:
            with self.subTest(bug=bug):
                world = {"faults": protocol.FOCUS[bug], "NU": 4}
                self.assertIsNotNone(self.first_violation(BUG_SEEDS, bugs=[bug], **world))
                self.assertIsNone(self.first_violation(BUG_SEEDS, **world))

    def test_every_bug_has_its_fault_budget(self):
        self.assertEqual(protocol.BUGS.keys(), protocol.FOCUS.keys())

    def explore(self, name, *bugs):
        return protocol.explore(protocol.Model(bugs=bugs, sticky=1, **protocol.SMALL[name]), 600)

    def test_small_worlds_for_what_random_seeds_meet_too_rarely(self):
        for world, bugs in (
                ("1w1s disk+old+wkill",
                 ("old_hello", "old_hello_replica", "old_hello_forgotten")),
                ("1w1s disk+refuse+wfull+wkill", ("return_in_memory", "unknown_goes_on"))):
            found = self.explore(world)
            self.assertEqual((found["bad"], found["complete"]), ("", True), found)
            for bug in bugs:
                self.assertTrue(self.explore(world, bug)["bad"], bug)

    def test_a_damaged_frame_that_a_snapshot_can_not_be_cleared_of(self):
        world = {"NW": 1, "NS": 1, "NU": 6, "faults": protocol.FOCUS["damaged_unread"]}
        self.assertIsNotNone(self.first_violation(100, bugs=["damaged_unread"], **world))
        self.assertIsNone(self.first_violation(100, **world))

    def test_a_small_world_exhaustively(self):
        world = protocol.Model(NW=1, NS=1, NU=1, cuts=1, sticky=1, faults={"kill": 1, "refuse": 1})
        found = protocol.explore(world, limit_s=600)
        self.assertEqual(found["bad"], "")
        self.assertTrue(found["complete"], found)


class Planted(unittest.TestCase):
    """Bugs of the model are planted in the code too, where the simulator has to find them."""

    ROOT = pathlib.Path(__file__).resolve().parents[2]
    # Tests of the code detect these bugs (tests/cores, tests/unit;
    # server/docs/0000-protocol.md#rule-26 to #rule-29, #rule-35).
    NOT_PLANTED = {"return_in_memory", "unknown_goes_on", "group_in_memory", "group_left",
                   "old_hello", "old_hello_replica", "old_hello_forgotten", "damaged_goes_on",
                   "damaged_unread", "retire_forgets",
                   "zombie_stable"}
    BUGS = (protocol.BUGS.keys() | ownership.BUGS.keys()) - NOT_PLANTED

    def test_each_is_in_the_simulators_list(self):
        listed = (self.ROOT / "tests/sim/main.c").read_text(encoding="utf-8")
        found = set(re.findall(r'^    \{"(\w+)", "[\w,]+", ', listed, re.M))
        self.assertEqual(len(self.BUGS), 36)
        self.assertEqual(self.BUGS - found, set())

    def test_each_is_in_the_code(self):
        code = "".join(path.read_text(encoding="utf-8") for room in
                       ("common", "kernels", "server", "worker")
                       for path in (self.ROOT / room).rglob("*.c"))
        planted = set(re.findall(r'LH_BUG\("(\w+)"\)', code))
        self.assertEqual(self.BUGS - planted, set())


class Ownership(unittest.TestCase):
    def test_a_live_move(self):
        found = ownership.explore("move", N=1)
        self.assertEqual(found.get("ok"), "complete", found)
        self.assertTrue(ownership.explore("move", ["flip_early"], N=2).get("bad"))


class Coordinator(unittest.TestCase):
    def test_the_rules_hold(self):
        for world in coordinator.WORLDS:
            self.assertEqual(coordinator.explore(world).get("ok"), "complete", world)

    def test_planted_bugs_are_caught(self):
        for bug, (world, _) in coordinator.BUGS.items():
            self.assertTrue(coordinator.explore(world, [bug]).get("bad"), bug)

    def test_a_copy_that_nobody_can_see_is_not_covered(self):
        """The README says so; a rule that covered it would change both."""
        self.assertTrue(coordinator.explore("old", unseen=True).get("bad"))


class Charge(unittest.TestCase):
    def test_the_rules_hold(self):
        for model in (charge, reported):
            self.assertEqual(model.explore().get("ok"), "complete", model.__name__)

    def test_planted_bugs_are_caught(self):
        for model in (charge, reported):
            for bug in model.BUGS:
                self.assertTrue(model.explore((bug,)).get("bad"), bug)


class Partners(unittest.TestCase):
    """Lies of partners: server/docs/0000-protocol.md#rule-25, #rule-31 to #rule-33."""

    def test_the_rules_hold(self):
        for world in partners.WORLDS:
            self.assertEqual(partners.explore(world).get("ok"), "complete", world)

    def test_planted_bugs_are_caught(self):
        for bug, (world, _) in partners.BUGS.items():
            self.assertTrue(partners.explore(world, [bug]).get("bad"), bug)


class GoesOn(unittest.TestCase):
    def test_a_run_that_goes_on_after_its_end(self):
        for world in goes_on.WORLDS:
            self.assertFalse(goes_on.search(world)[1], world)
        for bug, (world, _) in goes_on.BUGS.items():
            self.assertTrue(goes_on.search(world, bug)[1], bug)


class Names(unittest.TestCase):
    """Numbers of a worker's name: server/docs/0000-protocol.md#rule-8."""

    def test_the_rules_hold(self):
        for world in names.WORLDS:
            self.assertEqual(names.explore(world).get("ok"), "complete", world)

    def test_planted_bugs_are_caught(self):
        for bug, (world, _) in names.BUGS.items():
            self.assertTrue(names.explore(world, bug).get("bad"), bug)


class Held(unittest.TestCase):
    """Rounds of mode bsp: server/docs/0000-protocol.md#rule-30."""

    def test_its_rules_hold_and_its_planted_bugs_are_caught(self):
        self.assertFalse(held.search()[1])
        for bug in held.BUGS:
            self.assertTrue(held.search(bug)[1], bug)


class Leader(unittest.TestCase):
    """Two coordinators of which one leads: server/docs/0000-protocol.md#rule-38."""

    def test_the_rules_hold(self):
        self.assertEqual(leader.explore().get("ok"), "complete")

    def test_planted_bugs_are_caught(self):
        for bug in leader.BUGS:
            self.assertTrue(leader.explore(bug).get("bad"), bug)


if __name__ == "__main__":
    sys.exit(unittest.main())
