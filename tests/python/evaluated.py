#!/usr/bin/env python3
"""Held-out losses (longhaul/heldout.py) and a loop's results (longhaul/final.py).

LIBRARY PACKAGE: liblonghaul.so and the package's folder.
"""
import contextlib
import io
import json
import math
import os
import shutil
import sys
import tempfile
import types
import unittest
from unittest import mock

import torch
from fake import Fake, longhaul, errors
from longhaul import heldout

VOCABULARY, LENGTH = 8, 16


class Bigram(torch.nn.Module):
    """Logits of the next token by the one before."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(VOCABULARY, VOCABULARY)
        torch.nn.init.zeros_(self.table.weight)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, ids):
        """Logits for a batch of ids."""
        return self.drop(self.table(ids))


def counting(first, count):
    """A text in which each token follows from the one before."""
    return [(first + i) % VOCABULARY for i in range(count)]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.data = os.path.join(self.folder, "data")
        longhaul.save_units({"asia": {"ja": [counting(0, 256)]}}, self.data, VOCABULARY,
                            unit_tokens=64, heldout={"ja": [counting(1, 50), counting(3, 51)],
                                                     "de": [[5] * 33]}, heldout_bytes={"de": 99})
        self.model = Bigram()
        self.worker = os.path.join(self.folder, "worker")
        os.makedirs(self.worker)
        os.environ["LONGHAUL_SOCKET"] = os.path.join(self.worker, "trainer.sock")
        self.addCleanup(os.environ.pop, "LONGHAUL_SOCKET", None)

    def write(self, name, content):
        with open(os.path.join(self.worker, name), "wb") as file:
            file.write(content)

    def run_of(self, client, **given):
        return longhaul.AsyncDiLoCo(client, self.model,
                                    torch.optim.SGD(self.model.parameters(), lr=4.0), **given)

    def step(self, ids):
        self.model(ids)[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).mean().neg().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Losses(Case):
    def test_units_json_says_what_is_held_out(self):
        with open(os.path.join(self.data, "units.json"), encoding="utf-8") as file:
            rows = json.load(file)["heldout"]
        self.assertEqual([(r["language"], r["file"], r["tokens"], r["bytes"]) for r in rows],
                         [("de", "heldout-de-000.bin", 33, 99), ("ja", "heldout-ja-000.bin", 101,
                                                                 101)])
        self.assertEqual([len(r["sha256"]) for r in rows], [64, 64])

    def test_a_text_of_one_token_can_not_be_held_out(self):
        with self.assertRaisesRegex(ValueError, "heldout, de: 1 tokens"):
            longhaul.save_units({"asia": {"ja": [counting(0, 256)]}}, self.data, VOCABULARY,
                                unit_tokens=64, heldout={"de": [[1]]})

    def test_a_token_beyond_the_vocabulary_can_not_be_held_out(self):
        for token in (VOCABULARY, 65535):
            with self.assertRaisesRegex(ValueError, f"heldout, de: a token of 1 to {token}"):
                longhaul.save_units({"asia": {"ja": [counting(0, 256)]}}, self.data, VOCABULARY,
                                    unit_tokens=64, heldout={"de": [[1, token]]})

    def test_losses_by_language(self):
        losses = longhaul.evaluate(self.model, self.data, sequence_length=LENGTH)
        self.assertEqual(set(losses), {"ja", "de"})
        for value in losses.values():
            self.assertAlmostEqual(value, math.log(VOCABULARY), places=5)
        self.assertTrue(self.model.training)
        with torch.no_grad():
            self.model.table.weight[5, 5] = 20.0
        losses = longhaul.evaluate(self.model, self.data, sequence_length=LENGTH)
        self.assertLess(losses["de"], 0.01)
        self.assertGreater(losses["ja"], math.log(VOCABULARY))

    def test_a_text_that_was_changed_is_not_judged_by(self):
        path = os.path.join(self.data, "heldout-ja-000.bin")
        with open(path, "r+b") as file:
            file.seek(1024 + 4)
            file.write(bytes(2))
        with self.assertRaisesRegex(ValueError, "is not the held-out text of units.json"):
            longhaul.evaluate(self.model, self.data)
        self.assertEqual(heldout.main(["--load", "nowhere:load", "--data", self.data]), 1)

    def test_unsuitable_lengths_and_data_are_refused(self):
        self.model.config = types.SimpleNamespace(max_position_embeddings=LENGTH)
        losses = longhaul.evaluate(self.model, self.data)  # no more tokens than it has positions
        self.assertEqual(losses, longhaul.evaluate(self.model, self.data, sequence_length=LENGTH))
        with self.assertRaisesRegex(ValueError, f"takes {LENGTH} tokens at a time, and sequence_l"):
            longhaul.evaluate(self.model, self.data, sequence_length=LENGTH + 1)
        self.model.table = torch.nn.Embedding(5, VOCABULARY)
        with self.assertRaisesRegex(ValueError, "made with another tokenizer"):
            longhaul.evaluate(self.model, self.data)
        for text in ("{}", "[]", "no JSON"):
            with open(os.path.join(self.data, "units.json"), "w", encoding="utf-8") as file:
                file.write(text)
            with self.assertRaisesRegex(ValueError, "units.json is not what"):
                longhaul.evaluate(self.model, self.data)

    def test_nothing_held_out_is_an_error(self):
        longhaul.save_units({"asia": {"ja": [counting(0, 256)]}}, self.data, VOCABULARY,
                            unit_tokens=64)
        with self.assertRaisesRegex(ValueError, "no text is held out"):
            longhaul.evaluate(self.model, self.data)

    def test_the_command_compares_before_and_after(self):
        longhaul.save_initial(self.model, os.path.join(self.folder, "m"), shards=1)
        trained = torch.zeros(VOCABULARY, VOCABULARY)
        trained[5, 5] = 20
        weights = os.path.join(self.folder, "final.weights")
        with open(weights, "wb") as file:
            file.write(trained.numpy().tobytes())
        with open(os.path.join(self.folder, "mine.py"), "w", encoding="utf-8") as file:
            file.write("import evaluated\ndef load(): return evaluated.Bigram()\n")
        sys.modules["evaluated"] = sys.modules["__main__"]
        sys.path.insert(0, self.folder)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = heldout.main(["--load", "mine:load", "--data", self.data, "--manifest",
                                 os.path.join(self.folder, "m", "model.json"), "--weights", weights,
                                 "-o", "json"])
        found = json.loads(said.getvalue())
        self.assertEqual(code, 0)
        self.assertAlmostEqual(found["before"]["de"], math.log(VOCABULARY), places=5)
        self.assertLess(found["after"]["de"], 0.01)
        self.assertIn("mean", heldout.table(found))

    def test_weights_of_another_shape_are_refused(self):
        folder = os.path.join(self.folder, "m")
        longhaul.save_initial(self.model, folder, shards=1)
        self.model.table = torch.nn.Embedding(VOCABULARY + 1, VOCABULARY)
        with self.assertRaisesRegex(ValueError, r"table.weight is \(9, 8\) in the model and"):
            heldout.load_weights(self.model, os.path.join(folder, "model.json"),
                                 os.path.join(folder, "weights.bin"))


class During(Case):
    def test_each_n_rounds_and_the_best_one_is_kept(self):
        cut = longhaul.Due.CUT
        client = Fake(dues=[cut, cut, cut, cut])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=4.0)
        self.model.drop.p = 0
        ids = torch.tensor([counting(0, LENGTH)])
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            with longhaul.AsyncDiLoCo(client, self.model, self.optimizer,
                                      tokens_per_step=1) as run:
                longhaul.Evaluation(run, self.data, every=2, sequence_length=LENGTH)
                for _ in range(4):
                    self.step(ids)
        with open(os.path.join(self.worker, heldout.FILE), encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual(client.of("report")[0][1], "heldout")  # before the languages
        self.assertEqual(len(found["rounds"]), 2)
        self.assertLess(found["rounds"][0]["losses"]["ja"], found["before"]["losses"]["ja"])
        best = min([*found["rounds"], found["after"]], key=lambda seen: seen["mean"])
        self.assertEqual(found["best"]["mean"], best["mean"])
        self.assertTrue(os.path.getsize(os.path.join(self.worker, heldout.BEST)) > 0)
        self.assertIn("before", said.getvalue())
        self.assertRegex(said.getvalue(), "best: .* credited tokens")

    def test_a_loop_that_starts_anew_keeps_what_was_before_the_run(self):
        before = {"losses": {"ja": 9.0, "de": 9.0}, "mean": 9.0, "credited_tokens": 0,
                  "versions": []}
        self.write(heldout.FILE, json.dumps({"before": before}).encode())
        with longhaul.AsyncDiLoCo(Fake(), self.model, torch.optim.SGD(self.model.parameters(),
                                                                      lr=1.0)) as run:
            found = longhaul.Evaluation(run, self.data).found
        self.assertEqual(found["before"], before)

    def evaluated(self, steps, **given):
        """One life of a loop that evaluates every 2 rounds; gives its results."""
        client = Fake(dues=[longhaul.Due.CUT] * steps)
        self.model.drop.p = 0
        ids = torch.tensor([counting(0, LENGTH)])
        with contextlib.redirect_stdout(io.StringIO()):
            with longhaul.AsyncDiLoCo(client, self.model, self.optimizer,
                                      tokens_per_step=1) as run:
                evaluation = longhaul.Evaluation(run, self.data, every=2, sequence_length=LENGTH,
                                                 **given)
                for _ in range(steps):
                    self.step(ids)
        return evaluation.found

    def test_rounds_go_on_in_the_loops_next_life(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        first = self.evaluated(3)
        self.assertEqual((first["cuts"], len(first["rounds"])), (3, 1))
        second = self.evaluated(3)
        self.assertEqual((second["cuts"], len(second["rounds"])), (6, 3))

    def test_a_loss_that_is_no_number_is_not_the_best(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        look = heldout.evaluate
        with mock.patch.object(heldout, "evaluate", side_effect=[
                {"de": math.nan, "ja": 1.0}] * 2 + [{"de": 1.0, "ja": 1.0}] * 2):
            found = self.evaluated(4)
        self.assertIs(heldout.evaluate, look)
        self.assertTrue(math.isnan(found["rounds"][0]["mean"]))
        self.assertEqual((found["best"]["mean"], found["best"]["when"]), (1.0, "round 4"))

    def test_a_disk_without_room_does_not_end_the_loop(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        with self.assertLogs("longhaul", "WARNING") as said:
            found = self.evaluated(2, folder=os.path.join(self.folder, "is not there"))
        self.assertIsNone(found["best"])
        self.assertIsNotNone(found["after"])
        self.assertIn("not written", said.output[0])

    def test_texts_that_are_gone_in_the_middle_do_not_end_the_loop(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        look, calls = heldout.heldout_of, []

        def gone(data):
            calls.append(data)
            if len(calls) > 2:  # the first two calls: at the start, and before the run
                raise FileNotFoundError("heldout-de.bin")
            return look(data)
        with mock.patch.object(heldout, "heldout_of", side_effect=gone), \
                self.assertLogs("longhaul", "WARNING") as said:
            found = self.evaluated(2)
            again = self.evaluated(2)  # a loop that starts again can't read the file at all
        self.assertIn("not evaluated: heldout-de.bin", said.output[0])
        self.assertIn("nothing is evaluated: heldout-de.bin", "".join(said.output))
        self.assertEqual((found["after"], found["rounds"]), (None, []))
        self.assertEqual(again["before"], found["before"])

    def test_a_device_without_memory_does_not_end_the_loop(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        full = torch.OutOfMemoryError("CUDA out of memory")
        with mock.patch.object(heldout, "evaluate", side_effect=[{"de": 2.0, "ja": 2.0}, full,
                                                                 {"de": 1.0, "ja": 1.0}]), \
                self.assertLogs("longhaul", "WARNING") as said:
            found = self.evaluated(2)
        self.assertIn("not evaluated: OutOfMemoryError: CUDA out of memory", said.output[0])
        self.assertEqual((found["rounds"], found["after"]["mean"]), ([], 1.0))

    def test_a_model_that_can_not_be_evaluated_at_all_is_an_error(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        with mock.patch.object(heldout, "evaluate", side_effect=RuntimeError("size mismatch")), \
                self.assertRaisesRegex(RuntimeError, "size mismatch"):
            self.evaluated(2)

    def test_other_texts_begin_anew(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        before = {"losses": {"fr": 9.0}, "mean": 9.0, "credited_tokens": 0, "versions": []}
        self.write(heldout.FILE, json.dumps({"before": before, "best": before}).encode())
        found = self.evaluated(2)
        self.assertEqual(set(found["before"]["losses"]), {"de", "ja"})


class Final(Case):
    def leave(self, values, before=lambda: None):
        self.write("identity", b"")
        self.write("final.weights", values.numpy().tobytes())
        with longhaul.AsyncDiLoCo(Fake(), self.model, torch.optim.SGD(self.model.parameters(),
                                                                      lr=1.0)):
            before()

    def test_the_runs_final_values_are_accepted(self):
        self.leave(self.model.table.weight.detach().clone())

    def test_another_value_is_told_by_name(self):
        values = self.model.table.weight.detach().clone()
        values[3, 3] = 1
        with self.assertRaisesRegex(errors.StateError, "table.weight of the model is not what the "
                                                       "run ended with"):
            self.leave(values)

    def test_a_short_file_is_told_too(self):
        with self.assertRaisesRegex(errors.StateError, "table.weight"):
            self.leave(torch.zeros(3))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
