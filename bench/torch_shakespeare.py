"""A character GPT in PyTorch with the two configurations that nanoGPT publishes for tiny Shakespeare.

    python torch_shakespeare.py TEXT --model gpu|cpu [--minutes M] [--updates N] [--seed S] [--threads N] [--sampled]

gpu: the defaults of config/train_shakespeare_char.py (6 layers, 6 heads, 384 wide, 256 characters, batch 64,
dropout 0.2, 5000 updates). cpu: the README's for a laptop (4 layers, 4 heads, 128 wide, 64 characters, batch 12,
no dropout, 2000 updates). Both: AdamW, learning rate 1e-3 with 100 updates of warm-up and a cosine to a tenth,
beta2 0.99, weight decay 0.1 on matrices, gradients clipped to norm 1, output tied to the embedding, no biases.
The schedule is as long as the updates that fit in the minutes, which a probe of some updates tells.

The first nine tenths of the text are trained on. Evaluation reads the last tenth whole, in windows side by side,
as snug does; with --sampled nanoGPT's own estimate, of 200 random batches, is printed too. One JSON object on stdout.
"""

import argparse
import json
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = {
    "gpu": dict(layers=6, heads=6, width=384, block=256, batch=64, dropout=0.2, updates=5000),
    "cpu": dict(layers=4, heads=4, width=128, block=64, batch=12, dropout=0.0, updates=2000),
}
LR, MIN_LR, WARMUP, DECAY = 1e-3, 1e-4, 100, 0.1


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(d, 2))
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p).transpose(1, 2).reshape(b, t, d)
        x = x + F.dropout(self.out(y), p)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), p)


class GPT(nn.Module):
    def __init__(self, vocabulary, layers, heads, width, block, dropout, **_):
        super().__init__()
        self.dropout = dropout
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, 0, 0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        x = F.dropout(x, self.dropout if self.training else 0.0)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy((self.norm(x) @ self.tokens.weight.T).flatten(0, 1), labels.flatten())


def windows(data, at, block):
    return torch.stack([data[i : i + block] for i in at]), torch.stack([data[i + 1 : i + 1 + block] for i in at])


def draw(data, c):
    return windows(data, torch.randint(len(data) - c["block"], (c["batch"],)), c["block"])


@torch.no_grad()
def evaluate(model, data, c):
    """The loss a character over the whole of data."""
    model.eval()
    total, count, block = 0.0, 0, c["block"]
    starts = range(0, len(data) - 1, block)
    full = [i for i in starts if i + block < len(data)]
    for n in range(0, len(full), 64):
        x, y = windows(data, full[n : n + 64], block)
        total, count = total + model(x, y).item() * y.numel(), count + y.numel()
    if len(full) < len(starts):  # what is left of the last window
        rest = data[starts[-1] :]
        total, count = total + model(rest[None, :-1], rest[None, 1:]).item() * (len(rest) - 1), count + len(rest) - 1
    assert count == len(data) - 1
    model.train()
    return total / count


@torch.no_grad()
def sampled(model, data, c):
    """nanoGPT's estimate: the mean over 200 random batches."""
    model.eval()
    mean = sum(model(*draw(data, c)).item() for _ in range(200)) / 200
    model.train()
    return mean


def rate(update, updates):
    if update < WARMUP:
        return LR * (update + 1) / (WARMUP + 1)
    share = min(1.0, (update - WARMUP) / max(1, updates - WARMUP))
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * share)) * (LR - MIN_LR)


def build(vocabulary, c, seed):
    torch.manual_seed(seed)
    model = GPT(vocabulary, **c)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": DECAY},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    return model, torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.99), fused=True)


def train(model, optimizer, data, c, updates, schedule, until=math.inf):
    """Trains for some updates of a schedule and gives the updates done."""
    model.train()
    for n in range(updates):
        if time.monotonic() > until:
            return n
        for g in optimizer.param_groups:
            g["lr"] = rate(n, schedule)
        model(*draw(data, c)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return updates


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("text")
    a.add_argument("--model", choices=MODELS, required=True)
    a.add_argument("--minutes", type=float, help="train for as long; without it for as many updates as nanoGPT")
    a.add_argument("--updates", type=int)
    a.add_argument("--seed", type=int, default=1337)
    a.add_argument("--threads", type=int)
    a.add_argument("--sampled", action="store_true")
    a = a.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    c = MODELS[a.model]
    text = open(a.text, encoding="utf-8", newline="").read()
    letters = {ch: i for i, ch in enumerate(sorted(set(text)))}
    ids = torch.tensor([letters[ch] for ch in text])
    cut = int(len(ids) * 0.9)
    learned, held = ids[:cut], ids[cut:]

    updates = a.updates or c["updates"]
    if a.minutes and not a.updates:
        model, optimizer = build(len(letters), c, a.seed)
        train(model, optimizer, learned, c, 3, updates)  # warm
        start = time.monotonic()
        probe = 5 if a.model == "gpu" else 50
        train(model, optimizer, learned, c, probe, updates)
        updates = max(1, int(a.minutes * 60 / ((time.monotonic() - start) / probe)))
    model, optimizer = build(len(letters), c, a.seed)
    start = time.monotonic()
    until = start + a.minutes * 60 if a.minutes else math.inf
    done = train(model, optimizer, learned, c, updates, updates, until)
    seconds = time.monotonic() - start
    sample = {"eval_loss_sampled": sampled(model, held, c)} if a.sampled else {}
    print(json.dumps({
        "side": "torch", "model": "shakespeare-char " + a.model, "seed": a.seed, "seconds": round(seconds, 1), "updates": done, "schedule": updates,
        "parameters": sum(p.numel() for p in model.parameters()), "eval_loss_end": evaluate(model, held, c), **sample,
        "threads": torch.get_num_threads(), "torch": torch.__version__,
    }))


main()
