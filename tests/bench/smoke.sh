#!/usr/bin/env bash
# A bench through bench/run.sh, small: smoke.sh BUILD NAME ROWS [flags]. Its document must be valid
# and have that many rows, each with a figure above 0; wrong names and flags are refused.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1 name=$2 rows=$3
shift 3
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export LH_BENCH_BUILD=$build LH_BENCH_LOCK=$out/lock LH_BENCH_PYTHON=
die() { echo "smoke: $*" >&2; exit 1; }

root=$PWD # a file's name is the caller's, who may be elsewhere
(cd "$out" && "$root/bench/run.sh" "$name" --json doc.json "$@")
tests/contracts/validate.py bench "$out/doc.json"
python3 - "$out/doc.json" "$name" "$rows" <<'PYTHON'
import json, sys
doc = json.load(open(sys.argv[1]))
names = [row["name"] for row in doc["rows"]]
assert doc["bench"] == sys.argv[2], doc["bench"]
assert len(set(names)) == len(names) == int(sys.argv[3]), f"{len(names)} rows"
assert all(row["value"] > 0 for row in doc["rows"]), [r for r in doc["rows"] if not r["value"] > 0]
assert "load average" in doc["conditions"], doc["conditions"]
PYTHON
bench/run.sh --list | grep -x "$name" >/dev/null || die "--list lacks $name"
bench/run.sh no-such-bench 2>"$out/said" && die "a bench that there is not"
grep -q "no bench no-such-bench" "$out/said" || die "an unknown bench is not named"
bench/run.sh "$name" --no-such-flag 1 2>"$out/said" && die "a flag that there is not"
grep -q "usage" "$out/said" || die "a wrong flag is not told what there is"
bench/run.sh "$name" --help >"$out/said" || die "help that is asked for is no mistake"
grep -q "^usage" "$out/said" || die "help says nothing"
bench/run.sh "$name" --json "$out/none/doc.json" 2>"$out/said" && die "nowhere to write"
grep -q "cannot be written" "$out/said" || die "a document that cannot be written is not refused"
status=0 # flock holds the lock while another bench is asked for
flock "$out/lock" bench/run.sh "$name" --json "$out/second.json" "$@" 2>"$out/said" || status=$?
[ $status = 3 ] && grep -q "another bench is running" "$out/said" || die "two at once: $status"
[ ! -e "$out/second.json" ] || die "a bench ran beside another"
echo "smoke: $name, $rows rows"
