#!/usr/bin/env python3
"""Updates of GPT-2 and of the T4 presets of snug's systems in PyTorch, with the same shapes and made-up batches.

    torch_presets.py gpt2|refocused|moderation|agiformer|cloudbase|dynamo [--modes eager,max-autotune] [--dtype bf16]

Prints one JSON object for each mode: median milliseconds and joules of an update (all its micro-batches, the norm of the
gradients, fused AdamW) and the card's memory. Attention is scaled_dot_product_attention, matmuls are computed under
autocast, what stays float32 with TF32. refocused, moderation and dynamo are transformers' own models; agiformer and
gpt2 are written here; cloudbase is the network of tools/goldens/cloudbase.py. bench/gpu.sh says which command of snug's
each stands against.
"""

import argparse
import dataclasses
import os
import pathlib
import sys
import traceback
import typing

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Work:
    name: str
    model: typing.Any  # its forward gives the loss of a batch
    batch: tuple  # one, computed again and again
    units: int  # tokens of an update, or examples where there are none
    accumulation: int = 1


def wrapped(torch, net, loss):
    """A module whose forward is loss(net, ...)."""

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, *batch):
            return loss(self.net, *batch)

    return Loss()


SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)  # of transformers' models


def gpt2(torch, small):
    """GPT-2 124M at 8 x 1024: the work `gpt2` of bench/README.md."""
    import torch_train

    w = dict(torch_train.WORKLOADS["gpt2"])
    if small:
        w.update(V=300, d=32, L=2, H=2, F=64, T=32, B=2)
    args = argparse.Namespace(attention="sdpa", mode="tuned", checkpoint=False)
    model, x, target = torch_train.build(torch, w, args)
    return Work("gpt2", model, (x, target), w["B"] * w["T"])


def neox(torch, name, shape, rows, length, accumulation):
    """A GPT-NeoX on rows of so many tokens."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(**shape, rotary_pct=0.25, use_parallel_residual=True, tie_word_embeddings=False, hidden_act="gelu", use_cache=False,
                           attn_implementation="sdpa")
    F = torch.nn.functional
    ids, labels = torch.randint(shape["vocab_size"], (2, rows, length))

    def loss(net, ids, labels):
        return F.cross_entropy(net(input_ids=ids).logits.flatten(0, 1).float(), labels.flatten())

    return Work(name, wrapped(torch, GPTNeoXForCausalLM(config).train(), loss), (ids, labels), rows * length * accumulation, accumulation)


def refocused(torch, small):
    """configs/refocused-t4.yaml: GPT-NeoX, 20 x 1536, 4 x 1024 tokens eight times."""
    shape = dict(vocab_size=50257, hidden_size=1536, num_hidden_layers=20, num_attention_heads=12, intermediate_size=6144, max_position_embeddings=2048)
    rows, length, accumulation = 4, 1024, 8
    if small:
        shape.update(vocab_size=300, **SMALL)
        rows, length, accumulation = 2, 32, 2
    return neox(torch, "refocused", shape, rows, length, accumulation)


def texts(torch, rows, length, vocab, pad=1):
    """ids and mask of texts that fill their rows or up to a quarter less, as snug makes them up."""
    ids = torch.randint(pad + 1, vocab, (rows, length))
    lengths = torch.tensor([length - row * 5 % (length // 4 + 1) for row in range(rows)])
    mask = torch.arange(length)[None] < lengths[:, None]
    return ids.masked_fill(~mask, pad), mask


def roberta(vocab, positions, **shape):
    """A configuration of RoBERTa-base's sizes, but for those in shape."""
    from transformers import RobertaConfig

    base = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)
    return RobertaConfig(vocab_size=vocab, max_position_embeddings=positions + 2, **(base | shape), type_vocab_size=1, layer_norm_eps=1e-5,
                         num_labels=2, attn_implementation="sdpa")


def moderation(torch, small):
    """configs/moderation-t4.yaml: RoBERTa-base with 64,001 tokens, 32 texts of up to 192 tokens."""
    from transformers import RobertaForSequenceClassification

    rows, length, vocab = (4, 32, 300) if small else (32, 192, 64001)
    net = RobertaForSequenceClassification(roberta(vocab, 256, **(SMALL if small else {}))).train()
    F = torch.nn.functional
    ids, mask = texts(torch, rows, length, vocab)

    def loss(net, ids, mask, labels):
        return F.cross_entropy(net(input_ids=ids, attention_mask=mask).logits.float(), labels)

    return Work("moderation", wrapped(torch, net, loss), (ids, mask, torch.randint(2, (rows,))), rows)


def hidden_tokens(torch, name, config, rows, length, accumulation):
    """A RoBERTa guesses hidden tokens on rows that are full."""
    from transformers import RobertaForMaskedLM

    net = RobertaForMaskedLM(config).train()
    F = torch.nn.functional
    ids = torch.randint(2, config.vocab_size, (rows, length))
    places = torch.arange(0, rows * length, 1 / 0.15).long()

    def loss(net, ids, places, original):
        x = net.roberta(input_ids=ids).last_hidden_state.flatten(0, 1)[places]  # logits of what is hidden alone
        return F.cross_entropy(net.lm_head(x).float(), original)

    batch = (ids, places, torch.randint(config.vocab_size, places.shape))
    return Work(name, wrapped(torch, net, loss), batch, rows * length * accumulation, accumulation)


def dynamo(torch, small):
    """Phase 0 of configs/dynamo-t4.yaml, where most of its time goes: an encoder of RoBERTa-base's size guesses hidden
    tokens, 16 x 256 four times."""
    if small:
        return hidden_tokens(torch, "dynamo", roberta(300, 512, **SMALL), 4, 32, 2)
    return hidden_tokens(torch, "dynamo", roberta(50265, 512), 16, 256, 4)


def cloudbase(torch, small):
    """configs/cloudbase-t4.yaml: ten windows of five pictures of 440 x 640, twice; dropout is off on both sides."""
    sys.path.insert(0, str(HERE.parent / "tools" / "goldens"))
    import cloudbase as golden

    golden.FRAMES, golden.HIGH, golden.WIDE, golden.CHANNELS = 5, 440, 640, [64, 128, 256]
    rows, accumulation = 10, 2
    if small:
        golden.HIGH, golden.WIDE, golden.CHANNELS, rows = 16, 16, [4, 8, 8], 4
    net = golden.Net("attention", view=3, identity=True).float().train()
    F = torch.nn.functional

    def loss(net, x, angles, scales, y):
        each = F.huber_loss(net(x, angles, scales).float(), y, reduction="none")
        return (each.sum() + 0.5 * each.topk(int(0.35 * rows)).values.sum()) / rows  # hard examples count 1.5 times

    batch = (torch.randn(rows, 5, golden.HIGH, golden.WIDE), torch.rand(rows, 2) * 90, torch.tensor([40.0, 180.0, 15.0, 100.0]), torch.randn(rows))
    return Work("cloudbase", wrapped(torch, net, loss), batch, rows * accumulation, accumulation)


def agiformer(torch, small):
    """configs/agiformer-base-t4.yaml: 8 x 512 bytes four times, see torch_agiformer.py."""
    import torch_agiformer

    shape = torch_agiformer.Shape()
    rows, accumulation = 8, 4
    if small:
        shape = torch_agiformer.Shape(d=32, relation=32, layers=2, heads=2, ff=48, length=32, slots=16, segment=10, language=32, language_layers=2, language_heads=2, language_ff=64)
        rows, accumulation = 2, 2
    net = torch_agiformer.build(torch, shape)
    ids, labels = torch.randint(shape.vocab, (2, rows, shape.length))
    return Work("agiformer", net.train(), (ids, labels), rows * shape.length * accumulation, accumulation)


WORKS = {f.__name__: f for f in (gpt2, refocused, moderation, agiformer, cloudbase, dynamo)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work", choices=WORKS)
    p.add_argument("--modes", default="eager,max-autotune", help="eager, or modes of torch.compile, with commas")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--dtype", choices=("bf16", "fp16", "fp32"), default="bf16", help="of matmuls")
    p.add_argument("--updates", type=int, default=50)
    p.add_argument("--seconds", type=float, default=10, help="of measured updates in each mode, at most")
    p.add_argument("--small", action="store_true", help="small shapes, to try the program")
    args = p.parse_args()
    # snug's memory is planned; PyTorch's grows in pieces that need not lie together.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    import torch

    import torch_measure

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")  # TF32, where the card has it
    torch.backends.cudnn.benchmark = True
    work = WORKS[args.work](torch, args.small)
    work.model = work.model.to(args.device)
    work.batch = tuple(x.to(args.device) for x in work.batch)
    low = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": None}[args.dtype]
    failed = False
    for mode in args.modes.split(","):
        try:
            torch_measure.measure(torch, work, mode, args.device, low, args.updates, args.seconds)
        except Exception:  # the other modes may work
            failed = True
            traceback.print_exc()
    sys.exit(failed)


if __name__ == "__main__":
    main()
