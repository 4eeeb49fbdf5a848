#!/usr/bin/env python3
"""Draws docs/quickstart.svg from a finished quickstart:  tools/quickstart/picture.py runs/quickstart docs/quickstart.svg"""

import json
import pathlib
import sys

W, H, L, R, T, B = 760, 300, 52, 170, 18, 40  # picture and margins


def main(run, out):
    run = pathlib.Path(run)
    lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((run / "summary.json").read_text())
    loss = [(x["update"], x["loss"]) for x in lines if x["event"] == "update"]
    held = [(x["update"], x["metrics"]["eval_loss"]) for x in lines if x["event"] == "eval"]
    base = [("unigram", summary["baseline_unigram_loss"]), ("bigram", summary["baseline_bigram_loss"])]
    right = max(u for u, _ in loss)
    low, high = 3.0, 8.5
    x = lambda u: L + (W - L - R) * u / right
    y = lambda v: T + (H - T - B) * (high - v) / (high - low)
    s = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {H}" font-family="sans-serif" font-size="12">',
         f'<rect width="{W}" height="{H}" rx="6" fill="#ffffff"/>']
    for v in range(3, 9):
        s.append(f'<line x1="{L}" x2="{W - R}" y1="{y(v):.1f}" y2="{y(v):.1f}" stroke="#e3e8ef"/>'
                 f'<text x="{L - 8}" y="{y(v) + 4:.1f}" text-anchor="end" fill="#59636e">{v}</text>')
    for u in range(0, right + 1, 200):
        s.append(f'<text x="{x(u):.1f}" y="{H - B + 18}" text-anchor="middle" fill="#59636e">{u}</text>')
    s.append(f'<text x="{L + (W - L - R) / 2}" y="{H - 6}" text-anchor="middle" fill="#59636e">update</text>'
             f'<text x="14" y="{T + (H - T - B) / 2}" text-anchor="middle" fill="#59636e" '
             f'transform="rotate(-90 14 {T + (H - T - B) / 2})">loss, nats a token</text>')
    for name, v in base:
        s.append(f'<line x1="{L}" x2="{W - R}" y1="{y(v):.1f}" y2="{y(v):.1f}" stroke="#8a6d3b" stroke-dasharray="5 4"/>'
                 f'<text x="{W - R + 8}" y="{y(v) + 4:.1f}" fill="#8a6d3b">{name} {v:.2f}</text>')
    points = " ".join(f"{x(u):.1f},{y(v):.1f}" for u, v in loss)
    s.append(f'<polyline points="{points}" fill="none" stroke="#2f6fb3" stroke-width="1.6"/>')
    for u, v in held:
        s.append(f'<circle cx="{x(u):.1f}" cy="{y(v):.1f}" r="4.5" fill="#c2410c"/>')
    u, v = held[-1]
    s.append(f'<text x="{W - R + 8}" y="{y(v) + 4:.1f}" fill="#c2410c">held out {v:.2f}</text>'
             f'<text x="{x(right * .16):.1f}" y="{y(5.6):.1f}" fill="#2f6fb3">training</text></svg>')
    pathlib.Path(out).write_text("\n".join(s) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
