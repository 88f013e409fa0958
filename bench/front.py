"""The figures in the tree's README.md, from bench/results; page.py writes them there."""
import learned
import peers

BEGIN = "<!-- ./bench/report writes the lines down to the next mark out of bench/results -->"
END = "<!-- end of what ./bench/report writes -->"
GAP = "learning-fresh14", "learning.fresh14.n400"  # the shipped rule, on seeds that chose nothing
SIZE = "10m.90ms-1gbit"
PEER = "DiLoCo, gloo"  # the peer whose exchange is compared with ours


class BadPage(Exception):
    """A page into which no figures can be written; the text gives the reason."""


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
    side = "below" if gap["value"] < 0 else "above"
    model = said["learning"]["model"].split(":")[0]
    rounds = said["learning"]["rounds"].split(",")[0]
    return ("Learning",
            f"held-out loss {abs(gap['value']):.2f} % {side} dense, synchronous DiLoCo "
            f"({gap['min']:+.2f} to {gap['max']:+.2f} %, {gap['n']} paired seeds) with {fewer:.0f} "
            f"times fewer bytes, at the end of one small run: {model}, {rounds} rounds "
            "([what is known](bench/learning/README.md#what-these-figures-are-not)).")


def exchange(rows, said, others):
    seconds = of("round", rows, f"round.{SIZE}.seconds")
    moved = of("round", rows, f"round.{SIZE}.bytes_per_region")
    beside = next((peers.figure(entry) for entry in others["exchanges"]
                   if (entry["peer"], entry["size"]) == (PEER, SIZE)), None)
    if beside is None:
        raise BadPage(f"{peers.FILE}: no {PEER} of {SIZE}, which README.md quotes (bench/front.py)")
    return ("Cheap",
            f"one exchange of {int(said['round']['10m.parameters']) / 1e6:.1f} M parameters among "
            f"three emulated regions (90 ms, 1 Gbit/s) takes {spread(seconds, 2)} s and "
            f"{moved['value'] / 1e6:.2f} MB a region; {PEER}, on the same links: {beside} "
            f"({others['mark']}).")


def kill(rows, others):
    waits = [of("round", rows, f"round.10m.{name}")["value"]
             for name in ("kill-worker.others_stall_s", "kill-server.stall_s")]
    back = [of("round", rows, f"round.10m.kill-{who}.back_s") for who in ("worker", "server")]
    told = "; ".join(f"{entry['peer']}: {entry['said']}" for entry in others["kills"])
    waited = "nobody waited" if max(waits) == 0 else f"the others waited {max(waits):.2f} s"
    return ("Hard to kill",
            f"after `kill -9` of a worker or a server in the middle of an exchange {waited}; the "
            f"worker works again after {back[0]['value']:.1f} s, the server after "
            f"{back[1]['value']:.1f} s. {told} ({others['mark']}).")


def block(rows, said, others):
    """Lines of the list. rows, said: rows and conditions by the result's name."""
    return [f"- **{what}:** {figure}" for what, figure in
            (exchange(rows, said, others), kill(rows, others), loss(rows, said))]


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
