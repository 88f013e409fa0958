#!/usr/bin/env python3
"""The launcher's promises, over made-up nodes: test_up.py LONGHAUL [unittest arguments]."""
import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import termios
import time
import unittest

from launcher import PATIENCE_S, Launcher


class Up(Launcher):
    def test_kill_9_leaves_no_child(self):
        up = self.start(NODE_SPEED="100")
        self.wait_until_trained(0)
        self.assertEqual(len(self.nodes_left()), 4)
        up.kill()
        up.wait()
        self.wait_for("all children are gone", lambda: not self.nodes_left())

    def test_ctrl_c_drains_and_a_second_up_goes_on(self):
        up = self.start(NODE_SPEED="2000")
        self.wait_until_trained(2000)  # twenty statuses: `up` has seen at least one
        up.send_signal(signal.SIGINT)
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 8, said)
        self.assertIn("draining", said)
        self.assertIn("the same command goes on", said)
        self.assertEqual(self.nodes_left(), [])
        reached = self.status("us-0")["tokens"]
        self.assertLess(reached, 100000)
        again = self.start(NODE_SPEED="2000")
        self.wait_until_trained(reached + 2000)
        again.send_signal(signal.SIGTERM)
        said, _ = again.communicate(timeout=PATIENCE_S)
        self.assertEqual(again.returncode, 8, said)
        with open(self.path("run", "curves.csv"), encoding="utf-8") as file:
            seconds = [float(line.split(",")[1]) for line in file if line.startswith("us-0,")]
        self.assertEqual(seconds, sorted(seconds))
        self.assertGreaterEqual(len(seconds), 2)  # at least one point from each of the two

    def test_under_nohup_it_outlives_its_terminal(self):
        def nohup():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        up = self.start(preexec_fn=nohup, NODE_SPEED="2000")
        self.wait_until_trained(0)
        up.send_signal(signal.SIGHUP)
        reached = self.status("us-0")["tokens"]
        self.wait_until_trained(reached + 2000)
        up.send_signal(signal.SIGINT)
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 8, said)
        self.assertEqual(said.count("draining"), 1)

    def test_a_killed_node_is_started_again(self):
        up = self.start(NODE_SPEED="400")
        self.wait_for("the server runs", lambda: "pid" in self.status("s0"))
        first = self.status("s0")["pid"]
        os.kill(first, signal.SIGKILL)
        self.wait_for("a new server", lambda: self.status("s0").get("pid", first) != first)
        up.send_signal(signal.SIGINT)
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertIn("s0 ended with signal 9 (Killed) and was started again", said)

    def wait_until_one_leads(self):
        self.wait_for("a coordinator leads", lambda: any(
            self.status(name).get("leads") for name in ("coordinator", "coordinator-b")))

    def wait_until_leads(self, name, other):
        """Kills the other one as often as it leads: on a busy machine it may lead again."""
        killed = set()

        def leads():
            pid = self.status(other).get("leads") and self.status(other)["pid"]
            if pid and pid not in killed:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
            return self.status(name).get("leads")
        self.wait_for(f"{name} leads", leads)

    def test_the_other_coordinator_leads_when_one_is_killed(self):
        self.write("t.yaml", self.TOPOLOGY + "server: {coordinator.store: etcd://127.0.0.1:1/x}\n")
        up = self.start(NODE_SPEED="8000")
        self.wait_until_trained(8000)
        self.wait_until_one_leads()
        first, other = sorted(("coordinator", "coordinator-b"),
                              key=lambda name: not self.status(name).get("leads"))
        self.wait_until_leads(other, first)
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 3, said)  # the run ended, without checkpoints
        self.assertIn(f"{first} ended with signal 9 (Killed) and was started again", said)
        self.assertGreater(self.status(other)["leader"]["number"], 1)
        self.assertIn("coordinator-b's page: http://127.0.0.1:", said)
        with open(self.path("run", "eu-0.yaml"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r'\ncoordinator: "127.0.0.1:\d+,127.0.0.1:\d+"\n')

    def test_a_run_that_ended_under_the_other_coordinator_goes_on(self):
        self.write("t.yaml", self.TOPOLOGY + "server: {coordinator.store: etcd://127.0.0.1:1/x}\n")
        up = self.start(NODE_SPEED="8000")
        self.wait_until_trained(0)
        self.wait_until_one_leads()
        self.wait_until_leads("coordinator-b", "coordinator")
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(self.status("coordinator-b").get("phase"), "ended", said)
        larger = self.TOPOLOGY.replace("budget_tokens: 100000", "budget_tokens: 200000")
        self.write("t.yaml", larger + "server: {coordinator.store: etcd://127.0.0.1:1/x}\n")
        said, _ = self.start().communicate(timeout=PATIENCE_S)
        self.assertIn("`longhaul up --continue` continues it with the larger one", said)
        before = self.status("us-0")["pid"]
        again = self.start("--continue")
        self.wait_for("it goes on", lambda: again.poll() is not None or
                      self.status("us-0").get("pid", before) != before)
        again.send_signal(signal.SIGINT)
        said, _ = again.communicate(timeout=PATIENCE_S)
        self.assertIn("\nbudget_tokens: 100000 -> 200000\n", said)
        self.assertEqual(again.returncode, 8, said)

    def test_a_continue_that_is_killed_at_once_can_be_repeated(self):
        self.start().communicate(timeout=PATIENCE_S)
        self.write("t.yaml", self.TOPOLOGY.replace("tokens: 100000", "tokens: 200000"))
        for end in (signal.SIGKILL, signal.SIGINT):
            before = self.status("us-0")["pid"]
            up = self.start("--continue")
            self.wait_for("its nodes run", lambda: up.poll() is not None or
                          self.status("us-0").get("pid", before) != before)
            up.send_signal(end)
            said, _ = up.communicate(timeout=PATIENCE_S)
            self.assertIn("\nbudget_tokens: 100000 -> 200000\n", said)
        self.assertEqual(up.returncode, 8, said)

    def test_a_run_that_ended_takes_no_smaller_budget(self):
        self.start().communicate(timeout=PATIENCE_S)
        self.assertEqual(self.status("coordinator").get("phase"), "ended")
        self.write("t.yaml", self.TOPOLOGY.replace("tokens: 100000", "tokens: 50000"))
        said, _ = self.start().communicate(timeout=PATIENCE_S)
        self.assertIn("has ended with budget_tokens 100000, and a smaller one", said)
        self.write("t.yaml", self.TOPOLOGY.replace("tokens: 100000", "tokens: 60000"))
        up = self.start("--continue")  # it would wait for a run that never goes on
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertIn("nothing is left to train", said)
        self.assertEqual(up.returncode, 6)

    def test_a_run_that_has_not_ended_is_no_model_to_begin_with(self):
        up = self.start(NODE_SPEED="400")
        self.wait_for("the coordinator runs", lambda: "phase" in self.status("coordinator"))
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=PATIENCE_S)
        shape = "dim: 8, layers: 1, heads: 2, kv_heads: 2, ffn: 16, context: 16"
        self.write("other.yaml", self.TOPOLOGY.replace(
            shape, f"import: {self.path('run')}, context: 16"))
        code, said = self.tool_says("up", self.path("other.yaml"), "--no-wan", "--dir",
                                    self.path("other"), "--data", self.path("data"))
        self.assertEqual(code, 6, said)
        self.assertRegex(said, "model.import: the run in .*/run has not ended: let it end first")

    def test_a_pair_on_emulated_links_is_refused(self):
        self.write("t.yaml", self.TOPOLOGY + "server: {coordinator.store: etcd://127.0.0.1:1/x}\n")
        said = subprocess.run([self.tool, "up", self.path("t.yaml"), "--dir", self.path("run"),
                               "--data", self.path("data")], capture_output=True, text=True,
                              check=False)
        self.assertIn("use --no-wan", said.stderr)
        self.assertEqual(said.returncode, 6, said.stderr)

    def test_a_run_goes_on_without_an_expelled_worker(self):
        # The other worker trains for longer than six tries to start this one take.
        up = self.start(NODE_SPEED="8000", NODE_EXPELS="us-0")
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 3, said)  # the run ended, without checkpoints
        self.assertIn("the run goes on without us-0, which an operator had expelled", said)
        self.assertNotIn("in a row", said)
        self.assertEqual(self.nodes_left(), [])

    def test_a_run_goes_on_without_a_worker_that_somebody_ends(self):
        up = self.start(NODE_SPEED="20000")
        self.wait_until_trained(0)
        os.kill(self.status("us-0")["pid"], signal.SIGTERM)
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 3, said)
        self.assertIn("the run goes on without us-0, which somebody else had ended", said)
        self.assertNotIn("without eu-0", said)  # eu-0 is done

    def test_a_second_up_in_its_folder_is_refused(self):
        up = self.start(NODE_SPEED="400")
        self.wait_until_trained(0)
        settings = self.path("run", "us-0.yaml")
        before = os.stat(settings).st_mtime_ns
        second = self.start()
        said, _ = second.communicate(timeout=PATIENCE_S)
        self.assertEqual(second.returncode, 1, said)
        self.assertIn("a run goes on in", said)
        self.assertEqual(os.stat(settings).st_mtime_ns, before)
        self.assertEqual(len(self.nodes_left()), 4)
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 8)

    def test_a_node_that_only_crashes_ends_the_run(self):
        up = self.start(NODE_CRASH="s0", NODE_SPEED="20")
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 1, said)
        self.assertIn("s0 ended 6 times in a row, last with exit 6", said)
        self.assertIn("s0: out of luck", said)
        self.assertEqual(self.nodes_left(), [])

    def test_a_coordinator_that_is_being_started_again_is_waited_for(self):
        up = self.start(NODE_SPEED="400")
        self.wait_for("the coordinator runs", lambda: "phase" in self.status("coordinator"))
        with open(self.path("run", "coordinator", "status.json"), encoding="utf-8") as file:
            status = json.load(file)
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=PATIENCE_S)
        self.write("run/coordinator/status.json", json.dumps(status | {"address": "127.0.0.1:1"}))
        again = self.start(NODE_CRASH="coordinator", NODE_SPEED="20")
        self.wait_for("a crash", lambda: "out of luck" in self.log("coordinator"))
        asked = subprocess.run([self.tool, "top", "--once", "--dir", self.path("run")],
                               capture_output=True, text=True, check=False)
        self.assertEqual(asked.returncode, 4, asked.stderr)
        if "starts it again" not in asked.stderr:  # it waited until the launcher gave the node up
            self.assertIn("has ended or was stopped", asked.stderr)
            self.assertEqual(self.nodes_left(), [])
        again.communicate(timeout=PATIENCE_S)
        asked = subprocess.run([self.tool, "top", "--once", "--dir", self.path("run")],
                               capture_output=True, text=True, check=False)
        self.assertIn("has ended or was stopped", asked.stderr)

    def tool_says(self, *words):
        done = subprocess.run([self.tool, *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_the_doctor_looks_at_this_machine(self):
        where = ("--data", self.path("data"), "--dir", self.path("run"))
        code, said = self.tool_says("doctor", self.path("t.yaml"), *where)
        self.assertEqual(code, 0, said)
        for what in ("ok     disk: ", "ok     memory: ", "open files: ", "clock: "):
            self.assertIn(what, said)
        self.assertIn("warn   budget: 100000 tokens, but", said)  # its data have fewer
        self.assertFalse(os.path.exists(self.path("run")))
        self.write("t.yaml", self.TOPOLOGY.replace("dim: 8", "dim: 16384").replace(
            "ffn: 16", "ffn: 65536").replace("layers: 1", "layers: 500"))
        code, said = self.tool_says("doctor", self.path("t.yaml"), *where)
        self.assertEqual(code, 1, said)  # no machine has so much
        self.assertRegex(said, "FAIL   memory: .* are needed.*: use a smaller model")
        self.assertRegex(said, "FAIL   disk: .* are needed: free some space")
        code, plan = self.tool_says("up", self.path("t.yaml"), "--plan", *where)
        self.assertIn("FAIL   memory: ", plan)

    def test_the_doctor_looks_at_a_node(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen(1)
            at = f"127.0.0.1:{taken.getsockname()[1]}"
            self.write("c.yaml", "role: coordinator\n"
                       f"listen: {at}\nadvertise: {at}\ntls: {{ca: no.pem, cert: no.pem, "
                       "key: no.key}\nmodel: {manifest: no.json}\ndir: state\n"
                       "coordinator.workers: 1\ndata.units: units.json\nrun.budget_tokens: 9\n")
            code, said = self.tool_says("doctor", self.path("c.yaml"), "--kind", "server")
        self.assertEqual(code, 1, said)
        self.assertIn(f"FAIL   listen: {at}: Address already in use", said)
        self.assertIn("FAIL   tls.cert: no.pem: no such file: `longhaul certs` makes one", said)

    def test_the_doctor_looks_for_both_coordinators_and_their_etcd(self):
        with socket.socket() as there:
            there.bind(("127.0.0.1", 0))
            there.listen(8)
            at = f"127.0.0.1:{there.getsockname()[1]}"
            common = ("tls: {ca: no.pem, cert: no.pem, key: no.key}\n"
                      "model: {manifest: no.json}\ndir: state\ndata.units: units.json\n")
            self.write("w.yaml", common + f"coordinator: {at},127.0.0.1:1\n"
                       "seal: {keys: a}\ndata.dir: .\n")
            _, said = self.tool_says("doctor", self.path("w.yaml"), "--kind", "worker")
            self.assertIn(f"ok     coordinator: something listens at {at}\n", said)
            self.assertIn("warn   coordinator: 127.0.0.1:1: Connection refused", said)
            self.write("c.yaml", common + "role: coordinator\nlisten: 127.0.0.1:0\n"
                       f"coordinator.store: etcd://{at},127.0.0.1:1/x\nrun.budget_tokens: 9\n")
            _, said = self.tool_says("doctor", self.path("c.yaml"), "--kind", "server")
        self.assertIn(f"ok     coordinator.store: something listens at {at}\n", said)
        self.assertIn("warn   coordinator.store: 127.0.0.1:1: Connection refused", said)

    def test_config_check_says_what_the_worker_would(self):
        self.write("w.yaml", "coordinator: a:1\n"
                   "tls: {ca: a, cert: a, key: a}\nseal: {keys: a}\nmodel: {manifest: a}\n"
                   "dir: s\ndata: {units: a, dir: .}\n")
        code, said = self.tool_says("config", "check", self.path("w.yaml"), "--kind", "worker")
        self.assertEqual(code, 0, said)
        code, said = self.tool_says("config", "check", self.path("w.yaml"), "--kind", "worker",
                                    "--set", "codec.name=dense-q4", "--set", "codec.density=0.1")
        self.assertEqual(code, 6, said)
        self.assertIn("codec.density is 0.1, but dense-q4 sends every value", said)

    def log(self, node):
        with open(self.path("run", node + ".log"), encoding="utf-8") as file:
            return file.read()

    def test_a_full_disk_is_told_in_its_line(self):
        up = self.start(NODE_SPEED="20000", NODE_FULL="s0")
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertRegex(said, r"of 4 processes, DISK FULL: s0\n")

    def test_a_run_that_ends_without_checkpoints_is_no_success(self):
        up = self.start(NODE_SPEED="200000")
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 3, said)
        self.assertIn("checkpoints", said)
        self.assertFalse(os.path.exists(self.path("run", "summary.json")))
        self.assertEqual(self.nodes_left(), [])

    def test_a_run_that_is_too_short_for_the_drill_says_so(self):
        up = self.start("--with-faults", NODE_SPEED="200000")
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertRegex(said, r"drill: only [0-3] of its 4 faults came before the run ended: a "
                         "larger budget_tokens")

    def test_an_ended_run_is_judged_by_what_its_new_processes_say(self):
        for late in ("0", "1.5"):  # the second finds valid statuses of the first
            up = self.start(NODE_SPEED="200000", NODE_LATE=late)
            said, _ = up.communicate(timeout=PATIENCE_S)
            self.assertEqual(up.returncode, 3, said)
            self.assertEqual(self.status("coordinator")["credited"], 4)

    def test_missing_files_and_wrong_flags_have_their_exit_codes(self):
        for flags, code, says in (
                (("--data", self.path("nowhere")), 3, "longhaul data prepare"),
                (("--no-wam",), 2, "did you mean --no-wan?")):
            up = self.start(*flags)
            said, _ = up.communicate(timeout=PATIENCE_S)
            self.assertEqual(up.returncode, code, said)
            self.assertIn(says, said)
        os.unlink(self.path("longhaul-worker"))
        up = self.start()
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertEqual(up.returncode, 3, said)
        self.assertIn("can't find longhaul-worker beside this program", said)

    def test_units_travel_to_a_region_that_has_its_own_files_alone(self):
        os.makedirs(self.path("ours"))
        self.write("t.yaml", self.TOPOLOGY.replace("us: {}", f"us: {{data: {self.path('ours')}}}"))
        up = self.start()
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertNotEqual(up.returncode, 0, said)
        self.assertIn("of region us: regions.us.data must be the folder of that region's own", said)
        for name in os.listdir(self.path("data")):
            if name.startswith("us"):
                os.link(self.path("data", name), self.path("ours", name))
        up = self.start(NODE_SPEED="400")
        self.wait_until_trained(0)
        for node, key, folder in (("us-0", "data.dir", "ours"), ("eu-0", "data.dir", "data"),
                                  ("s0", "data.dir", "data")):
            with open(self.path("run", node + ".yaml"), encoding="utf-8") as file:
                self.assertIn(f'{key}: "{self.path(folder)}"', file.read())
        up.send_signal(signal.SIGINT)
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertNotIn("no server is in eu", said)

    def test_a_region_without_a_server_gives_no_units(self):
        self.write("t.yaml", self.TOPOLOGY.replace("eu: {}", f"eu: {{data: {self.path('data')}}}"))
        up = self.start(NODE_SPEED="400")
        self.wait_until_trained(0)
        up.send_signal(signal.SIGINT)
        said, _ = up.communicate(timeout=PATIENCE_S)
        self.assertIn("no server is in us: its units do not travel", said)

    def pictures(self, columns, lines, count):
        """The lines of each picture that a run draws on a terminal of that size."""
        pid, terminal = pty.fork()
        if not pid:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.execve(self.tool, [self.tool, "up", self.path("t.yaml"), "--no-wan", "--dir",
                                  self.path("run"), "--data", self.path("data")],
                      {**os.environ, "TERM": "xterm", "NODE_SPEED": "400"})
        self.addCleanup(os.close, terminal)
        said, above, end = "", f"\033[{lines - 1}A\033[J", time.monotonic() + PATIENCE_S
        while said.count(above) < count + 1:
            self.assertLess(time.monotonic(), end, said)
            if select.select([terminal], [], [], 1)[0]:
                said += os.read(terminal, 4096).decode()
        os.kill(pid, signal.SIGINT)
        while select.select([terminal], [], [], PATIENCE_S)[0]:
            try:
                os.read(terminal, 4096)
            except OSError:  # it has ended
                break
        os.waitpid(pid, 0)
        return [picture.split("\r\n") for picture in said.split(above)[1:count + 1]]

    def test_a_picture_fits_its_terminal(self):
        columns, lines = 40, 4
        for picture in self.pictures(columns, lines, 2):
            self.assertEqual(len(picture), lines, picture)  # the cursor stands in the last one
            self.assertEqual(picture[-1], "")
            self.assertEqual(max(map(len, picture)), columns, picture)

    def test_a_pipe_that_closes_does_not_kill_the_run(self):
        up = self.start(NODE_SPEED="2000")
        self.wait_until_trained(0)
        up.stdout.close()
        reached = self.status("us-0")["tokens"]
        self.wait_until_trained(reached + 1500)
        up.send_signal(signal.SIGINT)
        self.assertEqual(up.wait(timeout=PATIENCE_S), 8)
        self.assertEqual(self.nodes_left(), [])


if __name__ == "__main__":
    unittest.main()
