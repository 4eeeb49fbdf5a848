"""Frozen weights in NF4 and int8 by bitsandbytes: the bytes of matrices, and the logits of a model folder whose linear layers have them.

    python tools/goldens/quant.py    # -> internal/quant/testdata/, nn/hf/testdata/quant.safetensors

bitsandbytes' code for CPUs searches its table of 8-bit numbers roughly: some codes of scales are not the nearest. And it
decodes NF4 rightly only where rows are whole blocks. What its reference backend computes takes the place of both, as on a GPU.
"""

import pathlib

import bitsandbytes.functional as bnb
import numpy as np
import torch
from golden import Draw
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]


def nearest(x, blocksize):
    code = bnb.create_dynamic_map()
    blocks = torch.nn.functional.pad(x, (0, -x.numel() % blocksize)).view(-1, blocksize)
    top = blocks.abs().max(1).values
    q = torch.bucketize(blocks * (1 / top.clamp(min=1e-38))[:, None], (code[:-1] + code[1:]) / 2)
    state = bnb.QuantState(absmax=top, code=code, blocksize=blocksize, dtype=x.dtype)
    return q.flatten()[: x.numel()].to(torch.uint8), state


bnb.quantize_blockwise = nearest


def nf4(x):
    packed, state = bnb.quantize_4bit(x, blocksize=64, compress_statistics=True, quant_type="nf4")
    return packed.flatten(), state


def decoded(packed, state):
    absmax = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset
    n = state.shape.numel()
    codes = torch.stack((packed >> 4, packed & 15), 1).flatten()[:n].long()
    return (state.code[codes] * absmax.repeat_interleave(64)[:n]).view(state.shape)


def int8(x):
    codes, top, _ = torch.ops.bitsandbytes.int8_vectorwise_quant.default(x)
    return codes, top


def matrices():
    out = {}
    for name, shape in {"rows": (96, 192), "few": (3, 5), "odd": (7, 33), "nested": (140, 128)}.items():
        x = torch.from_numpy(Draw("quant/" + name).normal(*shape, scale=0.05))
        if name == "rows":
            x[5] = 0
            x[:, 7] *= 30  # outliers
        packed, state = nf4(x)
        codes, top = int8(x)
        for key, value in {
            "x": x,
            "nf4.codes": packed,
            "nf4.scales": state.absmax,
            "nf4.nested": state.state2.absmax,
            "nf4.mean": state.offset.reshape(1),
            "nf4.values": decoded(packed, state),
            "int8.codes": codes.view(torch.uint8),
            "int8.tops": top,
            "int8.values": torch.ops.bitsandbytes.int8_vectorwise_dequant.default(codes, top),
        }.items():
            out[f"{name}.{key}"] = value.numpy().copy()
    save_file(out, ROOT / "internal" / "quant" / "testdata" / "bitsandbytes.safetensors")


def logits():
    folders = ROOT / "nn" / "hf" / "testdata"
    out = {}
    for folder in ("llama", "qwen3", "neox"):
        for kind in ("nf4", "int8"):
            model = AutoModelForCausalLM.from_pretrained(folders / folder, dtype=torch.float32).eval()
            head = model.get_output_embeddings()
            for outer in (head, model.get_input_embeddings()):  # kept in 16 bits
                outer.weight.data = outer.weight.data.bfloat16().float()
            for module in model.modules():
                if isinstance(module, torch.nn.Linear) and module is not head:
                    w = module.weight.data
                    if kind == "nf4":
                        module.weight.data = decoded(*nf4(w))
                    else:
                        module.weight.data = torch.ops.bitsandbytes.int8_vectorwise_dequant.default(*int8(w))
            ids = torch.from_numpy(Draw(f"quant/{folder}").ids(140, 2, 12) + 3)
            with torch.no_grad():
                out[f"{folder}.{kind}.logits"] = model.double()(input_ids=ids).logits.float().numpy()
            out[f"{folder}.ids"] = ids.numpy().astype(np.int32)
    save_file(out, folders / "quant.safetensors")


if __name__ == "__main__":
    matrices()
    logits()
