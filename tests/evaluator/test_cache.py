from __future__ import annotations

import logging
import os

import pytest

from evaluator.cache import VerdictCache, default_folder
from evaluator.types import EvalStatus, Evaluation, KernelSource, Timing

SOURCE = KernelSource(text="x = 1\n")


def evaluation(source=SOURCE, status=EvalStatus.PASSED):
    timings = {"w": Timing(kind="modelled", median_ms=1.5, baseline_ms=3.0)} if status.passed else {}
    return Evaluation(source_sha=source.sha, task="t", evaluator="cpu", status=status, timings=timings)


def test_a_kept_verdict_comes_back_marked_as_cached(tmp_path):
    cache = VerdictCache(tmp_path, {"task": "t"})
    cache.put(SOURCE, evaluation())
    found = VerdictCache(tmp_path, {"task": "t"}).get(SOURCE)
    assert found == evaluation().model_copy(update={"cached": True})


def test_an_unknown_source_is_a_miss(tmp_path):
    assert VerdictCache(tmp_path, {}).get(SOURCE) is None


def test_another_context_shares_nothing(tmp_path):
    VerdictCache(tmp_path, {"target": "h200"}).put(SOURCE, evaluation())
    assert VerdictCache(tmp_path, {"target": "a100"}).get(SOURCE) is None


@pytest.mark.parametrize("status", [EvalStatus.HARNESS_ERROR, EvalStatus.WORKER_LOST, EvalStatus.TIMEOUT])
def test_verdicts_about_the_machine_are_not_kept(tmp_path, status):
    cache = VerdictCache(tmp_path, {})
    cache.put(SOURCE, evaluation(status=status))
    assert cache.get(SOURCE) is None
    assert list(tmp_path.rglob("*.json")) == []


def test_failed_verdicts_are_kept(tmp_path):
    cache = VerdictCache(tmp_path, {})
    cache.put(SOURCE, evaluation(status=EvalStatus.WRONG_VALUE))
    assert cache.get(SOURCE).status is EvalStatus.WRONG_VALUE


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"status": "passed"}'])
def test_a_damaged_file_is_a_miss_with_a_warning(tmp_path, caplog, damage):
    cache = VerdictCache(tmp_path, {})
    cache.put(SOURCE, evaluation())
    cache.path(SOURCE).write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert cache.get(SOURCE) is None
    assert str(cache.path(SOURCE)) in caplog.text
    cache.put(SOURCE, evaluation())
    assert cache.get(SOURCE).status.passed


def test_a_verdict_of_another_source_is_not_believed(tmp_path, caplog):
    cache = VerdictCache(tmp_path, {})
    other = KernelSource(text="y = 2\n")
    cache.put(other, evaluation(other))
    cache.path(SOURCE).parent.mkdir(parents=True, exist_ok=True)
    os.replace(cache.path(other), cache.path(SOURCE))
    assert cache.get(SOURCE) is None
    assert "another source" in caplog.text


def test_a_folder_that_cannot_be_written_warns_once_and_costs_nothing_else(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = VerdictCache(blocked, {})
    cache.put(SOURCE, evaluation())
    cache.put(SOURCE, evaluation())
    assert caplog.text.count("not kept") == 1


def test_a_failed_write_leaves_no_half_file(tmp_path, monkeypatch):
    cache = VerdictCache(tmp_path, {})

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    cache.put(SOURCE, evaluation())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_default_folder_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "kernevo"
