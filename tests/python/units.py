#!/usr/bin/env python3
"""Loader, parameters, boundaries and schedule of the package alone: units.py LIBRARY PACKAGE.

The client is a stand-in that writes down what it is asked.
"""
import array
import ctypes
import hashlib
import json
import os
import struct
import sys
import tempfile
import threading
import unittest
import warnings
from unittest import mock

import numpy
import torch
from accelerate import Accelerator, DistributedType
from fake import Fake, errors, longhaul, model_of, parameters
from fits import IN, Fit, Watch, trainer_of
from longhaul.accelerate import LocalSGD
from longhaul.hf import LonghaulCallback
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from transformers import TrainerCallback


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="lh-py-")
        self.addCleanup(self.folder.cleanup)
        self.model = model_of((2, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def units(self, *sizes):
        tokens, rows = array.array("H"), []
        for i, size in enumerate(sizes):
            own = array.array("H", [100 * i + k for k in range(size)])
            rows.append({"id": i, "file": "a.bin", "from": len(tokens), "tokens": size,
                         "sha256": hashlib.sha256(own.tobytes()).hexdigest()})
            tokens.extend(own)
        with open(self.path("a.bin"), "wb") as file:
            file.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253))
            tokens.tofile(file)
        with open(self.path("units.json"), "w", encoding="utf-8") as file:
            json.dump({"units": rows}, file)
        return self.path("units.json")

    def manifest(self, **tensors):
        with open(self.path("model.json"), "w", encoding="utf-8") as file:
            json.dump({"tensors": [{"name": n.replace("_", "."), "shape": s}
                                   for n, s in tensors.items()]}, file)
        return self.path("model.json")

    def run_of(self, client, **options):
        return longhaul.AsyncDiLoCo(client, self.model, self.optimizer, **options)


class Scarce(Fake):
    """A client whose units are all there is: no other is leased until one of them is trained."""

    idle, over, holder = 0, None, None

    def lease(self):
        if self.leases:
            return self.leases.pop(0)
        if self.over in (self.holder or self).done:
            raise errors.DrainedError("none")
        return None

    def wait(self, *_):
        self.idle += 1
        if self.idle > 9:
            raise AssertionError("the loop waits for a step that never comes")


class Loader(Case):
    def train(self, client, path, steps=1000, **options):
        batches = []
        with self.run_of(client) as run:
            loader = longhaul.LeasedDataLoader(run, path, **options)
            for batch in loader:
                batches.append(batch)
                self.optimizer.step()
                steps -= 1
                if not steps:
                    break
        return batches

    def test_every_token_comes_once_and_is_noted_with_its_step(self):
        path = self.units(20, 7, 16)
        client = Fake([longhaul.Unit(0, 0, 20), longhaul.Unit(1, 0, 7), longhaul.Unit(2, 8, 16)])
        batches = self.train(client, path, batch_size=2, sequence_length=4)
        seen = sorted(v for b in batches for v in b.flatten().tolist())
        self.assertEqual(seen, [*range(20), *range(100, 107), *range(208, 216)])
        self.assertTrue(all(b.dtype == torch.long and b.shape[0] <= 2 for b in batches))
        last = {unit: upto for _, unit, upto in client.of("trained")}
        self.assertEqual(last, {0: 20, 1: 7, 2: 16})
        self.assertEqual(sum(d[2] for d in client.of("boundary")), 35)
        order = [d[0] for d in client.of("trained", "boundary")]
        self.assertEqual(order[0], "trained")
        self.assertEqual(order[-1], "boundary")

    def test_one_token_that_is_left_alone_is_not_handed_out(self):
        client = Fake([longhaul.Unit(0, 0, 9), longhaul.Unit(1, 0, 5)])
        batches = self.train(client, self.units(9, 5), batch_size=3, sequence_length=4)
        self.assertEqual(sorted(len(s) for b in batches for s in b), [4, 4, 4])
        last = {unit: upto for _, unit, upto in client.of("trained")}
        self.assertEqual(last, {0: 9, 1: 5})
        self.assertEqual(sum(d[2] for d in client.of("boundary")), 14)

    def damage(self, *tokens):
        with open(self.path("a.bin"), "r+b") as file:
            for at in tokens:
                file.seek(1024 + 2 * at)
                file.write(b"\x09")

    def test_a_damaged_unit_is_given_back_and_the_loop_goes_on(self):
        path = self.units(20, 8, 8)
        self.damage(22)
        client = Fake([longhaul.Unit(0, 0, 20), longhaul.Unit(1, 0, 8), longhaul.Unit(2, 0, 8)])
        with self.assertLogs("longhaul", "WARNING") as said:
            self.train(client, path, batch_size=1, sequence_length=4)
        self.assertRegex("\n".join(said.output),
                         r"unit 1 is damaged and given back, training goes on: tokens 20 to 28 of "
                         r".*a.bin are not those of units.json \(sha256\).*copy")
        self.assertEqual(client.of("damaged"), [("damaged", 1)])
        self.assertEqual({d[1] for d in client.of("trained")}, {0, 2})

    def test_a_file_that_ends_early_is_damage_too(self):
        path = self.units(20, 8)
        os.truncate(self.path("a.bin"), 1024 + 2 * 24)
        client = Fake([longhaul.Unit(0, 0, 20), longhaul.Unit(1, 0, 8)])
        self.train(client, path, batch_size=1, sequence_length=4)
        self.assertEqual(client.of("damaged"), [("damaged", 1)])
        self.assertEqual({d[1] for d in client.of("trained")}, {0})

    def test_a_folder_of_other_data_ends_the_loop(self):
        path = self.units(*[8] * 9)
        self.damage(*range(0, 72, 8))
        client = Fake([longhaul.Unit(i, 0, 8) for i in range(9)])
        with self.assertRaisesRegex(ValueError, "8 units in a row are not those of units.json"):
            self.train(client, path, batch_size=1, sequence_length=4)
        self.assertEqual(client.of("trained"), [])

    def test_what_no_step_trained_is_not_noted(self):
        client = Fake([longhaul.Unit(0, 0, 20)])
        with self.run_of(client) as run:
            next(iter(longhaul.LeasedDataLoader(run, self.units(20), batch_size=1,
                                                sequence_length=4)))
            run.idle()
        self.assertEqual(client.of("trained"), [])
        self.assertEqual(client.of("boundary"), [("boundary", 1, 0)])

    def test_notes_that_find_no_room_come_later(self):
        client = Fake([longhaul.Unit(0, 0, 16)])
        client.room = 0
        with self.run_of(client) as run:
            for batch in longhaul.LeasedDataLoader(run, self.units(16), batch_size=1,
                                                   sequence_length=4):
                self.optimizer.step()
                client.room = int(batch[0, -1] == 11)
        self.assertEqual(client.of("trained"), [("trained", 0, 16)])

    def test_a_loop_that_accumulates_gets_what_it_lacks_for_its_last_step(self):
        """Nothing else is leased until its units are credited, and these wait for that step."""
        client, seen = Scarce([longhaul.Unit(0, 0, 12)]), []
        client.over = ("trained", 0, 12)
        with self.run_of(client) as run:
            for batch in longhaul.LeasedDataLoader(run, self.units(12), batch_size=1,
                                                   sequence_length=4):
                seen.append(batch[0, 0].item())
                if len(seen) % 5 == 0:
                    self.optimizer.step()
        self.assertEqual(seen, [0, 4, 8, 8, 8])
        self.assertEqual(client.of("boundary"), [("boundary", 1, 12)])

    def test_a_loop_that_accumulates_waits_for_what_is_on_its_way(self):
        class Late(Fake):
            late = 2  # a lease that is asked for comes a moment later

            def lease(self):
                if len(self.leases) == 1 and self.late:
                    self.late -= 1
                    return None
                return super().lease()

        client, seen = Late([longhaul.Unit(0, 0, 8), longhaul.Unit(1, 0, 8)]), []
        with self.run_of(client) as run:
            for batch in longhaul.LeasedDataLoader(run, self.units(8, 8), batch_size=1,
                                                   sequence_length=4, window=1):
                seen.append(batch[0, 0].item())
                if len(seen) % 4 == 0:
                    self.optimizer.step()
        self.assertEqual(seen, [0, 4, 100, 104])

    def test_a_life_that_ends_while_the_loop_waits_is_followed_by_another(self):
        class Ends(Fake):
            lives, ends = 0, False

            def connect(self, *_):
                self.lives, self.ends = self.lives + 1, False
                if self.lives == 2:
                    self.leases = [longhaul.Unit(0, 0, 8)]

            def wait(self, *_):
                self.ends = self.lives == 1
                if self.ends:
                    raise errors.RestartError("over")

            def lease(self):
                if self.ends:
                    raise errors.RestartError("over")
                return super().lease() if self.leases or self.lives == 2 else None

            def boundary(self, *given):
                if self.ends:
                    raise errors.RestartError("over")
                return super().boundary(*given)

        for accumulate in (1, 2):  # it waits at a boundary, or within a step
            client, seen = Ends([longhaul.Unit(0, 4, 8)]), []
            with self.run_of(client) as run, self.assertLogs("longhaul", "WARNING"):
                for batch in longhaul.LeasedDataLoader(run, self.units(8), batch_size=1,
                                                       sequence_length=4):
                    seen.append(batch[0, 0].item())
                    if len(seen) != 1 or accumulate == 1:
                        self.optimizer.step()
            self.assertEqual((seen, run.restarts), ([4, 0, 4], 1))

    def test_an_iterator_of_its_own_for_each_batch_gets_what_it_lacks_too(self):
        class Scarce(Fake):
            def lease(self):
                return self.leases.pop(0) if self.leases else None

        seen = []
        with self.run_of(Scarce([longhaul.Unit(0, 0, 4)])) as run:
            loader = longhaul.LeasedDataLoader(run, self.units(4), batch_size=1, sequence_length=4)
            for _ in range(2):
                seen.append(next(iter(loader)).tolist())
            self.optimizer.step()
        self.assertEqual(seen, [[[0, 1, 2, 3]]] * 2)

    def test_a_life_that_is_over_takes_its_leases_along(self):
        client = Fake([longhaul.Unit(0, 0, 8), longhaul.Unit(0, 4, 8)], [0, "over"])
        path = self.units(8)
        batches = self.train(client, path, batch_size=1, sequence_length=4, window=1)
        self.assertEqual([b[0, 0].item() for b in batches], [0, 4, 4])
        self.assertEqual(len(client.of("start")), 2)

    def test_the_draws_go_on_from_a_state(self):
        path = self.units(400)
        run = self.run_of(Fake())
        one, two = (longhaul.LeasedDataLoader(run, path, batch_size=1, sequence_length=4, seed=s)
                    for s in (1, 2))
        two.load_state_dict(json.loads(json.dumps(one.state_dict())))
        self.assertEqual(one.state_dict(), two.state_dict())

    def test_later_epochs_map_to_the_same_data(self):
        path = self.units(8, 4, 4)
        leases = [longhaul.Unit(1, 0, 4), longhaul.Unit(3, 0, 8), longhaul.Unit(3 + 2, 0, 4),
                  longhaul.Unit(6 + 1, 0, 4)]
        client, seen, epochs = Fake(leases), [], []
        with self.run_of(client) as run:
            loader = longhaul.LeasedDataLoader(run, path, batch_size=1, sequence_length=4, window=1)
            self.assertEqual(loader.epoch, 0)
            for batch in loader:
                seen.append(batch[0, 0].item())
                epochs.append(loader.epoch)
                self.optimizer.step()
        self.assertEqual(seen, [100, 0, 4, 200, 100])
        self.assertEqual(epochs, [0, 1, 1, 1, 2])
        last = {unit: upto for _, unit, upto in client.of("trained")}
        self.assertEqual(last, {1: 4, 3: 8, 5: 4, 7: 4})  # noted as units of the run
        other = longhaul.LeasedDataLoader(self.run_of(Fake()), path, batch_size=1,
                                          sequence_length=4)
        other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        self.assertEqual(other.epoch, 2)

    def test_bad_data_is_named(self):
        path = self.units(8)
        with self.assertRaisesRegex(errors.ModelError, "unit 0 has 9 tokens in the run and 8"):
            self.train(Fake([longhaul.Unit(0, 0, 9)]), path, batch_size=1, sequence_length=4)
        with open(self.path("a.bin"), "wb") as file:
            file.write(b"text")
        with self.assertRaisesRegex(ValueError, "is not a token file"):
            self.train(Fake([longhaul.Unit(0, 0, 8)]), path, batch_size=1, sequence_length=4)
        ranked = Fake()
        ranked.ranks = 2
        with self.assertRaisesRegex(errors.UnsupportedError, "2 ranks.*init_process_group"):
            longhaul.LeasedDataLoader(self.run_of(ranked), path, batch_size=1, sequence_length=4)


class Ranks(Case):
    """Loaders of several ranks, each in a thread; what all of them found goes through a barrier."""

    def train(self, clients, path, accumulate=1, **options):
        """The batches of each rank, so many a step. A rank that comes to fewer steps than others
        breaks the barrier."""
        ranks, found, batches = len(clients), {}, [[] for _ in clients]
        barrier = threading.Barrier(ranks, timeout=60)

        def of_all(mine, count, _ours):
            self.assertEqual(count, ranks)
            found[threading.current_thread().name] = mine
            barrier.wait()
            all_of_them = [found[str(r)] for r in range(ranks)]
            barrier.wait()
            return all_of_them

        def loop(rank, client):
            client.rank, client.ranks = rank, ranks
            model = model_of((2, 2))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            try:
                with longhaul.AsyncDiLoCo(client, model, optimizer) as run:
                    for batch in longhaul.LeasedDataLoader(run, path, **options):
                        batches[rank].append(batch)
                        if len(batches[rank]) % accumulate == 0:
                            barrier.wait()  # the gradients' all-reduce
                            optimizer.step()
            except BaseException:
                barrier.abort()
                raise

        with mock.patch("longhaul.group.of_all", of_all), \
                mock.patch("longhaul.group.check"):
            threads = [threading.Thread(target=loop, args=(r, c), name=str(r))
                       for r, c in enumerate(clients)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        self.assertFalse(barrier.broken)
        return batches

    def test_units_are_shared_out_and_noted_by_the_rank_that_leased_them(self):
        path = self.units(32, 16, 16, 8)
        clients = [Fake([longhaul.Unit(0, 0, 32), longhaul.Unit(3, 4, 8)]),
                   Fake([longhaul.Unit(1, 0, 16), longhaul.Unit(2, 0, 16)])]
        batches = self.train(clients, path, batch_size=2, sequence_length=4, window=3)
        seen = [v for mine in batches for b in mine for v in b.flatten().tolist()]
        self.assertEqual(sorted(set(seen)), [*range(32), *range(100, 116), *range(200, 216),
                                             *range(304, 308)])
        self.assertEqual(len(seen), 68 + 4)  # the seventeenth sequence was left for both ranks
        self.assertEqual(len(batches[0]), len(batches[1]))
        self.assertTrue(all(set(map(tuple, a.tolist())).isdisjoint(map(tuple, b.tolist()))
                            for a, b in list(zip(*batches))[:-1]))
        for client, noted in zip(clients, ({0: 32, 3: 8}, {1: 16, 2: 16})):
            self.assertEqual({unit: upto for _, unit, upto in client.of("trained")}, noted)
        tokens = [sum(d[2] for d in c.of("boundary")) for c in clients]
        self.assertEqual(sum(tokens), 32 + 16 + 16 + 4)
        self.assertTrue(all(tokens))

    def test_one_sequence_for_two_ranks_counts_once(self):
        clients = [Fake(), Fake([longhaul.Unit(0, 0, 6)])]
        batches = self.train(clients, self.units(6), batch_size=1, sequence_length=4)
        self.assertEqual([[b.tolist() for b in mine] for mine in batches],
                         [[[[0, 1, 2, 3]], [[4, 5]]]] * 2)
        self.assertEqual([sum(d[2] for d in c.of("boundary")) for c in clients], [6, 0])
        self.assertEqual([c.of("trained")[-1:] for c in clients], [[], [("trained", 0, 6)]])

    def test_ranks_that_accumulate_get_what_they_lack_at_the_same_time(self):
        clients = [Scarce([longhaul.Unit(0, 0, 20)]), Scarce()]
        for client in clients:
            client.over, client.holder = ("trained", 0, 20), clients[0]
        batches = self.train(clients, self.units(20), accumulate=2, batch_size=1,
                             sequence_length=4)
        self.assertEqual([len(mine) for mine in batches], [4, 4])
        for mine in batches:
            self.assertTrue(torch.equal(mine[2], mine[3]))
        self.assertEqual([d[2] for d in clients[0].of("boundary") if d[2]], [8, 4])
        self.assertEqual([d[2] for d in clients[1].of("boundary") if d[2]], [8])

    def test_a_rank_without_units_waits_with_the_others(self):
        leases = [None, longhaul.Unit(0, 0, 4), None]
        batches = self.train([Fake(leases), Fake([None, None])], self.units(4), batch_size=1,
                             sequence_length=4)
        self.assertEqual([len(mine) for mine in batches], [1, 1])

    def test_a_life_that_is_over_for_one_is_over_for_all(self):
        path = self.units(8)
        clients = [Fake(["over", longhaul.Unit(0, 4, 8)], ["over"]),
                   Fake([longhaul.Unit(0, 0, 8)], [0, "over"])]
        batches = self.train(clients, path, batch_size=1, sequence_length=4)
        self.assertEqual([b.tolist() for b in batches[0]], [[[4, 5, 6, 7]]])
        self.assertEqual([len(c.of("start")) for c in clients], [2, 2])
        self.assertEqual([c.of("trained") for c in clients], [[("trained", 0, 8)], []])


class Boundaries(Case):
    def test_what_is_due_is_done_in_its_order(self):
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
        """Between a cut and before_step() no parameter changes, whoever calls step()."""
        class Copies(Fake):
            """The copy reads the parameter for as long as it can."""

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
            run.step()  # nobody says when this loop's next step begins
            self.assertEqual([d[0] for d in client.done[-2:]], ["cut", "copied"])

    def test_a_loop_that_waits_lets_the_worker_have_its_cut_first(self):
        """It may be what the worker waits for; a cut from a GPU is its own after before_step()."""
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
            loader._wait()  # within a step, for another batch of it  # pylint: disable=W0212
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
                warnings.simplefilter("error")  # a loss that was not detached is as usual
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

    def test_what_bf16_parameters_cost_is_said(self):
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
        """What other regions trained would go into the model, and be written over from them."""
        masters = [p.detach().clone().requires_grad_() for p in self.model.parameters()]
        client = Fake()
        with self.assertRaisesRegex(errors.ModelError, r"2 tensors .* of shape \(2, 2\): .* after "
                                    r"fully_shard\(\)"):
            with longhaul.AsyncDiLoCo(client, self.model, torch.optim.SGD(masters, lr=0.1)):
                self.fail("it began")
        self.assertEqual(client.done, [])
        part = torch.optim.SGD([self.model[0].bias], lr=0.1)  # another one steps on the rest
        dummy = torch.optim.SGD([torch.zeros(1)], lr=0.1)     # of layer-wise optimizers
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
            """As Transformer Engine's: it steps on fp32 copies in its state."""

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
        with self.run_of(client, tokens_per_step=1):  # a constant rate is nobody's
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
        rate = longhaul.schedule(self.optimizer, client, 1000)  # as the script has it
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


class Around(Case):
    """Trainer and accelerate."""

    def trainer(self, callback, *watches, **given):
        """A Trainer that trains in a run of this callback."""
        trainer = trainer_of(Fit(), self.path("out"), *watches, **given)
        callback.attach(trainer)
        return trainer

    def test_an_older_checkpoint_is_not_pushed_as_training(self):
        client = Fake()
        with self.assertRaisesRegex(errors.UnsupportedError, "load_best_model_at_end"):
            self.trainer(LonghaulCallback(1, client), load_best_model_at_end=True, max_steps=1,
                         eval_strategy="steps", save_strategy="steps").train()
        self.assertEqual(client.done, [])

    def test_what_cannot_be_trained_under_the_trainer_is_refused_by_name(self):
        for kind in ("DEEPSPEED", "FSDP"):
            client = Fake()
            state = mock.Mock(distributed_type=DistributedType[kind], is_fsdp2=False)
            with mock.patch("longhaul.hf.AcceleratorState", return_value=state), \
                    self.assertRaisesRegex(errors.UnsupportedError, f"{kind}: .* take FSDP2"):
                self.trainer(LonghaulCallback(1, client), max_steps=1).train()
            self.assertEqual(client.done, [])

    def test_the_runs_figures_reach_the_trainers_trackers(self):
        tracker = Watch()  # the Trainer's own come before the callbacks that it is given
        with mock.patch("transformers.trainer.get_reporting_integration_callbacks",
                        return_value=[tracker]):
            self.trainer(LonghaulCallback(1, Fake()), max_steps=2).train()
        self.assertIn("longhaul/cuts", tracker.logs[0])
        self.assertIn("loss", tracker.logs[0])

    def test_the_trainer_counts_the_tokens(self):
        for rank, ranks, mine in ((0, 1, 6 * IN), (0, 4, 11), (1, 4, 11), (2, 4, 10)):
            client = Fake()
            client.rank, client.ranks = rank, ranks
            self.trainer(LonghaulCallback(client=client), max_steps=2,
                         per_device_train_batch_size=3, gradient_accumulation_steps=2,
                         include_num_input_tokens_seen="all").train()
            self.assertEqual(client.of("boundary"), [("boundary", 1, mine), ("boundary", 2, mine)])

    def test_somebody_has_to_count_the_tokens(self):
        client = Fake()
        with self.assertRaisesRegex(errors.InvalidError, "tokens_per_step.*non_padding"):
            self.trainer(LonghaulCallback(client=client), max_steps=1).train()
        self.assertEqual(client.done, [])

    def test_a_model_whose_tokens_the_trainer_cannot_count_is_named(self):
        client, model = Fake(), Fit()
        model.main_input_name = "pixels"
        trainer = trainer_of(model, self.path("out"), max_steps=1,
                             include_num_input_tokens_seen="all")
        LonghaulCallback(client=client).attach(trainer)
        with self.assertRaisesRegex(errors.InvalidError, "counts no tokens .*tokens_per_step"):
            trainer.train()
        self.assertEqual(client.of("boundary"), [])

    def test_the_trainers_own_scheduler_is_said(self):
        for given, says in (({}, [("schedule", 2)]), ({"total_tokens": 9}, [("schedule", 1)])):
            client = Fake(dues=[longhaul.Due.CUT] * 2)
            self.trainer(LonghaulCallback(1, client, **given), max_steps=2).train()
            self.assertEqual(client.of("schedule")[:1], says)
            self.assertEqual({*client.of("schedule")}, {*says})

    def test_the_trainers_rate_follows_the_runs_clock(self):
        client, watch = Fake(), Watch()
        client.credits = 525  # half of what is left after the warm-up
        self.trainer(LonghaulCallback(1, client, total_tokens=1000), watch, max_steps=2,
                     learning_rate=0.1).train()
        self.assertEqual(len(watch.rates), 2)
        for rate in (*watch.rates, watch.logs[1]["learning_rate"]):
            self.assertAlmostEqual(rate, 0.1 * 0.51)

    def test_the_schedule_is_one_for_the_trainer_too(self):
        """It saves it, and loads it."""
        client, watch = Fake(), Watch()
        client.credits = 525
        for resumed in (False, True):
            model = Fit()
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            trainer = trainer_of(model, self.path("out"), watch, max_steps=2 + resumed,
                                 save_strategy="steps", save_steps=2,
                                 optimizers=(optimizer, longhaul.schedule(optimizer, client, 1000)))
            LonghaulCallback(1, client).attach(trainer)
            trainer.train(resume_from_checkpoint=resumed)
        self.assertEqual(len(watch.rates), 3)
        for rate in watch.rates:
            self.assertAlmostEqual(rate, 0.1 * 0.51)

    def test_a_training_that_ended_with_an_error_is_left_before_another(self):
        class Interrupt(TrainerCallback):
            at = 2

            def on_step_end(self, args, state, control, **_):
                if state.global_step == self.at:
                    raise KeyboardInterrupt

        client, interrupt = Fake(), Interrupt()
        trainer = self.trainer(LonghaulCallback(1, client), interrupt, max_steps=3)
        with self.assertRaises(KeyboardInterrupt):
            trainer.train()
        interrupt.at = 0
        trainer.train()
        self.assertEqual([d[0] for d in client.of("connect", "boundary", "finish", "close")],
                         ["connect", *["boundary"] * 2, "close", "connect", *["boundary"] * 3,
                          "finish", "close"])

    def test_accelerates_steps_accumulate_until_they_are_one(self):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model, optimizer = accelerator.prepare(self.model, self.optimizer)
        client = Fake(dues=[2, 8])
        with LocalSGD(accelerator, model, 8, client=client) as local:
            while not local.finished:
                with accelerator.accumulate(model):
                    accelerator.backward(model(torch.ones(1, 2)).sum())
                    optimizer.step()
                    optimizer.zero_grad()
                    local.step(tokens=3)
        self.assertEqual(client.of("boundary"), [("boundary", 1, 6), ("boundary", 2, 6)])
        self.assertEqual(client.of("cut", "finish", "close"),
                         [("cut",), ("finish", 60), ("close",)])
        self.assertEqual([d[1] for d in client.of("report")], ["loss"])
        self.assertNotIn("backward", vars(accelerator))  # it is accelerate's own again

    def test_the_optimizer_that_accelerate_wrapped_will_do(self):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model, optimizer = accelerator.prepare(self.model, self.optimizer)
        client = Fake()
        with longhaul.AsyncDiLoCo(client, model, optimizer, tokens_per_step=3):
            for _ in range(4):
                with accelerator.accumulate(model):
                    accelerator.backward(model(torch.ones(1, 2)).sum())
                    optimizer.step()
                    optimizer.zero_grad()
        self.assertEqual(client.of("boundary"), [("boundary", 1, 3), ("boundary", 2, 3)])

    def test_a_loop_of_accelerate_takes_units_of_the_run(self):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model, optimizer = accelerator.prepare(self.model, self.optimizer)
        client, seen = Scarce([longhaul.Unit(0, 0, 12)]), []
        client.over = ("trained", 0, 12)
        with LocalSGD(accelerator, model, client=client) as local:
            for batch in longhaul.LeasedDataLoader(local.run, self.units(12), batch_size=1,
                                                   sequence_length=4):
                seen.append(batch[0, 0].item())
                with accelerator.accumulate(model):
                    accelerator.backward(model(batch.float().view(2, 2)).sum())
                    optimizer.step()
                    optimizer.zero_grad()
                    local.step()
        self.assertEqual(seen, [0, 4, 8, 8])
        self.assertEqual(client.of("boundary"), [("boundary", 1, 8), ("boundary", 2, 4)])

    def test_accelerate_alone_and_sharded(self):
        accelerator = Accelerator(cpu=True)
        with LocalSGD(accelerator, self.model, enabled=False) as local:
            local.step()
        self.assertFalse(local.finished)
        for kind in ("DEEPSPEED", "MEGATRON_LM", "FSDP"):
            sharded = mock.Mock(distributed_type=DistributedType[kind], is_fsdp2=False)
            with self.assertRaisesRegex(errors.UnsupportedError, f"{kind}: .* take FSDP2"):
                LocalSGD(sharded, self.model)


class Additions(Case):
    """What parameters on a GPU are given, with memory of the host's."""

    def test_a_correction_is_added_to_the_bit(self):
        draw = torch.Generator().manual_seed(1)
        whole = torch.randn(30, 7, generator=draw)
        before, add = whole.clone().view(-1), parameters.Adder(whole)
        values = torch.randn(20, generator=draw)
        where = torch.randperm(90, generator=draw)[:20].to(torch.int32)
        add(100, 90, 20, values.data_ptr(), where.data_ptr())
        before[100 + where.long()] += values
        self.assertTrue(torch.equal(whole.view(-1), before))
        add(3, 20, 20, values.data_ptr(), 0)
        before[3:23] += values
        self.assertTrue(torch.equal(whole.view(-1), before))

    def test_a_shadow_is_renewed_as_the_library_does_it(self):
        """s + (p - bf16(s)) + correction in fp32, each rounded once; then p is bf16 of it."""
        draw = torch.Generator().manual_seed(1)
        p = (torch.randn(50, generator=draw) * 3).bfloat16()
        shadow = parameters.Shadow(p)
        shadow.kept += torch.randn(50, generator=draw) / 500  # what bf16 can't hold
        shadow.fill()
        p += torch.randn(50, generator=draw).bfloat16()
        s = shadow.kept.clone()
        held = torch.zeros(50)
        shadow.take(10, 40, held.data_ptr() + 40, 0)
        s[10:] += p[10:].float() - s[10:].bfloat16().float()
        self.assertTrue(torch.equal(held[10:], s[10:]))
        values = torch.randn(5, generator=draw)
        where = torch.tensor([1, 30, 2, 7, 39], dtype=torch.int32)
        shadow(10, 40, 5, values.data_ptr(), where.data_ptr())
        s[10 + where.long()] += values
        self.assertTrue(torch.equal(shadow.kept, s))
        self.assertTrue(torch.equal(p[10:], s[10:].bfloat16()))
        shadow(10, 40, 0, values.data_ptr(), where.data_ptr())  # it has no entry there
        self.assertTrue(torch.equal(shadow.kept, s))

    def test_what_goes_wrong_is_the_cuts_error(self):
        def take(*_):
            raise MemoryError("of the GPU")

        client = longhaul.Client(0, 1)
        called = client._taker(take)  # pylint: disable=protected-access
        one = longhaul.library.Taking(0, 1, 0, 0)
        for name in ("longhaul_cut", "longhaul_cut_piece"):
            setattr(client._lib, name,  # pylint: disable=protected-access
                    lambda *_: 6 if called(None, ctypes.byref(one)) else 0)
        with self.assertRaisesRegex(MemoryError, "of the GPU"):
            client.cut()

    def test_what_goes_wrong_is_the_renewals_error(self):
        def add(*_):
            raise MemoryError("of the GPU")

        client = longhaul.Client(0, 1)
        called = client._adder(add)  # pylint: disable=protected-access
        one = longhaul.library.Addition(0, 1, 1, 0, 0)
        for name in ("longhaul_renew", "longhaul_renew_piece"):
            setattr(client._lib, name,  # pylint: disable=protected-access
                    lambda *_: 6 if called(None, ctypes.byref(one)) else 0)
        with self.assertRaisesRegex(MemoryError, "of the GPU"):
            client.renew()


class Parameters(Case):
    def test_the_manifest_orders_and_chooses(self):
        path = self.manifest(**{"0_bias": [2], "0_weight": [2, 2]})
        found = parameters.of_run(self.model, path)
        self.assertEqual([n for n, _ in found], ["0.bias", "0.weight"])
        with self.assertRaisesRegex(errors.ModelError, "0.bias would be trained here"):
            parameters.of_run(self.model, self.manifest(**{"0_weight": [2, 2]}))
        self.model[0].bias.requires_grad_(False)
        self.assertEqual(len(parameters.of_run(self.model, self.manifest(**{"0_weight": [2, 2]}))),
                         1)
        with self.assertRaisesRegex(errors.ModelError, "no parameter 1.weight"):
            parameters.of_run(self.model, self.manifest(**{"1_weight": [2, 2]}))
        with self.assertRaisesRegex(errors.ModelError, r"\(2, 2\) in the model and \(4,\)"):
            parameters.of_run(self.model, self.manifest(**{"0_weight": [4]}))

    def test_tied_weights_are_one(self):
        model = model_of((2, 2), (2, 2))
        model[1].weight = model[0].weight
        names = [n for n, _ in parameters.of_run(model, None)]
        self.assertEqual(names, ["0.weight", "0.bias", "1.bias"])
        path = self.manifest(**{"1_weight": [2, 2], "0_bias": [2], "1_bias": [2]})
        self.assertIs(parameters.of_run(model, path)[0][1], model[0].weight)

    def test_wrappers_have_no_name_and_a_module_of_that_name_keeps_its_own(self):
        class Wrapped(torch.nn.Module):
            def __init__(self, **children):
                super().__init__()
                for name, child in children.items():
                    self.add_module(name, child)

        inner = Wrapped(_orig_mod=self.model)
        self.assertEqual([n for n, _ in parameters.of_run(Wrapped(module=inner), None)],
                         ["0.weight", "0.bias"])
        recomputed = checkpoint_wrapper(torch.nn.Linear(2, 2))
        self.assertEqual([n for n, _ in parameters.of_run(Wrapped(layer=recomputed), None)],
                         ["layer.weight", "layer.bias"])
        both = Wrapped(module=Wrapped(x=torch.nn.Linear(2, 2)), x=torch.nn.Linear(2, 2))
        self.assertEqual([n for n, _ in parameters.of_run(both, None)],
                         ["module.x.weight", "module.x.bias", "x.weight", "x.bias"])

    def test_another_base_under_the_adapters_is_refused(self):
        model = model_of((2, 2), (2, 2))
        model[0].requires_grad_(False)
        self.assertEqual(longhaul.save_initial(model, self.path("out")), 6)
        manifest = self.path("out/model.json")
        self.assertEqual([n for n, _ in parameters.of_run(model, manifest)],
                         ["1.weight", "1.bias"])
        for change in (lambda p: p.add_(1), lambda p: p.view(-1)[:1].neg_()):
            with torch.no_grad():
                change(model[0].weight)
            with self.assertRaisesRegex(errors.ModelError, "parameters or buffers are others"):
                parameters.of_run(model, manifest)
        whole = model_of((2, 2))
        longhaul.save_initial(whole, self.path("whole"))
        self.assertEqual(parameters.read_manifest(self.path("whole/model.json"))["model"], {})

    def test_the_base_is_the_frozen_parameters_and_their_types(self):
        model = model_of((2, 2), (2, 2))
        model[0].requires_grad_(False)
        before = parameters.digest_of_frozen(model)
        with torch.no_grad():
            model[1].weight.add_(1)  # training goes on
        self.assertEqual(parameters.digest_of_frozen(model), before)
        with torch.no_grad():
            model[0].weight.zero_()
            model[0].bias.zero_()
        kinds = {parameters.digest_of_frozen(model.to(kind))
                 for kind in (torch.float16, torch.bfloat16)}
        self.assertEqual(len(kinds), 2)  # the same bytes

    def test_a_model_that_is_shared_out_begins_no_run(self):
        shared = mock.Mock(placements=("Shard(0)",), requires_grad=True)
        model = mock.Mock(named_parameters=lambda **_: [("w", shared)])
        with self.assertRaisesRegex(errors.UnsupportedError, r"w is shared out .* fully_shard"):
            longhaul.save_initial(model, self.path("out"))

    def test_what_cannot_be_trained_is_refused_by_name(self):
        client = Fake()
        half = torch.nn.Parameter(torch.zeros(2, dtype=torch.float16))
        with self.assertRaisesRegex(errors.UnsupportedError, "x is torch.float16"):
            parameters.describe(client, "x", half)
        with self.assertRaisesRegex(errors.UnsupportedError, "not contiguous"):
            parameters.describe(client, "x", torch.nn.Parameter(torch.zeros(2, 3).t()))
        parameters.describe(client, "x", torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16)))
        self.assertEqual((client.of("parameter"), client.kinds), ([("parameter", "x")], [2]))

    def test_a_run_begins_from_any_model(self):
        self.model[0].bias.requires_grad_(False)
        values = longhaul.save_initial(self.model, self.path("out"), shards=1)
        with open(os.path.join(self.path("out"), "model.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), {
                "schema": "longhaul.manifest/1", "chunk": 4096, "shards": 1,
                "model": {"base": parameters.digest_of_frozen(self.model)},
                "tensors": [{"name": "0.weight", "shape": [2, 2]}]})
        with open(os.path.join(self.path("out"), "weights.bin"), "rb") as file:
            kept = torch.tensor(struct.unpack("<4f", file.read())).view(2, 2)
        self.assertEqual(values, 4)
        self.assertTrue(torch.equal(kept, self.model[0].weight))


class Rows(Case):
    """What fully_shard() gives a rank, without ranks: stand-ins with its placements."""

    def held(self, shape, rank, ranks, placements=None, dimensions=1, names=None):
        from torch.distributed.tensor import Shard  # pylint: disable=import-outside-toplevel

        whole = torch.arange(float(torch.Size(shape).numel())).view(shape)
        rows = list(torch.chunk(whole, ranks)) + [whole[:0]] * ranks
        mesh = mock.Mock(ndim=dimensions, size=lambda: ranks, get_local_rank=lambda: rank,
                         mesh_dim_names=names)
        part = mock.Mock(placements=placements or (Shard(0),), device_mesh=mesh,
                         shape=torch.Size(shape), to_local=lambda: rows[rank])
        return parameters.held("w", mock.Mock(detach=lambda: part))

    def test_rows_make_a_whole(self):
        for shape, ranks in (((5, 3), 2), ((7,), 4), ((2, 2), 4), ((9, 2, 2), 3)):
            at, values = 0, torch.Size(shape).numel()
            for rank in range(ranks):
                mine = self.held(shape, rank, ranks)
                self.assertEqual((mine.shape, mine.first), (shape, at))
                self.assertEqual(mine.data.flatten().tolist(), list(range(at, at + mine.count)))
                at += mine.count
            self.assertEqual(at, values)

    def test_other_placements_are_refused(self):
        from torch.distributed.tensor import Replicate, Shard  # pylint: disable=C0415

        for placements, names, way in (
                ((Shard(1),), None, "tensor parallel"),
                ((Shard(0),), ("tp",), "tensor parallel"),
                ((Shard(0), Shard(0)), None, "tensor parallel"),
                ((Shard(0), Replicate()), ("fsdp", "tp"), "tensor parallel"),
                ((Replicate(), Shard(0)), None, r"hybrid sharding \(HSDP\)")):
            with self.assertRaisesRegex(errors.UnsupportedError, f"w is placed .* under {way} "):
                self.held((4, 4), 0, 2, placements, len(placements), names)

    def test_ways_that_leave_no_parameter_whole_are_refused_by_name(self):
        for mark, way in (("ds_id", "ZeRO-3"), ("tensor_model_parallel", "tensor parallel"),
                          ("_is_flat_param", "FSDP1")):
            model = model_of((2, 2))
            setattr(model[0].weight, mark, 1)
            with self.assertRaisesRegex(errors.UnsupportedError, f"0.weight .* under {way} "):
                parameters.of_run(model, None)
        wrapped = torch.nn.Module()
        wrapped.add_module("_fsdp_wrapped_module", model_of((2, 2)))
        with self.assertRaisesRegex(errors.UnsupportedError, "under FSDP1 "):
            parameters.of_run(wrapped, None)


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
            self.assertIsNot(renewed["a"], memory["a"])  # a framework may keep what it gets
            memory["a"][:] = 5                           # what the next life begins with
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
