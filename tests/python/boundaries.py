#!/usr/bin/env python3
"""Events at a loop's boundaries, and its schedule: boundaries.py LIBRARY PACKAGE.

The client is a stand-in that records its calls.
"""
import sys
import unittest
import warnings

import numpy
import torch
from fake import Case, Fake, errors, longhaul, model_of, parameters


class Boundaries(Case):
    def test_due_calls_are_made_in_order(self):
        client = Fake(dues=[3, 0, 8])
        with self.run_of(client, tokens_per_step=5) as run:
            while not run.finished:
                self.optimizer.step()
        self.assertEqual([d[0] for d in client.done if d[0] != "parameter"],
                         ["connect", "start", "boundary", "renew", "cut", "before_step",
                          "boundary", "boundary",
                          "finish", "close"])
        self.assertEqual(client.of("boundary"), [("boundary", i, 5) for i in (1, 2, 3)])

    def test_a_step_changes_nothing_that_is_still_being_copied(self):
        """Between a cut and before_step() no parameter changes, even if step() is called."""
        class Copies(Fake):
            """A client whose copy reads the parameter for as long as it can."""

            def cut(self):
                self.done.append(("cut", self.weight.clone()))

            def before_step(self):
                self.done.append(("copied", self.weight.clone()))

        def by_hook(run):
            self.optimizer.step()
            return run

        def by_hand(run):
            self.optimizer.step()
            run.step()

        def skipped(run):  # by a GradScaler, which a loop without hooks need not know
            run.step()

        ways = ((by_hook, {}), (by_hand, {"hook": False}), (skipped, {"hook": False}))
        for step, given in ways:
            client = Copies(dues=[2, 0, 2, 0])
            client.weight = self.model[0].weight
            client.weight.grad = torch.ones_like(client.weight)
            with self.run_of(client, **given) as run:
                for _ in range(5):
                    step(run)
            cuts, copies = client.of("cut"), client.of("copied")
            self.assertEqual((len(cuts), len(copies)), (2, 2))
            for (_, one), (_, other) in zip(cuts, copies):
                self.assertTrue(torch.equal(one, other))
        client = Copies(dues=[2])
        client.weight = self.model[0].weight
        with longhaul.AsyncDiLoCo(client, self.model, None, hook=False, tokens_per_step=1) as run:
            run.step()  # this loop has no hook before its next step
            self.assertEqual([d[0] for d in client.done[-2:]], ["cut", "copied"])

    def test_a_loop_that_waits_lets_the_worker_have_its_cut_first(self):
        """The worker may be waiting for the cut; a cut from a GPU continues until before_step()."""
        client = Fake(dues=[2, 2 | 4])
        with self.run_of(client) as run:
            run.idle(0)
            run.step()
            news = [d[0] for d in client.of("cut", "before_step", "wait")]
        self.assertEqual(news, ["cut", "before_step", "wait"] * 2)
        client = Fake([longhaul.Unit(0, 0, 4)], dues=[2])
        with self.run_of(client) as run:
            loader = longhaul.LeasedDataLoader(run, self.units(4), batch_size=1, sequence_length=4)
            next(iter(loader))
            self.optimizer.step()
            loader._wait()  # within a step, to get another batch  # pylint: disable=W0212
        self.assertEqual([d[0] for d in client.of("cut", "before_step", "wait")],
                         ["cut", "before_step", "wait"])

    def test_the_wrapped_optimizer_steps_and_is_itself(self):
        client = Fake(dues=[0, 8])
        wrapped = longhaul.Optimizer(self.optimizer, client, self.model)
        wrapped.step(tokens=3)
        wrapped.zero_grad()
        wrapped.step(tokens=4)
        self.assertTrue(wrapped.run.finished)
        self.assertIs(wrapped.param_groups, self.optimizer.param_groups)
        wrapped.finish()
        self.assertEqual(client.of("boundary"), [("boundary", 1, 3), ("boundary", 2, 4)])

    def test_figures_of_the_loop_are_told_to_the_worker(self):
        client = Fake()
        with self.run_of(client, tokens_per_step=1) as run:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # a loss that was not detached gives no warning
                run.report(loss=torch.tensor(2.5, requires_grad=True), accuracy=1)
            run.report(perplexity=numpy.float32(3))
            for value in ([1], None.__class__, torch.zeros(2)):
                with self.assertRaisesRegex(TypeError, r"report\(\): loss is a .*: pass a number"):
                    run.report(loss=value)
            client.rank = 1
            run.report(loss=9)
        self.assertEqual(client.of("report"), [("report", "loss", 2.5), ("report", "accuracy", 1.0),
                                               ("report", "perplexity", 3.0)])

    def test_a_loop_that_counts_no_tokens_is_told_once(self):
        cuts = [longhaul.Due.CUT] * 3
        with self.assertLogs("longhaul", "WARNING") as said:
            with self.run_of(Fake(dues=cuts)):
                for _ in range(3):
                    self.optimizer.step()
        self.assertEqual(len(said.output), 1)
        self.assertIn("no tokens are counted", said.output[0])
        with self.assertNoLogs("longhaul", "WARNING"):
            with self.run_of(Fake(dues=cuts)) as run:
                run.trained(1)
                self.optimizer.step()

    def test_settings_of_the_run_are_named(self):
        for word, setting in (("sync_every", "coordinator.h_base"), ("compression", "codec"),
                              ("outer_optimizer", "update")):
            with self.assertRaisesRegex(TypeError, f"{word} is a setting of the run.*{setting}"):
                self.run_of(Fake(), **{word: 1})
        with self.assertRaisesRegex(TypeError, "takes no speed"):
            self.run_of(Fake(), speed=1)

    def test_an_error_in_the_loop_waits_for_nothing(self):
        client = Fake()
        with self.assertRaises(KeyError):
            with self.run_of(client):
                raise KeyError
        self.assertEqual((client.of("finish"), client.of("close")), ([], [("close",)]))

    def test_a_parameter_that_moved_is_named_before_anything_touches_it(self):
        for due, move in ((1, self.model.double), (2, self.model.bfloat16)):
            client = Fake(dues=[0, due])
            with self.assertRaisesRegex(errors.StateError, "0.weight, 0.bias lies elsewhere"):
                with self.run_of(client):
                    self.optimizer.step()
                    move()
                    self.optimizer.step()
            self.assertEqual(client.of("renew", "cut", "finish"), [])
            self.model.float()

    def test_a_parameter_that_moved_after_the_last_step_is_named(self):
        client = Fake()
        with self.assertRaisesRegex(errors.StateError, "0.weight"):
            with self.run_of(client):
                self.model[0].weight.data = torch.zeros(2, 2)
        self.assertEqual(client.of("finish"), [])

    def test_a_parameter_that_moved_is_not_described_to_another_life(self):
        client = Fake(dues=["over"])
        with self.assertRaisesRegex(errors.StateError, "0.weight"):
            with self.run_of(client):
                self.model.double()
                self.optimizer.step()
        self.assertEqual(len(client.of("start")), 1)

    def test_a_step_that_a_scaler_skips_is_no_step(self):
        client, scaler = Fake(), torch.amp.GradScaler("cpu", init_scale=2.0)
        with self.run_of(client) as run:
            for bad in (True, False):
                run.trained(5)
                self.optimizer.zero_grad()
                scaler.scale(self.model(torch.ones(1, 2)).sum()).backward()
                if bad:
                    self.model[0].weight.grad[0, 0] = float("inf")
                scaler.step(self.optimizer)
                scaler.update()
        self.assertEqual(client.of("boundary"), [("boundary", 1, 10)])

    def test_memory_for_bf16_parameters_is_logged(self):
        client = Fake()
        client.shadow = 24
        with self.assertLogs("longhaul", "WARNING") as said:
            with self.run_of(client):
                pass
        self.assertIn("0.0 MB of this process hold fp32 copies of bf16 parameters",
                      said.output[0])
        client.shadow = 0
        with self.assertNoLogs("longhaul", "WARNING"):
            with self.run_of(client):
                pass

    def test_an_optimizer_of_masters_is_refused_before_anybody_is_asked(self):
        """Other regions' progress would go into the model, and be overwritten from the masters."""
        masters = [p.detach().clone().requires_grad_() for p in self.model.parameters()]
        client = Fake()
        with self.assertRaisesRegex(errors.ModelError, r"2 tensors .* of shape \(2, 2\): .* after "
                                    r"fully_shard\(\)"):
            with longhaul.AsyncDiLoCo(client, self.model, torch.optim.SGD(masters, lr=0.1)):
                self.fail("it began")
        self.assertEqual(client.done, [])
        part = torch.optim.SGD([self.model[0].bias], lr=0.1)  # another optimizer steps on the
        dummy = torch.optim.SGD([torch.zeros(1)], lr=0.1)     # others: layer-wise optimizers
        for welcome in (part, dummy):
            with longhaul.AsyncDiLoCo(client, self.model, welcome):
                pass

    def test_masters_are_found_where_optimizers_keep_them(self):
        model = model_of((2, 2)).bfloat16()
        masters = {p: p.detach().float() for p in model.parameters()}
        state, groups, none = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(3))
        for p, master in masters.items():
            state.state[p]["master_param"] = master
            state.state[p]["master_of_all"] = torch.zeros(())
        groups.param_groups_master = [{"params": list(masters.values())}]
        ids = {id(p): m for p, m in masters.items()}
        for optimizer, given in ((state, None), (groups, None), (none, masters),
                                 (none, masters.get), (None, masters)):
            found = parameters.masters_of(model, optimizer, given)
            self.assertEqual(found.keys(), ids.keys())
            self.assertTrue(all(found[i] is ids[i] for i in ids))
        self.assertEqual(parameters.masters_of(model, none), {})
        self.assertEqual(parameters.masters_of(model, state, lambda p: None), {})
        for p, master in masters.items():
            p.main_param = master
        self.assertEqual(parameters.masters_of(model, none).keys(), ids.keys())

    def test_masters_take_the_place_of_their_parameters(self):
        self.model.bfloat16()
        masters = {p: p.detach().float().requires_grad_() for p in self.model.parameters()}
        client = Fake(dues=[longhaul.Due.RENEW])
        optimizer = torch.optim.SGD(list(masters.values()), lr=0.1)
        with longhaul.AsyncDiLoCo(client, self.model, optimizer, masters=masters):
            self.assertEqual(client.kinds, [1, 1])  # of fp32
            self.assertEqual(client.places, [m.data_ptr() for m in masters.values()])
            with torch.no_grad():
                for i, master in enumerate(masters.values()):
                    master.fill_(1.001 + i)
            optimizer.step()
            for i, p in enumerate(masters):
                self.assertEqual(p.dtype, torch.bfloat16)
                self.assertTrue((p == torch.tensor(1.001 + i).bfloat16()).all())

    def test_masters_that_come_with_the_first_step_begin_another_life(self):
        class Masters(torch.optim.SGD):
            """As in Transformer Engine: it steps on fp32 copies in its state."""

            def step(self, closure=None):
                for p in self.param_groups[0]["params"]:
                    self.state[p].setdefault("master_param", p.detach().float())

        self.model.bfloat16()
        client, optimizer = Fake(), Masters(self.model.parameters(), lr=0.1)
        with self.assertLogs("longhaul", "WARNING") as said:
            with longhaul.AsyncDiLoCo(client, self.model, optimizer, tokens_per_step=1):
                optimizer.step()
                optimizer.step()
        self.assertIn("fp32 masters", said.output[0])
        self.assertEqual([d[0] for d in client.of("connect", "close", "boundary")],
                         ["connect", "close", "connect", "boundary", "close"])
        self.assertEqual(client.of("boundary"), [("boundary", 1, 1)])
        self.assertEqual(client.kinds, [2, 2, 1, 1])
        self.assertEqual(client.places[2:], [optimizer.state[p]["master_param"].data_ptr()
                                             for p in self.model.parameters()])

    def test_masters_that_change_later_begin_another_life(self):
        """load_state_dict() in the middle; a parameter whose first gradient comes late."""
        self.model.bfloat16()
        first, late = self.model.parameters()
        masters = {first: first.detach().float()}
        client = Fake(dues=[longhaul.Due.CUT, 0, longhaul.Due.RENEW | longhaul.Due.CUT,
                            longhaul.Due.CUT])
        with self.assertLogs("longhaul", "WARNING") as said:
            with self.run_of(client, masters=masters, tokens_per_step=1) as run:
                self.optimizer.step()
                self.assertEqual(run.restarts, 0)
                masters[first], masters[late] = (p.detach().float() for p in (first, late))
                self.optimizer.step()
                self.optimizer.step()
                self.assertEqual((run.restarts, run.finished), (1, False))
                self.optimizer.step()
        self.assertIn("fp32 masters", said.output[0])
        self.assertEqual([d[0] for d in client.of("connect", "close", "renew", "cut", "boundary")],
                         ["connect", "boundary", "cut", "boundary", "boundary", "close", "connect",
                          "boundary", "cut", "close"])
        self.assertEqual(client.kinds, [1, 2, 1, 1])
        self.assertEqual(client.places[2:], [masters[p].data_ptr() for p in (first, late)])

    def test_masters_that_do_not_fit_are_refused(self):
        for wrong in (lambda p: p.detach().double(), lambda p: p.detach().view(-1)[:1].float()):
            client = Fake()
            with self.assertRaisesRegex(errors.UnsupportedError, "0.weight: .* master"):
                with self.run_of(client, masters=wrong):
                    self.fail("it began")
            self.assertEqual(client.of("connect"), [])

    def test_a_loops_own_scheduler_is_kept_and_said(self):
        cuts = [longhaul.Due.CUT] * 3
        torch.optim.lr_scheduler.ConstantLR(self.optimizer)
        for given, says in (({}, True), ({"schedule": "local"}, False)):
            client = Fake(dues=list(cuts))
            with self.assertLogs("longhaul", "WARNING") as said:
                longhaul.diloco._log.warning("begins")  # pylint: disable=protected-access
                with self.run_of(client, tokens_per_step=1, **given):
                    for _ in range(3):
                        self.optimizer.step()
            self.assertEqual("own scheduler" in said.output[-1], says)
            self.assertEqual(client.of("schedule"), [("schedule", 2)])
        with self.assertRaisesRegex(ValueError, "longhaul.schedule"):
            self.run_of(Fake(), schedule="run")

    def test_rates_by_the_runs_clock_are_said(self):
        client = Fake(dues=[longhaul.Due.CUT])
        with self.run_of(client, tokens_per_step=1):
            longhaul.schedule(self.optimizer, client, 1000)
            self.optimizer.step()
        self.assertEqual(client.of("schedule"), [("schedule", 1)])
        client = Fake(dues=[longhaul.Due.CUT])
        with self.run_of(client, tokens_per_step=1):  # a constant rate has no scheduler
            self.optimizer.step()
        self.assertEqual(client.of("schedule"), [])

    def test_a_loop_that_counts_what_a_loader_counts_too_is_refused(self):
        units = self.units(8)
        for given in ({"tokens_per_step": 1}, {}):
            with self.run_of(Fake(), **given) as run:
                with self.assertRaisesRegex(errors.StateError, "count twice"):
                    longhaul.LeasedDataLoader(run, units, batch_size=1, sequence_length=4)
                    run.trained(1)

    def test_a_budget_that_was_changed_makes_no_jump_of_the_rate(self):
        client = Fake()
        client.change = longhaul.client.BudgetChange(3000, 1000, 1000)
        rate = longhaul.schedule(self.optimizer, client, 1000)  # as in the script
        seen = []
        for client.credits in range(900, 1200, 10):
            rate.step()
            seen.append(rate.get_last_lr()[0])
        self.assertAlmostEqual(seen[9], 0.1 * longhaul.cosine(990, 1000))
        self.assertAlmostEqual(seen[10], 0.1 * 0.02)
        self.assertAlmostEqual(seen[20], 0.1 * longhaul.cosine(1100, 3000))
        self.assertTrue(all(b - a < 0.011 for a, b in zip(seen, seen[1:])), seen)

    def test_the_rate_follows_the_credited_tokens(self):
        client = Fake()
        rate = longhaul.schedule(self.optimizer, client, 1000)
        for credited, part in ((0, 0.02), (50, 1), (1000, 0.02)):
            client.credits = credited
            rate.step()
            self.assertAlmostEqual(rate.get_last_lr()[0], 0.1 * part)


class Functions(Case):
    def test_values_go_through_memory_that_the_client_keeps(self):
        memory = {}

        class Host(Fake):
            def parameter(self, name, shape, data, *, dtype, owner=None, **_):
                self.done.append(("parameter", name))
                memory[name] = owner

            def renew(self):
                memory["a"] += 10

            def cut(self):
                self.done.append(("cut", *memory["a"]))

        due = longhaul.Due
        client = Host(dues=[due(0), due.CUT, due.RENEW | due.CUT, "over", due.DRAIN])
        begin = {"b": numpy.zeros((2, 2)), "a": numpy.zeros(2)}
        with longhaul.Functional(client, begin, manifest=self.manifest(a=[2], b=[2, 2])) as run:
            self.assertEqual(client.of("parameter"), [("parameter", "a"), ("parameter", "b")])
            now = {"a": numpy.ones(2), "b": numpy.ones((2, 2))}
            self.assertIs(run.step(now), now)
            self.assertIs(run.step({**now, "a": 2 * now["a"]})["b"], now["b"])
            renewed = run.step({**now, "a": 3 * now["a"]})
            self.assertEqual(renewed["a"].tolist(), [13, 13])
            self.assertEqual(client.of("cut"), [("cut", 2, 2), ("cut", 13, 13)])
            self.assertIsNot(renewed["a"], memory["a"])  # a framework may keep the array
            memory["a"][:] = 5                           # with which the next life begins
            self.assertEqual(run.step(renewed)["a"].tolist(), [5, 5])
            run.step({**now, "a": 7 * now["a"]})
            self.assertTrue(run.finished)
        self.assertEqual(memory["a"].tolist(), [7, 7])   # the last cut sees the last step

    def test_another_model_is_named(self):
        with self.assertRaisesRegex(errors.ModelError, r"a is \(2,\) here and \(3,\)"):
            with longhaul.Functional(Fake(), {"a": numpy.zeros(2)},
                                     manifest=self.manifest(a=[3])):
                self.fail("it began")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
