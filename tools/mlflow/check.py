"""Reads runs back from an MLflow server with MLflow's own client: check.py URL RUN STATUS...

Each RUN is a run directory of snug, and STATUS what its run must have there. Every point
of metrics.jsonl must be there once, with its value, step and time, and nothing else.
"""

import json
import math
import os
import sys

import mlflow
from mlflow.tracking import MlflowClient


def wanted(folder):
    points = {}

    def add(key, line, value):
        points.setdefault(key, []).append((line["update"], float(value)))

    with open(os.path.join(folder, "metrics.jsonl")) as f:
        for line in map(json.loads, f):
            if line["event"] == "update":
                for ours, theirs in [("loss", "train/loss"), ("learning_rate", "train/learning_rate"), ("grad_norm", "train/grad_norm"), ("seconds", "speed/update_seconds")]:
                    add(theirs, line, line[ours])
            elif line["event"] == "eval":
                for name, value in line["metrics"].items():
                    add("eval/" + name, line, value)
    return points


def same(a, b):
    return a == b or math.isnan(a) and math.isnan(b)


def check(client, folder, status):
    with open(os.path.join(folder, "mlflow.json")) as f:
        note = json.load(f)
    with open(os.path.join(folder, "run.json")) as f:
        about = json.load(f)
    run = client.get_run(note["run_id"])
    assert run.info.status == status, (run.info.status, status)
    assert run.info.run_name == os.path.basename(os.path.abspath(folder)), run.info.run_name
    assert run.data.tags["snug.run"] == about["run"], run.data.tags
    assert run.data.tags["snug.device"] == about["device"], run.data.tags
    others = [r for r in client.search_runs([run.info.experiment_id], f"tags.`snug.run` = '{about['run']}'")]
    assert len(others) == 1, f"{len(others)} runs of one identity"
    for key, value in about["settings"].items():
        assert run.data.params[key] == value or run.data.tags["changed." + key] == value, key
    total = 0
    for key, points in wanted(folder).items():
        got = [(m.step, m.value) for m in client.get_metric_history(note["run_id"], key)]
        assert [step for step, _ in sorted(got)] == [step for step, _ in points], (key, len(got), len(points))
        # Time is measured again where updates were repeated after a checkpoint.
        if not key.startswith("speed/"):
            assert all(same(a[1], b[1]) for a, b in zip(sorted(got), points)), key
        total += len(got)
    machine = [key for key in run.data.metrics if key.startswith("system/")]
    assert "system/process_memory_usage_megabytes" in machine, machine
    print(f"{folder}: {run.info.status}, {len(run.data.params)} parameters, {len(run.data.tags)} tags, {total} points, {len(machine)} metrics of the machine")


if __name__ == "__main__":
    url, rest = sys.argv[1], sys.argv[2:]
    mlflow.set_tracking_uri(url)
    for folder, status in zip(rest[::2], rest[1::2]):
        check(MlflowClient(url), folder, status)
    print("MLflow", mlflow.__version__, "has each point once")
