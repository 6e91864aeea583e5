"""Runs a task module that nobody trusts to learn its dtype and small shapes; a program of its own (see `loading`).

Reads `{"path", "source", "sizes", "small", "checks"}` as JSON from stdin and prints one JSON line: `{"dtype", "shapes",
"fixed"}` (`fixed` are the sizes that cannot shrink), or `{"refused", "line"}` with the cause. Full sizes are only built
on the meta device, which holds no values, unless the module looks at values.
"""

from __future__ import annotations

import ast
import copy
import json
import linecache
import sys
import traceback
from typing import Any

import torch

STEPS = (2, 4, 8, 16, 32, 64, 128, 256)
"""Sizes tried for one parameter after another where no size fits all of them."""


class RefusedError(Exception):
    """What the module does that no task may do."""


class Module:
    """The module under other values of its sizes."""

    def __init__(self, path: str, source: str) -> None:
        self._path, self._source = path, source
        self.fits = self.runs_without_values
        """How to find out whether some sizes go together."""

    def names(self, params: dict[str, int]) -> dict[str, Any]:
        """What the module defines."""
        tree = ast.parse(self._source)
        # Triton reads the source of its kernels.
        linecache.cache[self._path] = (len(self._source), None, self._source.splitlines(keepends=True), self._path)
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in params:
                node.value = ast.copy_location(ast.Constant(params[node.targets[0].id]), node.value)
        names: dict[str, Any] = {"__name__": "module"}
        exec(compile(ast.fix_missing_locations(tree), self._path, "exec"), names)
        return names

    def made(self, params: dict[str, int]) -> tuple[Any, list[Any]]:
        """The model and its inputs."""
        names = self.names(params)
        model = names["Model"](*names.get("get_init_inputs", list)())
        return model, list(names["get_inputs"]())

    def runs_without_values(self, params: dict[str, int]) -> bool:
        """Whether shapes fit together."""
        try:
            with torch.device("meta"), torch.no_grad():
                model, inputs = self.made(params)
                model(*inputs)
        except Exception:
            return False
        return True

    def run(self, params: dict[str, int]) -> None:
        """One call with values, on the CPU. Raises what the module raises."""
        model, inputs = self.made(params)
        with torch.no_grad():
            model(*inputs)

    def runs(self, params: dict[str, int]) -> bool:
        """Whether that works."""
        try:
            self.run(params)
        except Exception:
            return False
        return True


def leaves(value: Any) -> list[Any]:
    """What nested tuples, lists and dicts hold."""
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list | tuple) else [value]


def shrinkable(module: Module, sizes: dict[str, int], small: list[int]) -> list[str]:
    """The sizes that can be small while the others are as given."""
    if sizes and not module.runs_without_values({}):
        module.fits = module.runs
    return [name for name in sizes if module.fits({name: small[1]})]


def small_shapes(module: Module, sizes: dict[str, int], small: list[int], free: list[str]) -> list[dict[str, Any]]:
    """Shapes for checks: all `free` near one of `small`, else each as small as the others allow, else as given."""
    shapes = []
    for label, size in zip(("one", "prime", "ragged", "even"), small, strict=True):
        params = {name: size if size == 1 else size + 4 * index for index, name in enumerate(free)}
        if free and module.fits(params) and module.runs(params):
            shapes.append({"name": label, "params": params})
    if not shapes:
        params = {}
        for name in sorted(sizes, key=lambda name: -sizes[name]):
            fits = (step for step in STEPS if step < sizes[name])
            found = next((step for step in fits if module.fits({**params, name: step})), None)
            params |= {} if found is None else {name: found}
        if params and module.runs(params):
            shapes.append({"name": "small", "params": params})
    return shapes or [{"name": "as given", "params": {}}]


def look(module: Module, params: dict[str, int]) -> str:
    """The first output's dtype. Raises what the module raises, and `RefusedError`."""
    torch.manual_seed(0)
    model, inputs = module.made(params)
    if not isinstance(model, torch.nn.Module):
        raise RefusedError("Model is no torch.nn.Module")
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with torch.no_grad():
            found.append(leaves(copy.deepcopy(model)(*copy.deepcopy(inputs))))
    for output in found[0]:
        if not isinstance(output, torch.Tensor):
            raise RefusedError(f"forward returns {'None' if output is None else f'a {type(output).__name__}'}")
    if not found[0]:
        raise RefusedError("forward returns no tensor")
    for first, second in zip(*found, strict=True):
        if not torch.equal(torch.nan_to_num(first), torch.nan_to_num(second)):
            raise RefusedError("forward is random: the same inputs gave two outputs (dropout counts)")
    return str(found[0][0].dtype).removeprefix("torch.")


def main() -> None:
    """Answer for the module on stdin."""
    given = json.load(sys.stdin)
    module = Module(given["path"], given["source"])
    try:
        for needed in ("Model", "get_inputs"):
            if needed not in module.names({}):
                raise RefusedError(f"the module defines no {needed}")
        free = shrinkable(module, given["sizes"], given["small"]) if not given["checks"] else list(given["sizes"])
        shapes = [one for one in given["checks"] if module.runs(one["params"])]
        if not given["checks"]:
            shapes = small_shapes(module, given["sizes"], given["small"], free)
        if not shapes:
            module.run(given["checks"][0]["params"])
        answer: dict[str, Any] = {
            "dtype": look(module, shapes[0]["params"]),
            "shapes": shapes,
            "fixed": [name for name in given["sizes"] if name not in free],
        }
    except RefusedError as error:
        answer = {"refused": str(error), "line": None}
    except BaseException as error:
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == given["path"]]
        said = str(error).splitlines() or [""]
        answer = {"refused": f"{type(error).__name__}: {said[0]}", "line": own[-1] if own else None}
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
