#!/usr/bin/env bash
# run.sh RUN: serves a run of a language model and talks to it with the openai client
# (check.py). It needs snug on the PATH, or in SNUG, and a python3, or PYTHON, with
# `pip install openai`; without the client it says so and does nothing.
set -euo pipefail
run=${1:?usage: run.sh RUN}
python=${PYTHON:-python3}
if ! "$python" -c 'import openai' 2>/dev/null; then
	echo "the openai client is not installed for $python: nothing was tried"
	exit 0
fi
said=$(mktemp)
"${SNUG:-snug}" serve "$run" --listen 127.0.0.1:0 >"$said" &
server=$!
trap 'kill $server; wait $server || true; rm -f "$said"' EXIT
until grep -q '^listening' "$said"; do
	kill -0 $server
	sleep 0.1
done
"$python" "$(dirname "$0")/check.py" "$(sed -n 's/^listening on //p' "$said")"
