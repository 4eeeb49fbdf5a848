#!/usr/bin/env python3
"""What PyTorch makes of the adapters, heads, decoder and router of the system dynamo.

    dynamo.py [FOLDER]     (default: system/dynamo/testdata beside this tool)

The encoder is nn/hf/testdata/roberta, frozen. For each task FOLDER/<task>.safetensors holds the weights that training
starts from (under snug's names), the inputs of 30 updates, what the heads say in the first (out.*), and the loss of
every update. router.safetensors holds the router's weights, inputs and probabilities.
"""

import math
import pathlib
import sys

import torch
import torch.nn.functional as F
import transformers as hf
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
D, FF, HEADS, VOCAB, LAYERS = 32, 64, 4, 150, 2
BATCH, TIME, WRITTEN, UPDATES, TASKS = 4, 12, 7, 30, 3
RANK, ALPHA, LR, DECAY = 4, 8.0, 3e-3, 0.01
LINEAR = {
    "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
    "attention_output": "attention.output.dense", "intermediate": "intermediate.dense", "output": "output.dense",
}


class Model:
    """The weights by snug's names, and functions over them."""

    def __init__(self, task, targets, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.w = {}
        self.task = task
        self.encoder = hf.RobertaModel.from_pretrained(ROOT / "nn/hf/testdata/roberta", add_pooling_layer=False).eval()
        for p in self.encoder.parameters():
            p.requires_grad_(False)
        for i, layer in enumerate(self.encoder.encoder.layer):
            for t in targets:
                m = layer.get_submodule(LINEAR[t])
                name = f"roberta.encoder.layer.{i}.{LINEAR[t]}.lora.{task}"
                down = self.weight(name + ".down", RANK, m.in_features)
                up = self.weight(name + ".up", m.out_features, RANK)
                m.register_forward_hook(lambda _, x, y, d=down, u=up: y + ALPHA / RANK * x[0] @ d.T @ u.T)

    def weight(self, name, *shape, std=0.2):
        self.w[name] = (torch.randn(shape, generator=self.g) * std).requires_grad_()
        return self.w[name]

    def linear(self, name, out, into):
        self.weight(name + ".weight", out, into)
        self.weight(name + ".bias", out)

    def norm(self, name):
        self.weight(name + ".weight", D)
        self.weight(name + ".bias", D)

    def apply(self, name, x):
        return F.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def normed(self, name, x):
        return F.layer_norm(x, (D,), self.w[name + ".weight"], self.w[name + ".bias"], 1e-5)

    def states(self, ids, lens):
        mask = (torch.arange(ids.shape[1])[None] < lens[:, None]).long()
        # RoBERTa counts positions over what is no padding; here padding has rows of its own, which nothing attends to.
        places = torch.arange(ids.shape[1])[None].expand_as(ids) + 2
        return self.encoder(input_ids=ids, attention_mask=mask, position_ids=places).last_hidden_state, mask


class Sentiment(Model):
    def __init__(self):
        super().__init__("sentiment", list(LINEAR), 1)
        self.linear("heads.sentiment.dense", D // 2, D)
        self.linear("heads.sentiment.out", 2, D // 2)

    def batch(self, g):
        return {"label": torch.randint(0, 2, (BATCH,), generator=g)}

    def loss(self, b):
        x, _ = self.states(b["ids"], b["lens"])
        y = self.apply("heads.sentiment.out", F.relu(self.apply("heads.sentiment.dense", x[:, 0])))
        return F.cross_entropy(y, b["label"]), {"logits": y}


class QA(Model):
    def __init__(self):
        super().__init__("qa", ["query", "value"], 2)
        self.linear("heads.qa.span", 2, D)

    def batch(self, g):
        return {"start": torch.randint(2, 5, (BATCH,), generator=g), "end": torch.randint(3, 6, (BATCH,), generator=g)}

    def loss(self, b):
        x, mask = self.states(b["ids"], b["lens"])
        y = self.apply("heads.qa.span", x)
        outside = torch.where(mask.bool() & (torch.arange(TIME)[None] >= 2), 0.0, -1e4)
        start, end = y[..., 0] + outside, y[..., 1] + outside
        loss = (F.cross_entropy(start, b["start"]) + F.cross_entropy(end, b["end"])) / 2
        return loss, {"start": start, "end": end}


class Translation(Model):
    def __init__(self):
        super().__init__("translation", ["key", "output"], 3)
        h = "heads.translation"
        self.h = h
        self.weight(h + ".positions.weight", WRITTEN, D)
        for n in (".embedding_norm", ".norm"):
            self.norm(h + n)
        self.linear(h + ".projection", D, D)
        for i in range(LAYERS):
            for part in ("self_attn", "encoder_attn"):
                self.norm(f"{h}.layers.{i}.{part}.norm")
                for name in ("query", "key", "value", "output"):
                    self.linear(f"{h}.layers.{i}.{part}.{name}", D, D)
            self.norm(f"{h}.layers.{i}.mlp.norm")
            self.linear(f"{h}.layers.{i}.mlp.up", FF, D)
            self.linear(f"{h}.layers.{i}.mlp.down", D, FF)

    def batch(self, g):
        lens = torch.randint(2, WRITTEN + 1, (BATCH,), generator=g)
        text = torch.randint(3, VOCAB, (BATCH, WRITTEN), generator=g)
        written, following = torch.full((BATCH, WRITTEN), 1), torch.zeros(BATCH, WRITTEN, dtype=torch.long)
        weights = torch.zeros(BATCH, WRITTEN)
        for i, n in enumerate(lens.tolist()):
            written[i, 0], written[i, 1:n] = 0, text[i, : n - 1]
            following[i, : n - 1], following[i, n - 1] = text[i, : n - 1], 2
            weights[i, :n] = 1
        return {"written": written, "next": following, "weights": weights}

    def attend(self, name, q, kv, allowed):
        heads = lambda y: y.view(y.shape[0], y.shape[1], HEADS, D // HEADS).transpose(1, 2)
        q = heads(self.apply(name + ".query", q))
        k, v = heads(self.apply(name + ".key", kv)), heads(self.apply(name + ".value", kv))
        s = (q @ k.transpose(-1, -2) / math.sqrt(D // HEADS)).masked_fill(~allowed, -torch.inf)
        y = (s.softmax(-1) @ v).transpose(1, 2).reshape(q.shape[0], -1, D)
        return self.apply(name + ".output", y)

    def loss(self, b):
        x, mask = self.states(b["ids"], b["lens"])
        table = self.encoder.embeddings.word_embeddings.weight
        y = self.normed(self.h + ".embedding_norm", table[b["written"]] + self.w[self.h + ".positions.weight"])
        past = torch.ones(WRITTEN, WRITTEN, dtype=torch.bool).tril()[None, None]
        for i in range(LAYERS):
            p = f"{self.h}.layers.{i}"
            n = self.normed(p + ".self_attn.norm", y)
            y = y + self.attend(p + ".self_attn", n, n, past)
            y = y + self.attend(p + ".encoder_attn", self.normed(p + ".encoder_attn.norm", y), x, mask.bool()[:, None, None])
            y = y + self.apply(p + ".mlp.down", F.gelu(self.apply(p + ".mlp.up", self.normed(p + ".mlp.norm", y))))
        logits = self.apply(self.h + ".projection", self.normed(self.h + ".norm", y)) @ table.T
        each = F.cross_entropy(logits.flatten(0, 1), b["next"].flatten(), reduction="none")
        return (each * b["weights"].flatten()).sum() / b["weights"].sum(), {}


def curve(model, folder):
    trained = model.w
    saved = {"weight." + k: v.detach().clone() for k, v in trained.items()}
    optimizer = torch.optim.AdamW([
        {"params": [p for p in trained.values() if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in trained.values() if p.ndim <= 1], "weight_decay": 0.0},
    ], lr=LR, betas=(0.9, 0.999), eps=1e-8)
    g = torch.Generator().manual_seed(7)
    inputs, losses = {}, []
    for u in range(UPDATES):
        b = {"ids": torch.randint(3, VOCAB, (BATCH, TIME), generator=g), "lens": torch.randint(6, TIME + 1, (BATCH,), generator=g)}
        b["ids"].masked_fill_(torch.arange(TIME)[None] >= b["lens"][:, None], 1)
        b |= model.batch(g)
        loss, out = model.loss(b)
        if u == 0:
            saved |= {"out." + k: v.detach().contiguous() for k, v in out.items()}
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
        for k, v in b.items():
            inputs.setdefault("in." + k, []).append(v.float() if v.is_floating_point() else v.int())
    saved |= {k: torch.stack(v) for k, v in inputs.items()}
    saved["loss"] = torch.stack(losses)
    save_file(saved, folder / f"{model.task}.safetensors")
    print(model.task, losses[0].item(), losses[-1].item())


def router(folder):
    m = Model("none", [], 4)
    m.linear("router.hidden.0", 20, D)
    m.linear("router.hidden.1", 10, 20)
    m.linear("router.out", TASKS, 10)
    temperature = torch.tensor(0.7)
    g = torch.Generator().manual_seed(8)
    ids, lens = torch.randint(3, VOCAB, (BATCH, TIME), generator=g), torch.randint(6, TIME + 1, (BATCH,), generator=g)
    x, _ = m.states(ids, lens)
    y = F.relu(m.apply("router.hidden.1", F.relu(m.apply("router.hidden.0", x[:, 0]))))
    p = (m.apply("router.out", y) / temperature).softmax(-1)
    saved = {"weight." + k: v.detach() for k, v in m.w.items()} | {"weight.router.temperature": temperature}
    save_file(saved | {"in.ids": ids.int(), "in.lens": lens.int(), "out.routing": p.detach()}, folder / "router.safetensors")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "system/dynamo/testdata"
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for model in (Sentiment(), QA(), Translation()):
        curve(model, folder)
    router(folder)


main()
