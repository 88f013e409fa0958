#!/usr/bin/env python3
"""bench/page.py: page and README agree with the results, and a bad result is named."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

PROGRAM = os.path.join(ROOT, "bench", "page.py")
COMMAND = "./bench/report"


def page(*flags):
    return subprocess.run([sys.executable, PROGRAM, *flags], capture_output=True, text=True,
                          check=False)


class TheTree(unittest.TestCase):
    def test_report_is_its_front_door(self):
        done = subprocess.run([os.path.join(ROOT, "bench", "report"), "--check"],
                              capture_output=True, text=True, check=False, cwd="/")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_page_is_what_the_results_say(self):
        done = page("--check")
        self.assertEqual(done.returncode, 0, f"\n{done.stderr}")

    def test_the_benches_are_those_that_the_readme_names(self):
        done = subprocess.run([os.path.join(ROOT, "bench", "run.sh"), "--list"],
                              capture_output=True, text=True, check=False)
        with open(os.path.join(ROOT, "bench", "README.md"), encoding="utf-8") as file:
            asked = file.read().split("| bench | the question |")[1].split("\n## ")[0]
        named = re.findall(r"^\| \[?`(\w+)`", asked, re.M)
        self.assertEqual(done.stdout.split(), sorted(named))


class Copies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Copies results whose page is made again, whatever the tree's is."""
        held = tempfile.TemporaryDirectory()
        cls.addClassCleanup(held.cleanup)
        cls.made = os.path.join(held.name, "made")
        shutil.copytree(os.path.join(ROOT, "bench", "results"), os.path.join(cls.made, "results"))
        shutil.copy(os.path.join(ROOT, "README.md"), cls.made)
        done = page("--results", os.path.join(cls.made, "results"),
                    "--readme", os.path.join(cls.made, "README.md"))
        assert done.returncode == 0, done.stderr

    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        shutil.copytree(self.made, held.name, dirs_exist_ok=True)
        self.dir = os.path.join(held.name, "results")
        self.readme = os.path.join(held.name, "README.md")

    def page(self, *flags):
        return page("--results", self.dir, "--readme", self.readme, *flags)

    def path(self, name):
        return os.path.join(self.dir, name)

    def change(self, name, what):
        """Passes the document of a result to `what`, and writes it back."""
        with open(self.path(name), encoding="utf-8") as file:
            document = json.load(file)
        what(document)
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(document, file)

    def row(self, name, row, what):
        self.change(name, lambda document: what(
            next(r for r in document["rows"] if r["name"] == row)))

    def text(self):
        with open(self.path("README.md"), encoding="utf-8") as file:
            return file.read()

    def front(self):
        """The README's generated lines, by their subject."""
        with open(self.readme, encoding="utf-8") as file:
            rows = re.findall(r"^- \*\*(.*?):\*\* (.*)$", file.read(), re.M)
        return dict(rows)

    def edit(self, old, new):
        with open(self.readme, encoding="utf-8") as file:
            text = file.read()
        self.assertIn(old, text)
        with open(self.readme, "w", encoding="utf-8") as file:
            file.write(text.replace(old, new))

    def refused(self, *words):
        for flags in ((), ("--check",)):
            done = self.page(*flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            for word in words:
                self.assertIn(word, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def stale(self, *names):
        done = self.page("--check")
        self.assertEqual(done.returncode, 1)
        for name in (*names, COMMAND):
            self.assertIn(name, done.stderr)

    def test_a_changed_result_makes_the_page_stale_until_it_is_made(self):
        self.assertEqual(self.page("--check").returncode, 0)
        self.row("round.json", "round.10m.90ms-1gbit.seconds",
                 lambda r: r.update(value=0.5, min=0.25))
        self.stale("README.md", "round-10m.svg")
        self.assertEqual(self.page().returncode, 0)
        self.assertEqual(self.page("--check").returncode, 0)

    def test_a_page_or_picture_that_somebody_edited_is_stale(self):
        os.remove(self.path("round-10m.svg"))
        self.stale("round-10m.svg")
        self.page()
        with open(self.path("README.md"), "a", encoding="utf-8") as file:
            file.write("and more\n")
        self.stale("README.md")

    def test_readme_quotes_the_results_and_their_conditions(self):
        said = self.front()["Learning"]
        for words in ("0.98 % below", "-1.34 to -0.63 %", "8 paired seeds", "0.43 M parameters",
                      "400 rounds"):
            self.assertIn(words, said)
        self.row("learning-fresh14.json", "learning.fresh14.n400",
                 lambda r: r.update(value=0.4, min=-0.1, max=0.9))
        self.row("round.json", "round.10m.90ms-1gbit.seconds",
                 lambda r: r.update(value=0.5, min=0.25))
        self.row("round.json", "round.10m.kill-server.stall_s", lambda r: r.update(value=0.25))
        self.stale("README.md")
        self.assertEqual(self.page().returncode, 0)
        self.assertIn("0.40 % above", self.front()["Learning"])
        self.assertIn("0.50 (0.25 to ", self.front()["Cheap"])
        self.assertIn("waited 0.25 s", self.front()["Hard to kill"])

    def test_a_figure_that_somebody_edited_in_readme_is_stale(self):
        self.edit("0.98 % below", "1.29 % below")
        self.stale("README.md")

    def test_readme_without_its_marks_is_named(self):
        for mark in ("end of what ./bench/report writes", "end of what is known of learning"):
            with self.subTest(mark):
                self.setUp()
                self.edit(f"<!-- {mark} -->\n", "")
                self.refused("README.md needs these two lines", mark)

    def test_readme_says_what_is_known_of_learning(self):
        def line(words):
            with open(self.readme, encoding="utf-8") as file:
                return next(text for text in file if words in text)
        self.assertIn("+0.60 % (-0.37 to +1.58) | 4 |", line("| 1.7 M parameters"))
        self.row("learning-size17x2.json", "learning.size17x2.n400",
                 lambda r: r.update(value=-2, min=-3, max=-1, n=4))
        self.stale("README.md")
        self.assertEqual(self.page().returncode, 0)
        self.assertIn("-2.00 % (-3.00 to -1.00) | 4 |", line("| 1.7 M parameters"))
        self.row("learning-size17x2.json", "learning.size17x2.n400",
                 lambda r: r.update(name="learning.other"))
        self.refused("learning-size17x2.json", "learning.size17x2.n400", "bench/learned.py")

    def test_a_row_that_readme_quotes_must_be_there(self):
        row = "round.10m.kill-server.back_s"
        self.row("round.json", row, lambda r: r.update(name="round.other"))
        self.refused("round.json", row, "README.md quotes")

    def test_peers_are_told_apart_from_the_run(self):
        self.assertIn("not of the same run", self.text())
        for asked in ("Cheap", "Hard to kill"):
            self.assertIn("not of the same run", self.front()[asked])
        self.change("peers.json", lambda d: d["exchanges"][2].update(seconds=4.5))
        self.stale("README.md", "round-10m.svg")
        self.page()
        self.assertIn("4.5 s, 55 MB", self.front()["Cheap"])
        self.assertIn("| DiLoCo, gloo | 4.5 s, 55 MB |", self.text())

    def test_peers_that_no_page_can_be_made_of_are_named(self):
        for what, words in (
                (lambda d: d.update(mark="of this run"), ("peers.json", "mark")),
                (lambda d: d["conditions"].pop("load"), ("peers.json", "lacks load")),
                (lambda d: d["exchanges"][0].update(size="1b"), ("peers.json", "no bench has"))):
            with open(self.path("peers.json"), encoding="utf-8") as file:
                whole = file.read()
            self.change("peers.json", what)
            self.refused(*words)
            with open(self.path("peers.json"), "w", encoding="utf-8") as file:
                file.write(whole)
        os.remove(self.path("peers.json"))
        self.refused("peers.json cannot be read")

    def test_a_target_of_the_upper_end_looks_at_that(self):
        row = "learning.fresh14.curve.n400.ours:eta=1.4"
        self.assertIn(f"`{row}` | upper end at most 1 % |", self.text())
        for change, word in ((lambda r: r.update(max=0.9), "| reached |"),
                             (lambda r: [r.pop("min"), r.pop("max")], "not known")):
            self.row("learning-fresh14.json", row, change)
            self.page()
            line = next(x for x in self.text().splitlines() if f"`{row}` | upper" in x)
            self.assertIn(word, line)

    def test_verdicts_follow_the_figures(self):
        row = "codec.bits.topk-sign.64of4096"
        for value, word in ((0.14, "reached"), (0.1401, "**not reached**")):
            self.row("codec.json", row, lambda r, v=value: r.update(value=v))
            self.page()
            line = next(x for x in self.text().splitlines() if x.startswith(f"| `{row}` | at most"))
            self.assertEqual(line.split(" | ")[-1], f"{word} |")
        row = "codec.fold.topk-sign.64of4096"
        for ratio, word in ((0.699, "**not reached**"), (0.7, "reached"), (0.9, "stretch reached")):
            self.row("codec.json", row, lambda r, v=ratio: r.update(ratio=v))
            self.page()
            line = next(x for x in self.text().splitlines() if x.startswith(f"| `{row}` | ratio"))
            self.assertEqual(line.split(" | ")[-1], f"{word} |")

    def test_a_missing_result_is_named_with_its_bench(self):
        os.remove(self.path("round.json"))
        self.refused("round.json is not there", "./bench/run.sh round --json")

    def test_a_missing_part_is_named_with_its_flags(self):
        os.remove(self.path("learning-fresh14.json"))
        self.refused("learning-fresh14.json is not there",
                     "bench/learning/rule.py --seeds 232-239", "--json")

    def test_a_damaged_result_is_named(self):
        with open(self.path("codec.json"), "r+", encoding="utf-8") as file:
            file.truncate(1000)
        self.refused("codec.json cannot be read")

    def test_a_result_that_breaks_the_contract_is_named(self):
        self.change("round.json", lambda d: d.pop("commit"))
        self.refused("round.json", "commit")

    def test_no_figure_is_no_result(self):
        self.row("round.json", "round.10m.90ms-1gbit.seconds",
                 lambda r: r.update(value=float("nan")))
        self.refused("round.json", "value")

    def test_a_result_of_another_bench_is_named(self):
        shutil.copy(self.path("round.json"), self.path("push.json"))
        self.refused("push.json", "of the bench round")

    def test_a_row_with_a_target_must_be_there(self):
        row = "codec.fold.topk-sign.64of4096"
        self.row("codec.json", row, lambda r: r.pop("ratio"))
        self.refused("codec.json", row, "no ratio")
        self.row("codec.json", row, lambda r: r.update(name="codec.fold.other"))
        self.refused("codec.json", f"no row {row}")

    def test_a_result_without_a_section_is_named(self):
        shutil.copy(self.path("round.json"), self.path("new.json"))
        self.refused("new.json has no section")


if __name__ == "__main__":
    unittest.main()
