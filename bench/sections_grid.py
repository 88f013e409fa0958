"""The section of bench/results/README.md on bench/grid.py."""
from section import Bars, Section, Target

MBITS, HS = (50, 200, 1000, 5000), (32, 128)
PUBLISHED = {(32, 50): 2.41, (32, 200): 10.01, (32, 1000): 36.01, (32, 5000): 68.10,
             (128, 50): 11.55, (128, 200): 36.09, (128, 1000): 71.52, (128, 5000): 87.00}
SYSTEMS = ("torchft", "gloo", "hivemind", "longhaul")
DENSITIES = (0.015625, 0.075)


def _figure(rows, name, digits=1):
    """A row's value, or "not measured"."""
    return f"{rows[name]['value']:.{digits}f}" if name in rows else "not measured"


def _busy(rows, h, mbit):
    """One line of the grid."""
    begin = f"grid.h{h}.{mbit}mbit"
    ours = f"{begin}.longhaul"
    density = rows[f"{ours}.density"]["value"] if f"{ours}.density" in rows else ""
    return (str(h), f"{mbit:,}", f"{PUBLISHED[h, mbit]:.1f}",
            *(_figure(rows, f"{begin}.{system}.busy") for system in SYSTEMS),
            _figure(rows, f"grid.h{h}.50mbit.alone.busy"),
            density and f"{density:g}", _figure(rows, f"{ours}.pushes_per_window", 2),
            _figure(rows, f"{ours}.push_windows", 2))


def _loss(rows, h, density):
    """Our loss at one density, compared with plain DiLoCo."""
    ours = f"grid.loss.h{h}.longhaul.p{density:g}"
    return (str(h), f"{density:g}", _figure(rows, f"grid.loss.h{h}.gloo", 4),
            _figure(rows, ours, 4), _figure(rows, f"{ours}.push_windows", 2),
            _figure(rows, f"{ours}.rtt_ms", 0) if f"{ours}.rtt_ms" in rows else "no delay")


def tables(rows):
    """(heading, columns, lines) of the grid and of its losses."""
    found = [("Busy, %:", ("H", "Mbit/s", "published DiLoCo", "torchft", "plain DiLoCo",
                           "hivemind", "longhaul", "the loops alone", "density", "pushes a window",
                           "windows a push takes"),
              [_busy(rows, h, mbit) for h in HS for mbit in MBITS])]
    losses = [_loss(rows, h, p) for h in HS for p in DENSITIES
              if f"grid.loss.h{h}.longhaul.p{p:g}" in rows]
    if losses:
        found.append(("Held-out loss of the small model that learns, nats a byte:",
                      ("H", "density", "plain DiLoCo", "longhaul", "windows a push takes",
                       "round trip, ms"),
                      losses))
    return found


SECTION = Section(
    "grid", "How busy four workers are on shaped links, beside torchft, hivemind and plain DiLoCo",
    "A published grid of DiLoCo (four workers, 30.8 M parameters, steps of 26.3 ms, no "
    "delay) with four systems, here all on two processors. Busy is the time of the steps over that "
    "of the clock; in brackets is the 95 % interval over the windows. The loops alone synchronise "
    "nothing: as busy as this machine, which others used too, lets them be. A modelled step learns "
    "nothing: what the densities do to a loss is in the second table. How it is measured, and how "
    "it differs from the published machines: [grid](../grid).",
    targets=(Target("grid.h32.50mbit.longhaul.busy", "value", "at least", 95, unit="%"),
             Target("grid.h128.50mbit.longhaul.busy", "value", "at least", 99, unit="%")),
    bars=(Bars("grid.svg", "busy at H = 32: the published grid in grey", "grid.h32.", "value", "%",
               only=tuple(f"{mbit}mbit.{system}.busy" for mbit in MBITS for system in SYSTEMS),
               apart=tuple((f"{mbit}mbit.DiLoCo, published", PUBLISHED[32, mbit])
                           for mbit in MBITS)),),
    tables=tables)
