"""Fifty updates of one tensor by the optimizers' authors: bitsandbytes (8-bit AdamW), lion-pytorch, transformers (Adafactor) and PyTorch (Muon).

    python optimizers.py [FOLDER]

bitsandbytes' code for CPUs searches its table of numbers roughly: a thousandth of the codes are not the nearest. Its own
reference backend, whose codes are, takes its place, as on a GPU.

The gradient of update u is a s[u] + b c[u]. Outputs are the tensor after the first update and after the last. The first
two compute in float32 (codes of 8 bits are those of float32 numbers), the others in float64: PyTorch's Muon, which orthogonalizes in bfloat16, is given float64 for it.
"""

import sys

import bitsandbytes
import lion_pytorch
import numpy as np
import torch
import transformers.optimization
from golden import Draw, Family
from bitsandbytes.backends.cpu import ops as cpu
from ops import DEFAULT

UPDATES = 50


def nearest(x, code, absmax_out, out, blocksize):
    blocks = torch.nn.functional.pad(x.flatten(), (0, -x.numel() % blocksize)).view(-1, blocksize)
    top = blocks.abs().max(1).values
    codes = (blocks[:, :, None] / top[:, None, None] - code).abs().argmin(2)
    out.copy_(codes.flatten()[: x.numel()].view_as(x))
    absmax_out.copy_(top)


cpu._quant_blockwise_fp32_direct = nearest


class Exactly:
    """PyTorch for its own module of Muon, whose bfloat16 is float64."""

    bfloat16 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


torch.optim._muon.torch = Exactly()


def optimizers():
    f = Family("optimizers")
    adafactor = lambda p, a: transformers.optimization.Adafactor(  # as Trainer has it
        p, lr=a["lr"], scale_parameter=False, relative_step=False, weight_decay=a["weight_decay"]
    )
    muon = lambda p, a: torch.optim.Muon([p], lr=a["lr"], momentum=0.95, weight_decay=a["weight_decay"], adjust_lr_fn="match_rms_adamw")
    for op, case, size, make, attrs in (
        ("adamw8bit", "plain", (5000,), lambda p, a: bitsandbytes.optim.AdamW8bit(p, lr=a["lr"], betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0), {"lr": 1e-2}),
        ("lion", "plain", (130,), lambda p, a: lion_pytorch.Lion(p, lr=a["lr"], betas=(0.9, 0.99), weight_decay=0.0), {"lr": 1e-2}),
        ("lion", "decay", (130,), lambda p, a: lion_pytorch.Lion(p, lr=a["lr"], betas=(0.9, 0.99), weight_decay=a["weight_decay"]), {"lr": 1e-2, "weight_decay": 0.1}),
        ("muon", "wide", (8, 12), muon, {"lr": 1e-2, "weight_decay": 0.1}),
        ("muon", "tall", (13, 7), muon, {"lr": 1e-2, "weight_decay": 0.0}),
        ("adafactor", "vector", (130,), adafactor, {"lr": 1e-2, "weight_decay": 0.0}),
        ("adafactor", "matrix", (30, 50), adafactor, {"lr": 1e-2, "weight_decay": 0.1}),
        ("adafactor", "matrices", (3, 20, 17), adafactor, {"lr": 1e-2, "weight_decay": 0.0}),
    ):
        d = Draw(f"{op}.{case}.optimizers")
        # No gradient is so small beside its block's largest that its square becomes code 0, which snug never gives.
        w, a, b = d.normal(*size), d.uniform(0.5, 2, *size) * np.sign(d.normal(*size)), d.normal(*size, scale=0.05)
        s, c = (np.cos(np.arange(UPDATES) * k).astype(np.float32) for k in (0.3, 1.1))
        for name, value in (("w", w), ("a", a), ("b", b), ("s", s), ("c", c)):
            f.put(op, case, "in", name, value)
        if op in ("adafactor", "muon"):
            w, a, b, s, c = (x.astype(np.float64) for x in (w, a, b, s, c))
        p = torch.nn.Parameter(torch.from_numpy(w.copy()))
        opt = make(p if op == "muon" else [p], attrs)
        for u in range(UPDATES):
            p.grad = torch.from_numpy(a * s[u] + b * c[u])
            opt.step()
            if u == 0:
                f.put(op, case, "out", "first", p.detach().clone())
        f.put(op, case, "out", "last", p)
        f.attributes(op, case, {"beta1": 0.9, "beta2": 0.99 if op == "lion" else 0.999, "eps": 1e-8, **attrs})
    return f


if __name__ == "__main__":
    optimizers().write(sys.argv[1] if len(sys.argv) > 1 else DEFAULT)
