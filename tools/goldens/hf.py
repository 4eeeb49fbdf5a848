#!/usr/bin/env python3
"""Tiny Hugging Face model folders with the outputs that transformers gives for them.

    hf.py [FOLDER]     (default: nn/hf/testdata beside this tool)

The README.md of that folder describes what is written.
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import torch
import torch.nn.functional as F
import transformers as hf
from safetensors.torch import load_file, save_file
from transformers.utils.logging import disable_progress_bar

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT = HERE.parent.parent / "nn" / "hf" / "testdata"
VOCAB, TIME = 150, 12
UPDATES, BATCH, CLASS_WEIGHTS = 30, 8, (0.5, 1.0, 2.0)

ENCODER = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, initializer_range=0.2)
NEOX = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=32, initializer_range=0.2)
BERT = dict(ENCODER, max_position_embeddings=32)
ROBERTA = dict(ENCODER, max_position_embeddings=34, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2, layer_norm_eps=1e-5)
GPT2 = dict(vocab_size=VOCAB, n_positions=32, n_embd=32, n_layer=2, n_head=4, initializer_range=0.2,
            bos_token_id=2, eos_token_id=2)
LLAMA = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
             max_position_embeddings=32, initializer_range=0.2)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8}
ROPES = {
    "default": {"rope_type": "default", "rope_theta": 1e6}, "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 3.0}, "llama3": dict(LLAMA3, original_max_position_embeddings=20),
    "yarn": dict(YARN, beta_fast=8.0, beta_slow=0.5), "yarn-exact": dict(YARN, truncate=False, attention_factor=0.75),
    "yarn-mscale": dict(YARN, original_max_position_embeddings=1000, mscale=0.7, mscale_all_dim=1.2),
}


def perturb(model):
    """Moves biases and norm weights off their initial zeros and ones, so that a swap of two of them shows."""
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(torch.randn(p.shape, generator=g) * 0.1)


def batch(kind, pad):
    """Two sequences; for encoders the second is five ids shorter and padded on the right."""
    rng = np.random.default_rng(3)
    ids = torch.from_numpy(rng.integers(3, VOCAB, size=(2, TIME)))
    given = {"input_ids": ids}
    if kind == "encoder":
        mask = torch.ones(2, TIME, dtype=torch.long)
        mask[1, TIME - 5:] = 0
        given["input_ids"] = ids.masked_fill(mask == 0, pad)
        given["attention_mask"] = mask
    return given


def make(folder, name, model, kind, segments=False, **save):
    """Saves the model and beside it expected.safetensors: its inputs, logits (if it has a head) and last hidden state."""
    perturb(model)
    target = folder / name
    shutil.rmtree(target, ignore_errors=True)
    model.eval().save_pretrained(target, **save)
    (target / "generation_config.json").unlink(missing_ok=True)
    given = batch(kind, getattr(model.config, "pad_token_id", None) or 0)
    if segments:
        given["token_type_ids"] = (torch.arange(TIME) >= 5).long().expand(2, TIME)
    with torch.no_grad():
        out, base = model(**given), model.base_model(**given)
    expected = {k: v.to(torch.int32) for k, v in given.items()}
    for key in ("logits", "pooler_output"):
        if getattr(out, key, None) is not None:
            expected[key] = getattr(out, key)
    expected["last_hidden_state"] = base.last_hidden_state
    save_file({k: v.contiguous() for k, v in sorted(expected.items())}, target / "expected.safetensors")
    return target


def age(target):
    """Rewrites a new folder into what transformers wrote before version 4.50: old rotary keys, buffers among the weights."""
    path = target / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config |= {"rotary_pct": rope["partial_rotary_factor"], "rotary_emb_base": int(rope["rope_theta"])}
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.30.0"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    weights = load_file(target / "model.safetensors")
    head = config["hidden_size"] // config["num_attention_heads"]
    rotary = int(head * config["rotary_pct"])
    for i in range(config["num_hidden_layers"]):
        prefix = f"gpt_neox.layers.{i}.attention."
        weights[prefix + "bias"] = torch.ones(1, 1, 32, 32, dtype=torch.bool).tril()
        weights[prefix + "masked_bias"] = torch.tensor(-1e9)
        weights[prefix + "rotary_emb.inv_freq"] = 10000.0 ** (-torch.arange(0, rotary, 2) / rotary)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    expected = load_file(target / "expected.safetensors")
    with torch.no_grad():
        logits = hf.GPTNeoXForCausalLM.from_pretrained(target)(expected["input_ids"].long()).logits
    torch.testing.assert_close(logits, expected["logits"])


def curve(target):
    """Fine-tunes a classifier, dropout off, and writes the batches with each update's loss and gradient norm beside it.

    A text's class is the remainder of its second id; losses are weighted by class as torch.nn.CrossEntropyLoss does.
    """
    model = hf.AutoModelForSequenceClassification.from_pretrained(target).eval()
    rng = np.random.default_rng(5)
    ids = rng.integers(3, VOCAB, size=(UPDATES, BATCH, TIME))
    lens = rng.integers(4, TIME + 1, size=(UPDATES, BATCH))
    mask = np.arange(TIME) < lens[..., None]
    ids[~mask] = model.config.pad_token_id
    labels = ids[:, :, 1] % 3
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    losses, norms = [], []
    for update in range(UPDATES):
        logits = model(torch.from_numpy(ids[update]), attention_mask=torch.from_numpy(mask[update])).logits
        loss = F.cross_entropy(logits, torch.from_numpy(labels[update]), weight=torch.tensor(CLASS_WEIGHTS))
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
    print(f"{target.name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, gradient norm {min(norms):.2f}-{max(norms):.2f}")
    given = {"ids": ids, "lens": lens, "labels": labels}
    save_file({k: torch.from_numpy(v).int() for k, v in given.items()} | {"loss": torch.tensor(losses), "gradient_norm": torch.tensor(norms)},
              target / "curve.safetensors")


def causal_curve(target):
    """Trains a language model, dropout off, and writes the texts with each update's loss and gradient norm beside it.

    Every id but the first is the one before it times 7 plus 3 or, one time in five, plus 4.
    """
    model = hf.AutoModelForCausalLM.from_pretrained(target).eval()
    rng = np.random.default_rng(5)
    ids = np.empty((UPDATES, BATCH, TIME), np.int64)
    ids[:, :, 0] = rng.integers(VOCAB, size=(UPDATES, BATCH))
    for t in range(1, TIME):
        ids[:, :, t] = (ids[:, :, t - 1] * 7 + 3 + (rng.random((UPDATES, BATCH)) < 0.2)) % VOCAB
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    losses, norms = [], []
    for update in range(UPDATES):
        text = torch.from_numpy(ids[update])
        logits = model(text[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
    print(f"{target.name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, gradient norm {min(norms):.2f}-{max(norms):.2f}")
    save_file({"ids": torch.from_numpy(ids).int(), "loss": torch.tensor(losses), "gradient_norm": torch.tensor(norms)},
              target / "curve.safetensors")


def ropes(folder):
    """Writes the config.json of a Llama for each kind of rotary positions, and rope.safetensors with their cos and sin."""
    target = folder / "rope"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    tables = {}
    for name, rope in ROPES.items():
        config = hf.LlamaConfig(**dict(LLAMA, max_position_embeddings=64, head_dim=16), rope_parameters=dict(rope), architectures=["LlamaForCausalLM"])
        (target / f"{name}.json").write_text(json.dumps(config.to_dict(), indent=1) + "\n")
        turn = hf.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
        with torch.no_grad():
            cos, sin = turn(torch.zeros(1), torch.arange(64)[None])
        tables[name] = torch.cat((cos[0, :, :8], sin[0, :, :8]), -1)
    save_file({k: v.contiguous() for k, v in tables.items()}, target / "rope.safetensors")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    folder.mkdir(parents=True, exist_ok=True)
    disable_progress_bar()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    labels = {"id2label": {0: "clean", 1: "offensive", 2: "unsure"}}
    make(folder, "neox", hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**NEOX)), "causal")
    age(make(folder, "neox-old", hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(
        **NEOX, use_parallel_residual=False, rotary_pct=0.5, hidden_act="gelu_new")), "causal"))
    make(folder, "neox-sharded", hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**NEOX)), "causal", max_shard_size="60KB")
    make(folder, "gpt2", hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2)), "causal")
    make(folder, "bert", hf.BertModel(hf.BertConfig(**BERT)), "encoder", segments=True)
    curve(make(folder, "bert-classifier", hf.BertForSequenceClassification(hf.BertConfig(**BERT, **labels)), "encoder", segments=True))
    make(folder, "bert-masked", hf.BertForMaskedLM(hf.BertConfig(**BERT)), "encoder")
    make(folder, "roberta", hf.RobertaModel(hf.RobertaConfig(**ROBERTA)), "encoder")
    curve(make(folder, "roberta-classifier", hf.RobertaForSequenceClassification(hf.RobertaConfig(**ROBERTA, **labels)), "encoder"))
    make(folder, "roberta-masked", hf.RobertaForMaskedLM(hf.RobertaConfig(**ROBERTA)), "encoder")
    causal_curve(make(folder, "llama", hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA, rope_parameters=dict(LLAMA3))), "causal"))
    make(folder, "llama-biases", hf.LlamaForCausalLM(hf.LlamaConfig(
        **LLAMA, rope_parameters=dict(YARN), attention_bias=True, mlp_bias=True, tie_word_embeddings=True, hidden_act="gelu")), "causal", max_shard_size="30KB")
    causal_curve(make(folder, "qwen3", hf.Qwen3ForCausalLM(hf.Qwen3Config(
        **LLAMA, head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 1e6}, tie_word_embeddings=True)), "causal"))
    ropes(folder)
    for file in folder.glob("*/*"):
        file.chmod(0o644)
    for target in sorted(p for p in folder.iterdir() if p.is_dir()):
        print(target.name, sorted((f.name, f.stat().st_size) for f in target.iterdir()))


if __name__ == "__main__":
    main()
