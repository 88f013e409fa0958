#!/usr/bin/env python3
"""Texts are turned into units of a tokenizer's tokens: prepared.py LIBRARY PACKAGE."""
import contextlib
import gzip
import io
import json
import os
import shlex
import shutil
import sys
import unittest
from unittest import mock

from fake import Case, longhaul
from longhaul import first, prepare
from tokenizers import Tokenizer, models, pre_tokenizers


class Prepared(Case):
    def setUp(self):
        super().setUp()
        words = {"</s>": 0, "a": 1, "b": 2, "[UNK]": 3}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.save(self.path("tokenizer.json"))
        self.put("text/asia/en/a.txt", "a a")
        self.put("text/asia/en/deep/b.jsonl", '{"text": "b"}\n{"text": "b b"}\n')
        os.makedirs(self.path("text/asia/en/deep"), exist_ok=True)
        with gzip.open(self.path("text/asia/en/c.txt.gz"), "wt") as file:
            file.write("a b")

    def put(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def run_it(self, *more):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = prepare.main(["--tokenizer", self.folder.name, "--text", self.path("text"),
                                 "--out", self.path("data"), "--unit-tokens", "11", *more])
        return code, said.getvalue()

    def made(self):
        with open(self.path("data/units.json"), encoding="utf-8") as file:
            return json.load(file)

    def tokens_of(self, row):
        return list(longhaul.data.read_tokens(self.path("data/" + row["file"]), 0, row["tokens"]))

    def test_documents_keep_their_bounds(self):
        self.put("text/asia/en/notes.md", "b")
        code, said = self.run_it()
        self.assertEqual(code, 0)
        self.assertIn("passed over: " + self.path("text/asia/en/notes.md"), said)
        with open(self.path("data/units.json"), encoding="utf-8") as file:
            rows = json.load(file)["units"]
        tokens = longhaul.data.read_tokens(self.path("data/" + rows[0]["file"]), 0, 11)
        self.assertEqual(list(tokens), [1, 1, 0, 1, 2, 0, 2, 0, 2, 2, 0])

    def test_texts_that_no_region_trains_are_held_out(self):
        self.put("text/heldout/en/h.txt", "a b a")
        self.put("text/heldout/en/i.jsonl", '{"text": "b"}\n\n{"text": ""}\n')
        self.put("text/heldout/de.txt", "b")
        others = ("text/heldout/notes.md", "text/readme", "text/asia/readme")
        for name in others:
            self.put(name, "b")
        code, said = self.run_it()
        self.assertEqual(code, 0)
        for name in others:
            self.assertIn("passed over: " + self.path(name), said)
        held = self.made()["heldout"]
        self.assertEqual([(h["language"], h["tokens"], h["bytes"]) for h in held],
                         [("de", 2, 1), ("en", 6, 6)])
        self.assertEqual(self.tokens_of(held[1]), [1, 2, 1, 0, 2, 0])
        os.makedirs(self.path("text/heldout/fr"))
        self.assertIn("fr holds no file that is used (.txt, ", self.run_it()[1])

    def test_a_document_ends_with_the_mark_that_is_named(self):
        self.assertEqual(self.run_it("--mark", "[UNK]")[0], 0)
        self.assertEqual(self.tokens_of(self.made()["units"][0]),
                         [1, 1, 3, 1, 2, 3, 2, 3, 2, 2, 3])
        code, said = self.run_it("--mark", "[END]")
        self.assertEqual(code, 1)
        self.assertIn("the tokenizer has none of [END]: --mark names the token", said)

    def test_each_region_and_language_has_its_units(self):
        self.put("text/europe/de/a.txt", "b " * 21)
        self.put("text/europe/nl/a.txt", "a " * 10)
        code, said = self.run_it()
        self.assertEqual(code, 0)
        self.assertIn("4 units of 11 tokens", said)
        rows = self.made()["units"]
        self.assertEqual([(r["home"], r["language"]) for r in rows],
                         [("asia", "en"), ("europe", "de"), ("europe", "nl"), ("europe", "de")])
        shutil.rmtree(self.path("text"))
        self.put("text/heldout/en/a.txt", "a a")
        self.assertIn("text holds no folder REGION/LANGUAGE", self.run_it()[1])

    def test_bad_files_and_folders_are_named(self):
        os.symlink("gone", self.path("text/asia/en/d.txt"))
        self.assertEqual(self.run_it()[0], 1)
        self.assertIn("d.txt is a link to gone, which is not there", self.run_it()[1])
        os.remove(self.path("text/asia/en/d.txt"))
        self.put("text/asia/en/deep/b.jsonl", '{"txt": "b"}\n')
        self.assertIn('b.jsonl:1: not a JSON object with a "text"', self.run_it()[1])
        os.remove(self.path("text/asia/en/deep/b.jsonl"))
        with open(self.path("text/asia/en/latin.txt"), "wb") as file:
            file.write(b"a \xe9")
        self.assertIn("latin.txt is no text in UTF-8", self.run_it()[1])
        os.remove(self.path("text/asia/en/latin.txt"))
        with open(self.path("text/asia/en/c.txt.gz"), "rb") as file:
            whole = file.read()
        for cut in (b"no gzip", whole[:-9]):
            with open(self.path("text/asia/en/c.txt.gz"), "wb") as file:
                file.write(cut)
            self.assertIn("c.txt.gz is no whole .gz file", self.run_it()[1])
        os.remove(self.path("text/asia/en/c.txt.gz"))
        os.makedirs(self.path("text/africa"))
        self.assertIn("africa holds no folder of a language", self.run_it()[1])
        os.rmdir(self.path("text/africa"))
        os.makedirs(self.path("text/europe/de"))
        self.assertIn("de holds no file that is used (.txt, ", self.run_it()[1])

    def test_a_tokenizer_that_is_none_is_named(self):
        os.remove(self.path("tokenizer.json"))
        code, said = self.run_it()
        self.assertEqual(code, 1)
        self.assertIn("tokenizer.json: no such file; --tokenizer names", said)
        self.put("tokenizer.json", "{")
        code, said = self.run_it()
        self.assertEqual(code, 1)
        self.assertIn("tokenizer.json is no tokenizer.json of `tokenizers` (", said)

    def test_a_first_run_is_made_in_a_new_folder_alone(self):
        self.put("mine/run.yaml", "mine")
        with self.assertRaisesRegex(SystemExit, "mine exists already: name another folder"):
            first.main([self.path("mine")])
        self.assertEqual(os.listdir(self.path("mine")), ["run.yaml"])
        with mock.patch.object(first, "make", return_value="go on") as make, \
                contextlib.redirect_stdout(io.StringIO()) as said:
            first.main([self.path("other"), "--tokens", "5"])
        make.assert_called_once_with(self.path("other"), 5)
        self.assertIn("\n    go on\n", said.getvalue())

    def test_the_texts_of_a_first_run_are_apart(self):
        made = first.texts()
        self.assertEqual(list(made), [*first.REGIONS, "heldout"])
        self.assertEqual(len(made["heldout"]), 10_000 * len(first.REGIONS))
        for i, region in enumerate(first.REGIONS):
            self.assertGreaterEqual(len(made[region]), first.LEAST - 10_000)
            self.assertLessEqual(len(made[region]), first.MOST)
            self.assertNotIn(made["heldout"][10_000 * i:10_000 * (i + 1)], made[region])
        with mock.patch.object(first, "LEAST", 1 << 40), \
                self.assertRaisesRegex(SystemExit, "bytes of text for asia, and at least"):
            first.texts()

    def test_the_program_is_beside_this_python_or_in_path(self):
        beside = os.path.join(os.path.dirname(sys.executable), "longhaul")
        for is_beside, in_path, found in ((True, "/a/longhaul", beside),
                                          (False, "/a/longhaul", "/a/longhaul"),
                                          (False, None, None)):
            with mock.patch("os.access", return_value=is_beside), \
                    mock.patch("shutil.which", return_value=in_path):
                if found:
                    self.assertEqual(first.tool(), found)
                    continue
                with self.assertRaisesRegex(SystemExit, "neither beside this Python nor in PATH"):
                    first.tool()

    def test_a_first_run_is_started_in_a_folder_of_any_name(self):
        folder = self.path("my \U0001f600 'runs'")
        with mock.patch.object(first, "tool", return_value="/bin/true"):
            line = first.make(folder, 1)
        self.assertEqual(shlex.split(line), [
            "/bin/true", "up", folder + "/run.yaml", "--data", folder + "/data", "--dir",
            folder + "/run", "--no-wan"])
        with open(folder + "/run.yaml", encoding="utf-8") as file:
            text = file.read()
        self.assertIn(f'import: "{folder}/model"', text)
        self.assertIn(f'"{folder}/train.py"', text)


if __name__ == "__main__":
    unittest.main(argv=["prepared.py"])
