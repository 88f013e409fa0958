#!/usr/bin/env python3
"""Plain text of several languages out of Debian's packages: deploy/text/corpora.sh calls this.

    corpora.py --packages DIR --out DIR

Training text is manual pages (roff), held-out text is the Debian handbook (XHTML), so the two never
overlap. Standard library only. Packages are read through `dpkg-deb --fsys-tarfile`, nothing is
installed and nothing is unpacked to disk.

    OUT/<region>/<language>/manpages.txt   one paragraph a line
    OUT/heldout/<language>.txt             one paragraph a line, each of more than 80 bytes

Left out: pages that only redirect (.so), pages in mdoc, paragraphs that a language had already
(licences, translators' notes), and of the handbook what stands in its English edition too: there it
is not translated yet.
"""
import argparse
import gzip
import hashlib
import html
import itertools
import os
import re
import subprocess
import sys
import tarfile
import time
import unicodedata

# package -> (region, language, folder of the pages)
MANPAGES = {
    "manpages-zh": ("asia", "zh", "usr/share/man/zh_CN/"),
    "manpages-ja": ("asia", "ja", "usr/share/man/ja/"),
    "manpages-de": ("europe", "de", "usr/share/man/de/"),
    "manpages-fr": ("europe", "fr", "usr/share/man/fr/"),
    "manpages": ("america", "en", "usr/share/man/man"),
    "manpages-dev": ("america", "en", "usr/share/man/man"),
    "manpages-es": ("america", "es", "usr/share/man/es/"),
    "manpages-pt-br": ("america", "pt", "usr/share/man/pt_BR/"),
}
HANDBOOK = "debian-handbook"
EDITIONS = {"en": "en-US", "zh": "zh-CN", "ja": "ja-JP", "de": "de-DE", "fr": "fr-FR",
            "es": "es-ES", "pt": "pt-BR"}
# What a page that is not UTF-8 is tried as.
LEGACY = {"zh": "gb18030", "ja": "euc_jp"}
HELDOUT_BYTES_MIN = 81  # of a line
REPEAT_CHARS = 40       # a paragraph of more letters is taken once a language
CHARSET_ROW = re.compile(r"[0-7]{3} +\d{1,3} +[0-9A-F]{2}( |$)")  # tables of codes are no language

# ---------------------------------------------------------------- roff

GLYPHS = {
    "aq": "'", "cq": "’", "oq": "‘", "dq": '"', "lq": "“", "rq": "”", "Fo": "«", "Fc": "»",
    "fo": "‹", "fc": "›", "Bq": "„", "bq": "‚", "bu": "•", "em": "—", "en": "–", "hy": "-",
    "mi": "−", "pl": "+", "mu": "×", "di": "÷", "co": "©", "rg": "®", "tm": "™", "de": "°",
    "ha": "^", "ti": "~", "ga": "`", "aa": "´", "rs": "\\", "sl": "/", "ul": "_", "ba": "|",
    "or": "|", "bv": "|", "br": "|", "lB": "[", "rB": "]", "lC": "{", "rC": "}", "la": "⟨",
    "ra": "⟩", "sh": "#", "Do": "$", "at": "@", "ct": "¢", "Eu": "€", "eu": "€", "Po": "£",
    "Ye": "¥", "sc": "§", "ps": "¶", "dg": "†", "dd": "‡", "12": "½", "14": "¼", "34": "¾",
    "->": "→", "<-": "←", "<>": "↔", "ua": "↑", "da": "↓", "rA": "⇒", "lA": "⇐", "ci": "○",
    "sq": "□", "OK": "✓", "<=": "≤", ">=": "≥", "!=": "≠", "==": "≡", "~=": "≈", "+-": "±",
    "if": "∞", "sr": "√", "*a": "α", "*b": "β", "*g": "γ", "*d": "δ", "*p": "π", "*m": "μ",
    "*l": "λ", "*e": "ε", "*s": "σ", "*w": "ω", "*S": "Σ", "*D": "Δ", "mc": "µ", "ss": "ß",
    "ae": "æ", "AE": "Æ", "o/": "ø", "O/": "Ø", "oe": "œ", "OE": "Œ", ",c": "ç", ",C": "Ç",
    "r!": "¡", "r?": "¿", "S1": "¹", "S2": "²", "S3": "³", "Of": "ª", "Om": "º", "no": "¬",
    "vs": "ˇ", "ac": "¸", "oA": "Å", "oa": "å", "-D": "Ð", "Sd": "ð", "TP": "Þ", "Tp": "þ",
    "fm": "′", "sd": "″", "mo": "∈", "lh": "☜", "rh": "☞", "hbar": "ħ",
}
ACCENTS = {"'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303", ":": "\u0308",
           "v": "\u030c", "o": "\u030a", ",": "\u0327"}
STRINGS = {"lq": "“", "rq": "”", "Aq": "'", "R": "®", "Tm": "™", "--": "—", "L\"": "“",
           "R\"": "”", "PI": "π", "C'": "'", "C`": "`", "S": ""}

ESCAPE = re.compile(r"""\\(?:
    (?P<comment>["\#].*)
  | [fFgmMn](?:\[[^]]*\]|\(..|[+-]?.)         # fonts, colours, registers
  | \*(?:\[(?P<string>[^]]*)\]|\((?P<string2>..)|(?P<string1>.))
  | \[(?P<glyph>[^]]*)\] | \((?P<glyph2>..) | C'(?P<glyphc>[^']*)'
  | s(?:\[[^]]*\]|\([+-]?\d\d|[+-]\(\d\d|[+-]?'[^']*'|[+-]?[1-3]\d|[+-]?\d)
  | N'(?P<number>\d+)'
  | [hvlLDxXZwbBoRSHYAV](?:'[^']*'|\[[^]]*\])  # motions, drawings, measures
  | (?P<plain>[-e\\' `_.t~0 ])
  | k. | z | [&/,:%|^)acdupr{}!?]
  | (?P<other>.?)
)""", re.X)
PLAIN = {"-": "-", "e": "\\", "\\": "\\", "'": "´", " ": " ", "`": "`", "_": "_", ".": ".",
         "t": " ", "~": " ", "0": " "}
ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|((?:\\.|[^\s\\])+)')

TOGETHER = {"BR", "RB", "BI", "IB", "IR", "RI"}  # fonts in turn, without blanks between
SPACED = {"B", "I", "SM", "SB", "R", "CW", "BX"}
BREAKS = {"PP", "LP", "P", "HP", "RS", "RE", "br", "sp", "TQ", "SY", "YS", "ti", "in", "ce", "bp",
          "TP", "Sp", "ne"}
NO_FILL, FILL = {"nf", "EX", "Vb", "DS", "CS"}, {"fi", "EE", "Ve", "DE", "CE"}
DEFINITIONS = {"de", "de1", "dei", "am", "am1", "ig"}


def glyph(name: str) -> str:
    if name in GLYPHS:
        return GLYPHS[name]
    if re.fullmatch(r"u[0-9A-F]{4,6}(_[0-9A-F]{4,6})*", name):
        return "".join(chr(int(code, 16)) for code in name[1:].split("_"))
    if len(name) == 2 and name[0] in ACCENTS and name[1].isalpha():
        return name[1] + ACCENTS[name[0]]
    if name.startswith("char") and name[4:].isdigit():
        return chr(int(name[4:]))
    return ""


class Roff:
    """One page in the man macros, line by line, into paragraphs of a line each."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.words: list[str] = []     # the paragraph being filled
        self.fill = True
        self.until = ""                # inside a definition: the request that ends it
        self.skipped_branch = False    # for .el
        self.braces = 0                # open ones of a branch that is left out
        self.table = 0                 # 1: before the format's end, 2: in the cells
        self.equation = False
        self.strings = dict(STRINGS)
        self.ended_with_c = False      # \c: the next line goes on without a blank
        self.tag = False               # the next line is the tag of a .TP

    def plain(self, text: str) -> str:
        if "\\" not in text:
            return text
        return ESCAPE.sub(self.escape, text)

    def escape(self, match: re.Match) -> str:
        kind = match.lastgroup
        if kind is None or kind == "comment":
            return ""
        value = match.group(kind)
        if kind.startswith("glyph"):
            return glyph(value)
        if kind.startswith("string"):
            return self.strings.get(value, "")
        if kind == "number":
            return chr(int(value)) if int(value) < 256 else ""
        if kind == "plain":
            return PLAIN[value]
        return value

    def arguments(self, text: str) -> list[str]:
        text = re.sub(r'(?<!\\)\\".*', "", text)
        return [(quoted.replace('""', '"') if bare == "" else bare)
                for quoted, bare in ARGUMENT.findall(text)]

    def end(self) -> None:
        if self.words:
            self.out.append(join_words(self.words))
            self.words = []

    def text(self, raw: str) -> None:
        goes_on = raw.endswith("\\c")
        line = self.plain(raw)
        if not self.fill:
            self.out.append(line.rstrip())
            return
        if not line.strip():
            self.end()
            return
        if self.ended_with_c and self.words:
            self.words[-1] += line.strip()
        else:
            if raw[0] == " ":
                self.end()
            self.words.append(line.strip())
        if self.tag and not goes_on:
            self.words.append("")  # a blank after the tag, between wide letters too
            self.tag = False
        self.ended_with_c = goes_on

    def cell_text(self, line: str) -> None:
        if self.table == 1:
            if line.rstrip().endswith("."):
                self.table = 2
            return
        line = line.strip()
        if line in ("_", "=", "T{", ""):
            return
        line = re.sub(r"\bT\{$|^T\}", "", line)
        cells = [c.strip() for c in self.plain(line.replace("\\t", "\t")).split("\t")]
        text = " ".join(c for c in cells if c not in ("", "_", "=", "\\_", "\\^"))
        if text:
            self.out.append(text)

    def condition(self, name: str, rest: str) -> None:
        """.if, .ie, .el: the branch for a terminal is taken, any other test is false."""
        if name == "el":
            take, body = self.skipped_branch, rest
        else:
            test, _, body = rest.partition(" ")
            take = test in ("n", "!t", "1")
            self.skipped_branch = not take
        body = body.strip()
        opens = body.count("\\{") - body.count("\\}")
        if not take:
            self.braces = max(opens, 0)
            return
        body = body.replace("\\{", "").replace("\\}", "").strip()
        if body and body != "\\":
            self.line(body)

    def request(self, line: str) -> None:
        match = re.match(r"[.']\s*([^\s\\\"]*)\s*(.*)", line)
        name, rest = match.group(1), match.group(2)
        if name in ("if", "ie", "el"):
            self.condition(name, rest)
        elif name in DEFINITIONS:
            ends = self.arguments(rest)
            self.until = "." + (ends[-1] if len(ends) > (name != "ig") else ".")
        elif name in ("ds", "ds1"):
            key, _, value = rest.partition(" ")
            self.strings.setdefault(key, self.plain(value.lstrip().removeprefix('"')))
        elif name == "TS":
            self.end()
            self.table = 1
        elif name == "TE":
            self.table = 0
        elif name in ("EQ", "EN"):
            self.equation = name == "EQ"
        elif self.table:
            if name == "T&":
                self.table = 1
            elif name in TOGETHER | SPACED and self.table == 2:
                self.out.append(self.plain(("" if name in TOGETHER else " ").join(
                    self.arguments(rest))))
        else:
            self.macro(name, rest)

    def macro(self, name: str, rest: str) -> None:
        if name in TOGETHER:
            self.text("".join(self.arguments(rest)))
        elif name in SPACED:
            if rest:
                self.text(" ".join(self.arguments(rest)))
        elif name in ("SH", "SS"):
            self.end()
            self.fill = True
            self.text(" ".join(self.arguments(rest)))
            if rest:
                self.end()
        elif name == "IP":
            self.end()
            tag = self.arguments(rest)[:1]
            if tag and tag[0]:
                self.tag = True
                self.text(tag[0])
        elif name in BREAKS:
            self.end()
            self.tag = name in ("TP", "TQ")
        elif name in NO_FILL:
            self.end()
            self.fill = False
        elif name in FILL:
            self.fill = True
        elif name == "OP":
            self.text("[" + " ".join(self.arguments(rest)) + "]")
        elif name in ("UR", "MT"):
            self.text(" ".join(self.arguments(rest)[:1]))
        elif name in ("UE", "ME"):
            tail = self.plain("".join(self.arguments(rest)))
            if tail and self.words:
                self.words[-1] += tail

    def line(self, line: str) -> None:
        if self.until:
            if line.rstrip() == self.until or line.split()[:1] == [self.until]:
                self.until = ""
        elif self.braces:
            self.braces = max(0, self.braces + line.count("\\{") - line.count("\\}"))
        elif line[:1] in (".", "'") and not line.startswith("''"):
            self.request(line)
        elif not self.equation:
            if self.table:
                self.cell_text(line)
            else:
                self.text(line.replace("\t", " ") if self.fill else line)

    def page(self, text: str) -> list[str]:
        text = re.sub(r"(?<!\\)((?:\\\\)*)\\\n", r"\1", text)  # continued lines
        for line in text.split("\n"):
            self.line(line)
        self.end()
        return self.out


def wide(char: str) -> bool:
    return char >= "\u2e80" and unicodedata.east_asian_width(char) in "WF"


def join_words(words: list[str]) -> str:
    """Lines of a paragraph: a blank between them, but none between two wide letters."""
    text = words[0]
    for word in words[1:]:
        glue = "" if wide(text[-1:] or " ") and wide(word[:1] or " ") else " "
        text += glue + word
    return text


def decode(data: bytes, language: str) -> str:
    data = data.removeprefix(b"\xef\xbb\xbf")
    said = re.search(rb"coding:\s*([\w-]+)", data[:400])
    for name in ("utf-8", said.group(1).decode() if said else "", LEGACY.get(language, ""),
                 "latin-1"):
        try:
            if name:
                return data.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
    raise AssertionError("latin-1 decodes anything")


def tidy(line: str, blanks: bool) -> str:
    line = unicodedata.normalize("NFC", line)
    line = "".join(c for c in line if c >= " " or c == "\t") if not line.isprintable() else line
    line = line.replace("\xad", "").replace("\ufeff", "").replace("\u200b", "").replace("\xa0", " ")
    return " ".join(line.split()) if blanks else line.rstrip().replace("\t", "    ")


def man_page(data: bytes, language: str) -> list[str]:
    text = decode(data, language).replace("\r", "")
    body = [line for line in text.split("\n") if line and not line.startswith((".\\\"", "'\\\""))]
    if not body or body[0].startswith(".so ") or any(line.startswith(".Dd ") for line in body[:20]):
        return []
    lines = (tidy(line, not line.startswith("  ")) for line in Roff().page(text))
    return [line for line in lines if line and not CHARSET_ROW.match(line)]


# ---------------------------------------------------------------- XHTML

LEFT_OUT = re.compile(r"<head\b.*?</head>|<script\b.*?</script>|<style\b.*?</style>|"
                      r'<ul class="docnav">.*?</ul>|<div id="banner">.*?</div>|'
                      r'<p id="title">.*?</p>|<!--.*?-->|<[!?][^>]*>', re.S)
TAG = re.compile(r"(<[^>]+>)")
INLINE = {"a", "acronym", "abbr", "b", "code", "em", "i", "span", "strong", "sub", "sup", "tt", "u",
          "kbd", "q", "small", "img", "var", "cite"}


def html_page(text: str) -> list[str]:
    """Paragraphs of an XHTML page, a line each; lines of <pre> stay lines."""
    out, words, pre = [], "", 0
    for piece in TAG.split(LEFT_OUT.sub(" ", text)):
        if not piece.startswith("<"):
            words += html.unescape(piece)
            continue
        name = re.match(r"</?([A-Za-z0-9]*)", piece).group(1).lower()
        if name in INLINE:
            continue
        out += words.split("\n") if pre else [" ".join(words.split())]
        words = ""
        if name == "pre":
            pre = max(0, pre + (-1 if piece.startswith("</") else 1))
    return [line for line in (tidy(line, True) for line in out + [words]) if line]


# ---------------------------------------------------------------- packages

def members(package: str, folder: str):
    """(name, bytes) of the plain files under a folder of a package."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as p:
        with tarfile.open(fileobj=p.stdout, mode="r|") as tar:
            for entry in tar:
                name = entry.name.removeprefix("./")
                if entry.isreg() and name.startswith(folder):
                    yield name, tar.extractfile(entry).read()
        p.stdout.read()
    if p.returncode:
        sys.exit(f"corpora: dpkg-deb cannot read {package}; remove it and start again")


def find(packages: str, name: str) -> str:
    found = sorted(f for f in os.listdir(packages)
                   if f.startswith(name + "_") and f.endswith(".deb"))
    if not found:
        sys.exit(f"corpora: no package {name} in {packages}")
    return os.path.join(packages, found[-1])


def write(path: str, lines: list[str]) -> int:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    data = "".join(line + "\n" for line in lines).encode("utf-8", "ignore")
    with open(path + ".tmp", "wb") as file:
        file.write(data)
    os.replace(path + ".tmp", path)
    return len(data)


def training(packages: str, out: str) -> dict[str, int]:
    """Pages in an order that mixes sections and names: any stretch is like the whole."""
    pages: dict[tuple[str, str], list[tuple[bytes, list[str]]]] = {}
    for package, (region, language, folder) in MANPAGES.items():
        for name, data in members(find(packages, package), folder):
            lines = man_page(gzip.decompress(data) if name.endswith(".gz") else data, language)
            key = hashlib.sha256(name.encode()).digest()
            pages.setdefault((region, language), []).append((key, lines))
    sizes = {}
    for (region, language), own in pages.items():
        lines, had = [], set()
        for line in itertools.chain.from_iterable(lines for _, lines in sorted(own)):
            if len(line) <= REPEAT_CHARS or line not in had:
                lines.append(line)
                had.add(line)
        sizes[language] = write(f"{out}/{region}/{language}/manpages.txt", lines)
    return sizes


def heldout(packages: str, out: str) -> dict[str, int]:
    top = "usr/share/doc/debian-handbook/html/"
    code_of = {edition: language for language, edition in EDITIONS.items()}
    lines: dict[str, dict[str, None]] = {language: {} for language in EDITIONS}  # ordered sets
    for name, data in members(find(packages, HANDBOOK), top):
        edition, _, page = name.removeprefix(top).partition("/")
        if edition in code_of and page.endswith(".html"):
            for line in html_page(data.decode("utf-8", "replace")):
                if len(line.encode()) >= HELDOUT_BYTES_MIN:
                    lines[code_of[edition]][line] = None
    english = lines["en"]
    return {language: write(f"{out}/heldout/{language}.txt",
                            [x for x in own if language == "en" or x not in english])
            for language, own in lines.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--packages", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    start = time.monotonic()
    train, held = training(args.packages, args.out), heldout(args.packages, args.out)
    print(f"{'language':<10}{'home':<10}{'bytes':>12}{'held out':>12}")
    home = {language: region for region, language, _ in MANPAGES.values()}
    for language in train:
        print(f"{language:<10}{home[language]:<10}{train[language]:>12}{held[language]:>12}")
    print(f"{sum(train.values())} bytes of text, {sum(held.values())} held out, "
          f"{time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
