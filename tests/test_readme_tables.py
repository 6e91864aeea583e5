"""README's numbers are the committed results and nothing else."""

from __future__ import annotations

import json

from benchmarks.tables import RESULTS, ROOT, written


def test_the_tables_in_readme_are_generated_from_the_results():
    readme = (ROOT / "README.md").read_text()
    assert written(readme) == readme, "run `python -m benchmarks.tables`"


def test_every_result_says_where_it_comes_from():
    results = sorted(RESULTS.glob("*.json"))
    assert results
    for path in results:
        result = json.loads(path.read_text())
        # Parts that were measured at different times say so one by one.
        parts = [result] if "commit" in result else list(result.values())
        for part in parts:
            assert {"commit", "versions", "hardware", "command"} <= set(part), path.name
