#!/usr/bin/env python3
"""bench/showcase.py with a tiny model on made-up texts: `tests/bench/showcase.py BUILD`. The Python
that runs it must have PyTorch. The arms of adapters come to their ends and each figure is there; no
loss is looked at, for nothing can be learned in so few steps. Tokens are compared with those of the
models that count."""
import json
import os
import random
import subprocess
import sys
import tempfile
import types

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import report  # noqa: E402
import showcase  # noqa: E402
LANGUAGES = {"de": "europe", "fr": "europe", "es": "america", "en": "america"}
ROWS = {f"showcase.lora.{region}.{language}"
        for region in ("asia", "europe", "america") for language in ("de", "fr", "es")}
ROWS |= {f"showcase.mean.lora.{who}" for who in ("alone", "run")}
ROWS |= {f"showcase.lora.{what}" for what in ("seconds", "trained_parameters", "sent_mb",
                                              "tokens", "alone_steps")}
ROWS |= {"showcase.base.seconds", "showcase.parameters", "showcase.mean.base"}


def write_texts(folder):
    draw = random.Random(1)
    for language, region in LANGUAGES.items():
        os.makedirs(os.path.join(folder, region, language))
        words = ["".join(draw.choices("abcdefgh", k=4)) for _ in range(50)]
        path = os.path.join(folder, region, language, "manpages.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(" ".join(draw.choices(words, k=3000)))


class Known:
    """A showcase of which all is known: one region alone is better after half the steps."""

    given = types.SimpleNamespace(arms=["full"], steps=480, batch=4)
    losses = dict.fromkeys(showcase.SOURCES, 1.0)

    def texts(self):
        pass

    def path(self, *names):
        return "/".join(names)

    def base(self):
        return 1.0

    def judge(self, *models):
        return [self.losses for _ in models], 10

    def alone(self, _arm):
        return [self.losses] * 3, [480, 240, 480], 1.0

    def join(self, _arm):
        region = {"tokens": 500_000, "wire_up_bytes": 1, "rounds": 1}
        return {"elapsed_s": 1, "model": {"parameters": 10},
                "regions": dict.fromkeys(showcase.REGIONS, region)}, "model"


def check_tokens():
    """Beside the run's tokens stand those of the models that its losses are compared with."""
    out = report.Report("showcase", None)
    showcase.measure(Known(), out)
    row = next(row for row in out.rows if row["name"] == "showcase.full.tokens")
    assert row["value"] == 1_500_000, row
    assert row["against_value"] == (480 + 240 + 480) * 4 * 256, row


def main():
    check_tokens()
    build = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        text, out = os.path.join(folder, "text"), os.path.join(folder, "doc.json")
        write_texts(text)
        bench = [sys.executable, os.path.join(ROOT, "bench", "showcase.py"), "--build", build,
                 "--python", sys.executable, "--text", text, "--json", out, "--no-wan",
                 "--arms", "lora"]
        sizes = {"steps": 12, "base-steps": 4, "batch": 2, "dim": 32, "layers": 1, "h": 2,
                 "alone-also": 6, "own-bytes": 2000, "held-bytes": 2000, "base-bytes": 4000}
        subprocess.run(bench + [f"--{k}={v}" for k, v in sizes.items()], check=True)
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "contracts", "validate.py"),
                        "bench", out], check=True)
        with open(out, encoding="utf-8") as file:
            rows = {row["name"]: row["value"] for row in json.load(file)["rows"]}
        assert set(rows) == ROWS, f"rows: {set(rows) ^ ROWS}"
        assert all(value > 0 for value in rows.values()), rows
        assert rows["showcase.lora.trained_parameters"] < rows["showcase.parameters"]
        # more bytes than the parts of text that no region has are refused, by name
        refused = subprocess.run(bench + ["--own-bytes=9000"], capture_output=True, text=True,
                                 check=False)
        assert refused.returncode and "bytes of text" in refused.stderr, refused


if __name__ == "__main__":
    main()
