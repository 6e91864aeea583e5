"""Small strict YAML files with errors that point: file:line:column, the wrong key, the nearest right one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from evaluator.errors import TaskError


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean X?`, or the list of what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names) or 'none'}"


def load_mapping(path: Path, text: str) -> tuple[dict[str, Any], dict[str, str]]:
    """A mapping and, for each top-level key, where it stands. Raises TaskError with the position."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise TaskError(f"{where}: not YAML: {error.problem}", "mend the syntax at that place") from None
    if not isinstance(node, yaml.MappingNode):
        raise TaskError(f"{path}:1:1: a task file is a mapping of keys to values", "start with `description: …`")
    positions: dict[str, str] = {}
    for key, _ in node.value:
        where = f"{path}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
        if key.value in positions:
            raise TaskError(f"{where}: key {key.value} is given twice", "keep one of them")
        positions[str(key.value)] = where
    loaded = yaml.load(text, Loader=_Loader)
    assert isinstance(loaded, dict)
    return {str(key): value for key, value in loaded.items()}, positions


class _Loader(yaml.SafeLoader):
    """SafeLoader that reads `1e-5` as the number it is."""


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node))


_Loader.add_constructor("!scientific", _number)
_Loader.yaml_implicit_resolvers = {key: list(value) for key, value in yaml.SafeLoader.yaml_implicit_resolvers.items()}
for _first in "+-0123456789.":
    _Loader.yaml_implicit_resolvers.setdefault(_first, []).insert(
        0, ("!scientific", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"))
    )
