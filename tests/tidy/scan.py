"""Reads C just far enough to check house rules: no parser, no preprocessor.

`scrub` blanks comments and literals and keeps every line break and column, so that a match in the
scrubbed text has the same place in the source. `declarations` yields the heads of everything
outside braces: prototypes, definitions, objects. Several rules read each file, so the results for
a text are kept.
"""
import functools
import re
from typing import Iterator, NamedTuple

_SKIP = re.compile(
    r"""//(?:\\\n|[^\n])*          # a comment to the end of the line
      | /\*.*?(?:\*/|\Z)           # a block comment
      | "(?:\\.|[^"\\\n])*"        # a string
      | (?<![0-9A-Fa-fxX])'(?:\\.|[^'\\\n])+'   # a character; not the ' of a digit group
    """, re.S | re.X)


def _blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", " ", match.group())


@functools.cache
def scrub(source: str) -> str:
    """The source with comments, strings and character literals replaced by spaces."""
    return _SKIP.sub(_blank, source)


def includes(source: str) -> Iterator[tuple[int, str]]:
    """(line, path) of every #include "path". Comments are skipped by their column, roughly."""
    for number, line in enumerate(source.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match:
            yield number, match.group(1)


class Head(NamedTuple):
    line: int
    text: str      # white space folded, attributes removed
    name: str      # a function's name, else ''
    defined: bool  # ends in a body
    must: bool     # carries LH_MUST


_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
_NOT_FUNCTION = re.compile(r"^(typedef|_Static_assert|LH_STATIC_ASSERT)\b")
# specifiers, then name(parameters): no '=' before the parenthesis, not a function pointer
_FUNCTION = re.compile(r"^(?:[A-Za-z_][\w\s*]*[\s*])([A-Za-z_]\w*)\s*\((?!\s*\*)[^=]*\)\s*$")


def _head(text: str, line: int, defined: bool) -> Head:
    folded = " ".join(_ATTRIBUTE.sub(" ", text).split())
    match = None if _NOT_FUNCTION.match(folded) else _FUNCTION.match(folded)
    return Head(line, folded, match.group(1) if match else "", defined, "LH_MUST" in folded)


_EDGE = re.compile(r"[{};]")


@functools.cache
def declarations(source: str) -> list[Head]:
    """Every head at file level. Bodies, initialisers and preprocessor lines are skipped."""
    text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", _blank, scrub(source), flags=re.M)
    text = re.sub(r'extern\s+\{', "        ", text)  # extern "C" { : its braces do not nest
    heads, start, depth, line, counted = [], 0, 0, 1, 0
    for edge in _EDGE.finditer(text):
        at, char = edge.start(), edge.group()
        if depth == 0 and char != "}":
            head = text[start:at]
            begins = at - len(head.lstrip())
            line += text.count("\n", counted, begins)
            counted = begins
            heads.append(_head(head, line, char == "{"))
        if char == "{":
            depth += 1
        elif char == "}":
            depth = max(0, depth - 1)
        if depth == 0:
            start = at + 1
    return heads


def circles(graph: dict[str, dict[str, str]]) -> Iterator[list[str]]:
    """The sets of two and more nodes that each reach all others of their set (Tarjan 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> Iterator[list[str]]:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for other in graph[node]:
            if other not in order:
                yield from visit(other)
            if other in stack:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == order[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                yield stack[at:]
            del stack[at:]

    for node in graph:
        if node not in order:
            yield from visit(node)
