"""Pictures of the benches' page: bars as SVG, the same bytes for the same figures."""
import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, STEP = 900, 230, 110, 56, 22
OURS, OTHERS, WHISKER, LINE = "#1f77b4", "#aaa", "#333", "#d62728"


@dataclass
class Bar:
    label: str
    value: float
    low: float | None = None  # ends of the repetitions, or of an interval
    high: float | None = None
    apart: bool = False  # another source's figure, not of the same run


class Scale:
    """Maps figures to pixels; logarithmic if requested and if all are above 0."""

    def __init__(self, values, log):
        self.log = log and min(values) > 0
        values = [math.log10(v) for v in values] if self.log else [0, *values]
        self.low, self.high = min(values), max(values)
        if self.log:
            self.low = math.floor(self.low)
        span = (self.high - self.low) or 1
        self.high += 0.02 * span
        self.unit = (WIDTH - LEFT - RIGHT) / (self.high - self.low)

    def x(self, value):
        at = math.log10(value) if self.log else value
        return LEFT + (at - self.low) * self.unit

    def origin(self):
        return LEFT if self.log else self.x(0)


def _text(x, y, text, anchor="start", color="#000"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">'
            f"{escape(text)}</text>")


def _bar(bar, y, scale, unit):
    x, from_ = scale.x(bar.value), scale.origin()
    color = OTHERS if bar.apart else OURS
    out = [_text(LEFT - 8, y + 13, bar.label, "end"),
           f'<rect x="{min(x, from_):.1f}" y="{y + 3}" width="{abs(x - from_):.1f}" '
           f'height="{STEP - 8}" fill="{color}"/>']
    end = max(x, from_)
    if bar.low is not None and bar.high is not None and bar.low < bar.high:
        low, high = scale.x(bar.low), scale.x(bar.high)
        out.append(f'<path d="M{low:.1f} {y + 10}H{high:.1f}M{low:.1f} {y + 6}v8'
                   f'M{high:.1f} {y + 6}v8" stroke="{WHISKER}" fill="none"/>')
        end = max(end, high)
    out.append(_text(end + 6, y + 13, f"{bar.value:.3g} {unit}".rstrip()))
    return out


def bars(title, all_bars, unit, lines=(), log=False):
    """One horizontal bar each; `lines`: vertical ones, (value, label)."""
    values = [v for bar in all_bars for v in (bar.value, bar.low, bar.high) if v is not None]
    scale = Scale(values + [value for value, _ in lines], log)
    bottom = TOP + STEP * len(all_bars)
    said = title + (", logarithmic" if scale.log else "")
    if any(bar.apart for bar in all_bars):
        said += "; grey: not of the same run"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 12}" '
           f'font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="#fff"/>', _text(12, 20, said)]
    for i, bar in enumerate(all_bars):
        out += _bar(bar, TOP + STEP * i, scale, unit)
    for i, (value, label) in enumerate(lines):
        x = scale.x(value)
        out.append(f'<path d="M{x:.1f} {TOP - 4}V{bottom + 4}" stroke="{LINE}" '
                   f'stroke-dasharray="4 3"/>')
        out.append(_text(x, TOP - 8 - 12 * (i % 2), f"{label} {value:g}", "middle", LINE))
    return "\n".join([*out, "</svg>", ""])
