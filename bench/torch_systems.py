#!/usr/bin/env python3
"""Times an update of snug's real systems in PyTorch, for the comparison in docs/measurements.md and docs/cloudbase.md.

    torch_systems.py moderation|cloudbase [--default]

moderation: transformers' BERT classifier in the shape of workload c (16 texts of 192 tokens); snug's side is `snug bench` of a
moderation configuration with that shape, one bucket of 192 and no dropout. cloudbase: the guide's network on 20 windows of
five pictures of 64 x 64; snug's side is

    snug bench cloudbase-quickstart --model.channels 64,128,256 --model.view 1 --training.batch_size 20

Prints the median milliseconds of an update in fp32 and under bf16 autocast, with the libraries that setup.sh made or, with
--default, without. Needs PyTorch and, for moderation, transformers.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

import torch_train

WARM, MEASURED = 3, 7
THREADS = 2


def moderation():
    """(model's loss function, parameters) of a BERT classifier."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification
    shape = BertConfig(vocab_size=8192, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536,
                       max_position_embeddings=192, hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=2)
    net = BertForSequenceClassification(shape).train()
    ids, labels = torch.randint(0, 8192, (16, 192)), torch.randint(0, 2, (16,))
    mask = torch.ones_like(ids)
    return net, lambda: torch.nn.functional.cross_entropy(net(input_ids=ids, attention_mask=mask).logits.float(), labels)


def cloudbase():
    """The same of the guide's network, as the goldens' script writes it."""
    import torch
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "goldens"))
    import cloudbase as golden
    golden.FRAMES, golden.HIGH, golden.WIDE, golden.CHANNELS = 5, 64, 64, [64, 128, 256]
    net = golden.Net("attention", linear=True, bias=True).float()
    x, angles, y = torch.randn(20, 5, 64, 64), torch.rand(20, 2) * 100, torch.randn(20)
    scales = torch.tensor([40.0, 180.0, 15.0, 100.0])
    return net, lambda: torch.nn.functional.huber_loss(net(x, angles, scales).float(), y)


def update_ms(net, loss, low):
    import torch
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    times = []
    for _ in range(WARM + MEASURED):
        began = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            value = loss()
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1)
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[WARM:])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("system", choices=("moderation", "cloudbase"))
    p.add_argument("--default", action="store_true", help="PyTorch as it comes")
    args = p.parse_args()
    args.threads, args.mode = THREADS, "default" if args.default else "tuned"
    torch_train.restart_clean(args)
    import torch
    torch.set_num_threads(THREADS)
    net, loss = {"moderation": moderation, "cloudbase": cloudbase}[args.system]()
    for name, low in (("fp32", False), ("bf16", True)):
        print(f"{args.system}, {name}: {update_ms(net, loss, low):.0f} ms an update")


if __name__ == "__main__":
    main()
