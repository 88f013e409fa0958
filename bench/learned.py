"""The table of claims on learning in README.md, from bench/results; page.py writes it there.

Each difference, interval and number of seeds comes from a row of a result. Words are typed by hand:
settings, and how far the first points of a curve are behind, for which there are no rows. A row on
a run's end is the gap to the dense, synchronous baseline in per cent of its loss; `beside` names
another comparison.
"""
from typing import NamedTuple

BEGIN = "<!-- ./bench/report writes what is known of learning, down to the next mark -->"
END = "<!-- end of what is known of learning -->"


class Claim(NamedTuple):
    what: str
    document: str
    row: str
    beside: str = "dense, synchronous DiLoCo"


CLAIMS = (
    Claim("0.43 M parameters, 400 rounds, as shipped, on seeds not used for tuning",
          "learning-fresh14", "learning.fresh14.n400"),
    Claim("the same: the cost of asynchrony, no region far away", "learning-attribution",
          "learning.attribution.effect.async", "waiting in every round (BSP)"),
    Claim("1.7 M parameters with twice the tokens, untuned", "learning-size17x2",
          "learning.size17x2.n400"),
)


def block(row_of):
    """Lines of the table. row_of(document, name) gives a row."""
    lines = ["| | compared with | difference, 95 % interval | seeds |", "|---|---|---|---|"]
    for claim in CLAIMS:
        row = row_of(claim.document, claim.row)
        lines.append(f"| {claim.what} | {claim.beside} | {row['value']:+.2f} % "
                     f"({row['min']:+.2f} to {row['max']:+.2f}) | {row['n']} |")
    return lines
