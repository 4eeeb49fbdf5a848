#!/usr/bin/env python3
"""Thirty updates of small BERT and RoBERTa text classifiers in transformers, as goldens of the system moderation.

    moderation.py [FOLDER]     (default: system/moderation/testdata/curve beside this tool)

An update is two micro-batches of different lengths; its loss is the mean over all its texts weighted by class, the
learning rate falls linearly, and matrices decay. For each architecture a model folder with the weights at the start
and trace.safetensors: the logits of the first micro-batch (no dropout), and loss, gradient norm before clipping and
learning rate of each update. batches.safetensors holds the texts: ids0 [UPDATES, ROWS, 16], ids1 [UPDATES, ROWS, 8],
their lengths lens0, lens1 and labels0, labels1.
"""

import copy
import pathlib
import shutil
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from transformers import (BertConfig, BertForSequenceClassification, RobertaConfig, RobertaForSequenceClassification,
                          get_linear_schedule_with_warmup)
from transformers.utils.logging import disable_progress_bar

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT = HERE.parent.parent / "system" / "moderation" / "testdata" / "curve"
UPDATES, ROWS, LENGTHS, VOCAB = 30, 4, (16, 8), 61
LR, DECAY, CLIP, WEIGHTS, PAD = 2e-3, 0.1, 1.0, (0.6, 2.9), 1
SHAPE = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
             hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2, initializer_range=0.1,
             pad_token_id=PAD, attn_implementation="eager")
MODELS = {
    "bert": (BertConfig(max_position_embeddings=20, type_vocab_size=2, layer_norm_eps=1e-12, **SHAPE), BertForSequenceClassification),
    "roberta": (RobertaConfig(max_position_embeddings=20, type_vocab_size=1, layer_norm_eps=1e-5, **SHAPE),
                RobertaForSequenceClassification),
}


def batches():
    """Texts whose label depends on which of two tokens they have more of, so that there is something to learn."""
    rng = np.random.default_rng(11)
    out = {}
    for m, length in enumerate(LENGTHS):
        lens = rng.integers(3, length + 1, size=(UPDATES, ROWS), dtype=np.int32)
        lens[:, 0] = length
        ids = np.full((UPDATES, ROWS, length), PAD, np.int32)
        labels = np.zeros((UPDATES, ROWS), np.int32)
        for u in range(UPDATES):
            for r in range(ROWS):
                n = lens[u, r]
                text = rng.integers(3, VOCAB, size=n)
                text[rng.random(n) < 0.4] = 5 if rng.random() < 0.3 else 6
                text[0], text[-1] = 0, 2
                ids[u, r, :n] = text
                labels[u, r] = int((text == 5).sum() > (text == 6).sum())
        out |= {f"ids{m}": ids, f"lens{m}": lens, f"labels{m}": labels}
    return out


def train(model, data):
    """The curve of one model in the precision of its parameters, as {name: array}."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=LR, betas=(0.9, 0.999), eps=1e-8)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, UPDATES)
    by_class = torch.tensor(WEIGHTS, dtype=next(model.parameters()).dtype)
    curve = {"loss": [], "gradient_norm": [], "lr": []}
    result = {}
    for update in range(UPDATES):
        total, weight = 0.0, 0.0
        for m, length in enumerate(LENGTHS):
            ids = torch.from_numpy(data[f"ids{m}"][update]).long()
            mask = torch.arange(length)[None, :] < torch.from_numpy(data[f"lens{m}"][update])[:, None]
            labels = torch.from_numpy(data[f"labels{m}"][update]).long()
            logits = model(ids, attention_mask=mask.long()).logits
            if update == 0 and m == 0:
                result["logits"] = logits.detach().numpy().astype(np.float32)
            total = total + F.cross_entropy(logits, labels, weight=by_class, reduction="sum")
            weight += by_class[labels].sum()
        loss = total / weight
        optimizer.zero_grad()
        loss.backward()
        curve["loss"].append(loss.item())
        curve["lr"].append(schedule.get_last_lr()[0])
        curve["gradient_norm"].append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        optimizer.step()
        schedule.step()
    return {name: np.array(values, np.float32) for name, values in curve.items()} | result


def make(name, folder, data):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config, kind = MODELS[name]
    model = kind(config).train()
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(torch.randn(p.shape, generator=g) * 0.05)
    target = folder / name
    shutil.rmtree(target, ignore_errors=True)
    model.save_pretrained(target)
    twin = copy.deepcopy(model).double().train()
    trace = train(model, data)
    exact = train(twin, data)
    save_file(trace, target / "trace.safetensors")
    for file in target.iterdir():
        file.chmod(0o644)
    drift = np.abs(trace["loss"] - exact["loss"]).max()
    print(f"{name}: loss {trace['loss'][0]:.4f} -> {trace['loss'][-1]:.4f}, gradient norm {trace['gradient_norm'].min():.2f}"
          f"-{trace['gradient_norm'].max():.2f}, float32 differs from float64 by at most {drift:.1e}")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    folder.mkdir(parents=True, exist_ok=True)
    disable_progress_bar()
    data = batches()
    save_file(data, folder / "batches.safetensors")
    (folder / "batches.safetensors").chmod(0o644)
    for name in MODELS:
        make(name, folder, data)


if __name__ == "__main__":
    main()
