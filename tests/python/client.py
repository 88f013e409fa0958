#!/usr/bin/env python3
"""The package's client without a framework: client.py BUILD PACKAGE.

Fits a line beside a made-up worker (tests/external/worker.c), in memory of array's; then the errors
that a user meets.
"""
import array
import json
import logging
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

BUILD, PACKAGE = sys.argv[1:3]
sys.path.insert(0, PACKAGE)
os.environ["LONGHAUL_LIBRARY"] = os.path.join(BUILD, "worker", "client", "liblonghaul.so.1")
import longhaul  # noqa: E402  pylint: disable=wrong-import-position
from longhaul import errors, rates  # noqa: E402  pylint: disable=wrong-import-position

IN = 8


def train(weight, draw, rate):
    """One step of SGD towards weight[i] = i; gives the squared error."""
    x = [draw.uniform(-1, 1) for _ in range(IN)]
    error = sum((weight[i] - i) * x[i] for i in range(IN))
    for i in range(IN):
        weight[i] -= rate * error * x[i]
    return error * error


class Worker:
    """The made-up worker of a model with this many values."""

    def __init__(self, values):
        self.values = values

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="lh-py-")
        socket = os.path.join(self.folder.name, "s")
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            [os.path.join(BUILD, "tests", "external", "external_worker"), self.folder.name,
             socket, "1", "1", str(self.values)])
        self.env = mock.patch.dict(os.environ, {"LONGHAUL_SOCKET": socket})
        self.env.start()
        return self

    def __exit__(self, *_):
        self.env.stop()
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


class Test(unittest.TestCase):
    def fit(self, threads):
        draw, weight = random.Random(1), array.array("f", [0.0] * IN)
        with Worker(IN) as worker:
            with longhaul.Client.from_env(threads=threads) as c:
                c.parameter("weight", (IN,), weight.buffer_info()[0], owner=weight)
                c.connect(60)
                c.start()
                losses, step, due = [], 0, longhaul.Due(0)
                while step < 2000 and not due & longhaul.Due.DRAIN:
                    step += 1
                    losses.append(train(weight, draw, 0.05))
                    due = c.boundary(step, 1)
                    if due & longhaul.Due.RENEW:
                        c.renew()
                    if due & longhaul.Due.CUT:
                        c.cut()
                state = c.state()
                self.assertTrue(c.finish(60))
            left = [t.name for t in threading.enumerate() if t.name.startswith("longhaul")]
            self.assertEqual(left, [])  # it is closed
            self.assertEqual(worker.process.wait(20), 0)
        self.assertGreater(state.cuts, 1)
        self.assertTrue(state.worker_lives)
        self.assertLess(sum(losses[-50:]), sum(losses[:50]) / 100)
        for i, w in enumerate(weight):
            self.assertAlmostEqual(w, i, delta=0.2)

    def test_a_line_is_fitted(self):
        self.fit(threads=1)

    def test_a_line_is_fitted_by_pieces_on_threads(self):
        self.fit(threads=3)

    def test_a_closed_client_opens_again(self):
        weight = array.array("f", [0.0] * IN)
        with Worker(IN) as worker:
            c = longhaul.Client.from_env()
            optimizer = types.SimpleNamespace(param_groups=[{"lr": 2.0}])
            rates.schedule(optimizer, c, 1000)
            self.assertAlmostEqual(optimizer.param_groups[0]["lr"], 0.04)  # no life has begun
            for last in (False, True):
                c.open()
                c.open()
                c.parameter("weight", (IN,), weight.buffer_info()[0], owner=weight)
                c.connect(60)
                c.start()
                c.boundary(1, 1)
                rate = rates.schedule(optimizer, c, 1000)
                self.assertLess(rate.get_last_lr()[0], 2)
                if last:
                    self.assertTrue(c.finish(60))
                c.close()
                with self.assertRaises(errors.LonghaulError):
                    c.boundary(2, 1)
            self.assertEqual(worker.process.wait(20), 0)

    def test_a_loop_reports_its_noise(self):
        weight = array.array("f", [0.0] * IN)
        with Worker(IN) as worker:
            with longhaul.Client.from_env() as c:
                with self.assertRaises(errors.StateError):
                    c.noise(1.1, 0.01, 1)  # there is no life yet
                c.parameter("weight", (IN,), weight.buffer_info()[0], owner=weight)
                c.connect(60)
                c.start()
                for bad in ((0, 0.1, 1), (1, 0, 1), (1, 1.1, 1), (1, 0.1, 0),
                            (float("nan"), 0.1, 1), (1, 0.1, float("inf"))):
                    with self.assertRaisesRegex(errors.InvalidError, "sigma and clip must be"):
                        c.noise(*bad)
                c.noise(1.1, 0.01, 1)
                c.boundary(1, 1)
                c.noise(1.2, 0.01, 1, steps=3)
                c.boundary(2, 1)
                c.close()
                c.open()  # the next life reports the last numbers by itself
                c.parameter("weight", (IN,), weight.buffer_info()[0], owner=weight)
                c.connect(60)
                with mock.patch.object(c, "noise", wraps=c.noise) as noise:
                    c.start()
                noise.assert_called_once_with(1.2, 0.01, 1, steps=0)
                self.assertTrue(c.finish(60))
            self.assertEqual(worker.process.wait(20), 0)

    def test_errors_have_a_class_and_the_librarys_text(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("LONGHAUL_SOCKET", None)
            with self.assertRaisesRegex(errors.StateError, "LONGHAUL_SOCKET"):
                longhaul.Client.from_env()
        weight = array.array("f", [0.0] * IN)
        with longhaul.Client() as c:
            c.parameter("weight", (IN,), weight.buffer_info()[0])
            with self.assertRaisesRegex(errors.InvalidError, "weight is described twice"):
                c.parameter("weight", (IN,), weight.buffer_info()[0])
            with self.assertRaises(errors.StateError) as caught:
                c.boundary(1, 1)
            self.assertEqual(caught.exception.code, 2)

    def test_every_error_of_the_library_has_its_class(self):
        lib = longhaul.Client()._lib  # pylint: disable=protected-access
        names = [lib.longhaul_error_name(k.code).decode() for k in errors.BY_CODE]
        self.assertEqual(len(set(names)), len(errors.BY_CODE))
        for kind, name in zip(errors.BY_CODE, names):
            mine = {"OutOfMemory": "NO_MEMORY", "SystemCall": "SYSTEM", "TimedOut": "TIMEOUT"}
            short = kind.__name__.removesuffix("Error")
            self.assertEqual(name, "LONGHAUL_E_" + mine.get(short, short.upper()))

    def waited(self, kind, timeout_s, folder="/nowhere"):
        """The attempts of a connection that always fails, their error and the log."""
        tries, socket = [], os.path.join(folder, "trainer.sock")

        def connect(_, ms):
            tries.append(ms)
            return kind.code
        with mock.patch.dict(os.environ, {"LONGHAUL_SOCKET": socket}), longhaul.Client() as c, \
                mock.patch.object(c._lib, "longhaul_connect", connect), \
                self.assertLogs("longhaul", "WARNING") as said:
            logging.getLogger("longhaul").warning("begin")
            with self.assertRaises(errors.LonghaulError) as caught:
                c.connect(timeout_s)
        return tries, type(caught.exception), [r.getMessage() for r in said.records[1:]]

    def test_a_loop_says_what_it_waits_for(self):
        tries, error, said = self.waited(errors.TimedOutError, 90)
        self.assertEqual(tries, [1000, 4000, 30000, 30000, 25000])
        self.assertIs(error, errors.TimedOutError)
        for seconds, text in zip((5, 35, 65), said):
            self.assertIn(f"waiting for the worker at /nowhere/trainer.sock for {seconds} s",
                          text)
        self.assertEqual(len(said), 3)
        self.assertEqual(self.waited(errors.TimedOutError, 0)[0], [0])

    def test_another_loop_and_a_run_that_is_over_are_said_at_once(self):
        tries, error, said = self.waited(errors.BusyError, 60)
        self.assertEqual((tries[0], error), (1000, errors.BusyError))
        self.assertIn("already has a loop", said[0])
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "status.json"), "w", encoding="utf-8") as file:
                json.dump({"state": "done"}, file)
            tries, error, said = self.waited(errors.TimedOutError, 60, folder)
        self.assertEqual((tries, error, said), ([1000], errors.DrainedError, []))

    def test_a_fork_is_refused(self):
        weight = array.array("f", [0.0] * IN)
        with longhaul.Client() as c:
            c.parameter("weight", (IN,), weight.buffer_info()[0])
            child = os.fork()
            if not child:
                try:
                    c.connect(0)
                except errors.ForkedError:
                    os._exit(7)
                os._exit(1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)

    def test_a_library_that_is_not_there_is_named(self):
        with mock.patch.dict(os.environ, {"LONGHAUL_LIBRARY": "/nowhere/liblonghaul.so.1"}):
            with self.assertRaisesRegex(ImportError, "LONGHAUL_LIBRARY.*/nowhere"):
                longhaul.Client()

    def prepared(self, folder, text):
        """The output of `longhaul data prepare` for these texts, and of save_units() for their
        bytes."""
        for region, languages in text.items():
            for language, content in languages.items():
                place = os.path.join(folder, "text", region, language)
                os.makedirs(place)
                with open(os.path.join(place, "a.txt"), "wb") as file:
                    file.write(content)
        made = [os.path.join(folder, name) for name in ("tool", "saved")]
        subprocess.run([os.path.join(BUILD, "deploy", "longhaul"), "data", "prepare", "--text",
                        os.path.join(folder, "text"), "--out", made[0], "--unit-tokens", "64",
                        "--sequence", "16", "--stays", "us"], check=True, capture_output=True)
        count = longhaul.save_units(
            {r: {n: [t[:100], b"", t[100:]] for n, t in of.items()} for r, of in text.items()},
            made[1], 256, unit_tokens=64, stays=["us"])
        return count, *made

    def test_units_of_any_tokenizer_are_those_of_the_tool(self):
        draw = random.Random(1)
        text = {"us": {"en": draw.randbytes(640) + b"\n"},
                "eu": {n: draw.randbytes(size) + b"\n" for n, size in
                       (("de", 1500), ("fr", 640), ("it", 63))}}
        with tempfile.TemporaryDirectory() as folder:
            count, tool, saved = self.prepared(folder, text)
            self.assertEqual(count, 10 + 23 + 10 + 1)
            found = []
            for place in (tool, saved):
                with open(os.path.join(place, "units.json"), encoding="utf-8") as file:
                    found.append(json.load(file))
            self.assertEqual(*found)
            # The tool also writes the index, which a program makes if it is missing.
            names = sorted(set(os.listdir(tool)) - {"units.json.index"})
            self.assertEqual(names, sorted(os.listdir(saved)))
            for name in set(names) - {"units.json"}:
                with open(os.path.join(tool, name), "rb") as one, \
                        open(os.path.join(saved, name), "rb") as two:
                    self.assertEqual(one.read(), two.read(), name)

    def test_bad_units_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for tokens, vocabulary, words in (
                    ({"eu": {"de": [[1, 2, 300]]}}, 300, "eu-de: a token of 1 to 300; .* has 300"),
                    ({"eu": {"de": [[-1]]}}, 300, "eu-de: a token of -1 to -1"),
                    ({"eu": {"de": [[1] * 63]}}, 300, "no language has a whole unit of 64"),
                    ({"eu": {"a/b": [[1]]}}, 300, "a language has a name of at most 15"),
                    ({"..": {"de": [[1]]}}, 300, "a region has a name"),
                    ({}, 0, "a vocabulary of 1 to")):
                with self.assertRaisesRegex(ValueError, words):
                    longhaul.save_units(tokens, folder, vocabulary, unit_tokens=64)
                self.assertNotIn("units.json", os.listdir(folder))
            for tokens, words in (
                    ({"eu": {"de": [1, 2, 3]}}, "eu-de: a document is a int: give a list of docu"),
                    ({"eu": {"de": "text"}}, "eu-de: a document is a str of str: give a list"),
                    ({"eu": {"de": [{"input_ids": [1]}]}}, "a document is a dict of str: give"),
                    ({"eu": {"de": [[[1], [2]]]}}, "a document is a list of list: give"),
                    ({"eu": {"de": [[1, 2.5]]}}, "a document is a list of int: give"),
                    ({"eu": {"de": [[0.5]]}}, "a document is a list of float: give"),
                    ({"eu": [[1]]}, r"tokens\['eu'\] is a list: pass a mapping from languages"),
                    ([[1]], "tokens is a list: pass a mapping from regions")):
                with self.assertRaisesRegex(TypeError, words):
                    longhaul.save_units(tokens, folder, 300, unit_tokens=64)
                self.assertNotIn("units.json", os.listdir(folder))
            with self.assertRaisesRegex(TypeError, "heldout is a list: pass a mapping"):
                longhaul.save_units({"eu": {"de": [[1] * 64]}}, folder, 300, heldout=[[1]])
            with self.assertRaisesRegex(TypeError, "vocabulary is None: pass a whole number"):
                longhaul.save_units({"eu": {"de": [[1] * 64]}}, folder, None)
            longhaul.save_units({"eu": {"de": [[70000] * 64]}}, folder, 70001, unit_tokens=64)
            with open(os.path.join(folder, "eu-de-000.bin"), "rb") as file:
                head, tokens = file.read(12), file.read()[1012:]
            self.assertEqual(struct.unpack("<3i", head), (20240801, 7, 64))
            self.assertEqual(struct.unpack("<64I", tokens), (70000,) * 64)

    def test_the_cosine_is_the_built_in_trainers(self):
        self.assertAlmostEqual(rates.cosine(0, 1000, 0.1, 0.02), 0.02)
        self.assertAlmostEqual(rates.cosine(50, 1000, 0.1, 0.02), 0.51)
        self.assertAlmostEqual(rates.cosine(100, 1000, 0.1, 0.02), 1)
        self.assertAlmostEqual(rates.cosine(550, 1000, 0.1, 0.02), 0.51)
        self.assertAlmostEqual(rates.cosine(1000, 1000, 0.1, 0.02), 0.02)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
