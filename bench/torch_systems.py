#!/usr/bin/env python3
"""Times an update of snug's systems on the CPU in PyTorch, for the comparison in docs/measurements.md and docs/cloudbase.md.

    torch_systems.py WORK [--dtype bf16] [--modes eager,default] [--default] [--isa avx2]

Prints one JSON object for each mode (eager, or one of torch.compile's), on two threads, with the libraries that setup.sh made
or, with --default, without. Batches are made up, attention is scaled_dot_product_attention. snug's side:

    moderation            `snug bench` of moderation.yaml: a BERT classifier in the shape of workload c
    cloudbase             `snug bench cloudbase-quickstart --model.channels 64,128,256 --model.view 1 --training.batch_size 20`:
                          the guide's network on pictures of 64 x 64
    quickstart            `snug bench quickstart`
    moderation-quickstart `snug bench moderation-quickstart --synthetic --model.wide_rows 0`
    cloudbase-quickstart  `snug bench cloudbase-quickstart`
    dynamo-quickstart     `snug bench dynamo-quickstart --phases.stage encoder`, its phase 0
    agiformer-quickstart  `snug bench agiformer-quickstart`

Needs PyTorch and, but for cloudbase, transformers.
"""

import argparse
import pathlib
import sys

import torch_measure
import torch_presets
import torch_train
from torch_presets import Work, wrapped

THREADS = 2


def classifier(torch, name, ids, mask, **shape):
    """A BERT classifier."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(**shape, max_position_embeddings=ids.shape[1], num_labels=2, attn_implementation="sdpa")
    F = torch.nn.functional

    def loss(net, ids, mask, labels):
        return F.cross_entropy(net(input_ids=ids, attention_mask=mask).logits.float(), labels)

    labels = torch.randint(0, 2, ids.shape[:1])
    return Work(name, wrapped(torch, BertForSequenceClassification(config).train(), loss), (ids, mask, labels), len(ids))


def moderation(torch):
    ids = torch.randint(0, 8192, (16, 192))
    return classifier(torch, "moderation", ids, torch.ones_like(ids), vocab_size=8192, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                      intermediate_size=1536, hidden_dropout_prob=0, attention_probs_dropout_prob=0)


def moderation_quickstart(torch):
    ids, mask = torch_presets.texts(torch, 32, 128, 4096)
    return classifier(torch, "moderation-quickstart", ids, mask, vocab_size=4096, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                      intermediate_size=512, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.1)


def pictures(torch, name, channels, view, rows):
    """The network of tools/goldens/cloudbase.py on windows of five pictures of 64 x 64."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "goldens"))
    import cloudbase as golden

    golden.FRAMES, golden.HIGH, golden.WIDE, golden.CHANNELS = 5, 64, 64, channels
    net = golden.Net("attention", view=view, linear=True, bias=True, identity=True).float().train()
    batch = torch.randn(rows, 5, 64, 64), torch.rand(rows, 2) * 100, torch.tensor([40.0, 180.0, 15.0, 100.0]), torch.randn(rows)

    def loss(net, x, angles, scales, y):
        return torch.nn.functional.huber_loss(net(x, angles, scales).float(), y)

    return Work(name, wrapped(torch, net, loss), batch, rows)


def cloudbase(torch):
    return pictures(torch, "cloudbase", [64, 128, 256], 1, 20)


def cloudbase_quickstart(torch):
    return pictures(torch, "cloudbase-quickstart", [8, 16, 32], 3, 32)


def quickstart(torch):
    shape = dict(vocab_size=4096, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)
    return torch_presets.neox(torch, "quickstart", shape, 16, 128, 1)


def dynamo_quickstart(torch):
    config = torch_presets.roberta(4096, 64, hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=512,
                                   hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    return torch_presets.hidden_tokens(torch, "dynamo-quickstart", config, 32, 64, 1)


def agiformer_quickstart(torch):
    import torch_agiformer

    shape = torch_agiformer.Shape(d=128, layers=3, heads=4, ff=384, length=192, kinds=("standard", "standard", "logic", "causal"), capacity=1.5,
                                  relation=32, slots=128, segment=48, dropout=0)
    ids, labels = torch.randint(shape.vocab, (2, 16, shape.length))
    return Work("agiformer-quickstart", torch_agiformer.build(torch, shape).train(), (ids, labels), 16 * shape.length)


WORKS = {f.__name__.replace("_", "-"): f for f in (moderation, cloudbase, quickstart, moderation_quickstart, cloudbase_quickstart, dynamo_quickstart, agiformer_quickstart)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work", choices=WORKS)
    p.add_argument("--dtype", choices=("bf16", "fp32"), default="fp32", help="of matmuls")
    p.add_argument("--modes", default="eager", help="eager, or modes of torch.compile, with commas")
    p.add_argument("--updates", type=int, default=50)
    p.add_argument("--seconds", type=float, default=10, help="of measured updates in each mode, at most")
    p.add_argument("--default", action="store_true", help="PyTorch as it comes")
    p.add_argument("--isa", choices=("avx2",), help="hold PyTorch to the instructions of an older processor")
    args = p.parse_args()
    args.threads, args.mode, args.device = THREADS, "default" if args.default else "tuned", "cpu"
    torch_train.restart_clean(args)
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    work = WORKS[args.work](torch)
    for mode in args.modes.split(","):
        torch_measure.measure(torch, work, mode, "cpu", {"bf16": torch.bfloat16, "fp32": None}[args.dtype], args.updates, args.seconds)


if __name__ == "__main__":
    main()
