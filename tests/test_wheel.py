"""The distribution holds all that the commands need outside of a checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> set[str]:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("kernevo-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_shipped_task_is_in_the_wheel(names):
    for task in (ROOT / "evaluator/tasks").iterdir():
        if (task / "task.yaml").is_file():
            for file in ("task.yaml", "reference.py", "seed.py"):
                assert f"evaluator/tasks/{task.name}/{file}" in names


def test_every_shipped_config_is_in_the_wheel(names):
    configs = {path.name for path in (ROOT / "configs").glob("*.yaml")}
    assert "quickstart.yaml" in configs
    assert {name.split("/")[-1] for name in names if name.startswith("evo/shipped_configs/")} >= configs


def test_templates_and_every_module_are_in_the_wheel(names):
    for package in ("evo", "policy", "evaluator"):
        for path in (ROOT / package).rglob("*"):
            if path.suffix in (".py", ".j2", ".json", ".css", ".js") and "__pycache__" not in path.parts:
                assert str(path.relative_to(ROOT)) in names


def test_tests_and_runs_stay_out_of_the_wheel(names):
    assert not [name for name in names if name.startswith(("tests/", "runs/", "benchmarks/"))]
