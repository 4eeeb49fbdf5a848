"""Goldens for data/safetensors from the reference implementation.

Run in a Python with torch, numpy and safetensors, from the repository's root:

    python tools/safetensors/golden.py write data/safetensors/testdata
    python tools/safetensors/golden.py read FILE...

write makes python.safetensors (one tensor of each dtype torch knows, unsorted
names, metadata) and python.json with the SHA-256 of each tensor's bytes.
read loads files that snug wrote and prints their tensors, and fails if the
reference does not accept one.
"""

import hashlib
import json
import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import save_file

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32,
    torch.int64, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64,
]


def write(folder):
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for i, dtype in enumerate(DTYPES):
        shape = [3, i + 1]
        if dtype == torch.bool:
            t = torch.randint(0, 2, shape, generator=generator).bool()
        elif dtype.is_floating_point or dtype.is_complex:
            t = torch.randn(shape, generator=generator).to(dtype)
        else:
            t = torch.randint(0, 100, shape, generator=generator).to(dtype)
        tensors[f"z{len(DTYPES) - i}.{dtype}".replace("torch.", "")] = t
    tensors["scalar"] = torch.tensor(1.5)
    tensors["empty"] = torch.zeros([0, 4])
    tensors["näme \"quoted\" <&>"] = torch.ones([2])
    save_file(tensors, folder / "python.safetensors", metadata={"format": "pt", "note": "é<&>\"\n"})
    sums = {}
    for name, t in tensors.items():
        data = bytes(t.contiguous().flatten().view(torch.uint8).tolist()) if t.numel() else b""
        sums[name] = {"shape": list(t.shape), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "python.json").write_text(json.dumps(sums, indent=1, sort_keys=True) + "\n")


def read(path):
    with safe_open(path, framework="pt") as f:
        print(path, f.metadata())
        for name in f.keys():
            t = f.get_tensor(name)
            data = bytes(t.contiguous().flatten().view(torch.uint8).tolist()) if t.numel() else b""
            print(" ", name, t.dtype, list(t.shape), hashlib.sha256(data).hexdigest())


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(pathlib.Path(sys.argv[2]))
    else:
        for path in sys.argv[2:]:
            read(path)
