"""Loading what is trained: tokenizer, model, adapter. Imports transformers and PEFT when called."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from evaluator.errors import EnvironmentUnusableError, UsageError
from policy.training import manifest

PACKAGES = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")


def require_packages() -> None:
    """Raises EnvironmentUnusableError naming what is not installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise EnvironmentUnusableError(
            f"training needs packages that are not installed: {', '.join(missing)}", "pip install 'kernevo[train]'"
        )


def load_tokenizer(base: str) -> Any:
    """The tokenizer of a model's folder. Raises UsageError without one, or without a chat template."""
    if not (Path(base) / "config.json").is_file():
        raise UsageError(f"{base}: no model (no config.json)", "give the folder of a model with --base")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
    except (OSError, ValueError) as error:
        raise UsageError(f"{base}: no readable tokenizer: {_first(error)}", "put tokenizer.json beside it") from None
    if not tokenizer.chat_template:
        raise UsageError(
            f"{base}: the tokenizer has no chat template, so that prompts would skip it and nothing is learned",
            "use a chat model, or put its chat_template.jinja into the folder",
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    return tokenizer


def load_model(base: str, adapter: str | None) -> Any:
    """The model, with an adapter that is trained on where one is given. Raises UsageError when either does not load."""
    import torch
    from transformers import AutoModelForCausalLM

    gpu = torch.cuda.is_available()
    dtype = torch.bfloat16 if gpu else torch.float32
    try:
        model = AutoModelForCausalLM.from_pretrained(base, local_files_only=True, dtype=dtype)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"{base}: the model does not load: {_first(error)}", "check --base") from None
    return model if adapter is None else load_adapter(model, base, adapter)


def load_adapter(model: Any, base: str, adapter: str, *, trainable: bool = True) -> Any:
    """`model` with an adapter's weights. Raises UsageError for one that does not load or is of another model."""
    from peft import PeftModel

    known = manifest.read(Path(adapter))
    if known is not None and Path(known.base).resolve() != Path(base).resolve():
        raise UsageError(f"{adapter}: an adapter of {known.base}, not of {base}", "give the base it was trained on")
    if not (Path(adapter) / "adapter_config.json").is_file():
        raise UsageError(f"{adapter}: no adapter (no adapter_config.json)", "give the --out folder of a training")
    try:
        return PeftModel.from_pretrained(model, adapter, is_trainable=trainable)
    # PEFT and safetensors raise what they like for damaged and misfitting files.
    except Exception as error:
        raise UsageError(f"{adapter}: the adapter does not load: {_first(error)}", "train it anew") from None


def lora(rank: int) -> Any:
    """LoRA on every linear layer but the output's."""
    from peft import LoraConfig

    return LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")


def _first(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
