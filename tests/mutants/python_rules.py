"""Mutants of the Python package: its functions, and the rules that edit them.

They are one class, `python`, so that the draws of the other classes do not change. Offsets are into
the file's text, which is ASCII.
"""
import ast
import hashlib
import re
from dataclasses import dataclass

COMPARES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not",
            "is not": "is", "in": "not in", "not in": "in"}
QUIET = re.compile(r"(_log|logging|warnings)\.")  # calls that only print


@dataclass
class Function:
    file: str
    name: str
    source: str  # the file's text
    node: ast.AST

    @property
    def key(self):
        """Changes with every change of the function except in comments and white space."""
        return hashlib.sha256(ast.dump(self.node).encode()).hexdigest()[:16]


def functions(file, text):
    """The functions and methods of a file; nested ones belong to the outer one."""
    def walk(node, names):
        for kid in ast.iter_child_nodes(node):
            if isinstance(kid, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield Function(file, ".".join((*names, kid.name)), text, kid)
            elif isinstance(kid, ast.ClassDef):
                yield from walk(kid, (*names, kid.name))
    return list(walk(ast.parse(text), ()))


class _Edits:
    def __init__(self, function):
        self.text, self.starts = function.source, [0]
        for line in function.source.splitlines(True):
            self.starts.append(self.starts[-1] + len(line))
        self.made = []
        body = function.node.body
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            body = body[1:]  # the docstring
        for statement in body:
            self.visit(statement)

    def span(self, node):
        return (self.starts[node.lineno - 1] + node.col_offset,
                self.starts[node.end_lineno - 1] + node.end_col_offset)

    def add(self, rule, start, end, new):
        self.made.append(("python", f"python.{rule}", start, end, new))

    def whole(self, rule, node, new):
        self.add(rule, *self.span(node), new)

    def visit(self, node):
        """Makes the edits of a node and of its children, except in code that only prints."""
        start, end = self.span(node) if hasattr(node, "lineno") else (0, 0)
        said = self.text[start:end]
        if isinstance(node, ast.Expr) and (QUIET.match(said) or
                                           isinstance(node.value, ast.Constant)):
            return
        if isinstance(node, ast.Raise):
            return
        rule = getattr(self, "of_" + type(node).__name__.lower(), None)
        if rule:
            rule(node)
        for kid in ast.iter_child_nodes(node):
            if not isinstance(kid, (ast.JoinedStr, ast.arguments, ast.expr_context)):
                self.visit(kid)

    def of_compare(self, node):
        for left, right in zip([node.left, *node.comparators], node.comparators):
            start, end = self.span(left)[1], self.span(right)[0]
            found = re.search(r"not\s+in|is\s+not|[<>=!]=|[<>]|\bin\b|\bis\b", self.text[start:end])
            if found:
                sign = " ".join(found.group().split())
                rule = "boundary" if sign[0] in "<>" else "negate"
                self.add(rule, start + found.start(), start + found.end(), COMPARES[sign])

    def of_boolop(self, node):
        for left, right in zip(node.values, node.values[1:]):
            start, end = self.span(left)[1], self.span(right)[0]
            found = re.search(r"\b(and|or)\b", self.text[start:end])
            if found:
                other = {"and": "or", "or": "and"}[found.group()]
                self.add("condition", start + found.start(), start + found.end(), other)

    def of_unaryop(self, node):
        if isinstance(node.op, ast.Not):
            start, end = self.span(node.operand)
            self.whole("negate", node, f"({self.text[start:end]})")

    def of_if(self, node):
        start, end = self.span(node.test)
        if isinstance(node.body[0], ast.Raise) and len(node.body) == 1:
            self.add("check", start, end, "False")
        elif not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
            self.add("negate", start, end, f"not ({self.text[start:end]})")

    def of_while(self, node):
        if isinstance(node.test, ast.Constant):
            return
        start, end = self.span(node.test)
        self.add("loop", start, end, "False")

    def of_assign(self, node):
        if isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
            self.whole("state", node, "pass")

    def of_augassign(self, node):
        self.whole("state", node, "pass")

    def of_expr(self, node):
        if isinstance(node.value, ast.Call) and "super()" not in ast.unparse(node.value):
            self.whole("call", node, "pass")

    def of_binop(self, node):
        if isinstance(node.op, (ast.Add, ast.Sub)) and isinstance(node.right, ast.Constant) and \
                node.right.value == 1:
            self.whole("off_by_one", node, "(" + ast.unparse(node.left) + ")")

    def of_return(self, node):
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            self.whole("result", value, str(not value.value))


def edits(function):
    """Every edit of a function, each once: (class, rule, first offset, end, new text)."""
    seen = set()
    for edit in _Edits(function).made:
        if edit[2:] not in seen:
            seen.add(edit[2:])
            yield edit
