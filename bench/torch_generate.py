#!/usr/bin/env python3
"""Tokens per second of transformers' generate with its KV cache, greedy, one sequence.

    torch_generate.py FOLDER --make      writes a GPT-NeoX of workload a's size with random weights to FOLDER
    torch_generate.py FOLDER             measures the model in FOLDER

Prints one JSON object; `ids` are the ids produced, for the other side to be held against.
"""

import argparse
import json
import os
import statistics
import time

from torch_train import restart_clean


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("folder")
    p.add_argument("--make", action="store_true")
    p.add_argument("--prompt", type=int, default=16, help="length of the prompt, ids 1, 2, 3, ...")
    p.add_argument("--new", type=int, default=200, help="tokens to generate")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--mode", choices=("default", "tuned"), default="tuned")
    args = p.parse_args()
    restart_clean(args)
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    if args.make:
        torch.manual_seed(0)
        transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
            vocab_size=8192, hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536,
            max_position_embeddings=512, initializer_range=0.1)).save_pretrained(args.folder)
        return
    model = transformers.AutoModelForCausalLM.from_pretrained(args.folder).eval()
    prompt = torch.arange(1, args.prompt + 1)[None]
    seconds = []
    for _ in range(args.rounds + 1):
        began = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=args.new,
                                 min_new_tokens=args.new, do_sample=False, pad_token_id=0)
        seconds.append(time.perf_counter() - began)
    median = statistics.median(seconds[1:])
    print(json.dumps({"tokens_per_second": round(args.new / median, 1), "best": round(args.new / min(seconds), 1),
                      "prompt": args.prompt, "new": args.new, "threads": args.threads, "torch": torch.__version__,
                      "transformers": transformers.__version__, "ids": out[0, args.prompt:].tolist()}))


if __name__ == "__main__":
    main()
