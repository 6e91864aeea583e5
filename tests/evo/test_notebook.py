"""The notebook runs from its first cell to its last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = json.loads((ROOT / "docs" / "python.ipynb").read_text(encoding="utf-8"))
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_every_cell_runs_in_order(tmp_path):
    marked = [f"{code}\nprint('cell {number} done')" for number, code in enumerate(CELLS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    # From stdin, so that the main module has no file, as in Jupyter.
    done = subprocess.run(
        [sys.executable, "-"],
        input="\n\n".join(marked),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.splitlines()[-1] == f"cell {len(CELLS) - 1} done"
    assert "wrong wrong_value" in done.stdout
    assert "online_reduction" in (tmp_path / "runs" / "mine" / "journal.jsonl").read_text()


def test_the_notebook_is_kept_without_outputs_and_is_what_jupyter_reads():
    assert (NOTEBOOK["nbformat"], NOTEBOOK["metadata"]["language_info"]["name"]) == (4, "python")
    ids = [cell["id"] for cell in NOTEBOOK["cells"]]
    assert len(ids) == len(set(ids))
    assert all(cell["outputs"] == [] for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code")
