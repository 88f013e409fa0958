#!/usr/bin/env bash
# Builds, makes the Python that the example needs, and runs finetune.py with what it is given:
#   ./examples/finetune/run.sh [--kills] [--no-wan] [--budget TOKENS] ...     (finetune.py --help)
# PYTHON names a Python that has requirements.txt already; else run/finetune-venv gets one, once.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ -z "${PYTHON:-}" ]; then
    venv=run/finetune-venv
    if [ ! -e "$venv/.made" ]; then
        python3 -m venv "$venv"
        "$venv/bin/pip" install -q -r examples/finetune/requirements.txt
        touch "$venv/.made"
    fi
    PYTHON=$venv/bin/python
fi
cmake --preset release > /dev/null
cmake --build --preset release --target longhaul longhaul-server longhaul-worker longhaul-wanem \
    longhaul_client | tail -n 1
exec "$PYTHON" examples/finetune/finetune.py "$@"
