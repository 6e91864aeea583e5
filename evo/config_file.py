"""From a YAML file and `--set` overrides to a checked `CampaignConfig`.

Every fault is a UsageError that says file:line:column, the key, what is wrong and the nearest valid key. Wrong keys
and types are reported all together, then settings that do not fit each other. Files may also be named as shipped
configs: `quickstart`.
"""

from __future__ import annotations

import copy
import difflib
import json
import os.path
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from evaluator import yaml_reader
from evaluator.errors import UsageError
from evaluator.yaml_reader import Document
from evo import config_checks
from evo.config import CampaignConfig
from evo.config_keys import dotted, sections
from evo.config_problems import from_validation, usage_error

_MAX_BYTES = 1 << 20
_PACKAGE = Path(__file__).parent
_SHIPPED = (_PACKAGE / "shipped_configs", _PACKAGE.parent / "configs")
"""Where shipped configs lie: in an installed wheel, in a source tree."""


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> CampaignConfig:
    """The checked config of a file (or of a shipped config's name) with `a.b=value` overrides applied.

    Raises UsageError for whatever a user can get wrong in it.
    """
    found = find_config(path)
    document = yaml_reader.parse(read_text(found), str(found))
    if document.data is None:
        raise UsageError(f"{found}:1:1: the file is empty", "write at least `task:` and `budget:`; see docs/config.md")
    if not isinstance(document.data, dict):
        kind = "a list" if isinstance(document.data, list) else "a single value"
        raise UsageError(
            f"{found}:1:1: {kind} where keys such as task and budget are expected",
            "write `key: value` lines; configs/quickstart.yaml is a complete example",
        )
    for override in overrides:
        _apply_override(document, override)
    _resolve_task_folder(document, found.parent)
    return _validate(document)


def load_mapping(data: Mapping[str, Any], label: str = "config", overrides: Sequence[str] = ()) -> CampaignConfig:
    """The checked config of plain data, e.g. a dict written in Python. Raises UsageError like `load_config`."""
    document = Document(label, copy.deepcopy(dict(data)))
    for override in overrides:
        _apply_override(document, override)
    return _validate(document)


def shipped_configs() -> dict[str, Path]:
    """Name -> file of the configs that come with Kernevo."""
    folder = next((folder for folder in _SHIPPED if folder.is_dir()), None)
    return {} if folder is None else {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_config(spec: Path | str) -> Path:
    """The file that `spec` means: a path that exists, or a shipped config's name.

    `quickstart`, `quickstart.yaml` and `configs/quickstart.yaml` all name the shipped one when no such file is
    here. Raises UsageError when nothing fits.
    """
    path = Path(spec)
    shipped = shipped_configs()
    named = path.suffix in ("", ".yaml") and str(path.parent) in (".", "configs") and path.stem in shipped
    if named and not os.path.isfile(path):
        return shipped[path.stem]
    if os.path.isdir(path):
        raise UsageError(f"{path}: is a folder, not a config file", "give the YAML file in it")
    if not os.path.exists(path):  # unlike Path.exists, False for what can be no path at all
        near = difflib.get_close_matches(path.stem, shipped, n=1, cutoff=0.5)
        beside = [file.name for file in path.parent.glob("*.y*ml")] if os.path.isdir(path.parent) else []
        local = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.5)
        meant = str(path.parent / local[0]) if local else f"configs/{near[0]}.yaml" if near else ""
        fix = f"did you mean {meant}?" if meant else f"shipped configs: {', '.join(shipped)}"
        raise UsageError(f"{path}: no such file", fix)
    return path


def read_text(spec: Path | str) -> str:
    """The text of the config file that `spec` means. Raises UsageError when it is not UTF-8 text."""
    path = find_config(spec)
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", "check the file's permissions") from None
    if len(raw) > _MAX_BYTES:
        raise UsageError(f"{path}: larger than {_MAX_BYTES >> 20} MiB", "give a config file, not data")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        raise UsageError(
            f"{path}:{line}:{column}: not text: byte 0x{raw[error.start]:02x} is not UTF-8",
            "save the file as UTF-8 text",
        ) from None


def _apply_override(document: Document, override: str) -> None:
    key, equals, text = override.partition("=")
    parts = tuple(key.strip().split("."))
    if not equals or not all(parts):
        raise UsageError(f"--set {override}: no `key=value`", "write e.g. --set budget.evaluations=100")
    label = f"--set {key.strip()}"
    value = yaml_reader.parse(text, label)
    section = document.data
    for index, part in enumerate(parts[:-1]):
        inner = section.setdefault(part, {})
        if inner is None:
            inner = section[part] = {}
        if not isinstance(inner, dict):
            raise UsageError(f"{label}: {dotted(parts[: index + 1])} is not a section", "set that key as a whole")
        document.values.setdefault(parts[: index + 1], label)
        section = inner
    section[parts[-1]] = value.data
    for positions in (document.keys, document.values):
        for loc in [loc for loc in positions if loc[: len(parts)] == parts]:
            del positions[loc]
        positions[parts] = label
        positions.update({(*parts, *loc): label for loc in value.values})


def _resolve_task_folder(document: Document, folder: Path) -> None:
    # A task folder is looked for where the command runs, then beside the config file that names it.
    spec = document.data.get("task")
    if isinstance(spec, str) and spec and not os.path.exists(spec) and os.path.isdir(folder / spec):
        document.data["task"] = str(folder / spec)


def _validate(document: Document) -> CampaignConfig:
    document.data = _with_default_types(document.data, CampaignConfig)
    try:
        # Through JSON, because strict JSON mode takes a list for a tuple and an int for a float, and nothing else.
        config = CampaignConfig.model_validate_json(json.dumps(document.data))
    except ValidationError as error:
        raise usage_error(from_validation(error, document)) from None
    except (TypeError, ValueError) as error:
        raise UsageError(f"{document.label}: {error}", "use plain lists, texts, numbers and truth values") from None
    problems = config_checks.check(config, document)
    if problems:
        raise usage_error(problems)
    return config


def _with_default_types(data: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """`data` with the default `type:` in sections that leave it out: `evaluator: {workers: 2}` is the CPU's."""
    filled = dict(data)
    for name, field in model.model_fields.items():
        value = filled.get(name)
        default = getattr(field.default, "type", None)
        if isinstance(value, list) and isinstance(default, str):
            filled[name] = [_typed(one, default) for one in value]
        if not isinstance(value, dict):
            continue
        value = _typed(value, default)
        members = sections(field.annotation)
        filled[name] = _with_default_types(value, members[0]) if len(members) == 1 else value
    return filled


def _typed(value: Any, default: str | None) -> Any:
    return {"type": default, **value} if isinstance(value, dict) and default and "type" not in value else value
