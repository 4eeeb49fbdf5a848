"""Has PEFT load the adapter of a run of agiformer or cloudbase, and compares what it merges with
the merged export:

    snug export RUN ADAPTER && snug export --merge RUN MERGED
    python tools/goldens/adapter.py BASE_CHECKPOINT ADAPTER MERGED

transformers has no class for these models, so the modules are made of the names in the
checkpoint: linear layers where the adapter has one, parameters elsewhere.
"""

import json
import sys
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import nn


def modules(weights, targets):
    """Modules that hold the weights under their names."""

    def adapted(path):
        return any(path == t or path.endswith("." + t) for t in targets)

    root = nn.Module()
    for name, value in weights.items():
        *path, leaf = name.split(".")
        at = root
        for i, part in enumerate(path):
            full = ".".join(path[: i + 1])
            if part not in at._modules:
                w = weights.get(full + ".weight")
                if adapted(full) and w is not None and w.dim() == 2:
                    new = nn.Linear(w.shape[1], w.shape[0], bias=full + ".bias" in weights)
                else:
                    new = nn.Module()
                at.add_module(part, new)
            at = at._modules[part]
        if isinstance(at, nn.Linear):
            getattr(at, leaf).data.copy_(value)
        else:
            at.register_parameter(leaf, nn.Parameter(value.clone()))
    return root


def main():
    base, adapter, merged = map(Path, sys.argv[1:4])
    config = json.loads((adapter / "adapter_config.json").read_text())
    weights, expected = (load_file(p / "model.safetensors") for p in (base, merged))
    model = PeftModel.from_pretrained(modules(weights, config["target_modules"] or []), adapter)
    # The names in the file, of the names in the model.
    for old, new in [(".default", ""), (".modules_to_save", ""), ("magnitude_vector.weight", "magnitude_vector")]:
        state = {name.replace(old, new): x for name, x in (model.state_dict() if old == ".default" else state).items()}
    saved = load_file(adapter / "adapter_model.safetensors")
    for name, x in saved.items():
        assert torch.equal(state[name], x), f"{name} was not loaded"
    result = model.merge_and_unload().state_dict()
    assert set(result) == set(expected), set(result) ^ set(expected)
    worst = max((result[n] - x).abs().max().item() for n, x in expected.items())
    moved = max((weights[n] - x).abs().max().item() for n, x in expected.items())
    print(f"{len(saved)} tensors loaded; of {len(expected)} merged weights the largest difference is {worst:.2g}, the adapter's largest change {moved:.2g}")
    assert moved > 0 and worst < 1e-5 * max(1, moved)


if __name__ == "__main__":
    main()
