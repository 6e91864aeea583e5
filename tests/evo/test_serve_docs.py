"""The examples of docs/commands/serve.md, word for word, and its tables against the models."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from evo.serve.records import Answer, EvaluationRequest

PAGE = (Path(__file__).parents[2] / "docs" / "commands" / "serve.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return text


def test_the_curl_examples_print_what_the_page_says(tmp_path):
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 8765)) == 0:
            pytest.skip("something else listens on the examples' port")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, command in (("kernevo", "-m evo.cli.main"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        (programs / name).chmod(0o755)
    root = str(Path(__file__).parents[2])
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
    }
    script = f"set -m\ntrap 'kill %1 2>/dev/null' EXIT\n{block('sh')}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    printed = done.stdout.replace("}", "}\n", 1)  # curl ends no line
    assert printed == block("text"), done.stderr


@pytest.mark.parametrize("model", [EvaluationRequest, Answer])
def test_every_field_is_described(model):
    described = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in PAGE.splitlines() if "|" in line)))
    assert set(model.model_fields) - {"ignored"} <= described
