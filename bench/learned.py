"""What is known of learning, a row a claim, out of bench/results; page.py writes it into README.md.

Each difference, interval and number of seeds is of a row of a result. Words are typed: settings,
and how far behind the first points of a curve are, of which there are no rows. A row that says how
a run ends is a gap to the dense, synchronous baseline in per cent of its loss; `beside` says what
stands there instead.
"""
from typing import NamedTuple

BEGIN = "<!-- ./bench/report writes what is known of learning, down to the next mark -->"
END = "<!-- end of what is known of learning -->"


class Claim(NamedTuple):
    what: str
    document: str
    row: str
    beside: str = "the baseline"


EIGHT = "learning-attribution"
CLAIMS = (
    Claim("**0.43 M parameters, 400 rounds, as shipped**; seeds that chose nothing",
          "learning-fresh14", "learning.fresh14.n400"),
    Claim("the same on eight other seeds", EIGHT, "learning.attribution.gap.async.k0.25.staggered"),
    Claim("its worst place from 6 % of the tokens on (before that it is further behind: 3 % at "
          "5, 4 % at 4, about 15 % at 2 %)", "learning-fresh14",
          "learning.fresh14.curve.n400.ours:eta=1.4"),
    Claim("the same codec where every round waits for all regions (`update.mode: bsp`)", EIGHT,
          "learning.attribution.gap.bsp.k0.25.staggered"),
    Claim("what asynchrony costs, no region being far away", EIGHT,
          "learning.attribution.effect.async", "BSP, four pairs of arms"),
    Claim("what kappa makes (published by others: SA-PEF)", EIGHT,
          "learning.attribution.effect.kappa", "none, four pairs of arms"),
    Claim("a density of 1/64", "learning-p64", "learning.p64.n400.ours-p64"),
    Claim("twice the learning rate: what it costs ours more than the baseline", "learning-rate",
          "learning.rate.rate_2x.n400.ours:eta=1.4", "what it costs the baseline"),
    Claim("one process, AdamW at each step on all data", "learning",
          "learning.gap_to_sync_dense_percent.single"),
    Claim("**1.7 M parameters**, each side at the lowest rate that was tried, 0.0018",
          "learning-size17", "learning.size17.n400.ours:eta=1.4:rate=0.0018"),
    Claim("ours at a rate of 0.003", "learning-size17", "learning.size17.n400",
          "the baseline at 0.0018"),
    Claim("twice the learning rate at 1.7 M, from 0.0018: what it costs ours more",
          "learning-size17", "learning.size17.rate_2x.n400.ours:eta=1.4:rate=0.0018",
          "what it costs the baseline"),
    Claim("1.7 M parameters with twice the tokens, both at 0.0018, untuned", "learning-size17x2",
          "learning.size17x2.n400"),
    Claim("0.11 M parameters", "learning-size011", "learning.size011.n400.ours:eta=1.4"),
    Claim("**0.05 M parameters, 1,600 rounds**, with 0.6 of the baseline's rate; the fourth "
          "setting that was tested, on fresh seeds", "learning-fresh", "learning.rule.n1600"),
    Claim("4,000 rounds, with 0.6 of the baseline's rate", "learning-n4000",
          "learning.n4000.n4000.ours:p=0.075:eta=1.7:rate=0.0036"),
    Claim("4,000 rounds, with the baseline's rate", "learning-n4000",
          "learning.n4000.n4000.ours:p=0.075:eta=1.7"),
    Claim("400 rounds, a rate that falls in the last fifth only", "learning-schedule",
          "learning.schedule.n400"),
    Claim("1,600 rounds of that, each side at the lowest rate that was tried", "learning-wsd",
          "learning.wsd.n1600.ours:p=0.075:eta=1.7:rate=0.0022"),
    Claim("1/64 with four times the local steps (H = 32, 16, 8)", "learning-h32",
          "learning.h32.n400.ours-p64"),
    Claim("Muon for the local steps", "learning-muon",
          "learning.muon.n400.ours:inner=muon:rate=0.006", "the baseline with AdamW"),
    Claim("the dense baseline itself with Muon", "learning-muon",
          "learning.muon.n400.sync-nesterov-0.6-0.5:inner=muon:rate=0.012",
          "the baseline with AdamW"),
)


def block(row_of):
    """Lines of the table. row_of(document, name) gives a row."""
    lines = ["| | beside | difference, 95 % interval | seeds |", "|---|---|---|---|"]
    for claim in CLAIMS:
        row = row_of(claim.document, claim.row)
        lines.append(f"| {claim.what} | {claim.beside} | {row['value']:+.2f} % "
                     f"({row['min']:+.2f} to {row['max']:+.2f}) | {row['n']} |")
    return lines
