#!/usr/bin/env python3
"""bench/page.py: the page in the tree is what the results say, and a bad result is named."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(ROOT, "bench", "page.py")
COMMAND = "./bench/page.py"


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


class Copies(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.dir = os.path.join(held.name, "results")
        shutil.copytree(os.path.join(ROOT, "bench", "results"), self.dir)
        self.assertEqual(page("--results", self.dir).returncode, 0)

    def path(self, name):
        return os.path.join(self.dir, name)

    def change(self, name, what):
        """Gives the document of a result to `what`, and writes it back."""
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

    def refused(self, *words):
        for flags in ((), ("--check",)):
            done = page("--results", self.dir, *flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            for word in words:
                self.assertIn(word, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def stale(self, *names):
        done = page("--results", self.dir, "--check")
        self.assertEqual(done.returncode, 1)
        for name in (*names, COMMAND):
            self.assertIn(name, done.stderr)

    def test_a_changed_result_makes_the_page_stale_until_it_is_made(self):
        self.assertEqual(page("--results", self.dir, "--check").returncode, 0)
        self.row("round.json", "round.10m.90ms-1gbit.seconds", lambda r: r.update(value=0.5))
        self.stale("README.md", "round-10m.svg")
        self.assertEqual(page("--results", self.dir).returncode, 0)
        self.assertEqual(page("--results", self.dir, "--check").returncode, 0)

    def test_a_page_or_picture_that_somebody_edited_is_stale(self):
        os.remove(self.path("codec-fold.svg"))
        self.stale("codec-fold.svg")
        page("--results", self.dir)
        with open(self.path("README.md"), "a", encoding="utf-8") as file:
            file.write("and more\n")
        self.stale("README.md")

    def test_verdicts_follow_the_figures(self):
        row = "codec.bits.topk-sign.64of4096"
        for value, word in ((0.14, "reached"), (0.1401, "**not reached**")):
            self.row("codec.json", row, lambda r, v=value: r.update(value=v))
            page("--results", self.dir)
            line = next(x for x in self.text().splitlines() if x.startswith(f"| `{row}` | at most"))
            self.assertEqual(line.split(" | ")[-1], f"{word} |")
        row = "codec.fold.topk-sign.64of4096"
        for ratio, word in ((0.699, "**not reached**"), (0.7, "reached"), (0.9, "stretch reached")):
            self.row("codec.json", row, lambda r, v=ratio: r.update(ratio=v))
            page("--results", self.dir)
            line = next(x for x in self.text().splitlines() if x.startswith(f"| `{row}` | ratio"))
            self.assertEqual(line.split(" | ")[-1], f"{word} |")

    def test_a_count_has_no_unit(self):
        line = next(x for x in self.text().splitlines() if x.startswith("| `kill.violations` | at"))
        self.assertEqual(line, "| `kill.violations` | at most 0 | 0 |  | reached |")

    def test_a_missing_result_is_named_with_its_bench(self):
        os.remove(self.path("round.json"))
        self.refused("round.json is not there", "./bench/run.sh round --json")

    def test_a_missing_part_is_named_with_its_flags(self):
        os.remove(self.path("push-snapshot.json"))
        self.refused("push-snapshot.json is not there",
                     "./bench/run.sh push --parts snapshot --snapshot-runs 9 --json")

    def test_a_damaged_result_is_named(self):
        with open(self.path("codec.json"), "r+", encoding="utf-8") as file:
            file.truncate(1000)
        self.refused("codec.json cannot be read")

    def test_what_breaks_the_contract_is_named(self):
        self.change("round.json", lambda d: d.pop("commit"))
        self.refused("round.json", "commit")

    def test_no_figure_is_no_result(self):
        self.row("round.json", "round.10m.90ms-1gbit.seconds",
                 lambda r: r.update(value=float("nan")))
        self.refused("round.json", "value")

    def test_a_result_of_another_bench_is_named(self):
        shutil.copy(self.path("round.json"), self.path("loader.json"))
        self.refused("loader.json", "of the bench round")

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
