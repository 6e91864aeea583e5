"""What a `learning` section must say."""

from __future__ import annotations

import pytest

from evaluator.errors import UsageError
from evo.config_file import load_config

pytest.importorskip("openai")

OPENAI = "policy: {type: openai, model: m}\n"


@pytest.mark.parametrize(
    ("policy", "learning", "words"),
    [
        ("", "base: model, allow_modelled: true", "learning.every: 0 policies can change their adapter, not one"),
        (OPENAI, "base: nowhere, allow_modelled: true", "learning.base: 'nowhere' holds no model"),
        (OPENAI, "base: model", "learning.allow_modelled: the cpu evaluator's latencies are modelled"),
    ],
)
def test_learning_that_cannot_work_is_refused_with_the_place(tmp_path, monkeypatch, policy, learning, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    text = f"task: softmax\nbudget: {{evaluations: 9}}\n{policy}learning: {{every: 2, {learning}}}\n"
    (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(UsageError) as refused:
        load_config("my.yaml")
    assert words in str(refused.value)
