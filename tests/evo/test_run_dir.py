"""A run directory has one writer, overwrites nothing and vouches for its sources."""

from __future__ import annotations

import errno

import pytest

from evaluator.errors import EnvironmentUnusableError, KernevoError, UsageError
from evaluator.types import KernelSource
from evo.run_dir import RunDir


@pytest.fixture
def run_dir(tmp_path):
    made = RunDir(tmp_path / "run")
    made.create()
    return made


def test_a_used_directory_is_refused_and_left_alone(run_dir):
    (run_dir.path / "journal.jsonl").write_text("mine")
    with pytest.raises(UsageError, match=r"already used.*") as caught:
        RunDir(run_dir.path).create()
    assert "kernevo resume" in caught.value.hint
    assert (run_dir.path / "journal.jsonl").read_text() == "mine"


def test_an_empty_directory_may_be_used(tmp_path):
    (tmp_path / "empty").mkdir()
    RunDir(tmp_path / "empty").create()
    assert (tmp_path / "empty" / "kernels").is_dir()


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(UsageError, match="already used"):
        RunDir(tmp_path / "run").create()


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "parent").write_text("not a folder")
    with pytest.raises(EnvironmentUnusableError, match="cannot be written"):
        RunDir(tmp_path / "parent" / "run").create()


def test_a_second_writer_is_refused_until_the_first_is_gone(run_dir):
    run_dir.lock()
    other = RunDir(run_dir.path)
    assert other.in_use
    with pytest.raises(UsageError, match="another process is writing"):
        other.lock()
    run_dir.unlock()
    assert not other.in_use
    other.lock()
    other.unlock()


@pytest.mark.parametrize("text", ["x = 1\n", "x = 1\r\n\ttab", "lone surrogate \udcff", "é" * 1000])
def test_a_stored_source_comes_back_byte_for_byte(run_dir, text):
    source = KernelSource(text=text)
    run_dir.store([source, source])
    assert RunDir(run_dir.path).source(source.sha).text == text


def test_many_sources_are_stored_at_once_and_nothing_else_is_left(run_dir):
    sources = [KernelSource(text=f"x = {number}\n") for number in range(100)]
    run_dir.store(sources[:40])
    run_dir.store(sources)
    assert {path.name for path in run_dir.kernels.iterdir()} == {f"{source.sha}.py" for source in sources}
    assert [RunDir(run_dir.path).source(source.sha) for source in sources] == sources


def test_a_source_that_cannot_be_written_is_an_error_that_names_its_file(run_dir, monkeypatch):
    full = KernelSource(text="full\n")
    write = run_dir.write_atomically

    def refuse(path, text):
        if text == full.text:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, text)

    monkeypatch.setattr(run_dir, "write_atomically", refuse)
    with pytest.raises(OSError, match="No space left"):
        run_dir.store([KernelSource(text="fits\n"), full])


def test_a_source_that_was_changed_is_not_trusted(run_dir):
    source = KernelSource(text="x = 1\n")
    run_dir.store([source])
    sha = source.sha
    (run_dir.kernels / f"{sha}.py").write_text("x = 2\n")
    with pytest.raises(KernevoError, match="changed after it was judged"):
        RunDir(run_dir.path).source(sha)


def test_a_missing_source_names_its_file(run_dir):
    with pytest.raises(KernevoError, match=r"kernels/0{64}\.py"):
        run_dir.source("0" * 64)


def test_what_a_run_killed_before_its_first_line_left_may_be_used_again(run_dir):
    run_dir.lock()
    run_dir.unlock()
    run_dir.config_yaml.write_text("task: softmax\n")
    RunDir(run_dir.path).create()


def test_a_folder_that_only_looks_like_a_run_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.yaml").write_text("mine")
    with pytest.raises(UsageError, match="already used"):
        RunDir(tmp_path / "mine").create()
    assert (tmp_path / "mine" / "config.yaml").read_text() == "mine"
