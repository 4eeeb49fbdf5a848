#!/usr/bin/env python3
"""Thirty updates of a small agiformer written plainly in PyTorch, as goldens of its forward half and of training.

    agiformer.py [FOLDER]     (default: system/agiformer/testdata beside this tool)

Everything is float64 and as literal as possible: experts run one by one, each on the list of its tokens, pairs and
distances are summed over all pairs, the memory is written and read in a loop over time. The README.md of the folder
describes what is written.
"""

import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT = HERE.parent.parent / "system" / "agiformer" / "testdata"
UPDATES, BATCH, TIME, VOCAB = 30, 4, 26, 48
D, LAYERS, HEADS, FF, POSITIONS, KERNEL = 24, 2, 2, 36, 32, 3
KINDS = ["standard", "spatial", "logic", "causal", "language"]
CHOICES, CAPACITY, RELATION = 2, 1.0, 20
SLOTS, SEGMENT, WRITES = 9, 8, 2
STEPS = 2
LWIDTH, LLAYERS, LHEADS, LFF = 16, 1, 2, 28
EPS, LR, DECAY, CLIP, BALANCE, STUDY = 1e-5, 2e-3, 0.1, 1.0, 0.01, 0.1


def shapes():
    """{name: shape} of every weight."""
    s = {}

    def linear(name, out, inner, bias=True, experts=None):
        lead = () if experts is None else (experts,)
        s[name + ".weight"] = (*lead, out, inner)
        if bias:
            s[name + ".bias"] = (*lead, out)

    def norm(name, width):
        s[name + ".weight"] = s[name + ".bias"] = (width,)

    def attention(name, width):
        linear(name + ".query_key_value", 3 * width, width, bias=False)
        linear(name + ".dense", width, width, bias=False)

    s["front.embedding.weight"] = (VOCAB, D)
    s["front.convolution.weight"], s["front.convolution.bias"] = (D, D, KERNEL), (D,)
    norm("front.convolution_norm", D)
    linear("front.dense", D, D)
    norm("front.norm", D)
    norm("memory.norm", D)
    linear("memory.working.write", 1, D)
    s["memory.working.log_rate"] = (D,)
    s["memory.bank.slots"] = (SLOTS, D)
    linear("memory.written.address", WRITES, D)
    linear("memory.written.strength", 1, D)
    linear("memory.written.key", D, D)
    linear("memory.written.value", D, D)
    for gate in ("working", "bank", "written"):
        linear(f"memory.{gate}.gate", 1, 2 * D)
    linear("memory.fuse", D, 4 * D)
    linear("memory.dense", D, D)
    norm("language.in_norm", D)
    linear("language.in", LWIDTH, D)
    for i in range(LLAYERS):
        p = f"language.layers.{i}."
        norm(p + "attention_norm", LWIDTH)
        attention(p + "attention", LWIDTH)
        norm(p + "mlp_norm", LWIDTH)
        linear(p + "up", LFF, LWIDTH)
        linear(p + "down", LWIDTH, LFF)
    norm("language.norm", LWIDTH)
    for i in range(LAYERS):
        p = f"blocks.{i}."
        norm(p + "attention_norm", D)
        attention(p + "attention", D)
        norm(p + "experts_norm", D)
        p += "experts."
        s[p + "router.weight"] = (len(KINDS), D)
        linear(p + "attention.query_key_value", 3 * D, D, bias=False, experts=3)
        linear(p + "attention.dense", D, D, bias=False, experts=3)
        s[p + "temporal.weight"] = (POSITIONS, D)
        linear(p + "distance.project", D, D, bias=False, experts=1)
        linear(p + "distance.up", D, HEADS, experts=1)
        linear(p + "distance.dense", D, D, experts=1)
        linear(p + "relation.first", RELATION, D, experts=2)
        linear(p + "relation.second", RELATION, D, bias=False, experts=2)
        linear(p + "relation.dense", D, RELATION, experts=2)
        norm(p + "mix_norm", D)
        linear(p + "up", FF, D, experts=4)
        linear(p + "down", D, FF, experts=4)
        linear(p + "language.gate", LWIDTH, D, experts=1)
        linear(p + "language.dense", D, LWIDTH, experts=1)
    p = "introspection."
    norm(p + "attention_norm", D)
    attention(p + "attention", D)
    norm(p + "compare_norm", D)
    linear(p + "compare", D, 2 * D)
    linear(p + "compared", D, D)
    norm(p + "compared_norm", D)
    norm(p + "correct_norm", D)
    linear(p + "correct", D, D + 1)
    linear(p + "corrected", D, D)
    for head in ("error", "confidence", "decision"):
        norm(p + head + ".norm", D)
        linear(p + head + ".dense", D // 2, D)
        linear(p + head + ".out", 1, D // 2)
    norm("final_norm", D)
    s["output.weight"] = (VOCAB, D)
    return s


def weights():
    """Random weights, rounded to bfloat16 so that they are stored in half the bytes."""
    g = torch.Generator().manual_seed(5)
    w = {}
    for name, shape in shapes().items():
        x = torch.randn(shape, generator=g, dtype=torch.float64)
        if "norm.weight" in name:
            x = 1 + 0.1 * x
        elif name.endswith("log_rate"):
            x = -2 + x
        elif name.endswith(("embedding.weight", "slots")):
            x = 0.5 * x
        elif name.endswith("router.weight"):
            x = 0.5 * x
        elif len(shape) == 1 or name.endswith("bias"):
            x = 0.05 * x
        else:
            x = x / shape[-1] ** 0.5
        w[name] = x.bfloat16()
    return w


class Model:
    def __init__(self, w):
        self.w = {k: v.double().requires_grad_() for k, v in w.items()}

    def linear(self, name, x, e=None):
        w, b = self.w[name + ".weight"], self.w.get(name + ".bias")
        if e is not None:
            w, b = w[e], None if b is None else b[e]
        return F.linear(x, w, b)

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"], EPS)

    @staticmethod
    def turn(x, times, heads):
        """x [..., T, D] turned by the angles of its times."""
        k = x.shape[-1] // heads
        x = x.unflatten(-1, (heads, k))
        # Frequencies are held in float32, as the published rotary models do.
        f = torch.tensor([np.float32(1 / 10000 ** (2 * i / k)) for i in range(k // 2)]).double()
        a = (times.float()[:, None] * f.float()).double()[:, None, :]
        x1, x2 = x[..., : k // 2], x[..., k // 2 :]
        return torch.cat((x1 * a.cos() - x2 * a.sin(), x2 * a.cos() + x1 * a.sin()), -1).flatten(-2)

    @staticmethod
    def attend(q, k, v, heads, causal):
        """q [..., Tq, D], k and v [..., Tk, D]."""
        split = lambda x: x.unflatten(-1, (heads, -1)).transpose(-2, -3)
        q, k, v = split(q), split(k), split(v)
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if causal:
            s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
        return (s.softmax(-1) @ v).transpose(-2, -3).flatten(-2)

    def attention(self, name, h, heads):
        q, k, v = self.linear(name + ".query_key_value", h).chunk(3, -1)
        t = torch.arange(h.shape[1])
        return self.linear(name + ".dense", self.attend(self.turn(q, t, heads), self.turn(k, t, heads), v, heads, True))

    def front(self, ids):
        x = self.w["front.embedding.weight"][ids]
        x = F.conv1d(F.pad(x.transpose(1, 2), (KERNEL - 1, 0)), self.w["front.convolution.weight"], self.w["front.convolution.bias"])
        x = F.gelu(self.norm("front.convolution_norm", x.transpose(1, 2)))
        return self.norm("front.norm", self.linear("front.dense", x))

    def memory(self, x):
        h = self.norm("memory.norm", x)
        parts, gates = [h], []

        def read(name, v):
            gate = self.linear(f"memory.{name}.gate", torch.cat((h, v), -1)).sigmoid()
            parts.append(v * gate)
            gates.append(gate.mean())

        rate = self.linear("memory.working.write", h).sigmoid() * self.w["memory.working.log_rate"].exp()
        state, states = torch.zeros_like(h[:, 0]), []
        for t in range(TIME):
            state = state * (-rate[:, t]).exp() + rate[:, t] * h[:, t]
            states.append(state)
        read("working", torch.stack(states, 1))
        slots = self.w["memory.bank.slots"].expand(len(x), -1, -1)
        read("bank", self.attend(h, slots, slots, HEADS, False))
        keys, values, reads = [], [], []
        for begin in range(0, TIME, SEGMENT):
            segment = h[:, begin : begin + SEGMENT]
            if keys:
                reads.append(self.attend(segment, torch.cat(keys, 1), torch.cat(values, 1), HEADS, False))
            else:
                reads.append(torch.zeros_like(segment))
            address = self.linear("memory.written.address", segment).softmax(1)
            sums = address.transpose(1, 2) @ segment
            value = self.linear("memory.written.value", F.gelu(self.linear("memory.written.key", sums)))
            keys.append(sums)
            values.append(value * self.linear("memory.written.strength", sums).sigmoid())
        read("written", torch.cat(reads, 1))
        y = F.gelu(self.linear("memory.fuse", torch.cat(parts, -1)))
        return x + self.linear("memory.dense", y), torch.stack(gates)

    def language(self, x):
        y = self.linear("language.in", self.norm("language.in_norm", x))
        for i in range(LLAYERS):
            p = f"language.layers.{i}."
            y = y + self.attention(p + "attention", self.norm(p + "attention_norm", y), LHEADS)
            y = y + self.linear(p + "down", F.gelu(self.linear(p + "up", self.norm(p + "mlp_norm", y))))
        return self.norm("language.norm", y)

    def expert(self, p, e, x, times, said):
        """What expert e makes of the tokens x [n, D] of a sample that stand at times."""
        kind = KINDS[e]
        if kind == "language":
            return self.linear(p + "language.dense", F.silu(self.linear(p + "language.gate", x, 0)) * said, 0)
        y, known = torch.zeros_like(x), x
        if kind == "causal":
            known = x + self.w[p + "temporal.weight"][times]
        if kind != "standard":
            q, k, v = self.linear(p + "attention.query_key_value", known, e - 1).chunk(3, -1)
            o = self.attend(self.turn(q, times, HEADS), self.turn(k, times, HEADS), v, HEADS, True)
            y = y + self.linear(p + "attention.dense", o, e - 1)
        if kind == "spatial":
            at = self.linear(p + "distance.project", x, 0).unflatten(-1, (HEADS, -1))
            apart = [(at[i] - at[: i + 1]).square().mean((0, 2)) for i in range(len(x))]
            apart = (torch.stack(apart) + 1e-4).sqrt()
            y = y + self.linear(p + "distance.dense", F.gelu(self.linear(p + "distance.up", apart, 0)), 0)
        if kind in ("logic", "causal"):
            first = self.linear(p + "relation.first", known + y, e - 2)
            second = self.linear(p + "relation.second", known + y, e - 2)
            pairs = torch.stack([(first[i] + second[: i + 1]).relu().mean(0) for i in range(len(x))])
            y = y + self.linear(p + "relation.dense", pairs, e - 2)
        h = F.gelu(self.linear(p + "up", self.norm(p + "mix_norm", x + y), e))
        return y + self.linear(p + "down", h, e)

    def experts(self, p, h, said, report):
        probs = (h @ self.w[p + "router.weight"].T).softmax(-1)
        best, choice = probs.topk(CHOICES, -1)
        share = best / best.sum(-1, keepdim=True)
        most = int(np.ceil(CAPACITY * TIME * CHOICES / len(KINDS)))
        y = [[torch.zeros(D, dtype=h.dtype) for _ in range(TIME)] for _ in h]
        taken = np.zeros(len(KINDS))
        for b in range(len(h)):
            for e in range(len(KINDS)):
                want = (choice[b] == e).any(-1).nonzero().flatten()[:most]
                taken[e] += len(want)
                if len(want) == 0:
                    continue
                out = self.expert(p, e, h[b, want], want, said[b, want])
                weight = (share[b] * (choice[b] == e)).sum(-1)[want]
                for row, t in enumerate(want.tolist()):
                    y[b][t] = y[b][t] + weight[row] * out[row]
        wanted = F.one_hot(choice, len(KINDS)).double().mean((0, 1, 2))
        report["balance"].append(len(KINDS) * (wanted * probs.mean((0, 1))).sum())
        report["entropy"].append(-(probs * probs.log()).sum(-1).sum())
        report["wanted"].append(F.one_hot(choice, len(KINDS)).sum((0, 1, 2)))
        report["taken"].append(torch.tensor(taken))
        margin = probs.sort(-1, descending=True).values
        report["margin"].append((margin[..., :CHOICES] - margin[..., 1 : CHOICES + 1]).min())
        return torch.stack([torch.stack(row) for row in y])

    def head(self, name, x):
        p = "introspection." + name
        return self.linear(p + ".out", F.gelu(self.linear(p + ".dense", self.norm(p + ".norm", x)))).squeeze(-1)

    def introspect(self, x, earlier):
        mean, errors, states, on = torch.stack(earlier).mean(0), [], [], []
        p = "introspection."
        for step in range(STEPS):
            x = x + self.attention(p + "attention", self.norm(p + "attention_norm", x), HEADS)
            h = F.gelu(self.linear(p + "compare", torch.cat((self.norm(p + "compare_norm", x), mean), -1)))
            x = x + self.norm(p + "compared_norm", self.linear(p + "compared", h))
            errors.append(F.softplus(self.head("error", x.detach())))
            doubt = (1 - (-errors[-1]).exp()).detach()[..., None]
            h = F.gelu(self.linear(p + "correct", torch.cat((self.norm(p + "correct_norm", x), doubt), -1)))
            x = x + self.linear(p + "corrected", h) * doubt
            states.append(x)
            if step < STEPS - 1:
                on.append(self.head("decision", x).sigmoid()[..., None])
        y, left = 0, 1
        for state, go in zip(states[:-1], on):
            y, left = y + state * (1 - go) * left, left * go
        x = y + states[-1] * left
        errors.append(F.softplus(self.head("error", x.detach())))
        return x, errors, self.head("confidence", x.detach())

    def loss(self, ids, labels):
        report = {k: [] for k in ("balance", "entropy", "wanted", "taken", "margin")}
        x = self.front(ids)
        x, gates = self.memory(x)
        said = self.language(x)
        states = [x]
        for i in range(LAYERS):
            p = f"blocks.{i}."
            x = x + self.attention(p + "attention", self.norm(p + "attention_norm", x), HEADS)
            x = x + self.experts(p + "experts.", self.norm(p + "experts_norm", x), said, report)
            states.append(x)
        x, errors, confidence = self.introspect(x, states[:-1])
        logits = self.norm("final_norm", x) @ self.w["output.weight"].T
        each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        truth = each.detach()
        right = (logits.argmax(-1) == labels).double()
        study = sum(0.5 * (e - truth).square() for e in errors) / len(errors)
        study = study + F.binary_cross_entropy_with_logits(confidence, right, reduction="none")
        total = each.mean() + BALANCE * sum(report["balance"]) + STUDY * study.mean()
        return total, dict(
            logits=logits, losses=each, right=right, errors=errors[-1], confidence=confidence.sigmoid(), gates=gates,
            entropy=torch.stack(report["entropy"]), wanted=torch.cat(report["wanted"]), taken=torch.cat(report["taken"]),
            margin=torch.stack(report["margin"]).min(),
        )


def tokens():
    """[UPDATES, BATCH, TIME + 1] ids of a Markov chain with a memory of two."""
    rng = np.random.default_rng(11)
    follow = rng.integers(VOCAB, size=(8, VOCAB))
    ids = rng.integers(VOCAB, size=(UPDATES, BATCH, TIME + 1))
    for t in range(2, TIME + 1):
        stay = rng.random((UPDATES, BATCH)) < 0.9
        ids[:, :, t] = np.where(stay, follow[ids[:, :, t - 2] % 8, ids[:, :, t - 1]], ids[:, :, t])
    return ids.astype(np.int32)


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    folder.mkdir(parents=True, exist_ok=True)
    start, ids = weights(), tokens()
    model = Model(start)
    plain = lambda n: n.endswith("bias") or model.w[n].ndim == 1
    optimizer = torch.optim.AdamW(
        [{"params": [p for n, p in model.w.items() if not plain(n)], "weight_decay": DECAY},
         {"params": [p for n, p in model.w.items() if plain(n)], "weight_decay": 0.0}],
        lr=LR, betas=(0.9, 0.999), eps=1e-8)
    out, losses, norms, margins = {}, [], [], []
    for u in range(UPDATES):
        batch = torch.from_numpy(ids[u]).long()
        loss, said = model.loss(batch[:, :-1], batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        margins.append(said.pop("margin").item())
        if u == 0:
            out = {"first." + k: v.detach().float().contiguous() for k, v in said.items()}
            for n, p in model.w.items():
                out["gradient_norm." + n] = p.grad.norm().float()
        norms.append(torch.nn.utils.clip_grad_norm_(list(model.w.values()), CLIP).item())
        losses.append(loss.item())
        optimizer.step()
    out["loss"], out["gradient_norm"] = torch.tensor(losses).float(), torch.tensor(norms).float()
    out["ids"] = torch.from_numpy(ids)
    save_file(out, folder / "trace.safetensors")
    save_file(start, folder / "weights.safetensors")
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {sum(p.numel() for p in start.values()):,} weights, closest choice {min(margins):.2g}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
