#!/usr/bin/env python3
"""Runs snug and PyTorch in turns on the workloads of bench/README.md and prints their ratios. Started by cpu.sh.

In each round every contestant runs once, as a process of its own, so that a change of the machine's mood meets all of
them. A ratio is taken within a round; the median over the rounds is printed. Of PyTorch's two ways to compute attention
the faster is taken, found in the first round.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
STEPS = {"a": 15, "b": 6, "c": 10, "d": 30}
NOISE = 0.08  # share of a core that others may take before a run is called noisy


def run(command, extra=None):
    clean = {k: os.environ[k] for k in ("PATH", "HOME") if k in os.environ}
    done = subprocess.run(command, env=clean | (extra or {}), stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"compare.py: {' '.join(map(str, command))} ended with status {done.returncode}")
    # snug prints one document, torch_train.py its figures on the last line.
    out = done.stdout
    result = json.loads(out if out.startswith("{") else out.splitlines()[-1])
    if result.get("foreign_cpu", 0) > NOISE:
        print(f"compare.py: noisy: others took {result['foreign_cpu']:.2f} of a core during {' '.join(map(str, command))}", file=sys.stderr)
    return result


def snug(args, workload, precision):
    return run([args.snug, workload, "--precision", precision, "--threads", str(args.threads),
                "--steps", str(args.steps or STEPS[workload]), "--json"], {"SNUG_CPU_ISA": args.isa} if args.isa else None)


def torch(args, workload, mode, attention=None):
    command = [sys.executable, HERE / "torch_train.py", workload, "--mode", mode, "--threads", str(args.threads),
               "--steps", str(args.steps or STEPS[workload])]
    if args.isa:
        command += ["--isa", args.isa]
    return run(command + (["--attention", attention] if attention else []))


def compare(args, workload):
    """The runs of one workload: {contestant: [one result a round]}."""
    rounds = {"snug": [], "snug_bf16": [], "tuned": [], "bf16": [], "default": []}
    attention = {}
    for _ in range(args.rounds):
        if args.only != "torch":
            rounds["snug"].append(snug(args, workload, "fp32"))
            rounds["snug_bf16"].append(snug(args, workload, "bf16"))
        if args.only != "snug":
            for mode in ("tuned", "bf16"):
                if mode not in attention:
                    tried = [torch(args, workload, mode, way) for way in ("sdpa", "written-out")]
                    best = min(tried, key=lambda r: r["ms"])
                    attention[mode] = best["attention"]
                    best["rss"] = min(r["rss"] for r in tried)
                else:
                    best = torch(args, workload, mode, attention[mode])
                rounds[mode].append(best)
            rounds["default"].append(torch(args, workload, "default"))
    return rounds


def middle(results, key="ms"):
    return statistics.median(r[key] for r in results) if results else None


def ratio(ours, theirs, key="ms"):
    pairs = [a[key] / b[key] for a, b in zip(ours, theirs)]
    return statistics.median(pairs) if pairs else None


def report(workload, rounds):
    """The line of --json."""
    return {
        "workload": workload, "snug_ms": middle(rounds["snug"]), "snug_bf16_ms": middle(rounds["snug_bf16"]),
        "torch_default_ms": middle(rounds["default"]), "torch_tuned_ms": middle(rounds["tuned"]),
        "torch_bf16_ms": middle(rounds["bf16"]), "snug_rss": middle(rounds["snug"], "rss"),
        "torch_rss": min((r["rss"] for r in rounds["tuned"]), default=None)}


def row(workload, rounds):
    """The cells of the table: times, the ratios that matter, memory."""
    fastest = [min(pair, key=lambda r: r["ms"]) for pair in zip(rounds["tuned"], rounds["bf16"])]
    line = report(workload, rounds)
    ms = lambda v: "-" if v is None else f"{v:.0f}" if v >= 100 else f"{v:.1f}"
    times = lambda v: "-" if v is None else f"{v:.2f}"
    mib = lambda v: "-" if v is None else f"{v / 2**20:.0f}"
    share = line["snug_rss"] / line["torch_rss"] if line["snug_rss"] and line["torch_rss"] else None
    return [workload, *(ms(line[k]) for k in ("snug_ms", "torch_tuned_ms")), times(ratio(rounds["snug"], rounds["tuned"])),
            ms(line["torch_default_ms"]), times(ratio(rounds["snug"], rounds["default"])),
            *(ms(line[k]) for k in ("snug_bf16_ms", "torch_bf16_ms")), times(ratio(rounds["snug_bf16"], fastest)),
            mib(line["snug_rss"]), mib(line["torch_rss"]), times(share)]


HEAD = ["workload", "snug", "tuned", "ratio", "default", "ratio", "snug bf16", "torch bf16", "ratio*", "snug MiB", "torch MiB", "ratio"]


def main():
    p = argparse.ArgumentParser(prog="bench/cpu.sh", description="snug and PyTorch in turns on the same workloads; milliseconds per training step")
    p.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="a b c d (default: all)")
    p.add_argument("--json", action="store_true", help="one object a workload and line")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--steps", type=int, default=0, help="measured steps of each run (default: by workload)")
    p.add_argument("--isa", choices=("avx2",), help="hold both sides to the instructions of an older processor (default: the best that this one has)")
    p.add_argument("--only", choices=("snug", "torch"), help="run one side alone")
    p.add_argument("--snug", default="workload", help="bench/workload, built (cpu.sh does it)")
    args = p.parse_args()
    workloads = args.workloads or sorted(STEPS)
    if unknown := [w for w in workloads if w not in STEPS]:
        p.error(f"no workload {unknown[0]}: choose among {' '.join(sorted(STEPS))}")
    rows = []
    for workload in workloads:
        rounds = compare(args, workload)
        if args.json:
            print(json.dumps(report(workload, rounds)), flush=True)
        else:
            rows.append(row(workload, rounds))
    if rows:
        widths = [max(len(r[i]) for r in [HEAD, *rows]) for i in range(len(HEAD))]
        for r in [HEAD, *rows]:
            print("  ".join(cell.rjust(width) for cell, width in zip(r, widths)))
        print("* against the fastest PyTorch of either precision")


if __name__ == "__main__":
    main()
