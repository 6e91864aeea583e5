"""A causal language model of `transformers`: loading it, its adapters, and where its weights lie."""

from __future__ import annotations

import importlib.util
import itertools
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.errors import EnvironmentUnusableError
from evaluator.judge import seeded
from policy.chat import AskError
from policy.local_chat import first_line, has_gpu
from policy.transformers_generate import Generator, Job, Sample, accepted_by

logger = logging.getLogger(__name__)

UNKNOWN_CONTEXT = 8192
"""Tokens of a model whose config names no limit."""
INSTALL = "pip install 'kernevo[transformers]'"


@dataclass(frozen=True)
class TransformersSettings:
    """What to load and how to sample."""

    model: str
    """Folder of the model: config.json, weights, tokenizer with a chat template."""
    temperature: float = 0.8
    top_p: float = 1.0
    top_k: int | None = None
    """Tokens that are drawn from at most; all of them when None."""
    max_model_len: int | None = None
    """Tokens of a prompt and its answer together; the model's own limit when None."""
    dtype: str = "auto"
    """`auto` is the weights' own on a GPU and float32 on a CPU."""
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1` …; `auto` is the first GPU where there is one."""
    adapter: str | None = None
    """Folder of a LoRA adapter."""
    sleep: bool = True
    """Move the weights to the CPU between calls."""
    batch: int = 64
    """Answers written at once at most; fewer where memory runs out."""


def load(settings: TransformersSettings) -> TransformersEngine:
    """The engine, asleep. Raises EnvironmentUnusableError when something it needs is not there."""
    needed = ["transformers"] if settings.adapter is None else ["transformers", "peft"]
    for package in needed:
        if importlib.util.find_spec(package) is None:
            raise EnvironmentUnusableError(f"policy type transformers needs the package {package}", INSTALL)
    if not (Path(settings.model) / "config.json").is_file():
        raise EnvironmentUnusableError(
            f"{settings.model} holds no config.json", "set policy.model to the folder of a model"
        )
    device = device_of(settings.device)
    try:
        with _apart(device):
            model, tokenizer = _read(settings, device)
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        raise EnvironmentUnusableError(
            f"transformers cannot load {settings.model}: {first_line(error)}",
            "check policy.model: a folder with config.json, weights and a tokenizer",
        ) from None
    if tokenizer.chat_template is None:
        raise EnvironmentUnusableError(
            f"{settings.model}: its tokenizer has no chat template",
            "use a model that was tuned for chat, or put a chat_template.jinja into the folder",
        )
    if tokenizer.eos_token_id is None:
        raise EnvironmentUnusableError(
            f"{settings.model}: its tokenizer names no token that ends an answer", "set eos_token in its config"
        )
    engine = TransformersEngine(model, tokenizer, device, settings)
    if settings.adapter is not None:
        try:
            engine.use_adapter(settings.adapter, settings.adapter)
        except AskError as error:
            raise EnvironmentUnusableError(error.message, error.hint) from None
    return engine


def device_of(name: str) -> str:
    """torch's name of the device that is meant. Raises EnvironmentUnusableError for a GPU that is not there."""
    import torch

    if name == "auto":
        return "cuda:0" if has_gpu() else "cpu"
    if name == "cpu":
        return name
    index = int(name.partition(":")[2] or 0)
    count = torch.cuda.device_count() if has_gpu() else 0
    if index >= count:
        raise EnvironmentUnusableError(f"policy.device is {name}, and torch sees {count} GPUs", "set policy.device")
    return f"cuda:{index}"


def _apart(device: str) -> AbstractContextManager[None]:
    """Inside, what belongs to the whole process is ours: loading changes torch's default dtype, and new adapters are
    filled with its random numbers before their weights come."""
    return seeded(0, "policy", devices=[] if device == "cpu" else [int(device.partition(":")[2])])


def _read(settings: TransformersSettings, device: str) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as talk

    talk.disable_progress_bar()
    on_device: Any = torch.float32 if device == "cpu" else "auto"
    dtype = on_device if settings.dtype == "auto" else getattr(torch, settings.dtype)
    model = AutoModelForCausalLM.from_pretrained(settings.model, dtype=dtype, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(settings.model, local_files_only=True)
    return model.eval(), tokenizer


class TransformersEngine:
    """A model with its tokenizer on one device. For one thread."""

    def __init__(self, model: Any, tokenizer: Any, device: str, settings: TransformersSettings) -> None:
        """`model` may lie on any device; `wake` brings it to `device`."""
        self.tokenizer = tokenizer
        self.device = device
        self._base = self._model = model
        self._settings = settings
        self._adapter: str | None = None
        self._numbers = itertools.count()
        self._generator = Generator(lambda: self._model, accepted_by(model), device, settings.batch)

    @property
    def context_tokens(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        own = getattr(self._base.config, "max_position_embeddings", None) or UNKNOWN_CONTEXT
        return min(int(own), self._settings.max_model_len or int(own))

    @property
    def stops(self) -> frozenset[int]:
        """Tokens that end an answer."""
        named = self._base.generation_config.eos_token_id if self._base.generation_config else None
        others = named if isinstance(named, list) else [] if named is None else [named]
        return frozenset([self.tokenizer.eos_token_id, *others])

    def generate(self, jobs: Sequence[Job]) -> list[list[Sample]]:
        """`job.n` samples for each job. The model must be awake."""
        s = self._settings
        return self._generator.run(jobs, s.temperature, s.top_k, s.top_p, self.stops)

    def wake(self) -> None:
        """Weights to the device."""
        self._model.to(self.device)

    def rest(self) -> None:
        """Weights to the CPU and what was cached of the device's memory given back; nothing with `sleep: false`."""
        if self.device == "cpu" or not self._settings.sleep:
            return
        import torch

        self._model.to("cpu")
        torch.cuda.empty_cache()

    def use_adapter(self, name: str, path: str | None) -> None:
        """Answer with the LoRA adapter in `path` from now on, or with the model itself when None.

        The base stays loaded. Raises AskError("adapter") for one that does not fit; then the old one stays in use.
        """
        if path is None:
            self._leave_adapters()
            return
        if importlib.util.find_spec("peft") is None:
            raise AskError("adapter", f"adapter {name} needs the package peft", INSTALL)
        if not (Path(path) / "adapter_config.json").is_file():
            raise AskError("adapter", f"{path} holds no adapter_config.json", "give the folder of a LoRA adapter")
        key = f"adapter{next(self._numbers)}"
        try:
            with _apart(self.device):
                self._model = self._with_adapter(key, path)
        except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
            hint = f"it must be a LoRA adapter of {self._settings.model}"
            raise AskError("adapter", f"{path}: {first_line(error)}", hint) from None
        if self._adapter is not None:
            self._model.delete_adapter(self._adapter)
        self._adapter = key
        logger.info("policy transformers answers with adapter %s", name)

    def _with_adapter(self, key: str, path: str) -> Any:
        """The model with one more adapter, in use. Raises what peft raises, with the model as it was."""
        from peft import PeftConfig, PeftModel

        first = not isinstance(self._model, PeftModel)
        if first:
            config = PeftConfig.from_pretrained(path)
            config.inference_mode = True
            wrapped: Any = PeftModel(self._model, config, adapter_name=key)
        else:
            wrapped = self._model
        try:
            found = wrapped.load_adapter(path, key, torch_device="cpu")
            unfit = [*found.missing_keys, *found.unexpected_keys]
            if unfit:
                raise ValueError(f"its weights do not fit the model, {unfit[0]} for one")
        except BaseException:
            if first:
                wrapped.unload()
            elif key in wrapped.peft_config:
                wrapped.delete_adapter(key)
                wrapped.set_adapter(self._adapter)
            raise
        wrapped.set_adapter(key)
        return wrapped.eval()

    def _leave_adapters(self) -> None:
        if self._adapter is not None:
            self._model = self._model.unload()
            self._adapter = None
