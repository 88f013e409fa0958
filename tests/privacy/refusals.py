#!/usr/bin/env python3
"""Each thing that a private run refuses has a test, by the table of deploy/docs/privacy.md.

A row names existing tests (`unit.NAME`, `cores.NAME`, `privacy.NAME`), functions in them, and
planted mistakes that the product has. At least one test of the row contains the row's known words.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "deploy/docs/privacy.md"
# The refusals, and words that a test of each must contain.
WANTED = {
    "state from before privacy was on": "state_from_before_privacy_is_refused",
    "`trainer.noise_threshold`": "trainer.noise_threshold=1",
    "`cadence: link`, DyLU (`speed`)": "coordinator.cadence=staged",
    "density or scales from values without noise": "set codec.name: dense-fp32",
    "private evaluation": "eval.every_tokens=1000000",
    "sampling claimed for a shuffled, sequential or leased loader": "privacy.rate=0.01",
    "a divisor, batch or step count that depends on the data": "an_empty_draw_is_a_step_of_noise",
    "sensitivity not tied to the clip": "lk_grid_deviation",
    "noise on privately chosen coordinates": "noise on privately chosen coordinates",
    "feedback before the noise, with sampling": "feedback before the noise with sampling",
    "delta below 1e-9": "privacy.delta=1e-10",
    "two workers with one record set": "two_workers_with_one_record_set_are_refused",
    "telemetry other than `none`": "telemetry_makes_no_claim",
    "less noise than the terms": "weaker_noise_than_the_terms_is_refused",
}


def sources():
    """Returns {test: its source text}."""
    found = {}
    for path in (ROOT / "tests/unit").rglob("*.c"):
        text = path.read_text(encoding="utf-8")
        named = re.match(r"// ctest: (\w+)", text)
        found["unit." + (named[1] if named else path.stem)] = text
    for path in (ROOT / "tests/cores").glob("*.c"):
        found["cores." + path.stem] = path.read_text(encoding="utf-8")
    here = ROOT / "tests/privacy"
    for name, program in re.findall(r"add_test\(NAME (privacy\.[\w-]+) COMMAND (\w+)",
                                    (here / "CMakeLists.txt").read_text(encoding="utf-8")):
        source = here / (re.sub("^privacy_|_planted$", "", program) + ".c")
        if program == "privacy_planted":
            source = here / "audit.c"
        found[name] = source.read_text(encoding="utf-8") if source.exists() else ""
    return found


def compare(page, tests):
    """Returns the table's faults, a line each."""
    table = page.split("### Refused")[1].split("\n### ")[0]
    rows = {row.split(" | ")[0].strip("| "): row for row in re.findall(r"^\| .*$", table, re.M)}
    wrong = []
    for what, words in WANTED.items():
        row = next((r for name, r in rows.items() if name.startswith(what)), None)
        if row is None:
            wrong.append(f"no row: {what}")
            continue
        quoted = re.findall(r"`([\w.-]+)`", " | ".join(row.split(" | ")[2:]))
        named = [q for q in quoted if re.match(r"(unit|cores|privacy)\.", q)]
        wrong += [f"{what}: {q} is no test" for q in named if q not in tests]
        texts = "".join(tests.get(q, "") for q in named)
        wrong += [f"{what}: {q} is in none of its tests" for q in quoted
                  if "_" in q and "." not in q and q not in texts]
        if words not in texts:
            wrong.append(f"{what}: none of its tests has `{words}`")
    return wrong


def main():
    page, tests = PAGE.read_text(encoding="utf-8"), sources()
    wrong = compare(page, tests)
    broken = page.replace("`unit.budget`", "`unit.budgets`")
    if len(compare(broken, tests)) != len(wrong) + 2:
        wrong.append("a row without its test is not seen")
    print("\n".join(wrong) or f"{len(WANTED)} refusals have their test")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
