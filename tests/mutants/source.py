"""C as this tree writes it: functions, their tokens and a tree of their statements.

No C parser: it reads clang-format's output, where a function's braces are in the first column.
Offsets are into the file's text; comments and directives are blanked in it, and keep their length.
"""
import hashlib
import json
import os
import re
from dataclasses import dataclass, field

COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
TOKEN = re.compile(r"""
    (?P<name>[A-Za-z_]\w*) | (?P<number>\.?\d[\w.]*) |
    (?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*') |
    (?P<sign>->|\+\+|--|<<=|>>=|<=|>=|==|!=|&&|\|\||<<|>>|[-+*/%&|^]=|\.\.\.|[^\s\w])""", re.X)
FUNCTION = re.compile(r"^(?P<head>[A-Za-z_][^\n;{}]*\([^;{}]*\))[ ]*\n(?P<body>\{\n.*?^\})",
                      re.M | re.S)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "names.json"),
          encoding="utf-8") as _file:
    FORMER = json.load(_file)  # names of files and members when mutants were first named after them
OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


@dataclass
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclass
class Node:
    """A statement: tokens [first, end). `head`: the parentheses of if, for, while."""

    kind: str  # block, if, for, while, do, switch, label, plain
    first: int
    end: int = 0
    head: tuple = (0, 0)
    kids: list = field(default_factory=list)
    up: "Node | None" = None

    def all(self):
        yield self
        for kid in self.kids:
            yield from kid.all()


@dataclass
class Function:
    file: str
    name: str
    head: str
    start: int
    end: int
    source: str  # the file's text, blanked
    tokens: list
    tree: Node
    match: dict  # the place of each bracket's partner

    @property
    def text(self):
        return self.source[self.start:self.end]

    @property
    def key(self):
        """Changes with every change of the function except in comments and white space."""
        return hashlib.sha256(former(squeeze(self.text)).encode()).hexdigest()[:16]

    def span(self, first, end):
        """Offsets of the tokens [first, end)."""
        return self.tokens[first].start, self.tokens[end - 1].end

    def words(self, first, end):
        """The names of [first, end), and the words in these names."""
        names = {t.text for t in self.tokens[first:end] if t.kind == "name"}
        return names | {word for name in names for word in name.split("_")}

    def said(self, first, end):
        start, stop = self.span(first, end)
        return self.source[start:stop]


def squeeze(text):
    """Removes white space without meaning, and brackets around brackets."""
    said = [t.group() for t in TOKEN.finditer(text)]
    match, stack = {}, []
    for at, word in enumerate(said):
        if word == "(":
            stack.append(at)
        elif word == ")" and stack:
            match[stack.pop()] = at
    gone = {at for start, end in match.items() if match.get(start + 1) == end - 1
            for at in (start, end)}
    return " ".join(word for at, word in enumerate(said) if at not in gone)


def former(text):
    """A text with renamed names replaced by the former ones: ids and hashes survive renaming."""
    text = re.sub(r"(?<=-> )(\w+) \. (\w+)|(?<=->)(\w+)\.(\w+)", _former_member, text)
    return re.sub(r"[A-Za-z_]\w*", lambda n: FORMER["words"].get(n.group(), n.group()), text)


def former_file(function):
    """The file of a function when its mutants were first tried."""
    moved = FORMER["moved"].get(f"{function.file}:{function.name}")
    return moved or FORMER["files"].get(function.file, function.file)


def _former_member(found):
    """The former name of a member that has moved into a part: `s->session.timer`."""
    part, name = [said for said in found.groups() if said]
    return FORMER["members"].get(f"{part}.{name}", found.group())


def blank(text):
    """Replaces comments and directives by spaces."""
    def spaces(found):
        said = found.group()
        return said if said[0] in "\"'" else re.sub(r"[^\n]", " ", said)
    return DIRECTIVE.sub(lambda d: re.sub(r"[^\n]", " ", d.group()), COMMENT.sub(spaces, text))


class _Reader:
    """Builds statements from tokens."""

    def __init__(self, tokens, match):
        self.tokens, self.match = tokens, match

    def text(self, at):
        return self.tokens[at].text

    def statement(self, at, up):
        said = self.text(at)
        if said == "{":
            node = Node("block", at, up=up)
            at += 1
            while self.text(at) != "}":
                kid = self.statement(at, node)
                node.kids.append(kid)
                at = kid.end
            node.end = at + 1
            return node
        if said in ("if", "for", "while", "switch"):
            return self.headed(at, said, up)
        if said == "do":
            node = Node("do", at, up=up)
            node.kids.append(self.statement(at + 1, node))
            node.end = self.until(node.kids[0].end, ";") + 1
            return node
        if said in ("case", "default"):
            return Node("label", at, self.until(at, ":") + 1, up=up)
        if self.tokens[at].kind == "name" and self.text(at + 1) == ":":
            return Node("label", at, at + 2, up=up)
        return Node("plain", at, self.until(at, ";") + 1, up=up)

    def headed(self, at, kind, up):
        close = self.match[at + 1]
        node = Node(kind, at, head=(at + 2, close), up=up)
        node.kids.append(self.statement(close + 1, node))
        node.end = node.kids[0].end
        if kind == "if" and self.text(node.end) == "else":
            node.kids.append(self.statement(node.end + 1, node))
            node.end = node.kids[1].end
        return node

    def until(self, at, sign):
        while self.text(at) != sign:
            at = self.match[at] + 1 if self.text(at) in OPENING else at + 1
        return at


def functions(file, text):
    """Every function of a file. `text`: the file's contents."""
    source = blank(text)
    for found in FUNCTION.finditer(source):
        start = found.start("body")
        tokens = [Token(t.lastgroup, t.group(), start + t.start(), start + t.end())
                  for t in TOKEN.finditer(found.group("body"))]
        match, stack = {}, []
        for at, token in enumerate(tokens):
            if token.kind != "sign":
                continue
            if token.text in OPENING:
                stack.append(at)
            elif token.text in CLOSING:
                match[at] = stack.pop()
                match[match[at]] = at
        head = found.group("head")
        name = re.search(r"(\w+)\(", head).group(1)
        tree = _Reader(tokens, match).statement(0, None)
        yield Function(file, name, head, found.start(), found.end(), source, tokens, tree, match)
