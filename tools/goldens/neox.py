#!/usr/bin/env python3
"""Fifty updates of two small GPT-NeoX models in transformers, as goldens of whole training steps.

    neox.py [FOLDER]     (default: engine/testdata/goldens/neox beside this tool)

The README.md of that folder describes what is written.
"""

import copy
import json
import math
import pathlib
import shutil
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, get_cosine_schedule_with_warmup
from transformers.utils.logging import disable_progress_bar

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT = HERE.parent.parent / "engine" / "testdata" / "goldens" / "neox"
UPDATES, BATCH, TIME, VOCAB = 50, 8, 64, 512
LR, DECAY, CLIP, WARMUP = 1e-3, 0.1, 1.0, 5
SHAPE = dict(vocab_size=VOCAB, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=256,
             max_position_embeddings=128, attn_implementation="eager", use_cache=False, initializer_range=0.05)
# bf16: stored in half the bytes, after rounding the weights, so that float32 training starts from the same numbers.
VARIANTS = {
    "parallel": dict(config=dict(hidden_act="gelu", use_parallel_residual=True, rotary_pct=0.25), bf16=False),
    "sequential": dict(config=dict(hidden_act="gelu_pytorch_tanh", use_parallel_residual=False, rotary_pct=1.0,
                                   tie_word_embeddings=True), bf16=True),
}


def markov_tokens():
    """[UPDATES, BATCH, TIME + 1] ids of a Markov chain: nine times in ten the successor is a function of the last id."""
    rng = np.random.default_rng(7)
    follow = rng.permutation(64)
    rare = 1 / np.arange(1, VOCAB + 1)
    rare /= rare.sum()
    ids = np.empty((UPDATES, BATCH, TIME + 1), np.int32)
    state = rng.integers(64, size=(UPDATES, BATCH))
    for t in range(TIME + 1):
        ids[:, :, t] = state
        jump = rng.random((UPDATES, BATCH)) < 0.1
        state = np.where(jump, rng.choice(VOCAB, size=(UPDATES, BATCH), p=rare), follow[state % 64])
    return ids


def perturb(model):
    """Moves biases and norm weights off their trivial initial values, so that a swap of two of them shows."""
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(torch.randn(p.shape, generator=g) * 0.05)


def train(model, ids):
    """The curve of one model in the precision of its parameters, as {name: array}."""
    ids = torch.from_numpy(ids).long()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=LR, betas=(0.9, 0.999), eps=1e-8)
    schedule = get_cosine_schedule_with_warmup(optimizer, WARMUP, UPDATES)
    curve = {"loss": [], "gradient_norm": [], "lr": []}
    result = {}
    for update in range(UPDATES):
        logits = model(ids[update, :, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), ids[update, :, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if update == 0:
            result["logits"] = logits[0, ::8].detach().numpy().astype(np.float32)
            for name, p in model.named_parameters():
                result["first_gradient_norm." + name] = p.grad.norm().numpy().astype(np.float32)
        curve["loss"].append(loss.item())
        curve["lr"].append(schedule.get_last_lr()[0])
        curve["gradient_norm"].append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        optimizer.step()
        schedule.step()
    for name, p in model.named_parameters():
        result["final_norm." + name] = p.detach().norm().numpy().astype(np.float32)
    return {name: np.array(values, np.float32) for name, values in curve.items()} | result


def make(name, variant, ids, folder):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**SHAPE, **variant["config"])).train()
    perturb(model)
    saved = model
    if variant["bf16"]:  # a copy, because converting a model also rounds its rotary frequencies
        saved = copy.deepcopy(model).bfloat16()
        model.load_state_dict({k: v.float() for k, v in saved.state_dict().items()})
    target = folder / name
    shutil.rmtree(target, ignore_errors=True)
    saved.save_pretrained(target)
    (target / "generation_config.json").unlink(missing_ok=True)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    trace = train(model, ids)
    twin = GPTNeoXForCausalLM(model.config)
    twin.load_state_dict(state)
    exact = train(twin.double().train(), ids)
    trace["loss_float64"] = exact["loss"]
    save_file(dict(sorted(trace.items())), target / "trace.safetensors")
    for file in target.iterdir():
        file.chmod(0o644)
    drift = np.abs(trace["loss"] - exact["loss"]).max()
    print(f"{name}: loss {trace['loss'][0]:.4f} -> {trace['loss'][-1]:.4f}, gradient norm {trace['gradient_norm'].min():.2f}"
          f"-{trace['gradient_norm'].max():.2f}, float32 differs from float64 by at most {drift:.1e}")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    folder.mkdir(parents=True, exist_ok=True)
    disable_progress_bar()
    ids = markov_tokens()
    save_file({"ids": ids}, folder / "batches.safetensors")
    (folder / "batches.safetensors").chmod(0o644)
    for name, variant in VARIANTS.items():
        make(name, variant, ids, folder)
    (folder / "training.json").write_text(json.dumps({
        "updates": UPDATES, "batch": BATCH, "time": TIME, "learning_rate": LR, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8,
        "weight_decay": DECAY, "max_grad_norm": CLIP, "schedule": "cosine", "warmup_steps": WARMUP}, indent=1) + "\n")
    entropy = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    print(f"(the chain's entropy is at least {entropy:.2f} nats)")


if __name__ == "__main__":
    main()
