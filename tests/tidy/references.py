"""References must resolve: links and anchors of pages, paths in comments and in prose.

A page is named by its path from the root, a place in it by its anchor, as in
`server/docs/0000-protocol.md#rule-14`; a link in a page starts at that page's folder.
"""
import posixpath
import re
from typing import Iterator, NamedTuple

ROOMS = "proto|common|kernels|server|worker|deploy|tests|bench"
# Bare references: a number says nothing once its page has moved.
_BARE = re.compile(r"(?<!\w)(DESIGN|PROTOCOL)\b(?!\.md|\.\w|\()|\bREADME,(?: |\n[/#* ]*)[\"A-Z]")
_RULE = re.compile(r"\b[Rr]ules? \d+")
_LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")
_PLACE = re.compile(r"(?<![\w./-])((?:[\w.-]+/)*[\w.-]+\.md)#([\w-]+)")
_ALSO = re.compile(r"(?<![\w/&#])#((?:rule|section)-\d+)\b(?! *\))")
_PATH = re.compile(rf"(?<![\w./$*\"'-])((?:{ROOMS})/[\w./-]*\w\.(?:[ch]|py|sh|md|proto|svg|yaml))"
                   r"(?![\w*/])")
EXAMPLE = "server/docs/0000-protocol.md#rule-14"
# Files whose text names paths outside of this tree, each with its reason.
MADE_UP = {
    "tests/tidy/self_test.py": "planted violations",
    "tests/tidy/references.py": "the words that it looks for",
}


class Place(NamedTuple):
    line: int
    text: str


def _slug(heading: str) -> str:
    """The anchor that a heading gets."""
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    heading = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return heading.replace(" ", "-")


def _prose(text: str) -> str:
    """A page with its code blocks replaced by empty lines."""
    out, fenced, code, item, before = [], False, False, False, ""
    for line in text.split("\n"):
        fence = line.startswith("```")
        if line.strip() and not line.startswith(" "):
            item = bool(re.match(r"[-*] |\d+\. ", line))
        code = (line.startswith("    ") and not item and (code or not before.strip())) or (
            code and not line.strip())
        out.append("" if fenced or fence or code else line)
        fenced = fenced != fence
        before = line
    return "\n".join(out)


def anchors(text: str) -> set[str]:
    """Every place of a page that a link may name."""
    found: set[str] = set(re.findall(r'<a id="([^"]+)">', text))
    seen: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+)$", _prose(text), re.M):
        slug = _slug(heading)
        count = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def _places(pattern: re.Pattern, text: str, sign: str = "") -> Iterator[tuple[int, re.Match]]:
    """Line and match of each; the test for `sign` quickly skips a text that has none."""
    for match in pattern.finditer(text) if sign in text else ():
        yield text.count("\n", 0, match.start()) + 1, match


def _links(path: str, text: str, known: set[str], at: dict[str, set[str]]) -> Iterator[Place]:
    """Links of a page whose target does not exist."""
    for line, match in _places(_LINK, re.sub(r"`[^`\n]*`", "", _prose(text))):
        target = match.group(1)
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
        if file not in known:
            yield Place(line, f"{target}: no such file or folder")
        elif anchor:
            page = file if file in at else posixpath.join(file, "README.md")
            if anchor not in at.get(page, set()):
                yield Place(line, f"{target}: no such place in {page}")


def _named(text: str, known: set[str], at: dict[str, set[str]]) -> Iterator[Place]:
    """Paths and places from the root that a text names and that do not exist."""
    for line, match in _places(_PLACE, text, ".md#"):
        page, anchor = match.groups()
        if page.startswith(".."):
            continue  # from a link written into a page, which is checked itself
        if page in at and anchor not in at[page]:
            yield Place(line, f"{page}#{anchor}: no such place")
        elif page not in at:
            yield Place(line, f"{page}#{anchor}: no such page (paths start at the root)")
    for line, match in _places(_PATH, text):
        if match.group(1) not in known:
            yield Place(line, f"{match.group(1)}: no such file")


def _short(text: str, at: dict[str, set[str]]) -> Iterator[Place]:
    """`#rule-3` after a full reference belongs to the last page named before."""
    for line, match in _places(_ALSO, text, "#"):
        before = _PLACE.findall(text, 0, match.start())
        page = before[-1][0] if before else ""
        if match.group(1) not in at.get(page, set()):
            yield Place(line, f"#{match.group(1)}: no such place in {page or 'any page before it'}")


def findings(tree: dict[str, str]) -> Iterator[tuple[str, int, str]]:
    """(path, line, message)."""
    files = set(tree) | set(getattr(tree, "others", ()))
    known = files | {"/".join(path.split("/")[:n]) for path in files
                     for n in range(1, path.count("/") + 1)} | {"."}
    at = {path: anchors(text) for path, text in tree.items() if path.endswith(".md")}
    for path, text in tree.items():
        if path in MADE_UP or path.endswith(".json"):
            continue
        page, read = path.endswith(".md"), text
        if page:
            for line, said in _links(path, text, known, at):
                yield path, line, said
            text = re.sub(_LINK, lambda m: m.group().replace(m.group(1), ""), text)
        else:
            for line, said in _short(text, at):
                yield path, line, said
        for line, said in _named(text, known, at):
            yield path, line, said
        bare = re.sub(_LINK, lambda m: "\n" * m.group().count("\n"), read)
        for line, match in _places(_RULE, bare):
            yield path, line, f"{match.group()}: a rule is named as in {EXAMPLE}"
        for line, match in _places(_BARE, text):
            yield path, line, (f"{match.group().split(',')[0]}: name the page and the place, as in "
                               f"{EXAMPLE} or DESIGN.md#section-6")
