#!/usr/bin/env python3
"""Tests of validate.py: good documents pass, and each way of breaking one is found."""
import copy
import json
import os
import subprocess
import sys
import tempfile
import unittest

import validate

HERE = os.path.dirname(os.path.abspath(__file__))
REGION = {key: 1 for key in ("tokens", "steps", "rounds", "tokens_per_s", "payload_up_bytes",
                             "payload_down_bytes", "wire_up_bytes", "wire_down_bytes", "accepted",
                             "damped", "returned", "stall_s")}
SUMMARY = {
    "schema": "longhaul.summary/1", "ok": True, "run": "r", "elapsed_s": 1.5,
    "model": {"parameters": 8, "shape": {"layers": 1}},
    "heldout": {"ja": {"before": 5.6, "after": 2.1, "bytes": 100}},
    "regions": {"asia": REGION},
    "shards": [{"shard": 0, "server": "s0", "version": 3, "digest": "ab", "parameters": 8}],
    "payload": {"codec": "topk-sign", "density": 0.075, "bits_per_parameter_round": 0.6,
                "payload_bits_per_parameter_round": 0.5},
    "staleness": {"p50": 0, "p99": 2, "max": 3, "bound": 12},
    "learning": {"rounds": 400, "density_rounds": 30, "expected_gap_nat": 0.02},
    "replicas": {"equal": True, "compared": 5},
    "data": {"units": 4, "credited_once": True, "epoch": 1, "epochs": 2},
    "faults": [],
}
BENCH = {
    "schema": "longhaul.bench/1", "bench": "codec", "commit": "c", "date": "d",
    "host": {"cpu": "x", "cores": 2, "memory_bytes": 1},
    "rows": [{"name": "codec.encode", "value": 1.0, "unit": "GB/s", "n": 3}],
}
PEERS = {
    "schema": "longhaul.peers/1", "mark": "not of the same run",
    "conditions": {name: "x" for name in ("date", "host", "links", "repetitions", "load",
                                          "versions", "values")},
    "exchanges": [{"peer": "p", "size": "s", "seconds": 1.5, "bytes": 10}],
    "kills": [{"peer": "p", "said": "it ends"}],
}
# contract, path of the broken value, its new value (None: removed), a part of the error message
BROKEN = (
    ("summary", ("schema",), "longhaul.summary/2", "is not"),
    ("summary", ("ok",), 1, "is no boolean"),
    ("summary", ("elapsed_s",), 0, "not above"),
    ("summary", ("faults",), None, "lacks faults"),
    ("summary", ("heldout",), {}, "0 entries"),
    ("summary", ("heldout", "ja", "after"), "2.1", "is no number"),
    ("summary", ("commands",), [], "0 entries"),
    ("summary", ("commands",), [{"name": "a", "ended": "exit 0", "log": "l"}], "lacks restarts"),
    ("summary", ("unjudged",), 1, "is no string"),
    ("summary", ("regions", "asia", "stall_s"), None, "lacks stall_s"),
    ("summary", ("regions", "asia", "wire_up_bytes"), 0.5, "is no integer"),
    ("summary", ("shards", 0, "digest"), 7, "is no string"),
    ("summary", ("payload", "bits_per_parameter_round"), None, "lacks bits_per"),
    ("summary", ("payload", "payload_bits_per_parameter_round"), -1, "below 0"),
    ("summary", ("replicas", "compared"), 1, "below 2"),
    ("summary", ("replicas", "compared"), True, "is no integer"),
    ("bench", ("rows",), [], "0 entries"),
    ("bench", ("rows", 0, "unit"), None, "lacks unit"),
    ("bench", ("host",), "x", "is no object"),
    ("peers", ("mark",), "of the same run", "is not"),
    ("peers", ("conditions", "load"), None, "lacks load"),
    ("peers", ("exchanges", 0, "seconds"), 0, "not above"),
)
DOCUMENTS = {"summary": SUMMARY, "bench": BENCH, "peers": PEERS}


def broken(document: dict, path: tuple, value: object) -> dict:
    out = copy.deepcopy(document)
    at = out
    for step in path[:-1]:
        at = at[step]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return out


class Contracts(unittest.TestCase):
    def test_good_documents_are_valid(self):
        for name, document in DOCUMENTS.items():
            self.assertEqual(list(validate.problems(document, validate.contract(name))), [])

    def test_a_summary_of_an_older_build_is_valid(self):
        older = copy.deepcopy(SUMMARY)
        del older["payload"]["payload_bits_per_parameter_round"]
        self.assertEqual(list(validate.problems(older, validate.contract("summary"))), [])

    def test_a_summary_without_losses_says_why(self):
        document = {**SUMMARY, "heldout": {}, "unjudged": "data of their own",
                    "commands": [{"name": "a", "ended": "exit 0", "restarts": 0, "log": "l"}]}
        self.assertEqual(list(validate.problems(document, validate.contract("summary"))), [])

    def test_each_break_is_found_once(self):
        for name, path, value, complaint in BROKEN:
            with self.subTest(path=path, value=value):
                document = broken(DOCUMENTS[name], path, value)
                found = list(validate.problems(document, validate.contract(name)))
                self.assertEqual(len(found), 1, found)
                self.assertIn(complaint, found[0])

    def test_a_keyword_that_is_not_known_is_refused(self):
        with self.assertRaises(validate.SchemaError):
            list(validate.problems(1, {"multipleOf": 2}))
        with self.assertRaises(validate.SchemaError):
            list(validate.problems(1, {"type": "null"}))

    def test_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.json")
            texts = ((json.dumps(SUMMARY), 0), (json.dumps({**SUMMARY, "ok": None}), 1),
                     (json.dumps({**SUMMARY, "elapsed_s": float("nan")}), 1), ("{", 1))
            for text, status in texts:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                command = [sys.executable, os.path.join(HERE, "validate.py"), "summary", path]
                said = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertEqual(said.returncode, status, said.stdout + said.stderr)


if __name__ == "__main__":
    unittest.main()
