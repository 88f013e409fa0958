#!/usr/bin/env python3
"""The loader of leased units, of one rank and of several: units.py LIBRARY PACKAGE.

The client is a stand-in that records its calls.
"""
import json
import os
import sys
import threading
import unittest
from unittest import mock

import torch
from fake import Case, Fake, Scarce, errors, longhaul, model_of


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

    def test_batches_without_a_step_are_not_noted(self):
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
        """No other unit is leased until its units are credited, and these wait for that step."""
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
            late = 2  # a requested lease arrives a moment later

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
        self.assertEqual(last, {1: 4, 3: 8, 5: 4, 7: 4})  # noted under the run's unit numbers
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
    """Loaders of several ranks, each in a thread; a barrier checks that they step together."""

    def train(self, clients, path, accumulate=1, **options):
        """The batches of each rank, `accumulate` per step. A rank that takes fewer steps than
        others breaks the barrier."""
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
        self.assertEqual(len(seen), 68 + 4)  # both ranks got the seventeenth sequence
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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
