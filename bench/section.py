"""A section of bench/results/README.md: what it says, its targets and pictures (page.py)."""
import math
from dataclasses import dataclass


@dataclass
class Target:
    """What a row must be: its `of` (value, ratio, or max: the interval's upper end)."""

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
    """A picture: rows whose name begins with `prefix`, as bars of `of`, and what is beside them."""

    file: str
    title: str
    prefix: str
    of: str
    unit: str
    lines: tuple = ()  # (value, label)
    peers: str = ""  # their bars of this size are drawn beside: not measured in this run
    apart: tuple = ()  # (label, value): somebody's figures, drawn beside
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
    drawn: tuple = ()  # pictures that the bench drew itself: (file, caption)
    peers: bool = False  # the table of peers.json stands here
    part: str = ""  # these rows alone were measured, in a run of their own
    flags: str = ""  # of that run, beside its --parts
    counted: str = ""  # is said of the targets that are reached, after their number
    tables: object = None  # a function of the rows: (heading, columns, lines) each
    command: str = ""  # makes the result, where run.sh and the name do not say how

    @property
    def name(self):
        """Of its result, without .json."""
        return f"{self.bench}-{self.part}" if self.part else self.bench
