"""What an adapter's folder says of how it was made: `manifest.json`, written last. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evaluator.errors import UsageError
from evaluator.types import Frozen
from policy.training.settings import TrainingSettings

NAME = "manifest.json"
WEIGHTS = "adapter_model.safetensors"
LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")


class Probe(Frozen):
    """Mean rewards of the same prompts before and after a training."""

    before: float
    after: float
    prompts: int
    answers: int
    """To each prompt."""


class Manifest(Frozen):
    """An adapter and where it comes from."""

    version: str
    """16 hex digits of the weights' SHA-256."""
    base: str
    method: str
    runs: tuple[str, ...]
    turns: int
    """Turns of the runs; what each method takes of them is in `rows`."""
    rows: int
    """Rows of SFT or DPO, prompts of reinforcement learning."""
    parents: tuple[str, ...]
    """Versions of the adapters it was trained from, oldest first."""
    settings: TrainingSettings
    seeds: Mapping[str, int]
    metrics: Mapping[str, Any]
    """Of the last logged step."""
    alarms: tuple[str, ...] = ()
    """Every alarm that rang, `step: words`."""
    out_of_memory: int = 0
    """How often the micro-batch was halved."""
    probe: Probe | None = None
    libraries: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Write the folder's manifest, whole or not at all."""
        temporary = folder / f".{NAME}.tmp"
        temporary.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        temporary.replace(folder / NAME)


def read(folder: Path) -> Manifest | None:
    """The manifest of an adapter; None where there is none, as beside adapters that others made."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        return Manifest.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"{path}: not readable: {first}", "train the adapter anew, or give another") from None


def version_of(folder: Path) -> str:
    """What names the weights in a folder."""
    return hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()[:16]


def libraries() -> dict[str, str]:
    """Versions of what trains."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
