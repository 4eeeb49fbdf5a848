"""Files of torch.save for data/pytorch, with what they hold as safetensors beside them.

    python pytorch.py OUT

Tensors of every type, views that share a storage, transposed, cut, expanded and
empty ones, a tied parameter, and the protocols 2 to 5.
"""

import json
import pathlib
import sys
from collections import OrderedDict

import torch
from safetensors.torch import load_file, save_file

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
torch.manual_seed(7)


def state():
    base = torch.randn(6, 8)
    d = OrderedDict()
    d["contiguous"] = torch.randn(3, 5)
    d["whole"] = base
    d["transposed"] = base.t()
    d["rows"] = base[2:4]
    d["columns"] = base[:, 1:7:2]
    d["diagonal"] = base.diagonal()
    d["expanded"] = torch.arange(4.0).unsqueeze(0).expand(3, 4)
    d["permuted"] = torch.randn(2, 3, 4).permute(2, 0, 1)
    d["scalar"] = torch.tensor(2.5)
    d["one"] = torch.randn(1, 4, 1).transpose(0, 2)
    d["empty"] = torch.zeros(0, 3)
    d["parameter"] = torch.nn.Parameter(torch.randn(2, 2))
    d["tied"] = d["parameter"]
    for t in (torch.float64, torch.float16, torch.bfloat16, torch.complex64):
        d[str(t).split(".")[1]] = torch.randn(7).to(t)
    for t in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        d[str(t).split(".")[1]] = torch.randint(0, 100, (5,)).to(t)
    d["bool"] = torch.tensor([True, False, True])
    d["uint16"] = torch.arange(6, dtype=torch.int32).to(torch.uint16)
    d["float8_e4m3fn"] = torch.randn(6).to(torch.float8_e4m3fn)
    d["wörter.weight"] = torch.randn(2)
    return d


d = state()
plain = {k: v.detach().clone().contiguous() for k, v in d.items()}
save_file(plain, out / "expected.safetensors")
for p in (2, 3, 4, 5):
    torch.save(d, out / f"protocol{p}.bin", pickle_protocol=p)
torch.save(dict(d), out / "plaindict.bin")
torch.serialization.set_crc32_options(False)
torch.save(d, out / "nosums.bin")
torch.serialization.set_crc32_options(True)

# A module's own state has the versions of its parts as an attribute, and tensors tied in it.
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
m[2].weight = m[0].weight
torch.save(m.state_dict(), out / "module.bin")
save_file({k: v.clone() for k, v in m.state_dict().items()}, out / "module.safetensors")

# What is refused.
torch.save(d, out / "legacy.bin", _use_new_zipfile_serialization=False)
torch.save(m, out / "pickled-module.bin")
torch.save({"model": m.state_dict(), "epoch": 3}, out / "checkpoint.bin")
torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), out / "script.bin")
torch.save(d["contiguous"], out / "tensor.bin")

# The weights of nn/hf's folders as older versions of transformers saved them.
folders = pathlib.Path(__file__).resolve().parent.parent.parent / "nn" / "hf" / "testdata"
d = load_file(folders / "gpt2" / "model.safetensors")
d["lm_head.weight"] = d["transformer.wte.weight"]  # tied: one storage, two names
(folders / "torch" / "gpt2").mkdir(parents=True, exist_ok=True)
torch.save(OrderedDict(d), folders / "torch" / "gpt2" / "pytorch_model.bin")

index = json.loads((folders / "neox-sharded" / "model.safetensors.index.json").read_text())
target = folders / "torch" / "neox-sharded"
target.mkdir(parents=True, exist_ok=True)
renamed = {s: s.replace("model-", "pytorch_model-").replace(".safetensors", ".bin") for s in set(index["weight_map"].values())}
for old, new in renamed.items():
    torch.save(OrderedDict(load_file(folders / "neox-sharded" / old)), target / new)
index["weight_map"] = {k: renamed[v] for k, v in index["weight_map"].items()}
(target / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2) + "\n")
