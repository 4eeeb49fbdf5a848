#!/usr/bin/env python3
"""Loads the model folders that hf-check has written into transformers and compares what both compute.

    check.py OUT

Exits with 1 if anything differs.
"""

import json
import pathlib
import sys

import torch
import transformers as hf
from safetensors.torch import load_file
from transformers.utils.logging import disable_progress_bar

TOLERANCE = 1e-4


def check(folder):
    """The largest difference of any output, and what else is wrong, of one folder."""
    config = json.loads((folder / "config.json").read_text())
    model, info = getattr(hf, config["architectures"][0]).from_pretrained(folder, output_loading_info=True)
    wrong = [f"{kind}: {sorted(names)}" for kind, names in info.items() if names]
    snug = load_file(folder / "snug.safetensors")
    with torch.no_grad():
        ids = snug["input_ids"].long()
        out, base = model.eval()(ids), model.base_model(ids)
    worst = 0.0
    for name in ("logits", "pooler_output", "last_hidden_state"):
        if name in snug:
            theirs = base.last_hidden_state if name == "last_hidden_state" else getattr(out, name)
            worst = max(worst, (snug[name].reshape(theirs.shape) - theirs).abs().max().item())
    if config.get("id2label") and list(model.config.id2label.values()) != list(config["id2label"].values()):
        wrong.append(f"labels {model.config.id2label}")
    if not worst <= TOLERANCE:
        wrong.append("outputs differ")
    return model, worst, wrong


def main():
    disable_progress_bar()
    torch.set_num_threads(1)
    folders = sorted(p.parent for p in pathlib.Path(sys.argv[1]).glob("*/snug.safetensors"))
    bad = 0
    for folder in folders:
        model, worst, wrong = check(folder)
        print(f"{folder.name}: {type(model).__name__}, worst difference {worst:.1e}" + "".join(f"; {w}" for w in wrong))
        bad += bool(wrong)
    print(f"transformers {hf.__version__}: {len(folders) - bad} of {len(folders)} folders are right")
    sys.exit(bad > 0 or not folders)


if __name__ == "__main__":
    main()
