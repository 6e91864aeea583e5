"""README's numbers are the committed results and nothing else."""

from __future__ import annotations

import json

import pytest

from benchmarks import ablation_shown
from benchmarks.learning import shown
from benchmarks.tables import FIGURES, RESULTS, ROOT, pages


def test_the_tables_in_readme_and_docs_are_generated_from_the_results():
    for path, text in pages().items():
        assert path.read_text(encoding="utf-8") == text, "run `python -m benchmarks.tables`"


@pytest.mark.parametrize(
    ("write", "pattern"),
    [(shown.write_curves, shown.PATTERN), (ablation_shown.write_figures, ablation_shown.PATTERN)],
    ids=["learning", "ablation"],
)
def test_the_committed_figures_are_generated_from_the_results(tmp_path, write, pattern):
    made = {path.name: path.read_text() for path in write(RESULTS, tmp_path)}
    committed = (ROOT / "docs" / FIGURES).glob(pattern.replace(".json", ".svg"))
    assert made == {path.name: path.read_text() for path in committed}, "run `python -m benchmarks.tables`"


def test_every_result_says_where_it_comes_from():
    results = sorted(RESULTS.glob("*.json"))
    assert results
    for path in results:
        result = json.loads(path.read_text())
        # Parts that were measured at different times say so one by one.
        parts = [result] if "commit" in result else list(result.values())
        for part in parts:
            assert {"commit", "versions", "hardware", "command"} <= set(part), path.name
