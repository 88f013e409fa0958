"""What the tree's README.md quotes, out of bench/results; page.py writes it there."""
import re

import learned
import peers

BEGIN = "<!-- ./bench/report writes the lines down to the next mark out of bench/results -->"
END = "<!-- end of what ./bench/report writes -->"
GAP = "learning-fresh14", "learning.fresh14.n400"  # the shipped rule, seeds that chose nothing
SIZE = "10m.90ms-1gbit"
PEER = "DiLoCo, gloo"  # whose exchange stands beside ours


class BadPage(Exception):
    """A page that no figures can be written into; the text says why."""


def of(documents, rows, name):
    """A row that README quotes."""
    if name not in rows[documents]:
        raise BadPage(f"{documents}.json: no row {name}, which README.md quotes (bench/front.py, "
                      "bench/learned.py)")
    return rows[documents][name]


def spread(row, digits, scale=1):
    """'0.20 (0.18 to 0.28)'."""
    value, low, high = (f"{row[key] / scale:.{digits}f}" for key in ("value", "min", "max"))
    return value if low == high else f"{value} ({low} to {high})"


def loss(rows, said):
    gap = of(GAP[0], rows, GAP[1])
    sync = said["learning"]["sync dense"].split(",")[0]
    fewer = of("learning", rows, f"learning.{sync}.up_bytes")["value"] / of(
        "learning", rows, "learning.ours.up_bytes")["value"]
    dense = re.compile(r"learning\.sync-[^:]*\.mean")
    tried = sum(bool(dense.fullmatch(name)) for name in rows["learning"])
    rounds, steps = said["learning"]["rounds"].split(", ", 1)
    side = "below" if gap["value"] < 0 else "above"
    cost = of("learning-attribution", rows, "learning.attribution.effect.async")
    return (
        "How well does it learn?",
        f"Held-out loss {abs(gap['value']):.2f} % {side} the best of {tried} dense, synchronous "
        "DiLoCo outer steps with the same local steps (95 % interval "
        f"{gap['min']:+.2f} to {gap['max']:+.2f} %, {gap['n']} paired "
        f"seeds); it sends {fewer:.0f} times fewer bytes than that one's fp32",
        f"{said['learning']['model']}; three regions; {rounds} rounds, {steps}; one schedule: "
        f"{said['learning']['optimizer']}. At the end of that run only, and "
        f"**not a gain of asynchrony** ({cost['value']:+.2f} %, {cost['min']:.2f} to "
        f"{cost['max']:.2f}, beside BSP with the same codec): hardly any push was stale "
        "([what it is not](bench/learning/README.md#what-these-figures-are-not))")


def exchange(rows, said, others):
    seconds = of("round", rows, f"round.{SIZE}.seconds")
    moved = of("round", rows, f"round.{SIZE}.bytes_per_region")
    sent = said["round"]["density"].replace(", sign", " values, as signs")
    beside = next((peers.figure(entry) for entry in others["exchanges"]
                   if (entry["peer"], entry["size"]) == (PEER, SIZE)), None)
    if beside is None:
        raise BadPage(f"{peers.FILE}: no {PEER} of {SIZE}, which README.md quotes (bench/front.py)")
    return (
        "What does one exchange cost?",
        f"{spread(seconds, 2)} s; {moved['value'] / 1e6:.2f} MB a region, both ways together",
        f"{int(said['round']['10m.parameters']) / 1e6:.1f} M parameters, three emulated regions, "
        f"90 ms round trip, 1 Gbit/s, all push at once ({sent}); median of "
        f"{seconds['n']} (least and most). "
        f"{PEER}: {beside} ({others['mark']})")


def kill(rows, others):
    waits = [of("round", rows, f"round.10m.{name}")["value"]
             for name in ("kill-worker.others_stall_s", "kill-server.stall_s")]
    back = [of("round", rows, f"round.10m.kill-{who}.back_s") for who in ("worker", "server")]
    longest = [of("round", rows, f"round.10m.{name}")
               for name in ("kill-worker.others_longest_round_s", "kill-server.longest_round_s")]
    told = "; ".join(f"{entry['peer']}: {entry['said']}" for entry in others["kills"])
    return (
        "What does a kill -9 cost the others?",
        "Nothing: nobody waited" if max(waits) == 0 else f"They waited {max(waits):.2f} s",
        f"The same model and links; a worker is killed {back[0]['n']} times and a server "
        f"{back[1]['n']} times, each in the middle of an exchange. A push is due every "
        f"{longest[0]['against_value']:.1f} s; the others' longest round takes "
        f"{max(row['max'] for row in longest):.2f} s. The killed worker works again after "
        f"{back[0]['value']:.1f} s, the server after {back[1]['value']:.1f} s. "
        f"{told} ({others['mark']})")


def block(rows, said, others):
    """Lines of the table. rows, said: by the result's name its rows and its conditions."""
    lines = [loss(rows, said), exchange(rows, said, others), kill(rows, others)]
    return ["| | figure | conditions |", "|---|---|---|",
            *(f"| {asked} | **{figure}** | {limits} |" for asked, figure, limits in lines)]


def put(text, path, begin, end, lines):
    """The text with these lines between the two marks."""
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise BadPage(f"{path} needs these two lines once each, for the figures between them:\n"
                      f"{begin}\n{end}")
    before, rest = text.split(begin)
    table = "\n".join(lines)
    return f"{before}{begin}\n\n{table}\n\n{end}{rest.split(end)[1]}"


def filled(path, rows, said, others):
    """README's text with the figures between its marks."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise BadPage(f"{path} cannot be read ({error})") from None
    text = put(text, path, BEGIN, END, block(rows, said, others))
    return put(text, path, learned.BEGIN, learned.END,
               learned.block(lambda document, name: of(document, rows, name)))
