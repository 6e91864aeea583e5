"""KernelBench: a folder of level1 … level4 with one file for each problem, or JSON lines with one object for each.

A file is called `NUMBER_NAME.py`; an object has code, level, name and problem_id. Problems are read as they are.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import TaskError
from evaluator.loaders.loading import Problem, module_task, read_source
from evaluator.nearest import nearest
from evaluator.types import Task

_PLACE = re.compile(r"(.+)/level(\d+)/(\d+)")


class _Found(NamedTuple):
    """One problem; `source` is empty where it still has to be read from `path`."""

    level: int
    number: int
    name: str
    path: Path
    source: str = ""

    @property
    def place(self) -> str:
        """Where in its suite it is: `level1/24`."""
        return f"level{self.level}/{self.number}"


def problems(root: Path, level: int | None = None) -> list[Problem]:
    """All problems, of one level if it is given, by level and number. Raises `TaskError` where there is none."""
    return [Problem(found.place, found.name) for found in _problems(root, level)]


def is_problem(place: str) -> bool:
    """Whether this is one problem: `PATH/levelN/NUMBER`."""
    return _PLACE.fullmatch(place) is not None


def _problems(root: Path, level: int | None = None) -> list[_Found]:
    """All problems, of one level if it is given, by level and number. Raises `TaskError` where there is none."""
    found = _lines(root) if root.is_file() else _files(root)
    chosen = sorted(problem for problem in found if level in (None, problem.level))
    if not chosen:
        what = "KernelBench problem" if level is None else f"problem of level {level}"
        raise TaskError(f"{root}: holds no {what}", "give the folder that holds level1, or a .jsonl file")
    return chosen


def load(place: str) -> Task:
    """The task of `PATH/levelN/NUMBER`. Raises `TaskError`."""
    match = _PLACE.fullmatch(place)
    if not match:
        raise TaskError(f"kernelbench:{place}: names no problem", "kernelbench:PATH/level1/24")
    level, number = int(match[2]), int(match[3])
    known = {str(problem.number): problem for problem in _problems(Path(match[1]), level)}
    if str(number) not in known:
        raise TaskError(f"{match[1]}: level {level} has no problem {number}", nearest(str(number), known))
    problem = known[str(number)]
    source = problem.source or read_source(problem.path)
    return module_task(f"kernelbench_{level}_{number}", problem.path, source, "strict" if level == 1 else "mixed")


def _files(root: Path) -> list[_Found]:
    places = [root, root / "KernelBench"]
    return [
        _Found(int(folder.name.removeprefix("level")), int(match[1]), match[2], path)
        for place in places
        for folder in place.glob("level[0-9]")
        for path in folder.glob("*.py")
        if (match := re.fullmatch(r"(\d+)_(.+)", path.stem))
    ]


def _lines(path: Path) -> list[_Found]:
    found = []
    for number, line in enumerate(read_source(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            name, source = str(entry["name"]), str(entry["code"])
            found.append(_Found(int(entry["level"]), int(entry["problem_id"]), name, path, source))
        except (ValueError, TypeError, KeyError) as error:
            cause = f"{type(error).__name__}: {error}"
            raise TaskError(f"{path}:{number}: {cause}", "code, level, name and problem_id in each line") from None
    return found
