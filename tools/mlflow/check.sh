#!/usr/bin/env bash
# check.sh: trains with metrics.mlflow while a real MLflow server is up, down and up again,
# kills and resumes the run, and reads it back with MLflow's own client (check.py). It needs
# snug on the PATH, or in SNUG, and a python3, or PYTHON, with `pip install mlflow`; without
# MLflow it says so and does nothing.
set -euo pipefail
python=${PYTHON:-python3}
snug=${SNUG:-snug}
here=$(cd "$(dirname "$0")" && pwd)
if ! "$python" -c 'import mlflow' 2>/dev/null; then
	echo "MLflow is not installed for $python: nothing was tried"
	exit 0
fi
work=$(mktemp -d)
port=${PORT:-5077}
url=http://127.0.0.1:$port
server=
set -m # a process group for the server, which starts others
stop() {
	if [ -n "$server" ]; then
		kill -- "-$server" 2>/dev/null || true
		wait "$server" 2>/dev/null || true
		server=
	fi
}
trap 'stop; rm -rf "$work"' EXIT
serve() {
	"$python" -m mlflow server --backend-store-uri "sqlite:///$work/mlflow.db" --artifacts-destination "$work/artifacts" \
		--host 127.0.0.1 --port "$port" --workers 1 >>"$work/server.log" 2>&1 &
	server=$!
	until "$python" -c "import urllib.request; urllib.request.urlopen('$url/health', timeout=5)" 2>/dev/null; do
		kill -0 "$server" || { cat "$work/server.log"; exit 1; }
		sleep 1
	done
}
# run OUT CODE ARGUMENTS: trains, and expects an exit code.
run() {
	local out=$1 want=$2 code=0
	shift 2
	"$snug" train --out "$out" "$@" >"$work/out.txt" 2>"$work/err.txt" || code=$?
	cat "$work/err.txt"
	[ "$code" = "$want" ] || { cat "$work/out.txt"; echo "exit code $code, want $want"; exit 1; }
}

cd "$work"
mkdir corpus
for f in 0 1 2 3 4 5 6 7 8 9; do
	for i in $(seq 1 60); do
		echo "the fox $((i * f % 7)) runs over the lazy dog $((i % 5)) near a tree $((f * i % 11))"
	done >"corpus/$f.txt"
done
cat >tiny.yaml <<-YAML
	system: refocused
	model: {d_model: 32, n_layers: 2, n_heads: 2, d_ff: 64, max_seq_len: 32, dropout: 0.1}
	training: {batch_size: 4, max_steps: 600, learning_rate: 3e-3, warmup_steps: 2, log_steps: 1, eval_steps: 100, save_steps: 100, sample: {tokens: 0}}
	data: {source: [corpus/*.txt], held_out_fraction: 0.2, tokenizer: {vocab_size: 300}}
	metrics: {mlflow: "$url"}
YAML

serve
echo "== a run, stopped and resumed with another setting"
run a 4 --config tiny.yaml --until 250
"$python" "$here/check.py" "$url" a KILLED
run a 0 --resume --training.max_steps 610
"$python" "$here/check.py" "$url" a FINISHED

echo "== a run that is killed between checkpoints, and resumed"
"$snug" train --config tiny.yaml --out b --training.max_steps 200000 --training.log_steps 5 --training.eval_steps 0 --training.save_steps 500 >/dev/null 2>&1 &
victim=$!
until [ -e b/checkpoints/step-00001000 ] && [ -e b/mlflow.json ]; do sleep 0.1; done
sleep 6 # a batch is sent
kill -9 "$victim"
wait "$victim" 2>/dev/null || true
run b 4 --resume --until "$(($(tail -n 2 b/metrics.jsonl | head -n 1 | sed 's/.*"update":\([0-9]*\).*/\1/') + 100))"
"$python" "$here/check.py" "$url" b KILLED

echo "== a run without the server, and resumed with it"
stop
run c 0 --config tiny.yaml
grep -q 'metrics.mlflow: .*refused.*sends it' err.txt
serve
for _ in 1 2 3 4 5; do # a server may take longer than the end of a run waits
	run c 0 --resume
	grep -q metrics.mlflow err.txt || break
done
"$python" "$here/check.py" "$url" a FINISHED b KILLED c FINISHED
