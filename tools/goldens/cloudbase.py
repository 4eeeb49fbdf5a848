#!/usr/bin/env python3
"""Thirty updates of small cloudbase networks in PyTorch, as goldens of their answers, losses and running statistics.

    cloudbase.py [FOLDER]     (default: system/cloudbase/testdata/goldens beside this tool)

`losses` has the loss functions by themselves. One file for each network: its first weights and scales, three batches that are used in turn, what it answers before the
first update (in evaluation), the loss and the gradient norm of each of 30 updates, and its running statistics at the end.
Everything is computed in float64 from values rounded to float32. Dropout is off. The names of tensors are snug's.
"""

import pathlib
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT = HERE.parent.parent / "system" / "cloudbase" / "testdata" / "goldens"
UPDATES, BATCHES, BATCH, FRAMES, HIGH, WIDE = 30, 3, 8, 4, 16, 16
CHANNELS = [4, 8, 16]
LR, DECAY, CLIP, LEAK, EPS = 1e-3, 0.04, 1.0, 0.01, 1e-5
PATCH = 8


class Norm(nn.Module):
    """Batch normalization over all but the last dimension, or group normalization."""

    def __init__(self, width, groups):
        super().__init__()
        self.groups = groups
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        if not groups:
            self.register_buffer("running_mean", torch.zeros(width))
            self.register_buffer("running_var", torch.ones(width))

    def forward(self, x):
        first = x.movedim(-1, 1)
        if self.groups:
            y = F.group_norm(first, self.groups, self.weight, self.bias, EPS)
        else:
            y = F.batch_norm(first, self.running_mean, self.running_var, self.weight, self.bias, self.training, 0.1, EPS)
        return y.movedim(1, -1)


class Conv(nn.Conv2d):
    """Channels last."""

    def forward(self, x):
        return super().forward(x.movedim(-1, 1)).movedim(1, -1)


def pool(x):
    return F.max_pool2d(x.movedim(-1, 1), 2).movedim(1, -1)


class Film(nn.Module):
    def __init__(self, angles, width):
        super().__init__()
        self.add_module("0", nn.Linear(angles, 256))
        self.add_module("1", nn.Linear(256, 2 * width))

    def forward(self, x, a, identity):
        g, b = getattr(self, "1")(F.relu(getattr(self, "0")(a))).chunk(2, -1)
        g = g + 1 if identity else g
        each = x.shape[0] // a.shape[0]
        return x * g.repeat_interleave(each, 0)[:, None, None] + b.repeat_interleave(each, 0)[:, None, None]


class Stage(nn.Module):
    def __init__(self, inner, width, groups, angles=0, plain=False, bias=True):
        super().__init__()
        self.conv = Conv(inner, width, 3, padding=1, bias=bias)
        if not plain:
            self.norm = Norm(width, groups)
        if angles:
            self.film = Film(angles, width)


class Dense(nn.Module):
    def __init__(self, inner, width, groups, bias):
        super().__init__()
        self.linear, self.norm = nn.Linear(inner, width, bias=bias), Norm(width, groups)

    def forward(self, x):
        return F.leaky_relu(self.norm(self.linear(x)), LEAK)


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d, EPS), nn.LayerNorm(d, EPS)
        self.qkv, self.out, self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, h):
        b, t, d = h.shape
        q, k, v = (x.view(b, t, self.heads, -1).transpose(1, 2) for x in self.qkv(self.norm1(h)).chunk(3, -1))
        h = h + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return h + self.down(F.gelu(self.up(self.norm2(h))))


class Mamba(nn.Module):
    """A selective state space, its recurrence step by step."""

    def __init__(self, d, states):
        super().__init__()
        e, self.rank, self.states = 2 * d, (d + 15) // 16, states
        self.norm = nn.LayerNorm(d, EPS)
        self.in_proj, self.x_proj = nn.Linear(d, 2 * e, bias=False), nn.Linear(e, self.rank + 2 * states, bias=False)
        self.conv1d, self.dt_proj, self.out_proj = nn.Conv1d(e, e, 4, groups=e, padding=3), nn.Linear(self.rank, e), nn.Linear(e, d, bias=False)
        self.A_log, self.D = nn.Parameter(0.1 * torch.randn(e, states)), nn.Parameter(torch.ones(e))
        self.register_buffer("rates", torch.arange(states, dtype=torch.get_default_dtype()))
        nn.init.uniform_(self.dt_proj.bias, -6.9, -2.3)

    def forward(self, h):
        t = h.shape[1]
        x, z = self.in_proj(self.norm(h)).chunk(2, -1)
        x = F.silu(self.conv1d(x.transpose(1, 2))[..., :t].transpose(1, 2))
        dt, bs, cs = self.x_proj(x).split([self.rank, self.states, self.states], -1)
        dt = F.softplus(self.dt_proj(dt))
        a = -torch.exp(self.A_log) * (self.rates + 1)
        state, out = torch.zeros(*x.shape[::2], self.states), []
        for i in range(t):
            state = torch.exp(dt[:, i, :, None] * a) * state + dt[:, i, :, None] * bs[:, i, None] * x[:, i, :, None]
            out.append((state * cs[:, i, None]).sum(-1) + self.D * x[:, i])
        return h + self.out_proj(torch.stack(out, 1) * F.silu(z))


class Grid(nn.Module):
    """Graph attention over the four neighbors of each place and itself, edge by edge."""

    def __init__(self, inner, heads, width):
        super().__init__()
        self.heads, self.width = heads, width
        self.linear = nn.Linear(inner, heads * width, bias=False)
        self.att_dst, self.bias = nn.Parameter(0.3 * torch.randn(heads, width)), nn.Parameter(torch.zeros(heads * width))
        self.att_src = nn.Parameter(0.3 * torch.randn(heads, width))

    def forward(self, x):
        n, h, w, _ = x.shape
        m = self.linear(x).view(n, h, w, self.heads, self.width)
        to, fro = (m * self.att_dst).sum(-1), (m * self.att_src).sum(-1)
        rows = []
        for i in range(h):
            for j in range(w):
                near = [(i, j)] + [(p, q) for p, q in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)) if 0 <= p < h and 0 <= q < w]
                e = torch.stack([F.leaky_relu(to[:, i, j] + fro[:, p, q], 0.2) for p, q in near], -1)
                alpha = torch.softmax(e, -1)
                rows.append(sum(alpha[..., k, None] * m[:, p, q] for k, (p, q) in enumerate(near)))
        return torch.stack(rows, 1).view(n, h, w, -1) + self.bias


class Net(nn.Module):
    def __init__(self, architecture, view=1, linear=False, groups=0, identity=False, masked=False, bias=False, by_frame=False, sigmoid=False):
        super().__init__()
        self.architecture, self.view, self.linear, self.identity, self.masked = architecture, view, linear, identity, masked
        self.steps, c = FRAMES - view + 1, CHANNELS[-1]
        self.by_frame, self.sigmoid = by_frame, sigmoid
        plain = architecture == "cnn"
        bias = bias or groups > 0 or plain
        if not plain:
            self.spatial_attention = nn.ModuleDict({"conv1": Conv(view, 1, 3, padding=1), "conv2": Conv(1, 1, 1)})
        angles = 0 if plain or masked else 2 if linear else 4
        self.stages = nn.ModuleList(
            Stage(inner, out, groups, angles if i == 0 else 0, plain, bias) for i, (inner, out) in enumerate(zip([1 if plain else view, *CHANNELS], CHANNELS))
        )
        if masked:
            self.decoder = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, stride=2) for i, o in ((c, CHANNELS[1]), (CHANNELS[1], CHANNELS[0]), (CHANNELS[0], view)))
            return
        if architecture == "attention":
            self.temporal_attention = nn.ModuleDict({"0": nn.Linear(c, c // 2), "1": nn.Linear(c // 2, 1)})
        if architecture == "transformer":
            self.transformer = nn.ModuleDict({"blocks": nn.ModuleList(Block(c, 2) for _ in range(2)), "norm": nn.LayerNorm(c, EPS)})
            self.transformer.register_parameter("positions", nn.Parameter(0.02 * torch.randn(self.steps, c)))
        if architecture == "ssm":
            self.ssm = nn.ModuleDict({"blocks": nn.ModuleList(Mamba(c, 4) for _ in range(2)), "norm": nn.LayerNorm(c, EPS)})
        if architecture == "gnn":
            self.grid = nn.ModuleDict({"0": Grid(c, 2, c), "1": Grid(2 * c, 1, c), "norm": nn.LayerNorm(c, EPS)})
        if plain:
            self.dense = nn.ModuleList([nn.Linear(c, c), nn.Linear(c, c // 2)])
        else:
            self.dense = nn.ModuleList([Dense(c, c, groups, bias), Dense(c, c // 2, groups, bias)])
        self.output = nn.Linear(c // 2, 1)

    def pictures(self, images):
        x = torch.stack([images[:, i : i + self.view] for i in range(self.steps)], 1)
        return x.reshape(-1, self.view, HIGH, WIDE).movedim(1, -1)

    def features(self, x, a):
        if not self.by_frame:
            return self.convolved(x, a)
        # As the guide's program: one frame after the other goes through the network.
        windows = x.view(-1, self.steps, *x.shape[1:])
        return torch.stack([self.convolved(windows[:, t], a) for t in range(self.steps)], 1).flatten(0, 1)

    def convolved(self, x, a):
        x = x * torch.sigmoid(self.spatial_attention["conv2"](F.relu(self.spatial_attention["conv1"](x))))
        for i, s in enumerate(self.stages):
            x = F.leaky_relu(s.norm(s.conv(x)), LEAK)
            if i == 0 and a is not None:
                x = s.film(x, a, self.identity)
            x = pool(x)
        return x

    def forward(self, images, angles, scales):
        if self.architecture == "cnn":
            x = images.mean(1)[..., None]
            for s in self.stages:
                x = pool(F.relu(s.conv(x)))
            x = x.mean((1, 2))
            for d in self.dense:
                x = F.relu(d(x))
            return self.output(x)[:, 0]
        r = torch.deg2rad(angles)
        a = (angles - scales[:2]) / scales[2:] if self.linear else torch.stack([r[:, 0].sin(), r[:, 0].cos(), r[:, 1].sin(), r[:, 1].cos()], 1)
        x = self.features(self.pictures(images), a)
        if self.architecture == "gnn":
            x = self.grid["norm"](self.grid["1"](F.elu(self.grid["0"](x))))
        h = x.mean((1, 2)).view(images.shape[0], self.steps, -1)
        if self.architecture == "attention" and self.steps > 1:
            w = torch.softmax(self.temporal_attention["1"](F.relu(self.temporal_attention["0"](h))), 1)
            h = (w * h).sum(1)
        else:
            if self.architecture == "transformer":
                h = h + self.transformer.positions
                for b in self.transformer["blocks"]:
                    h = b(h)
                h = self.transformer["norm"](h)
            if self.architecture == "ssm":
                for b in self.ssm["blocks"]:
                    h = b(h)
                h = self.ssm["norm"](h)
            h = h.mean(1)
        for d in self.dense:
            h = d(h)
        return self.output(h)[:, 0]

    def reconstruct(self, images, mask):
        """The masked loss of each example."""
        x = self.pictures(images)
        hidden = mask.reshape(-1, HIGH // PATCH, WIDE // PATCH).repeat_interleave(PATCH, 1).repeat_interleave(PATCH, 2)[..., None]
        h = self.features(x * (1 - hidden), None).movedim(-1, 1)
        for i, d in enumerate(self.decoder):
            h = d(h)
            if i < 2:
                h = F.leaky_relu(h, LEAK)
        if self.sigmoid:
            h = torch.sigmoid(h)
        square = ((h.movedim(1, -1) - x) ** 2 * hidden).reshape(images.shape[0], -1).sum(1)
        return square / (mask.view(images.shape[0], -1).sum(1) * PATCH * PATCH * self.view)


def loss_of(kind, y, truth):
    e = y - truth
    huber = F.huber_loss(y, truth, delta=0.8, reduction="none")
    under = torch.where(e < 0, 1.7, 1.0)
    power = e.abs().clamp(min=1e-6) ** 1.5
    return {
        "huber": huber, "mae": e.abs(), "mse": e**2, "mse_mae": 0.3 * e**2 + 0.7 * e.abs(), "huber_mae": 0.3 * huber + 0.7 * power,
        "weighted_huber": under * huber, "weighted_huber_mae": under * (0.3 * huber + 0.7 * power),
    }[kind]


def mean_of(each, hard):
    """The mean; with hard, the hardest half counts 1.5 times."""
    more = 0.5 * each.topk(BATCH // 2).values.sum() if hard else 0
    return (each.sum() + more) / BATCH


# Losses whose slope jumps at the truth make curves part where a prediction passes it, so `losses` holds those alone.
NETS = {
    "attention": (dict(architecture="attention", linear=True, bias=True), "huber"),
    "view": (dict(architecture="attention", view=3, identity=True), "huber"),
    "group": (dict(architecture="attention", groups=2), "mse"),
    "transformer": (dict(architecture="transformer"), "huber_mae"),
    "ssm": (dict(architecture="ssm"), "huber"),
    "gnn": (dict(architecture="gnn"), "huber_mae"),
    "cnn": (dict(architecture="cnn"), "mse"),
    "masked": (dict(architecture="attention", view=2, masked=True), ""),
    "frames": (dict(architecture="attention", linear=True, bias=True, by_frame=True), "huber"),
    "sigmoid": (dict(architecture="attention", masked=True, by_frame=True, sigmoid=True), ""),
}


def losses():
    """Every kind of loss of 32 answers, and its gradient, alone and with the hardest quarter counting 1.5 times."""
    rng = np.random.default_rng(5)
    y, truth = (torch.from_numpy(rng.standard_normal(32).astype(np.float32)).double() for _ in range(2))
    saved = {"y": y, "truth": truth}
    for kind in ("huber", "mae", "mse", "mse_mae", "huber_mae", "weighted_huber", "weighted_huber_mae"):
        for suffix, more in (("", 0), (".hard", 0.5)):
            x = y.clone().requires_grad_()
            each = loss_of(kind, x, truth)
            (each.sum() + more * each.topk(8).values.sum()).backward()
            saved[kind], saved[kind + suffix + ".gradient"] = each.detach(), x.grad
    return {k: v.numpy().astype(np.float32) for k, v in saved.items()}


def train(name, options, kind):
    torch.manual_seed(sum(map(ord, name)))
    rng = np.random.default_rng(sum(map(ord, name)))
    net = Net(**options)
    for p in net.parameters():  # biases and scales are no special values
        if p.ndim == 1:
            p.data += 0.1 * torch.randn_like(p)
    rounded = lambda x: torch.from_numpy(np.asarray(x, np.float32)).double()
    for t in net.state_dict().values():
        t.copy_(rounded(t))
    batches = {
        "images": rng.standard_normal((BATCHES, BATCH, FRAMES, HIGH, WIDE)).astype(np.float16).astype(np.float32),
        "angles": rng.uniform([10, 0], [70, 360], (BATCHES, BATCH, 2)).astype(np.float32),
        "cbh": rng.uniform(0.2, 2, (BATCHES, BATCH)).astype(np.float32),
    }
    if options.get("masked"):
        batches = {"images": batches["images"], "mask": (rng.random((BATCHES, BATCH, net.steps, HIGH // PATCH, WIDE // PATCH)) < 0.6).astype(np.float32)}
        batches["mask"][..., 0, 0] = 1
    base, angle = np.float32([1.1, 0.5]), np.float32([40, 180, 15, 100])
    saved = {"weight." + k: v.numpy().astype(np.float32).copy() for k, v in net.state_dict().items()}
    saved |= {"weight.scaler.cbh": base, "weight.scaler.angles": angle} | {"batch." + k: v for k, v in batches.items()}
    given = {k: rounded(v) for k, v in batches.items()}

    def loss(i, net):
        if "mask" in given:
            return net.reconstruct(given["images"][i], given["mask"][i])
        y = net(given["images"][i], given["angles"][i], rounded(angle))
        return loss_of(kind, y, (given["cbh"][i] - rounded(base)[0]) / rounded(base)[1])

    net.eval()
    with torch.no_grad():
        if "mask" in given:
            saved["answer"] = net.reconstruct(given["images"][0], given["mask"][0]).sum().view(1).numpy().astype(np.float32)
        else:
            y = net(given["images"][0], given["angles"][0], rounded(angle))
            saved["answer"] = (y * rounded(base)[1] + rounded(base)[0]).numpy().astype(np.float32)
    net.train()
    decayed = [p for p in net.parameters() if p.ndim > 1]
    no_decay = {id(b.A_log) for b in net.ssm["blocks"]} if options["architecture"] == "ssm" else set()
    groups = [
        {"params": [p for p in decayed if id(p) not in no_decay], "weight_decay": DECAY},
        {"params": [p for p in net.parameters() if p.ndim <= 1 or id(p) in no_decay], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.999), eps=1e-6)
    losses, norms = [], []
    for u in range(UPDATES):
        each = loss(u % BATCHES, net)
        l = mean_of(each, name == "attention")  # near ties of the hardest make curves part, so one of them is enough
        optimizer.zero_grad()
        l.backward()
        norms.append(nn.utils.clip_grad_norm_(net.parameters(), CLIP).item())
        losses.append(l.item())
        optimizer.step()
    saved["loss"], saved["norm"] = np.float32(losses), np.float32(norms)
    saved |= {"end." + k: v.numpy().astype(np.float32).copy() for k, v in net.state_dict().items() if "running" in k}
    return saved


def main():
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    folder.mkdir(parents=True, exist_ok=True)
    save_file(losses(), folder / "losses.safetensors")
    for name, (options, kind) in NETS.items():
        saved = train(name, options, kind)
        save_file({k: np.ascontiguousarray(v) for k, v in saved.items()}, folder / f"{name}.safetensors", metadata={"loss": kind})
        print(f"{name}: loss {saved['loss'][0]:.4f} to {saved['loss'][-1]:.4f}, {sum(v.nbytes for v in saved.values()):,} bytes")


if __name__ == "__main__":
    main()
