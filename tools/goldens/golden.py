"""Writes golden files: one safetensors file of tensors and one JSON file of attributes a family of operations.

A case is computed in float64 from inputs that were first rounded to float32, and its results are rounded to float32 once,
so a golden is the correctly rounded answer up to PyTorch's own float64 error. Every case draws from a generator seeded by
its own name: adding or removing a case leaves all others as they were.
"""

import json
import math
import pathlib
import zlib

import numpy as np
import torch
from safetensors.numpy import save_file


class Draw:
    """Random inputs of one case, exactly representable in float32."""

    def __init__(self, name):
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def normal(self, *shape, scale=1.0):
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def uniform(self, low, high, *shape):
        return self.rng.uniform(low, high, shape).astype(np.float32)

    def distinct(self, *shape):
        """Values at least 1/64 apart in random order, none near zero: no ties for max, no kink for relu."""
        n = math.prod(shape)
        grid = (np.arange(n) - n / 2 + 0.5) / 32
        return self.rng.permutation(grid).reshape(shape).astype(np.float32)

    def ids(self, limit, *shape):
        return self.rng.integers(limit, size=shape, dtype=np.int32)


class Family:
    """The cases of one family, collected in memory and written together."""

    def __init__(self, name):
        self.name, self.tensors, self.cases = name, {}, []

    def put(self, op, case, role, name, value):
        if isinstance(value, torch.Tensor):
            value = value.detach().numpy()
        if value.dtype in (np.float64, np.float32):
            value = value.astype(np.float32)
            assert not np.isnan(value).any(), (op, case, name)
        elif value.dtype == np.int64:
            value = value.astype(np.int32)
        self.tensors[f"{op}.{case}.{role}.{name}"] = value.copy(order="C")

    def attributes(self, op, case, attrs):
        self.cases.append({"op": op, "case": case, "attrs": attrs})

    def add(self, op, case, compute, inputs, attrs=None, constant=()):
        """Records compute(**inputs) and the gradients of sum(out * cotangent) with respect to every float input.

        compute returns {name: tensor}. A float output gets a random cotangent, stored as the input d_<name>, unless
        it does not depend on the inputs or its name is in `constant` (statistics that no gradient flows through).
        """
        leaves = {}
        for name, value in inputs.items():
            self.put(op, case, "in", name, value)
            t = torch.from_numpy(value)
            leaves[name] = t.double().requires_grad_() if t.is_floating_point() else t.long()
        outs = compute(**leaves)
        draw = Draw(f"{op}.{case}.cotangent")
        total = torch.zeros((), dtype=torch.float64)
        for name, out in outs.items():
            self.put(op, case, "out", name, out)
            if out.requires_grad and name not in constant:
                cotangent = draw.normal(*out.shape) if out.ndim else np.ones((), np.float32)
                self.put(op, case, "in", "d_" + name, cotangent)
                total = total + (out * torch.from_numpy(cotangent).double()).sum()
        if total.requires_grad:
            total.backward()
        for name, leaf in leaves.items():
            if leaf.grad is not None:
                self.put(op, case, "grad", name, leaf.grad)
        self.attributes(op, case, attrs or {})

    def write(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = folder / f"{self.name}.safetensors"
        save_file(dict(sorted(self.tensors.items())), tensors)
        tensors.chmod(0o644)
        lines = ",\n".join("  " + json.dumps(c) for c in self.cases)
        (folder / f"{self.name}.json").write_text('{"cases": [\n' + lines + "\n]}\n")
        print(f"{self.name}: {len(self.cases)} cases, {sum(t.nbytes for t in self.tensors.values()):,} bytes")
