#!/usr/bin/env python3
"""bench_sim and bench/sim.py, small: `tests/bench/sim.py BUILD`.

A scene follows from its flags and seed; every run credits each unit once, under any leasing rule
and with any region killed; rates, losses and slowdowns have their effect; the driver's document is
valid. All times are of a virtual clock, so nothing here depends on the speed of this machine.
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
VALIDATE = os.path.join(ROOT, "tests", "contracts", "validate.py")
RULES = ("level", "finish", "weighted")


def check(holds, text):
    if not holds:
        raise SystemExit(f"FAILED: {text}")


def play(program, *words):
    said = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    check(said.returncode == 0, f"{words}: {said.stderr}")
    case = json.loads(said.stdout)
    check(case["credited"] >= case["units"] > 0, f"{words}: not every unit is credited")
    check(case["trained"] >= case["tokens"], f"{words}: credited and not trained")
    check(case["up"] > 0 and case["down"] > case["snapshots"] > 0, f"{words}: no bytes")
    check(case["makespan_s"] > 0.95 * case["bound_s"], f"{words}: faster than all speeds together")
    check(0 < case["busy_s"] <= case["workers"] * case["makespan_s"] * 1.01, f"{words}: {case}")
    return case


def timeless(case):
    return {name: value for name, value in case.items() if name not in ("wall_s", "memory")}


def runs(program):
    small = ("--workers", 4, "--units", 8)
    calm = play(program, *small)
    check(timeless(calm) == timeless(play(program, *small)), "the same scene, other figures")
    check(timeless(calm) != timeless(play(program, *small, "--seed", 2)), "the seed says nothing")
    check(not calm["claimed_again"] and not calm["failures"], f"{calm}")
    lossy = play(program, *small, "--loss", 0.01)
    check(lossy["lost"] > 0 == calm["lost"], f"lost: {lossy['lost']}, {calm['lost']}")
    narrow = play(program, *small, "--mbit", "4,4")
    check(narrow["makespan_s"] > 1.2 * calm["makespan_s"], "a narrow link costs nothing")
    full = play(program, *small, "--port-mbit", 10)
    check(full["makespan_s"] > 1.2 * calm["makespan_s"], "a narrow port costs nothing")
    killed = play(program, *small, "--fail", "15,5")
    check(killed["failures"] >= 2, f"{killed['failures']} failures")
    play(program, "--workers", 3, "--units", 8, "--shards", 3)
    # More than 256 workers once could not follow one shard.
    play(program, "--workers", 270, "--units", 1, "--values", 256, "--limit-s", 600)


def leases(program):
    """By each rule; if one region slows to a quarter, the rule that recalls ends earlier."""
    scene = ("--workers", 6, "--units", 16, "--speeds", "4,2,1", "--slow", "0.1,0.4,0.25")
    cases = {rule: play(program, *scene, "--rule", rule) for rule in RULES}
    check([case["rule"] for case in cases.values()] == list(RULES), "rules have other names")
    check(cases["finish"]["decided"]["stolen"] > 0, "finish recalls nothing")


def budget(program):
    """A tenth of the data: by estimated finish every region trains only its own units."""
    scene = ("--workers", 3, "--units", 200, "--speeds", "4,2,1", "--budget", 0.1)
    for window in (2, 0):
        for rule in ("level", "finish"):
            case = play(program, *scene, "--window", window, "--rule", rule)
            least = 0.95 if rule == "finish" else 0.7
            check(case["own"] > least, f"{rule}: only {case['own']} of the units are at home")
            check(case["makespan_s"] < 1.15 * case["bound_s"], f"{rule}, {window}: {case}")
            check(case["units"] == 60 <= case["credited"] < 80, f"{case}")


def peaks(program):
    """Four shards at staggered steps: a quarter of the bytes in the busiest half second."""
    scene = ("--shards", 4, "--units", 48, "--values", 32768, "--stands-for", 312)
    on, off = (play(program, *scene, "--stagger", how)["peak_up"] for how in ("on", "off"))
    check(0.2 < on / off < 0.4, f"peaks: {on} and {off} bytes")


def refusals(program):
    for words in (("--workers", "0"), ("--rule", "none"), ("--mbit", "9,1"), ("--what", "1"),
                  ("--fail", "1"), ("--speeds", "1,x"), ("4",), ("--budget", "2"),
                  ("--stagger", "yes")):
        said = subprocess.run([program, *words], capture_output=True, text=True, check=False)
        check(said.returncode == 2 and "usage" in said.stderr, f"{words}: {said}")
    said = subprocess.run([program, "--limit-s", "3"], capture_output=True, text=True, check=False)
    check(said.returncode == 1 and "units are credited" in said.stderr, f"a stuck run: {said}")


def document(build, folder):
    path = os.path.join(folder, "doc.json")
    subprocess.run([sys.executable, os.path.join(ROOT, "bench", "sim.py"), "--build", build,
                    "--json", path, "--sizes", "2,4", "--units", "6", "--seeds", "2",
                    "--rule-seeds", "1", "--parts", "scale,rules,goodput,budget"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, VALIDATE, "bench", path], check=True)
    with open(path, encoding="utf-8") as file:
        rows = {row["name"]: row for row in json.load(file)["rows"]}
    check(0.1 < rows["sim.scale.4.tokens_per_s"]["ratio"] < 1.05, f"{rows}")
    check({f"sim.rules.equal.{rule}" for rule in RULES} <= set(rows), f"{sorted(rows)}")
    check("sim.budget.tenth.wide.finish.own" in rows, f"{sorted(rows)}")
    check("sim.goodput.15s.finish" in rows, f"{sorted(rows)}")


def main():
    program = os.path.join(sys.argv[1], "bench", "bench_sim")
    runs(program)
    leases(program)
    budget(program)
    peaks(program)
    refusals(program)
    with tempfile.TemporaryDirectory() as folder:
        document(sys.argv[1], folder)
    print("ok")


if __name__ == "__main__":
    main()
