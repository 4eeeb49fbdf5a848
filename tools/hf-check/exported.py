#!/usr/bin/env python3
"""Compares what `snug generate --temperature 0` writes with what transformers writes from the folder of `snug export`.

    exported.py SNUG RUN FOLDER [PROMPT ...]

Exits with 1 if any text differs.
"""

import subprocess
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TOKENS = 24


def main():
    snug, run, folder, *prompts = sys.argv[1:]
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    bad = 0
    for prompt in prompts or ["the quick", "a happy dog", "river"]:
        ours = subprocess.run(
            [snug, "generate", run, "--prompt", prompt, "--tokens", str(TOKENS), "--temperature", "0"],
            check=True, capture_output=True, text=True).stdout.rstrip("\n")
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)
        theirs = tokenizer.decode(out[0], skip_special_tokens=True).rstrip("\n")
        bad += ours != theirs
        print(f"{'same' if ours == theirs else 'DIFFERENT'}: {ours!r}" + ("" if ours == theirs else f" against {theirs!r}"))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
