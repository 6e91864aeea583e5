"""robust-kbench: a folder with func_forward.py (Model, forward_fn, get_inputs) and config_forward.json.

Every combination of the config's inputs, constructor arguments and shared values is a workload: the single ones
first, then the multi ones that name the same values. The module is read as it is; what follows it binds the values.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from evaluator.errors import TaskError
from evaluator.loaders.loading import Problem, module_task, read_source
from evaluator.types import Task, Workload

_MOST = 16
_FIX = "single_input_configs: a list of mappings"
_BOUND = """

{literals}


def get_init_inputs():
    bound = __import__("inspect").signature(Model).bind({init})
    bound.apply_defaults()
    return list(bound.args)


def get_inputs(made_with=get_inputs):
    return made_with({inputs})
"""


def problems(root: Path) -> list[Problem]:
    """Every folder with a func_forward.py. Raises `TaskError` where there is none."""
    found = [Problem(str(path.parent.relative_to(root)), path.parent.name) for path in root.rglob("func_forward.py")]
    if not found:
        raise TaskError(f"{root}: holds no func_forward.py", "give robust-kbench's folder tasks")
    return sorted(found)


def is_problem(place: str) -> bool:
    """Whether this is one problem's folder."""
    return (Path(place) / "func_forward.py").is_file()


def load(place: str) -> Task:
    """The task of one folder. Raises `TaskError`."""
    folder = Path(place)
    path = folder / "func_forward.py"
    source, config = read_source(path), folder / "config_forward.json"
    init, inputs = _combination(config)[0]
    literals = {**init, **inputs}
    bound = _BOUND.format(
        literals="\n".join(f"given_{name} = {value!r}" for name, value in literals.items()),
        init=", ".join(f"{name}=given_{name}" for name in init),
        inputs=", ".join(f"{name}=given_{name}" for name in inputs),
    )
    task = module_task(f"robust_kbench_{folder.resolve().name}", path, source + bound, "mixed")
    settings = [{**one, **other} for one, other in _combination(config)]
    same = [setting for setting in settings if setting.keys() == literals.keys()]
    distinct = [setting for index, setting in enumerate(same) if setting not in same[:index]]
    workloads = tuple(
        Workload(name=f"config {index + 1}", params={f"given_{name}": value for name, value in setting.items()})
        for index, setting in enumerate(distinct[:_MOST])
    )
    return task.model_copy(update={"workloads": workloads})


def _combination(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(constructor arguments, arguments of get_inputs) of every combination."""
    try:
        config = json.loads(read_source(path))
        found = []
        for kind in ("single", "multi"):
            lists = [config.get(f"{kind}_{part}_configs", [{}]) for part in ("init", "input", "shared")]
            for init, inputs, shared in itertools.product(*lists):
                found.append(({**init, **shared}, {**inputs, **shared}))
        values = [value for one, other in found for value in (*one.values(), *other.values())]
    except (ValueError, TypeError, AttributeError) as error:
        raise TaskError(f"{path}: {type(error).__name__}: {error}", _FIX) from None
    if not found or not all(isinstance(value, int | float | str) for value in values):
        raise TaskError(f"{path}: holds no configs of numbers and texts", _FIX)
    return found
