"""The system agiformer in PyTorch as one would write it to be fast: no loop over tokens, experts on as many rows as they
may take, fixed shapes. What it computes is that of tools/goldens/agiformer.py, with one expert for each token, of the kinds
standard, logic, causal and language, the last with a frozen GPT-NeoX. The defaults of Shape are those of
configs/agiformer-base-t4.yaml."""

import dataclasses
import math


@dataclasses.dataclass
class Shape:
    vocab: int = 257
    d: int = 512
    layers: int = 8
    heads: int = 8
    ff: int = 2048
    length: int = 512
    kernel: int = 3
    kinds: tuple = ("logic", "language")
    capacity: float = 1.25
    relation: int = 512
    slots: int = 1000
    segment: int = 64
    writes: int = 4
    steps: int = 2
    language: int = 1024
    language_layers: int = 24
    language_heads: int = 16
    language_ff: int = 4096
    dropout: float = 0.1
    balance: float = 0.01
    study: float = 0.1


def build(torch, s):
    """The module; its forward gives the loss of ids and labels [B, T]."""
    nn, F = torch.nn, torch.nn.functional

    def table(length, size, base=10000.0):
        angle = torch.arange(length)[:, None] / base ** (torch.arange(0, size, 2) / size)
        return torch.stack((angle.cos(), angle.sin()))

    def turn(x, cs):
        """x [..., T, size], of which the first dimensions are turned."""
        n = 2 * cs.shape[-1]
        c, n_half = cs.to(x.dtype), n // 2
        a, b, rest = x[..., :n_half], x[..., n_half:n], x[..., n:]
        return torch.cat((a * c[0] - b * c[1], b * c[0] + a * c[1], rest), -1)

    def split(x, heads):
        return x.unflatten(-1, (heads, -1)).transpose(-2, -3)

    def join(x):
        return x.transpose(-2, -3).flatten(-2)

    class Attention(nn.Module):
        """Causal self-attention with rotary positions, without biases."""

        def __init__(self):
            super().__init__()
            self.qkv, self.dense = nn.Linear(s.d, 3 * s.d, bias=False), nn.Linear(s.d, s.d, bias=False)

        def forward(self, h, cs):
            q, k, v = (split(x, s.heads) for x in self.qkv(h).chunk(3, -1))
            drop = s.dropout if self.training else 0.0
            return self.dense(join(F.scaled_dot_product_attention(turn(q, cs), turn(k, cs), v, is_causal=True, dropout_p=drop)))

    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            d = s.d
            self.norm = nn.LayerNorm(d)
            self.write, self.log_rate = nn.Linear(d, 1), nn.Parameter(torch.empty(d).uniform_(-5, -0.5))
            self.slots = nn.Parameter(0.5 * torch.randn(s.slots, d))
            self.address, self.strength = nn.Linear(d, s.writes), nn.Linear(d, 1)
            self.key, self.value = nn.Linear(d, d), nn.Linear(d, d)
            self.gates = nn.ModuleList(nn.Linear(2 * d, 1) for _ in range(3))
            self.fuse, self.dense = nn.Linear(4 * d, d), nn.Linear(d, d)

        def working(self, h):
            """state_t = state_(t-1) e^-rate_t + rate_t h_t, in log T steps over whole tensors."""
            rate = self.write(h).float().sigmoid() * self.log_rate.exp()
            keep, state = (-rate).exp(), rate * h.float()
            far, length = 1, h.shape[1]
            while far < length:
                state = state + F.pad(state[:, :-far], (0, 0, far, 0)) * keep
                keep = keep * F.pad(keep[:, :-far], (0, 0, far, 0), value=1.0)
                far *= 2
            return state.to(h.dtype)

        def attend(self, q, k, v):
            return join(F.scaled_dot_product_attention(split(q, s.heads), split(k, s.heads), split(v, s.heads)))

        def written(self, h):
            b, t, d = h.shape
            n = (t - 1) // s.segment
            past = h[:, : n * s.segment].unflatten(1, (n, s.segment))
            sums = (self.address(past).softmax(2).transpose(2, 3) @ past).flatten(1, 2)
            values = self.value(F.gelu(self.key(sums))) * self.strength(sums).sigmoid()
            reads = [torch.zeros_like(h[:, : s.segment])]
            for i in range(n):
                known = (i + 1) * s.writes
                reads.append(self.attend(h[:, (i + 1) * s.segment : (i + 2) * s.segment], sums[:, :known], values[:, :known]).to(h.dtype))
            return torch.cat(reads, 1)

        def forward(self, x):
            h = self.norm(x)
            slots = self.slots.to(h.dtype)[None]
            bank = self.attend(h.flatten(0, 1)[None], slots, slots).view_as(h)
            parts = [h]
            for gate, v in zip(self.gates, (self.working(h), bank, self.written(h))):
                parts.append(v * gate(torch.cat((h, v), -1)).sigmoid())
            return x + self.dense(F.gelu(self.fuse(torch.cat(parts, -1))))

    class Language(nn.Module):
        """GPT-NeoX from states to states: attention and feed-forward side by side, a quarter of the dimensions turned."""

        def __init__(self):
            super().__init__()
            d = s.language
            self.layers = nn.ModuleList(
                nn.ModuleDict({"n1": nn.LayerNorm(d), "n2": nn.LayerNorm(d), "qkv": nn.Linear(d, 3 * d), "out": nn.Linear(d, d),
                               "up": nn.Linear(d, s.language_ff), "down": nn.Linear(s.language_ff, d)}) for _ in range(s.language_layers))
            self.norm = nn.LayerNorm(d)
            self.register_buffer("cs", table(s.length, max(2, s.language // s.language_heads // 4)))
            self.requires_grad_(False)

        def forward(self, x):
            for m in self.layers:
                q, k, v = (split(y, s.language_heads) for y in m["qkv"](m["n1"](x)).chunk(3, -1))
                a = m["out"](join(F.scaled_dot_product_attention(turn(q, self.cs), turn(k, self.cs), v, is_causal=True)))
                x = x + a + m["down"](F.gelu(m["up"](m["n2"](x))))
            return self.norm(x)

    class Expert(nn.Module):
        """A feed-forward network; in all kinds but standard, attention and relations among the tokens come first."""

        def __init__(self, kind):
            super().__init__()
            d, self.kind = s.d, kind
            if kind == "causal":
                self.temporal = nn.Parameter(0.02 * torch.randn(s.length, d))
            if kind != "standard":
                self.attention, self.first = Attention(), nn.Linear(d, s.relation)
                self.second, self.relation = nn.Linear(d, s.relation, bias=False), nn.Linear(s.relation, d)
            self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, s.ff), nn.Linear(s.ff, d)

        def forward(self, x, at, cs):
            """x [B, n, d] are the tokens at the times at [B, n]."""
            y = 0
            if self.kind != "standard":
                known = x + self.temporal[at].to(x.dtype) if self.kind == "causal" else x
                y = self.attention(known, cs[:, at][:, :, None])
                first, second = self.first(known + y), self.second(known + y)
                n = x.shape[1]
                before = torch.ones(n, n, device=x.device, dtype=first.dtype).tril()
                before = before / before.sum(-1, keepdim=True)
                y = y + self.relation(((first[:, :, None] + second[:, None]).relu() * before[None, :, :, None]).sum(2))
            return y + self.down(F.gelu(self.up(self.norm(x + y))))

    class LanguageExpert(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.dense = nn.Linear(s.d, s.language), nn.Linear(s.language, s.d)

        def forward(self, x, said):
            return self.dense(F.silu(self.gate(x)) * said)

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(s.d, len(s.kinds), bias=False)
            self.each = nn.ModuleList(LanguageExpert() if kind == "language" else Expert(kind) for kind in s.kinds)

        def forward(self, h, said, cs):
            b, t, d = h.shape
            probs = self.router(h).float().softmax(-1)
            best, choice = probs.max(-1)
            most = min(t, math.ceil(s.capacity * t / len(s.kinds)))
            out = torch.zeros_like(h)
            for e, (kind, expert) in enumerate(zip(s.kinds, self.each)):
                wants = choice == e
                taken = wants & (wants.cumsum(1) <= most)
                # The tokens of the expert in order of time, then others to fill its rows.
                at = torch.argsort((~taken).long() * t + torch.arange(t, device=h.device), 1)[:, :most]
                there = taken.gather(1, at)[..., None]
                wide = at[..., None].expand(-1, -1, d)
                x = h.gather(1, wide)
                if kind == "language":
                    y = expert(x, said.gather(1, at[..., None].expand(-1, -1, said.shape[-1])))
                else:
                    y = expert(x, at, cs)
                out = out.scatter_add(1, wide, (y * there).to(out.dtype))
            share = F.one_hot(choice, len(s.kinds)).float().mean((0, 1))
            return out * best[..., None].to(out.dtype), len(s.kinds) * (share * probs.mean((0, 1))).sum()

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.dense, self.out = nn.LayerNorm(s.d), nn.Linear(s.d, s.d // 2), nn.Linear(s.d // 2, 1)

        def forward(self, x):
            return self.out(F.gelu(self.dense(self.norm(x))))[..., 0].float()

    class Agiformer(nn.Module):
        def __init__(self):
            super().__init__()
            d = s.d
            self.embedding, self.convolution = nn.Embedding(s.vocab, d), nn.Conv1d(d, d, s.kernel)
            self.convolution_norm, self.dense, self.front_norm = nn.LayerNorm(d), nn.Linear(d, d), nn.LayerNorm(d)
            self.memory = Memory()
            if "language" in s.kinds:
                self.language_norm, self.language_in, self.language = nn.LayerNorm(d), nn.Linear(d, s.language), Language()
            self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(2 * s.layers))
            self.attentions = nn.ModuleList(Attention() for _ in range(s.layers))
            self.experts = nn.ModuleList(Experts() for _ in range(s.layers))
            self.own, self.own_norm = Attention(), nn.LayerNorm(d)
            self.compare_norm, self.compare, self.compared, self.compared_norm = nn.LayerNorm(d), nn.Linear(2 * d, d), nn.Linear(d, d), nn.LayerNorm(d)
            self.correct_norm, self.correct, self.corrected = nn.LayerNorm(d), nn.Linear(d + 1, d), nn.Linear(d, d)
            self.error, self.confidence, self.decision = Head(), Head(), Head()
            self.final_norm, self.output = nn.LayerNorm(d), nn.Linear(d, s.vocab, bias=False)
            self.register_buffer("cs", table(s.length, d // s.heads))

        def drop(self, x):
            return F.dropout(x, s.dropout, self.training)

        def front(self, ids):
            x = self.drop(self.embedding(ids)).transpose(1, 2)
            x = self.convolution(F.pad(x, (s.kernel - 1, 0))).transpose(1, 2)
            return self.front_norm(self.dense(self.drop(F.gelu(self.convolution_norm(x)))))

        def introspect(self, x, earlier):
            mean, errors, y, left = torch.stack(earlier).mean(0), [], 0, 1
            for step in range(s.steps):
                x = x + self.own(self.own_norm(x), self.cs)
                x = x + self.compared_norm(self.compared(F.gelu(self.compare(torch.cat((self.compare_norm(x), mean), -1)))))
                errors.append(F.softplus(self.error(x.detach())))
                doubt = (1 - (-errors[-1]).exp()).detach()[..., None].to(x.dtype)
                x = x + self.corrected(F.gelu(self.correct(torch.cat((self.correct_norm(x), doubt), -1)))) * doubt
                if step < s.steps - 1:
                    on = self.decision(x).sigmoid()[..., None]
                    y, left = y + x * (1 - on) * left, left * on
            x = y + x * left
            return x, errors + [F.softplus(self.error(x.detach()))], self.confidence(x.detach())

        def forward(self, ids, labels):
            x = self.memory(self.front(ids))
            said = self.language(self.language_in(self.language_norm(x))) if "language" in s.kinds else None
            states, balance = [x], 0
            for i in range(s.layers):
                x = x + self.drop(self.attentions[i](self.norms[2 * i](x), self.cs))
                y, b = self.experts[i](self.norms[2 * i + 1](x), said, self.cs)
                x, balance = x + self.drop(y), balance + b
                states.append(x)
            x, errors, confidence = self.introspect(x, states[:-1])
            logits = self.output(self.final_norm(x)).float()
            each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
            truth, right = each.detach(), (logits.detach().argmax(-1) == labels).float()
            study = sum(0.5 * (e - truth).square() for e in errors) / len(errors)
            study = study + F.binary_cross_entropy_with_logits(confidence, right, reduction="none")
            return each.mean() + s.balance * balance + s.study * study.mean()

    return Agiformer()
