#!/usr/bin/env bash
# A partner poisons the model, is found, and is taken out again: `./deploy/demo.sh --poison`.
#
#   deploy/poison.sh TOPOLOGY --data DIR --dir DIR [--controls N] [--build DIR]
#
# A run that a fourth partner poisons, and at the same time two or N control runs, the same without
# that partner. The partner holds its own certificate and key, and the job key. From half of the
# budget on it trains with `trainer.kind: synthetic`: random steps, about as large as the norm gate
# admits. The script is the operator: when the workers' mean loss rises by 5 %, it pauses the run,
# looks whose pushes are it (the logs, folded without each worker in turn), expels that worker,
# takes its pushes out (refold), and resumes.
#
# Ends with the held-out losses of all. Exit status: 0 the means differ by at most 1 %; 5 by more;
# 1 a run failed; 2 wrong command line.
set -euo pipefail
shopt -s inherit_errexit
who=oceania/oceania-0 # the poisoner; the operator does not know it

usage() {
    sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
topology="" data="" out="" controls=2 build=$(dirname "$0")/../build/release
while [ $# -gt 0 ]; do
    case $1 in
    --data | --dir | --controls | --build)
        [ $# -gt 1 ] || usage
        case $1 in
        --data) data=$2 ;;
        --dir) out=$2 ;;
        --controls) controls=$2 ;;
        --build) build=$2 ;;
        esac
        shift 2
        ;;
    -*) usage ;;
    *) topology=$1; shift ;;
    esac
done
[ -n "$topology" ] && [ -n "$data" ] && [ -n "$out" ] || usage
if [ -e "$out" ]; then
    echo "poison.sh: $out is there: remove it, or name another --dir" >&2
    exit 2
fi
mkdir -p "$out"
tool=$build/deploy/longhaul
name=$(sed -n 's/^run: *\([^ ]*\).*/\1/p' "$topology")
dir="" up="" # the present run: its folder, the process of `longhaul up`
partner=""   # the poisoner's process
others=()    # `longhaul up` of the control runs
trap 'kill $partner $up "${others[@]}" 2> /dev/null || true; wait' EXIT

say() {
    printf '%4d s  %s\n' "$SECONDS" "$*"
}

start() { # start NAME: `longhaul up` in the background
    dir=$out/$1
    "$tool" up "$topology" --no-wan --data "$data" --dir "$dir" > "$dir.log" 2>&1 &
    up=$!
}

wait_until() { # wait_until WHAT COMMAND...
    local what=$1
    shift
    until "$@"; do
        kill -0 "$up" 2> /dev/null ||
            { tail -n 5 "$dir.log"; echo "the run ended before $what: $dir.log" >&2; exit 1; }
        sleep 0.2
    done
}

finish() {
    wait "$up" || { tail -n 20 "$dir.log"; echo "the run failed: $dir.log" >&2; exit 1; }
    up=""
}

half() { # is half of the budget trained?
    "$tool" get leases --totals --dir "$dir" 2> /dev/null |
        awk 'END { exit !($8 > 0 && 2 * $7 >= $8) }'
}

risen() { # is the workers' mean training loss 5 % above the lowest so far?
    local now
    now=$("$tool" get workers --dir "$dir" -o json 2> /dev/null | python3 -c '
import json, sys
losses = [worker["loss"] for worker in json.load(sys.stdin) if worker.get("loss")]
print(sum(losses) / len(losses))' 2> /dev/null) || return
    lowest=$(printf '%s\n' $lowest "$now" | sort -n | sed 1q)
    awk -v now="$now" -v lowest="$lowest" 'BEGIN { exit !(now > 1.05 * lowest) }'
}

loss() { # loss [--without WORKER]: the mean held-out loss of the model that the logs make now
    local logs=("$dir"/*/log)
    "$tool" log replay "${logs[@]%/log}" --manifest "$dir/model.json" --run "$name" \
        --keys "$dir/secrets/job.keys" --weights "$dir/weights.bin" --export "$dir/now.bin" \
        "$@" > /dev/null
    "$tool" eval --manifest "$dir/model.json" --weights "$dir/now.bin" --data "$data" \
        --bytes 10000 | awk 'END { print $2 }'
}

poison() { # what the partner does, on its own host, in a folder of its own
    local own=$out/partner
    "$tool" certs issue --dir "$dir/secrets" --run "$name" --role worker --region "${who%/*}" \
        --name "${who#*/}" --out "$own" --replace > /dev/null
    "$build/worker/longhaul-worker" --config "$dir/asia-0.yaml" --set "dir=$dir/partner" \
        --set "tls.cert=$own/${who#*/}.pem" --set "tls.key=$own/${who#*/}.key" \
        --set trainer.kind=synthetic --set trainer.learning_rate=0.03 --set trainer.batch=1 \
        > "$dir.partner.log" 2>&1 &
    partner=$!
}

suspect() { # the worker without whose pushes the loss is lowest
    local worker without
    for worker in $("$tool" get workers --dir "$dir" | awk 'NR > 1 { print $2 "/" $1 }'); do
        without=$(loss --without "$worker")
        echo "$without $worker"
    done | sort -n > "$dir.suspects"
    awk '{ printf "        without %-20s %s\n", $2, $1 }' "$dir.suspects" >&2
    sed 's/.* //; q' "$dir.suspects"
}

poisoned_run() {
    local found value
    start poisoned
    wait_until "half was trained" half
    value=$(loss)
    say "held-out loss $value; a partner joins"
    lowest=""
    risen || true # notes the loss
    poison
    wait_until "the loss rose" risen
    "$tool" pause --dir "$dir" --why "the loss rises"
    value=$(loss)
    say "held-out loss $value; whose pushes are it?"
    found=$(suspect)
    "$tool" expel "$found" --dir "$dir"
    "$tool" refold --without "$found" --dir "$dir"
    value=$(loss)
    say "held-out loss $value"
    "$tool" resume --dir "$dir"
    [ "$found" = "$who" ] || { echo "$found is not the poisoner" >&2; exit 1; }
    finish
    wait "$partner" || true # it ends when it hears that it is expelled
    partner=""
}

for i in $(seq "$controls"); do
    start "control-$i"
    others+=("$up")
done
poisoned_run
for i in $(seq "$controls"); do
    dir=$out/control-$i up=${others[i - 1]}
    finish
done
python3 - "$out" "$controls" <<'TABLE'
import json
import pathlib
import sys


def losses(run):  # language -> nats per byte
    held_out = json.loads(pathlib.Path(sys.argv[1], run, "summary.json").read_text())["heldout"]
    return {language: of["after"] for language, of in held_out.items()}


def mean(values):
    return sum(values) / len(values)


controls = [losses(f"control-{i + 1}") for i in range(int(sys.argv[2]))]
means = [mean(list(run.values())) for run in controls]
poisoned = losses("poisoned")
rows = {language: (mean([run[language] for run in controls]), poisoned[language])
        for language in poisoned}
rows["mean"] = mean(means), mean(list(poisoned.values()))
print(f"\n{'language':10} {'control':>10} {'refolded':>10} {'difference':>12}   held-out text, "
      "nats per byte")
for name, (control, refolded) in rows.items():
    percent = 100 * (refolded / control - 1)
    print(f"{name:10} {control:10.3f} {refolded:10.3f} {percent:+10.2f} %")
print("controls   " + ", ".join(f"{m:.3f}" for m in means) +
      f": they differ by {100 * (max(means) / min(means) - 1):.2f} %")
print("the means are within 1 %" if abs(percent) <= 1 else "the means are NOT within 1 %")
sys.exit(0 if abs(percent) <= 1 else 5)
TABLE
