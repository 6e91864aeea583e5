from __future__ import annotations

import json
import sys

from benchmarks import controller


def test_a_run_is_timed_without_its_stand_ins_and_resumed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(controller, "EVERY", 10)
    monkeypatch.setattr(controller, "LIMIT_MS", 1e9)
    out = tmp_path / "result.json"
    monkeypatch.setattr(sys, "argv", ["controller", "--candidates", "33", "--lines", "50", "--out", str(out)])
    assert controller.main() == 0
    result = json.loads(out.read_text())
    assert [reading["candidates"] for reading in result["readings"]] == [10, 20, 30]
    assert 50 <= result["journal_lines"] <= 60
    assert result["resume_seconds"] > 0
    assert "limit 1e+09" in capsys.readouterr().out
    monkeypatch.setattr(controller, "LIMIT_MS", 0.0)
    assert controller.main() == 1
