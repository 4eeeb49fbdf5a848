#!/usr/bin/env python3
"""A tiny CLIP vision model of transformers with random weights, and what it makes of two pictures.

    clip.py [FOLDER]     (default: system/agiformer/testdata/clip beside this tool)
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import CLIPVisionConfig, CLIPVisionModel
from transformers.utils.logging import disable_progress_bar

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT = HERE.parent.parent / "system" / "agiformer" / "testdata" / "clip"


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    disable_progress_bar()
    torch.manual_seed(2)
    config = CLIPVisionConfig(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
                              image_size=16, patch_size=8, projection_dim=8, attn_implementation="eager")
    model = CLIPVisionModel(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape))
            p.copy_(p.bfloat16())
    model.bfloat16().save_pretrained(folder)
    model.float()
    pixels = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        hidden = model(pixels).last_hidden_state
    save_file({"pixels": pixels.permute(0, 2, 3, 1).contiguous(), "hidden": hidden.contiguous()}, folder / "golden.safetensors")
    for f in folder.iterdir():
        f.chmod(0o644)
    print(sorted(f.name for f in folder.iterdir()))


if __name__ == "__main__":
    main()
