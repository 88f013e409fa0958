#!/usr/bin/env python3
"""deploy/poison.sh, which is `./deploy/demo.sh --poison`, with a made-up tool.

The workers' losses rise when the partner has joined, and the held-out loss is lowest without its
pushes. The operator's commands, their targets, and the verdict on the final losses are real.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "deploy/poison.sh"
WITHIN, FAILED, USAGE, BEYOND = 0, 1, 2, 5
TOOL = r"""#!/bin/bash
set -eu
line="$*" dir="" without="" file=""
while [ $# -gt 0 ]; do
    case $1 in
    --dir) dir=$2 ;; --without) without=$2 ;; --export | --weights) file=$2 ;;
    esac
    shift
done
case $line in
"up "*)
    loss=2.0
    mkdir "$dir" "$dir/shard-0" "$dir/shard-0/log"
    if [ "${dir##*/}" = poisoned ]; then
        loss=$PRETEND_LOSS
        until [ -e "$dir/resumed" ]; do sleep 0.05; done
    fi
    echo '{"heldout": {"aa": {"after": '"$loss"'}, "bb": {"after": '"$loss"'}}}' \
        > "$dir/summary.json" ;;
"get leases "*) [ ! -e "$dir" ] || echo "9 9 9 9 9 9 60 100" ;;
"get workers "*json)
    loss=2.5
    [ ! -e "$dir/partner" ] || loss=2.9
    echo '[{"loss": 2.5}, {"loss": '"$loss"'}, {"name": "tells no loss"}]' ;;
"get workers "*) printf 'NAME REGION\nasia-0 asia\noceania-0 oceania\n' ;;
"log replay "*)
    loss=4.0
    [ "$without" != "$PRETEND_POISONER" ] || loss=2.6
    echo "$loss" > "$file" ;;
"eval "*) echo "mean $(cat "$file")" ;;
"pause "* | "expel "* | "refold "* | "resume "*)
    echo "$line" | sed "s, --dir .*,," >> "$dir/orders"
    [[ $line != "resume "* ]] || touch "$dir/resumed" ;;
esac
"""
WORKER = """#!/bin/bash
while [ "${1#dir=}" = "$1" ]; do shift; done
echo joined > "${1#dir=}"
"""


class Poison(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="longhaul-poison-"))
        self.addCleanup(shutil.rmtree, self.dir)
        for name, text in (("deploy/longhaul", TOOL), ("worker/longhaul-worker", WORKER)):
            (self.dir / name).parent.mkdir()
            (self.dir / name).write_text(text, encoding="utf-8")
            (self.dir / name).chmod(0o755)
        (self.dir / "t.yaml").write_text("run: pretend\n", encoding="utf-8")

    def run_script(self, loss="2.0", poisoner="oceania/oceania-0"):
        done = subprocess.run(
            [SCRIPT, self.dir / "t.yaml", "--data", "data", "--dir", self.dir / "run", "--build",
             self.dir], capture_output=True, text=True, check=False,
            env={**os.environ, "PRETEND_LOSS": loss, "PRETEND_POISONER": poisoner})
        return done.returncode, done.stdout + done.stderr

    def orders(self):
        return (self.dir / "run/poisoned/orders").read_text(encoding="utf-8").splitlines()

    def test_the_poisoner_is_found_and_taken_out(self):
        code, said = self.run_script("2.019")
        self.assertEqual(code, WITHIN, said)
        self.assertRegex(said, r"mean +2\.000 +2\.019 +\+0\.95 %")
        self.assertEqual([order.split(" --why")[0] for order in self.orders()],
                         ["pause", "expel oceania/oceania-0",
                          "refold --without oceania/oceania-0", "resume"])

    def test_the_verdict_is_of_the_losses(self):
        for loss in ("2.03", "1.97"):
            code, said = self.run_script(loss)
            self.assertEqual(code, BEYOND, said)
            self.assertIn("NOT within 1 %", said)
            self.assertEqual(self.run_script()[0], USAGE)  # an old folder is left alone
            shutil.rmtree(self.dir / "run")

    def test_an_honest_worker_that_was_expelled_is_a_failure(self):
        code, said = self.run_script(poisoner="asia/asia-0")
        self.assertEqual(code, FAILED, said)
        self.assertIn("asia/asia-0 is not the poisoner", said)


if __name__ == "__main__":
    sys.exit(unittest.main())
