"""The commands of docs/training.md, word for word, with a tiny random model in the place of a real one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")

from policy.training import manifest
from tests.policy.training import tiny

ROOT = Path(__file__).parents[2]


def commands():
    (found,) = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "training.md").read_text(encoding="utf-8"), re.DOTALL)
    return found


def test_a_run_becomes_an_adapter_and_the_adapter_proposes_the_next_run(tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    tiny.make(tmp_path / "models" / "smollm2", context=16384)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kernevo").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m evo.cli.main "$@"\n')
    (programs / "kernevo").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }
    done = subprocess.run(
        ["bash", "-ec", commands()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = manifest.read(tmp_path / "adapters" / "sft")
    assert made is not None
    assert made.runs == ("warm-up",)
    turns = [json.loads(line) for line in (tmp_path / "runs/learned/trajectories.jsonl").read_text().splitlines()]
    answered = [turn for turn in turns if turn["policy"] == "transformers"]
    assert answered
    assert {turn["policy_version"] for turn in answered} == {"adapters/sft"}
