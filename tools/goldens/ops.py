#!/usr/bin/env python3
"""Goldens of every operation's forward and gradients, from PyTorch in float64.

    ops.py [FOLDER]      (default: engine/testdata/goldens beside this tool)

The format is described in the README.md of that folder.
"""

import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

from golden import Draw, Family

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT = HERE.parent.parent / "engine" / "testdata" / "goldens"


def dense():
    f = Family("dense")
    for case, shape, bias in (("bias", (5, 7), True), ("plain", (5, 7), False), ("batched", (2, 3, 16), True), ("wide", (3, 33), True)):
        d = Draw("linear." + case)
        inputs = {"x": d.normal(*shape), "weight": d.normal(9, shape[-1], scale=0.3)}
        if bias:
            inputs["bias"] = d.normal(9)
        f.add("linear", case, lambda x, weight, bias=None: {"y": F.linear(x, weight, bias)}, inputs)
    for batch in ((), (3,)):
        for ta in (False, True):
            for tb in (False, True):
                case = ("batched_" if batch else "") + "nt"[ta] + "nt"[tb]
                d = Draw("matmul." + case)
                a = d.normal(*batch, *((6, 5) if ta else (5, 6)))
                b = d.normal(*batch, *((7, 6) if tb else (6, 7)))
                f.add("matmul", case, lambda a, b, ta=ta, tb=tb: {"y": (a.mT if ta else a) @ (b.mT if tb else b)},
                      {"a": a, "b": b}, {"transpose_a": ta, "transpose_b": tb})
    d = Draw("matmul.ragged")
    f.add("matmul", "ragged", lambda a, b: {"y": a @ b}, {"a": d.normal(37, 65), "b": d.normal(65, 50)},
          {"transpose_a": False, "transpose_b": False})
    d = Draw("embedding.repeated")
    ids = np.array([[3, 0, 3, 10], [3, 7, 10, 10]], np.int32)
    f.add("embedding", "repeated", lambda ids, weight: {"y": F.embedding(ids, weight)}, {"ids": ids, "weight": d.normal(11, 6)})
    return f


def norm():
    f = Family("norm")
    for case, affine, shape, eps in (("affine", True, (4, 10), 1e-5), ("plain", False, (4, 10), 1e-5),
                                     ("batched", True, (2, 3, 33), 1e-5), ("offset", True, (3, 64), 1e-12)):
        d = Draw("layer_norm." + case)
        x = d.normal(*shape) + np.float32(100 if case == "offset" else 0)
        inputs = {"x": x}
        if affine:
            inputs |= {"weight": d.uniform(0.5, 1.5, shape[-1]), "bias": d.normal(shape[-1])}
        f.add("layer_norm", case, lambda x, weight=None, bias=None, eps=eps: {"y": F.layer_norm(x, x.shape[-1:], weight, bias, eps)},
              inputs, {"eps": eps})
    for case, shape in (("affine", (4, 10)), ("batched", (2, 3, 33))):
        d = Draw("rms_norm." + case)
        f.add("rms_norm", case, lambda x, weight: {"y": F.rms_norm(x, x.shape[-1:], weight, 1e-6)},
              {"x": d.normal(*shape), "weight": d.uniform(0.5, 1.5, shape[-1])}, {"eps": 1e-6})
    for case, groups in (("groups2", 2), ("groups6", 6), ("groups1", 1)):
        d = Draw("group_norm." + case)
        f.add("group_norm", case, lambda x, weight, bias, groups=groups: {"y": F.group_norm(x, groups, weight, bias, 1e-5)},
              {"x": d.normal(2, 6, 4, 5), "weight": d.uniform(0.5, 1.5, 6), "bias": d.normal(6)}, {"groups": groups, "eps": 1e-5})
    for case, shape in (("rows", (8, 5)), ("pictures", (3, 4, 5, 6))):
        for training in (True, False):
            name = ("train_" if training else "eval_") + case
            d = Draw("batch_norm." + name)
            mean, var = d.normal(shape[1]), d.uniform(0.5, 2, shape[1])

            def compute(x, weight, bias, mean=mean, var=var, training=training):
                running = [torch.from_numpy(t.copy()).double() for t in (mean, var)]
                y = F.batch_norm(x, *running, weight, bias, training, 0.1, 1e-5)
                return {"y": y, "running_mean": running[0], "running_var": running[1]}

            f.put("batch_norm", name, "in", "running_mean", mean)
            f.put("batch_norm", name, "in", "running_var", var)
            f.add("batch_norm", name, compute,
                  {"x": d.normal(*shape), "weight": d.uniform(0.5, 1.5, shape[1]), "bias": d.normal(shape[1])},
                  {"training": training, "momentum": 0.1, "eps": 1e-5})
    return f


def activation():
    f = Family("activation")
    kinds = {
        "gelu_erf": (lambda x: F.gelu(x), {}), "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), {}),
        "silu": (F.silu, {}), "relu": (F.relu, {}), "tanh": (torch.tanh, {}), "sigmoid": (torch.sigmoid, {}),
        "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), {"slope": 0.2}), "elu": (F.elu, {"alpha": 1.0}),
        "softplus": (F.softplus, {}), "exp": (torch.exp, {}),
    }
    # Both tails, the region where each function bends, and values too small to square in float32.
    tails = np.array([-30, -12, -9, -6, -5.5, -5, -4.25, -3, -1e-20, 1e-20, 3, 4.25, 5, 5.5, 6, 9, 12, 30], np.float32)
    for op, (compute, attrs) in kinds.items():
        f.add(op, "bulk", lambda x, c=compute: {"y": c(x)}, {"x": Draw(op).normal(7, 33)}, attrs)
        f.add(op, "tails", lambda x, c=compute: {"y": c(x)}, {"x": tails}, attrs)
    for op, compute in (("softmax", torch.softmax), ("log_softmax", torch.log_softmax)):
        for case, shape, axis, scale in (("last", (5, 17), -1, 1), ("middle", (3, 6, 4), 1, 1), ("sharp", (4, 100), -1, 30)):
            x = Draw(op + case).normal(*shape, scale=scale)
            f.add(op, case, lambda x, c=compute, axis=axis: {"y": c(x, axis)}, {"x": x}, {"axis": axis})
    return f


def attention():
    f = Family("attention")

    def attend(q, k, v, key_lengths=None, causal=False):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))  # grouped queries
        scores = q @ k.mT * q.shape[-1] ** -0.5
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool)
        if causal:
            allowed = allowed.tril()
        allowed = allowed.expand(scores.shape)
        if key_lengths is not None:
            allowed = allowed & (torch.arange(k.shape[2]) < key_lengths[:, None, None, None])
        lse = scores.masked_fill(~allowed, -torch.inf).logsumexp(-1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return {"y": y, "lse": lse}

    for case, (B, H, T, S, K), causal, lengths in (
            ("causal", (2, 3, 9, 9, 8), True, None), ("full", (2, 2, 7, 7, 8), False, None),
            ("full_lengths", (3, 2, 10, 10, 4), False, (10, 1, 6)), ("causal_lengths", (2, 2, 10, 10, 8), True, (4, 10)),
            ("cross", (2, 2, 5, 11, 8), False, None), ("causal_tiles", (1, 1, 150, 150, 16), True, None),
            ("full_tiles", (1, 1, 70, 131, 16), False, (77,)), ("causal_wide", (1, 1, 33, 33, 80), True, None),
            ("grouped", (2, 6, 9, 9, 8), True, None), ("grouped_lengths", (2, 4, 5, 11, 8), False, (3, 11))):
        d, G = Draw("attention." + case), 2 if case.startswith("grouped") else H
        inputs = {"q": d.normal(B, H, T, K), "k": d.normal(B, G, S, K), "v": d.normal(B, G, S, K)}
        if lengths:
            inputs["key_lengths"] = np.array(lengths, np.int32)
        f.add("attention", case, lambda q, k, v, key_lengths=None, causal=causal: attend(q, k, v, key_lengths, causal),
              inputs, {"causal": causal, "scale": K ** -0.5}, constant=("lse",))

    def rotate(x, rotary, base, first):
        """GPT-NeoX: of each head the first `rotary` numbers turn, number i paired with number i + rotary/2."""
        position = torch.arange(first, first + x.shape[2], dtype=torch.float64)
        angle = position[:, None] * base ** (-torch.arange(0, rotary, 2, dtype=torch.float64) / rotary)
        cos, sin = angle.cos(), angle.sin()
        low, high, rest = x[..., :rotary // 2], x[..., rotary // 2:rotary], x[..., rotary:]
        return torch.cat((low * cos - high * sin, high * cos + low * sin, rest), -1)

    for case, K, rotary, first in (("quarter", 16, 4, 0), ("whole", 8, 8, 0), ("late", 16, 4, 1000)):
        f.add("rotary", case, lambda x, r=rotary, p=first: {"y": rotate(x, r, 10000.0, p)},
              {"x": Draw("rotary." + case).normal(2, 3, 11, K)}, {"rotary": rotary, "base": 10000.0, "first_position": first})
    return f


def loss():
    f = Family("loss")

    def weighted(logits, target, weights=None):
        nll = F.cross_entropy(logits, target, ignore_index=-100, reduction="none")
        w = (target != -100).double() if weights is None else weights.detach() * (target != -100)
        return {"loss": (nll * w).sum() / w.sum(), "weight_sum": w.sum()}

    N, V, D = 12, 23, 7
    for case in ("plain", "ignore", "weights", "ignore_weights", "sharp"):
        d = Draw("cross_entropy." + case)
        target = d.ids(V, N)
        inputs = {"logits": d.normal(N, V, scale=20 if case == "sharp" else 1), "target": target}
        if "ignore" in case:
            target[[0, 5, 6, 11]] = -100
        if "weights" in case:
            inputs["weights"] = d.uniform(0, 2, N)
            inputs["weights"][3] = 0
        f.add("cross_entropy", case, weighted, inputs, {"ignore_index": -100})
        if case == "sharp":
            continue
        inputs = {"x": d.normal(N, D), "weight": d.normal(V, D)} | {k: v for k, v in inputs.items() if k != "logits"}
        f.add("linear_cross_entropy", case,
              lambda x, weight, target, weights=None: weighted(x @ weight.mT, target, weights), inputs, {"ignore_index": -100})
    d = Draw("mean_squared_error")
    f.add("mean_squared_error", "plain", lambda x, target: {"loss": F.mse_loss(x, target)}, {"x": d.normal(5, 4), "target": d.normal(5, 4)})
    d = Draw("huber")
    f.add("huber", "plain", lambda x, target: {"loss": F.huber_loss(x, target, delta=1.0)},
          {"x": d.normal(5, 4, scale=2), "target": d.normal(5, 4)}, {"delta": 1.0})
    return f


def convolution():
    f = Family("convolution")
    for case, k, stride, dilation, groups, causal in (
            ("causal", 4, 1, 1, 1, True), ("causal_stride", 3, 2, 1, 1, True), ("causal_dilated", 3, 1, 2, 1, True),
            ("causal_depthwise", 4, 1, 1, 6, True), ("valid", 3, 1, 1, 1, False)):
        d = Draw("conv1d." + case)
        left = (k - 1) * dilation if causal else 0
        out = 6 if groups == 6 else 5
        inputs = {"x": d.normal(2, 6, 13), "weight": d.normal(out, 6 // groups, k, scale=0.4), "bias": d.normal(out)}
        f.add("conv1d", case,
              lambda x, weight, bias, l=left, s=stride, dl=dilation, g=groups: {"y": F.conv1d(F.pad(x, (l, 0)), weight, bias, s, 0, dl, g)},
              inputs, {"pad_left": left, "pad_right": 0, "stride": stride, "dilation": dilation, "groups": groups})
    for case, k, stride, pad, bias in (("same", 3, 1, 1, True), ("stride2", 3, 2, 1, True), ("plain", 3, 1, 1, False),
                                       ("point", 1, 1, 0, True), ("kernel5", 5, 2, 2, True)):
        d = Draw("conv2d." + case)
        inputs = {"x": d.normal(2, 3, 9, 8), "weight": d.normal(5, 3, k, k, scale=0.3)}
        if bias:
            inputs["bias"] = d.normal(5)
        f.add("conv2d", case, lambda x, weight, bias=None, s=stride, p=pad: {"y": F.conv2d(x, weight, bias, s, p)},
              inputs, {"stride": stride, "pad": pad})
    for case, k, stride, pad in (("half", 2, 2, 0), ("overlap", 3, 2, 1)):
        x = Draw("max_pool2d." + case).distinct(2, 3, 8, 7)
        attrs = {"kernel": k, "stride": stride, "pad": pad}
        f.add("max_pool2d", case, lambda x, k=k, s=stride, p=pad: {"y": F.max_pool2d(x, k, s, p)}, {"x": x}, attrs)
        f.add("avg_pool2d", case, lambda x, k=k, s=stride, p=pad: {"y": F.avg_pool2d(x, k, s, p)}, {"x": x},
              attrs | {"count_include_pad": True})
    f.add("global_avg_pool2d", "plain", lambda x: {"y": F.adaptive_avg_pool2d(x, 1)}, {"x": Draw("global").normal(2, 3, 5, 7)})
    return f


def shape():
    f = Family("shape")
    for op, compute in (("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax)):
        for case, axes, keep in (("last", (2,), False), ("first", (0,), False), ("middle_keep", (1,), True), ("two", (0, 2), False), ("all", (0, 1, 2), False)):
            f.add(op, case, lambda x, c=compute, axes=axes, keep=keep: {"y": c(x, dim=axes, keepdim=keep)},
                  {"x": Draw(op + case).distinct(3, 4, 5)}, {"axes": axes, "keep": keep})
    for op, compute in (("add", torch.add), ("mul", torch.mul), ("sub", torch.sub), ("div", torch.div)):
        for case, left, right in (("same", (3, 4), (3, 4)), ("row", (2, 3, 4), (4,)), ("column", (2, 3, 4), (3, 1)), ("outer", (3, 1), (1, 5)), ("scalar", (2, 3), ())):
            d = Draw(op + case)
            f.add(op, case, lambda a, b, c=compute: {"y": c(a, b)}, {"a": d.normal(*left), "b": d.uniform(0.5, 2, *right)})
    d = Draw("gather")
    f.add("gather", "rows", lambda x, index: {"y": x.index_select(0, index)}, {"x": d.normal(6, 4), "index": np.array([5, 0, 5, 2, 2], np.int32)}, {"axis": 0})
    f.add("gather", "along_last", lambda x, index: {"y": x.gather(1, index)}, {"x": d.normal(4, 6), "index": d.ids(6, 4, 3)}, {"axis": 1})
    f.add("scatter_add", "rows", lambda x, index: {"y": torch.zeros(6, 4, dtype=torch.float64).index_add(0, index, x)},
          {"x": d.normal(5, 4), "index": np.array([5, 0, 5, 2, 2], np.int32)}, {"axis": 0, "rows": 6})

    def topk(x):
        values, indices = x.topk(3, dim=-1)
        return {"values": values, "indices": indices}

    f.add("topk", "last", topk, {"x": Draw("topk").distinct(5, 9)}, {"k": 3, "axis": -1})
    for case, sizes in (("two", (3, 4)), ("three", (2, 1, 5))):
        d = Draw("concat" + case)
        inputs = {f"x{i}": d.normal(2, n, 3) for i, n in enumerate(sizes)}
        f.add("concat", case, lambda **x: {"y": torch.cat(list(x.values()), 1)}, inputs, {"axis": 1})
    f.add("slice", "middle", lambda x: {"y": x[:, 2:5]}, {"x": Draw("slice").normal(3, 7)}, {"axis": 1, "start": 2, "stop": 5})
    f.add("transpose", "heads", lambda x: {"y": x.permute(0, 2, 1, 3)}, {"x": Draw("transpose").normal(2, 3, 4, 5)}, {"axes": [0, 2, 1, 3]})
    return f


def optimizer():
    """Ten updates of four tensors: states before, the gradient of each update, parameters after each update."""
    f = Family("optimizer")
    shapes = {"weight": (5, 3), "bias": (7,), "scale": (1,), "long": (130,)}
    for case, lr, decay, clip in (("plain", 1e-2, 0.0, None), ("decay", 1e-2, 0.1, None), ("decay_clip", 3e-2, 0.1, 1.0)):
        d = Draw("adamw." + case)
        names = list(shapes)
        params = {n: torch.nn.Parameter(torch.from_numpy(d.normal(*shapes[n])).double()) for n in names}
        for n in names:
            f.put("adamw", case, "in", n, params[n])
        decayed, rest = ["weight", "long"], ["bias", "scale"]
        opt = torch.optim.AdamW([{"params": [params[n] for n in decayed], "weight_decay": decay},
                                 {"params": [params[n] for n in rest], "weight_decay": 0.0}], lr=lr, betas=(0.9, 0.999), eps=1e-8)
        norms, grads, after = [], {n: [] for n in names}, {n: [] for n in names}
        for update in range(10):
            size = (0.01, 1.0, 10.0)[update % 3]
            for n in names:
                g = d.normal(*shapes[n], scale=size)
                grads[n].append(g)
                params[n].grad = torch.from_numpy(g).double()
            norms.append(torch.nn.utils.get_total_norm([params[n].grad for n in names]))
            if clip:
                torch.nn.utils.clip_grad_norm_(list(params.values()), clip)
            opt.step()
            for n in names:
                after[n].append(params[n].detach().clone())
        for n in names:
            f.put("adamw", case, "in", "d_" + n, np.stack(grads[n]))
            f.put("adamw", case, "out", n, torch.stack(after[n]))
            f.put("adamw", case, "out", n + "_m", opt.state[params[n]]["exp_avg"])
            f.put("adamw", case, "out", n + "_v", opt.state[params[n]]["exp_avg_sq"])
        f.put("adamw", case, "out", "gradient_norm", torch.stack(norms))
        f.attributes("adamw", case, {"lr": lr, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": decay,
                                     "decayed": decayed, "max_grad_norm": clip})
    for case, scale in (("above", 3.0), ("below", 0.01)):
        d = Draw("clip." + case)
        tensors = [d.normal(4, 5, scale=scale), d.normal(9, scale=scale)]
        clipped = [torch.nn.Parameter(torch.zeros(t.shape, dtype=torch.float64)) for t in tensors]
        for p, t in zip(clipped, tensors):
            p.grad = torch.from_numpy(t).double()
        norm = torch.nn.utils.clip_grad_norm_(clipped, 1.0)
        for i, (p, t) in enumerate(zip(clipped, tensors)):
            f.put("clip_global_norm", case, "in", f"x{i}", t)
            f.put("clip_global_norm", case, "out", f"y{i}", p.grad)
        f.put("clip_global_norm", case, "out", "norm", norm)
        f.attributes("clip_global_norm", case, {"max_norm": 1.0})
    return f


def schedule():
    """The learning rate that each update uses, update 0 first."""
    from transformers import get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup
    f = Family("schedule")
    lr, updates = 1e-3, 60

    def follow(make):
        opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
        sched, rates = make(opt), []
        for _ in range(updates):
            rates.append(sched.get_last_lr()[0])
            opt.step()
            sched.step()
        return np.array(rates)

    for op, make in (("cosine", get_cosine_schedule_with_warmup), ("linear", get_linear_schedule_with_warmup)):
        for case, warmup in (("warmup", 10), ("no_warmup", 0)):
            f.put(op, case, "out", "lr", follow(lambda opt, m=make, w=warmup: m(opt, w, updates)))
            f.attributes(op, case, {"lr": lr, "warmup_steps": warmup, "max_steps": updates})
    f.put("constant", "warmup", "out", "lr", follow(lambda opt: get_constant_schedule_with_warmup(opt, 10)))
    f.attributes("constant", "warmup", {"lr": lr, "warmup_steps": 10, "max_steps": updates})
    # Vaswani et al. 2017, section 5.3, times a factor; the paper counts updates from 1.
    n = np.arange(1, updates + 1, dtype=np.float64)
    f.put("noam", "warmup", "out", "lr", 2.0 * 512 ** -0.5 * np.minimum(n ** -0.5, n * 20 ** -1.5))
    f.attributes("noam", "warmup", {"factor": 2.0, "d_model": 512, "warmup_steps": 20, "max_steps": updates})
    losses = np.array([5, 4, 3.5, 3.6, 3.6, 3.49999, 3.7, 3.7, 3.7, 3.7, 3.7, 3.7, 2, 2.1, 2.1, 2.1, 2.1, 2.1, 2.1, 2.1], np.float32)
    opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    plateau, rates = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=2, threshold=1e-4, min_lr=2e-4), []
    for value in losses:
        plateau.step(float(value))
        rates.append(opt.param_groups[0]["lr"])
    f.put("plateau", "plain", "in", "loss", losses)
    f.put("plateau", "plain", "out", "lr", np.array(rates))
    f.attributes("plateau", "plain", {"lr": lr, "factor": 0.5, "patience": 2, "threshold": 1e-4, "min_lr": 2e-4})
    return f


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else DEFAULT
    for family in (dense, norm, activation, attention, loss, convolution, shape, optimizer, schedule):
        family().write(folder)


if __name__ == "__main__":
    main()
