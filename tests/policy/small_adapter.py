"""Writes a small random LoRA adapter for a model folder: `python small_adapter.py MODEL FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

RANK = 8


def main(model: str, folder: str) -> None:
    """Large enough to change what the model says: trained adapters are not."""
    config = json.loads((Path(model) / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    sides = {"q_proj": hidden, "v_proj": hidden // heads * config["num_key_value_heads"]}
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        for name, width in sides.items():
            key = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{key}.lora_A.weight"] = torch.randn(RANK, hidden, generator=generator) * 0.05
            weights[f"{key}.lora_B.weight"] = torch.randn(width, RANK, generator=generator) * 0.05
    told = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": model,
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(sides),
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / "adapter_config.json").write_text(json.dumps(told))
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}
    save_file(tensors, f"{folder}/adapter_model.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
