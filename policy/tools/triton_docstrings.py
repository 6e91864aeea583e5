"""`python -m policy.tools.triton_docstrings`: prints the language reference as JSON. Imports Triton, so it runs alone.

See `policy.tools.triton_reference`, which starts it.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType

from policy.tools.documents import Passage

MODULES = {"tl": "triton.language", "tl.math": "triton.language.math", "libdevice": "triton.language.extra.libdevice"}
HOST_SIDE = ("jit", "autotune", "heuristics", "Config", "cdiv", "next_power_of_2")
_HIDDEN_ARGUMENTS = ("_semantic", "_generator", "_builder")


def passages() -> Iterator[Passage]:
    """One passage for each public function or class, each once under its shortest name."""
    seen: set[int] = set()
    for prefix, name in MODULES.items():
        module = import_module(name)
        yield from _of_module(module, prefix, [name for name in sorted(vars(module)) if name[0] != "_"], seen)
    yield from _of_module(import_module("triton"), "triton", HOST_SIDE, seen)


def _of_module(module: ModuleType, prefix: str, names: Sequence[str], seen: set[int]) -> Iterator[Passage]:
    for name in names:
        value = getattr(module, name, None)
        function = getattr(value, "fn", value)  # a JITFunction wraps the function that has the docstring
        if not callable(function) or id(function) in seen or not _is_tritons(function):
            continue
        seen.add(id(function))
        own = vars(function).get("__doc__") if isinstance(function, type) else function.__doc__
        about = inspect.cleandoc(own or "")
        yield Passage(title=f"{prefix}.{name}", text=f"{prefix}.{name}{_signature(function)}\n\n{about}".strip())


def _is_tritons(function: object) -> bool:
    return str(getattr(function, "__module__", "")).startswith("triton.")


def _signature(function: object) -> str:
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    shown = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in signature.parameters.items()
        if name not in _HIDDEN_ARGUMENTS
    ]
    return str(signature.replace(parameters=shown, return_annotation=inspect.Signature.empty))


if __name__ == "__main__":
    sys.stdout.write(json.dumps([passage.model_dump() for passage in passages()]))
