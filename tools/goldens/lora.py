"""Adapters by PEFT on the tiny model folders of nn/hf/testdata, with the logits and gradients of the adapted models.

    python tools/goldens/lora.py    # -> nn/hf/testdata/lora/

Each folder is one that PEFT's save_pretrained wrote, with expected.safetensors beside it.
"""

import json
import pathlib
import shutil

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

HERE = pathlib.Path(__file__).resolve().parents[2] / "nn" / "hf" / "testdata"

CASES = {
    "llama-lora": ("llama", dict(target_modules=["q_proj", "v_proj"])),
    "llama-dora": ("llama", dict(target_modules=["q_proj", "o_proj", "down_proj"], use_dora=True)),
    "qwen3-rslora": ("qwen3", dict(target_modules=["k_proj", "gate_proj"], use_rslora=True)),
    "neox-lora": ("neox", dict(target_modules=["query_key_value", "dense_4h_to_h"])),
    "gpt2-dora": ("gpt2", dict(target_modules=["c_attn", "c_proj"], use_dora=True, fan_in_fan_out=True)),
    # The head is trained as a whole: PEFT adds it to modules_to_save of its own accord.
    "bert-classifier-lora": ("bert-classifier", dict(target_modules=["query", "value"], modules_to_save=["LayerNorm"])),
    "roberta-classifier-dora": ("roberta-classifier", dict(target_modules="all-linear", use_dora=True)),
}


def main():
    for name, (folder, options) in CASES.items():
        torch.manual_seed(7)
        classifies = folder.endswith("-classifier")
        auto = AutoModelForSequenceClassification if classifies else AutoModelForCausalLM
        model = auto.from_pretrained(HERE / folder, dtype=torch.float32)
        model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS" if classifies else "CAUSAL_LM", r=3, lora_alpha=5, lora_dropout=0.0, **options)).double().eval()
        rng = np.random.default_rng(11)
        trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        with torch.no_grad():
            for n, p in trained.items():
                noise = torch.from_numpy(rng.standard_normal(p.shape).astype(np.float32)).double()
                # Magnitudes stay near the norms, B leaves zero.
                p.copy_((p * (1 + 0.1 * noise) if "magnitude" in n else p + 0.2 * noise).float().double())
        ids = torch.from_numpy(rng.integers(3, 150 if not classifies else model.config.vocab_size, (2, 12)))
        out = model(input_ids=ids)
        if classifies:
            loss = torch.nn.functional.cross_entropy(out.logits, torch.tensor([0, 1]), reduction="sum")
        else:
            loss = torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")
        loss.backward()
        to = HERE / "lora" / name
        shutil.rmtree(to, ignore_errors=True)
        expected = {"input_ids": ids.numpy().astype(np.int32), "logits": out.logits.detach().numpy().astype(np.float32)}
        for n, p in trained.items():
            expected["grad." + n.replace(".default", "").replace(".modules_to_save", "")] = p.grad.numpy().astype(np.float32)
        model.float().save_pretrained(to)
        (to / "README.md").unlink()
        config = json.loads((to / "adapter_config.json").read_text().replace(str(HERE / folder), folder))
        config["target_modules"] = sorted(config["target_modules"])  # a set
        (to / "adapter_config.json").write_text(json.dumps(config, indent=2))
        save_file(expected, to / "expected.safetensors")
        print(name, sum(p.numel() for p in trained.values()), loss.item())


if __name__ == "__main__":
    main()
