#!/usr/bin/env python3
"""The package's client without a framework: client.py BUILD PACKAGE.

Fits a line beside a worker that only pretends (tests/external/worker.c), in memory of array's;
then the errors that a user meets.
"""
import array
import os
import random
import subprocess
import sys
import tempfile
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
    """The pretending worker of a model of so many values."""

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
            self.assertAlmostEqual(optimizer.param_groups[0]["lr"], 0.04)  # it has not begun
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

    def test_the_cosine_is_the_built_in_trainers(self):
        self.assertAlmostEqual(rates.cosine(0, 1000, 0.1, 0.02), 0.02)
        self.assertAlmostEqual(rates.cosine(50, 1000, 0.1, 0.02), 0.51)
        self.assertAlmostEqual(rates.cosine(100, 1000, 0.1, 0.02), 1)
        self.assertAlmostEqual(rates.cosine(550, 1000, 0.1, 0.02), 0.51)
        self.assertAlmostEqual(rates.cosine(1000, 1000, 0.1, 0.02), 0.02)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
