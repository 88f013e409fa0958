"""The peers' figures: bench/results/peers.json, measured separately from our runs."""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CONTRACTS = os.path.join(os.path.dirname(HERE), "tests", "contracts")
sys.path.insert(0, CONTRACTS)
import validate  # noqa: E402

FILE = "peers.json"
SIZES = {"10m.90ms-1gbit": "10 M parameters, 90 ms x 1 Gbit/s",
         "100m.150ms-100mbit": "100 M, 150 ms x 100 Mbit/s"}


class BadPeers(Exception):
    """The peers' figures cannot be shown; the text gives the reason."""


def read(folder):
    """The document, checked against tests/contracts/peers.schema.json."""
    path = os.path.join(folder, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError) as error:
        raise BadPeers(f"{path} cannot be read ({error})") from None
    with open(os.path.join(CONTRACTS, "peers.schema.json"), encoding="utf-8") as file:
        wrong = list(validate.problems(document, json.load(file), "document"))
    wrong += [f"{entry['peer']}: no bench has the size {entry['size']}"
              for entry in document.get("exchanges", ()) if not wrong
              and entry["size"] not in SIZES]
    if wrong:
        raise BadPeers(f"{path}: {wrong[0]}")
    return document


def bars(document, size):
    """(peer, seconds) of one size, the fastest first: for a picture."""
    found = [(entry["peer"], entry["seconds"]) for entry in document["exchanges"]
             if entry["size"] == size and "seconds" in entry]
    return tuple(sorted(found, key=lambda bar: bar[1]))


def figure(entry):
    """'2.1 s, 55 MB', or the entry's text instead."""
    words = [f"{entry['seconds']:g} s"] if "seconds" in entry else []
    words += [f"{entry['bytes'] / 1e6:g} MB"] if "bytes" in entry else []
    return ", ".join(words) or entry.get("said", "")


def rows(document):
    """Lines of a table: peer, then its figure for each size."""
    names = dict.fromkeys(entry["peer"] for entry in document["exchanges"])
    at = {(entry["peer"], entry["size"]): figure(entry) for entry in document["exchanges"]}
    return [(name, *(at.get((name, size), "") for size in SIZES)) for name in names]


def said(document):
    """One paragraph: the mark, the conditions, and the effect of a kill."""
    conditions = "; ".join(document["conditions"].values())
    kills = ", ".join(f"{kill['peer']}: {kill['said']}" for kill in document["kills"])
    return (f"Peers, **{document['mark']}** ({FILE}): {conditions}. "
            f"A process is killed with -9 in the middle of an exchange: {kills}.")
