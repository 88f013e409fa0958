#!/usr/bin/env python3
"""deploy/text/corpora.py: roff and XHTML become plain paragraphs; see README.md."""
import gzip
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "deploy", "text", "corpora.py")
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("corpora", SCRIPT)
corpora = importlib.util.module_from_spec(spec)
spec.loader.exec_module(corpora)


def man(text: str, language: str = "en") -> list[str]:
    return corpora.man_page(text.encode(), language)


class Roff(unittest.TestCase):
    def test_fonts_and_escapes(self):
        self.assertEqual(man(".TH X 1\nuse \\fB\\-\\-all\\fP or "
                             "\\fI\\,FILE\\/\\fR\\&. \\(bu \\[u00E9]"),
                         ["use --all or FILE. • é"])
        self.assertEqual(man("a\\s-1b\\s0c\\h'2n'd \\*(lqe\\*(rq \\e \\\" comment"),
                         ["abcd “e” \\"])
        self.assertEqual(man("\\[:o]\\('e\\f[CW]x\\f[]"), ["öéx"])  # composed: NFC

    def test_macros(self):
        self.assertEqual(man(".SH NAME\n.BR open (2),\n.I a b\nc\n.PP\nd"),
                         ["NAME", "open(2), a b c", "d"])
        self.assertEqual(man('.RB ( read "(2), " write "(2))"'), ["(read(2), write(2))"])
        self.assertEqual(man(".TP\n.B \\-x\ntext\n.IP \\(bu 2\nitem"), ["-x text", "• item"])
        self.assertEqual(man("see\n.UR http://a.b/\nthere\n.UE .\nend"),
                         ["see http://a.b/ there. end"])

    def test_wide_letters_join_without_a_blank(self):
        self.assertEqual(man("日本\n語 x\nです", "ja"), ["日本語 x です"])
        self.assertEqual(man(".TP\n名\n説明", "ja"), ["名 説明"])

    def test_no_fill_keeps_lines(self):
        self.assertEqual(man("a\n.nf\nint x;\n    y\\en;\n.fi\nb\nc"),
                         ["a", "int x;", "    y\\n;", "b c"])

    def test_markup_is_no_text(self):
        self.assertEqual(man(".de XX\nhidden\n..\n.ig\nhidden\n..\n.EQ\nx over y\n.EN\n"
                             ".\\\" no\nyes"), ["yes"])
        self.assertEqual(man(".ie t hidden\n.el shown\n.if n also\n.if t \\{\\\nhidden\n.\\}\nend"),
                         ["shown also end"])
        self.assertEqual(man(".TS\nallbox;\nlb l\nl l.\nA\tB\n_\nT{\nc d\nT}\te\n.TE\nend"),
                         ["A B", "c d", "e", "end"])
        self.assertEqual(man("101 65 41 A letter"), [])  # a row of a code table

    def test_pages_left_out(self):
        self.assertEqual(man(".\\\" comment\n.so man2/open.2\n"), [])
        self.assertEqual(man(".Dd May 1\n.Dt LS 1\n.Sh NAME\n.Nm ls\n"), [])

    def test_encodings(self):
        self.assertEqual(corpora.man_page("日本語です".encode("euc_jp"), "ja"), ["日本語です"])
        self.assertEqual(corpora.man_page("中文手册".encode("gb18030"), "zh"), ["中文手册"])
        self.assertEqual(corpora.man_page("Übersicht é".encode("latin-1"), "de"),
                         ["Übersicht é"])
        self.assertEqual(corpora.man_page(b'.\\" -*- coding: KOI8-R -*-\n' + "да".encode("koi8-r"),
                                          "en"), ["да"])
        self.assertEqual(man("cafe\u0301"), ["caf\u00e9"])


class Html(unittest.TestCase):
    def test_paragraphs(self):
        self.assertEqual(corpora.html_page(
            "<html><head><title>no</title></head><body><div id=\"banner\"><p>no</p></div>"
            "<div class=\"para\">\n a <code class=\"x\">b</code>,\n c &lt;d&gt; <!-- no --></div>"
            "<pre class=\"screen\"># <strong>one</strong>\ntwo</pre><ul class=\"docnav\">"
            "<li>no</li>"
            "</ul><p>e&#233;</p></body></html>"), ["a b, c <d>", "# one", "two", "eé"])


def build_package(folder: str, name: str, files: dict[str, bytes]) -> None:
    top = os.path.join(folder, "build-" + name)
    for path, data in files.items():
        os.makedirs(os.path.dirname(os.path.join(top, path)), exist_ok=True)
        with open(os.path.join(top, path), "wb") as file:
            file.write(data)
    os.makedirs(os.path.join(top, "DEBIAN"))
    with open(os.path.join(top, "DEBIAN", "control"), "w", encoding="utf-8") as file:
        file.write(f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: nobody\n"
                   "Description: test\n")
    subprocess.run(["dpkg-deb", "--build", top, os.path.join(folder, f"{name}_1_all.deb")],
                   check=True, stdout=subprocess.DEVNULL)


class Whole(unittest.TestCase):
    def test_languages_and_held_out_lines(self):
        long_en, long_de = "An English paragraph " * 6, "Ein deutscher Absatz " * 6
        with tempfile.TemporaryDirectory() as dir_:
            for package, (_, language, folder) in corpora.MANPAGES.items():
                section = "1/" if folder.endswith("man") else "man1/"
                page = folder + section + package + ".1.gz"
                build_package(dir_, package, {page: gzip.compress(
                    f".SH NAME\n{language} {package}\n.PP\n{long_en}\n.PP\n{long_en}".encode())})
            html = "usr/share/doc/debian-handbook/html/"
            build_package(dir_, corpora.HANDBOOK, {
                html + f"{edition}/a.html":
                    f"<p>{long_en}</p><p>short</p><p>{long_de}{n}</p>".encode()
                for n, edition in enumerate(corpora.EDITIONS.values())})
            out = os.path.join(dir_, "out")
            subprocess.run([sys.executable, SCRIPT, "--packages", dir_, "--out", out], check=True,
                           stdout=subprocess.DEVNULL)

            def read(path: str) -> list[str]:
                with open(os.path.join(out, path), encoding="utf-8") as file:
                    return file.read().split("\n")[:-1]

            self.assertEqual(read("europe/de/manpages.txt"),
                             ["NAME", "de manpages-de", long_en.strip()])  # once a language
            self.assertCountEqual(  # two packages, in the order of a hash
                read("america/en/manpages.txt"),
                ["NAME", "en manpages", long_en.strip(), "NAME", "en manpages-dev"])
            self.assertEqual(read("heldout/de.txt"), [long_de + "3"])  # not what is English still
            self.assertEqual(read("heldout/en.txt"), [long_en.strip(), long_de + "0"])
            self.assertEqual(sorted(os.listdir(os.path.join(out, "heldout"))),
                             sorted(f"{language}.txt" for language in corpora.EDITIONS))


if __name__ == "__main__":
    unittest.main()
