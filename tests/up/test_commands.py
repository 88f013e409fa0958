#!/usr/bin/env python3
"""Commands beside the workers, over made-up nodes: test_commands.py LONGHAUL [...]."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from launcher import HERE, PATIENCE_S, TOPOLOGY, Launcher


class Commands(Launcher):
    PROGRAMS = ("longhaul-", "command.py")

    def up(self, words, *flags, regions='eu: {workers: 2}, us: {command: ""}', **environment):
        """A run whose region eu has two workers with a command beside each."""
        shutil.copy(os.path.join(HERE, "command.py"), self.path("command.py"))
        line = json.dumps([sys.executable, self.path("command.py"), *words])
        self.write("t.yaml", TOPOLOGY.replace("eu: {}, us: {}", regions) + f"command: {line}\n")
        return self.start(*flags, **environment)

    def found(self, worker):
        try:
            with open(self.path("run", worker, "command.json"), encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError):
            return {}

    def both_run(self):
        self.wait_for("both commands run", lambda: self.found("eu-0") and self.found("eu-1"))

    def text(self, name):
        with open(self.path("run", name), encoding="utf-8") as file:
            return file.read()

    def alive(self, *pids):
        return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]

    def test_one_beside_each_worker_until_the_run_ends(self):
        up = self.up(["{worker}", "{region} {dir}", "{data}"], NODE_SPEED="20000",
                     OMP_NUM_THREADS=None)
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 3, said)  # made-up servers leave no checkpoints
        for worker in ("eu-0", "eu-1"):
            found, run = self.found(worker), os.path.realpath(self.path("run"))
            self.assertEqual(found["words"], [worker, "eu " + run, self.path("data")])
            self.assertEqual(found["socket"], f"{run}/{worker}/trainer.sock")
            self.assertEqual(found["manifest"], f"{run}/model.json")
            threads = str(max(1, len(os.sched_getaffinity(0)) // 2))
            self.assertEqual(found["threads"], threads)
            self.assertIn("training\nsaved\n", self.text(worker + ".trainer.log"))
            self.assertIn(f"{worker}.trainer ended with exit 0", said)
            self.assertIn('trainer.kind: "external"', self.text(worker + ".yaml"))
        self.assertFalse(os.path.exists(self.path("run", "us-0.trainer.log")))
        self.assertNotIn("external", self.text("us-0.yaml"))
        self.assertEqual(said.count(f"OMP_NUM_THREADS={threads}: "), 1)
        self.assertEqual(self.nodes_left(), [])

    def test_threads_that_the_user_set_stay(self):
        said, _ = self.up([], NODE_SPEED="20000", OMP_NUM_THREADS="7").communicate(
            timeout=PATIENCE_S)
        self.assertEqual(self.found("eu-0")["threads"], "7")
        self.assertNotIn("the commands get", said)

    def test_killed_it_comes_back_and_its_children_go(self):
        up = self.up([], NODE_SPEED="400")
        self.both_run()
        first, other = self.found("eu-0"), self.found("eu-1")
        os.kill(first["pid"], signal.SIGKILL)
        self.wait_for("a new life", lambda: self.found("eu-0").get("pid") != first["pid"])
        self.assertEqual(self.alive(first["pid"], first["child"]), [])
        self.assertEqual(self.found("eu-1"), other)
        up.send_signal(signal.SIGINT)
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 8, said)
        self.assertIn("eu-0.trainer ended with signal 9 (Killed) and was started again", said)
        self.assertEqual(self.nodes_left(), [])
        events = subprocess.run([self.tool, "events", "--dir", self.path("run"), "--kind", "kill"],
                                capture_output=True, text=True, check=False).stdout
        self.assertIn("trainer/eu/eu-0", events)

    def test_one_that_does_not_listen_is_killed_at_the_end(self):
        up = self.up(["deaf"], NODE_SPEED="400")
        self.both_run()
        up.send_signal(signal.SIGINT)
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 8, said)
        self.assertEqual(self.nodes_left(), [])

    def test_kill_9_of_the_launcher_leaves_nothing(self):
        up = self.up(["deaf"], NODE_SPEED="100")
        self.both_run()
        self.assertEqual(len(self.nodes_left()), 5 + 2 * 3)  # each: supervisor, command, child
        up.kill()
        up.wait()
        self.wait_for("all are gone", lambda: not self.nodes_left())

    def test_one_that_only_fails_ends_the_run(self):
        up = self.up(["fail"], NODE_SPEED="20")
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 1, said)
        self.assertIn(".trainer ended 3 times in a row before it joined the run, last with exit 3",
                      said)
        self.assertIn("eu-0.trainer failed before it joined the run, with exit 3", said)
        quoted = said.index("\nno such model\n")  # before the tool's own lines
        self.assertLess(quoted, said.index("trainer failed again before it joined"))
        self.assertNotIn("program.begin", said[:quoted + 30])
        self.assertEqual(self.nodes_left(), [])

    def test_one_that_ends_well_without_joining_has_failed(self):
        up = self.up(["none"], NODE_SPEED="20", regions='eu: {}, us: {command: ""}')
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 1, said)
        self.assertIn("eu-0.trainer failed before it joined the run, with exit 0", said)
        self.assertIn("eu-0.trainer ended 3 times in a row before it joined the run", said)
        self.assertRegex(said, r"(?m)^  eu +no loop ")
        self.assertEqual(self.nodes_left(), [])

    def test_one_of_an_expelled_worker_does_not_end_the_run(self):
        up = self.up(["refused"], NODE_SPEED="8000", NODE_EXPELS="eu-0",
                     regions='eu: {}, us: {command: ""}')
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 3, said)  # the run ended, without checkpoints
        self.assertIn("the run goes on without eu-0, which an operator had expelled", said)
        self.assertNotIn("times in a row,", said)
        self.assertEqual(self.nodes_left(), [])

    def test_one_that_joins_and_leaves_nothing_ends_the_run(self):
        up = self.up(["break"], NODE_SPEED="20", regions='eu: {}, us: {command: ""}')
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 1, said)
        self.assertIn("eu-0.trainer failed with exit 3; it is started again", said)
        self.assertIn("eu-0.trainer failed again with exit 3: 2 of 3 times", said)
        self.assertIn("eu-0.trainer ended 3 times in a row before any of its "
                      "progress was kept, last with exit 3", said)
        quoted = said.split("last words of")[0]
        self.assertEqual(quoted.count("\nno such batch of"), 1, said)
        self.assertEqual(self.nodes_left(), [])

    def test_one_of_which_something_is_kept_is_quoted_and_goes_on(self):
        up = self.up(["fall"], NODE_SPEED="20", regions='eu: {}, us: {command: ""}')
        said, _ = up.communicate(timeout=PATIENCE_S)  # it fails so soon that six tries suffice
        self.assertEqual(up.returncode, 1, said)
        self.assertIn("eu-0.trainer failed with exit 3; it is started again", said)
        self.assertNotIn("failed again", said)
        self.assertIn("eu-0.trainer ended 6 times in a row, last with exit 3", said)

    def test_a_run_that_has_ended_starts_none(self):
        self.up([], NODE_SPEED="20000").communicate(timeout=PATIENCE_S)
        for worker in ("eu-0", "eu-1"):
            os.unlink(self.path("run", worker, "command.json"))
        begun = time.monotonic()
        again = self.up([], NODE_SPEED="20000")
        again.communicate(timeout=PATIENCE_S)
        self.assertEqual(self.found("eu-0"), {})
        self.assertLess(time.monotonic() - begun, 15, "it waits for statuses of no command")

    def test_one_that_fails_when_it_saves_is_quoted(self):
        up = self.up(["spoil"], NODE_SPEED="4000", NODE_STALLS="eu-0",
                     regions='eu: {}, us: {command: ""}')
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertIn("eu-0.trainer ended with exit 3\n", said)
        self.assertIn("\nno space to save\n", said)
        self.assertEqual(said.count("eu-0 is stalled (no step for 31 s): others train"), 1)
        self.assertRegex(said, r"(?m)^  eu +stalled ")

    def test_one_that_comes_too_late_is_not_waited_for(self):
        up = self.up(["lost"], NODE_SPEED="20000", NODE_LEAVE="eu-0",
                     regions="eu: {}, us: {command: ''}")
        said, _ = up.communicate(timeout=PATIENCE_S)  # less time than for a command that had joined
        self.assertEqual(up.returncode, 3, said)
        self.assertIn("eu-0.trainer came too late", said)
        self.assertEqual(self.nodes_left(), [])

    def test_the_plan_shows_them(self):
        said, _ = self.up(["a b"], "--plan").communicate(timeout=PATIENCE_S)
        self.assertIn(f"eu           {sys.executable} {self.path('command.py')} 'a b'\n", said)
        self.assertIn("us           (the built-in trainer)\n", said)


if __name__ == "__main__":
    unittest.main()
