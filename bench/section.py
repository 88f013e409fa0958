"""A section of bench/results/README.md: its text, targets and pictures (page.py)."""
import math
from dataclasses import dataclass


@dataclass
class Target:
    """A bound on a row's `of` (value, ratio, or max: the interval's upper end)."""

    row: str
    of: str
    word: str  # "at most" or "at least"
    bound: float
    stretch: float | None = None
    unit: str = ""

    def reached(self, number):
        """0: not, 1: the target, 2: the stretch goal too."""
        sign = 1 if self.word == "at least" else -1
        if sign * number < sign * self.bound:
            return 0
        return 2 if self.stretch is not None and sign * number >= sign * self.stretch else 1


@dataclass
class Bars:
    """A picture: rows whose name begins with `prefix`, as bars of `of`, and bars beside them."""

    file: str
    title: str
    prefix: str
    of: str
    unit: str
    lines: tuple = ()  # (value, label)
    peers: str = ""  # peers' bars of this size are drawn beside: not measured in this run
    apart: tuple = ()  # (label, value): other sources' figures, drawn beside
    only: tuple = ()  # names without the prefix; empty: all
    most: float = math.inf  # larger ones are left out, and the caption says so
    log: bool = False


@dataclass
class Section:
    bench: str
    title: str
    text: str = ""
    targets: tuple = ()
    bars: tuple = ()
    drawn: tuple = ()  # pictures drawn by the bench: (file, caption)
    peers: bool = False  # the table of peers.json is shown here
    part: str = ""  # only these rows were measured, in a run of their own
    flags: str = ""  # flags of that run, besides its --parts
    counted: str = ""  # text after the number of reached targets
    tables: object = None  # a function of the rows: (heading, columns, lines) each
    command: str = ""  # makes the result, unless it follows from run.sh and the name

    @property
    def name(self):
        """The name of its result, without .json."""
        return f"{self.bench}-{self.part}" if self.part else self.bench
