"""The journal keeps what it was given, and says which line is damaged."""

from __future__ import annotations

import json
import math
import os
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import EnvironmentUnusableError
from evo import journal
from evo.journal import Event, Journal, JournalError, TornLineWarning

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def written(path, count):
    book = Journal(path)
    for number in range(count):
        book.append("kind", {"number": number, "text": "line\nbreak \u2028 \udcff"})
    book.close()
    return path


@given(data=st.dictionaries(st.text(), json_values, max_size=5), kind=st.text(min_size=1))
def test_an_event_comes_back_as_it_went_in(data, kind):
    event = Event(seq=7, kind=kind, data=data)
    line = journal.encode(event)
    assert line.count(b"\n") == 1
    assert journal.decode(line) == event


def test_nan_and_infinity_survive():
    line = journal.encode(Event(seq=0, kind="k", data={"a": math.nan, "b": -math.inf}))
    data = journal.decode(line).data
    assert math.isnan(data["a"])
    assert data["b"] == -math.inf


@given(position=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255))
def test_a_single_changed_byte_never_goes_unnoticed(position, flip):
    line = bytearray(journal.encode(Event(seq=3, kind="evaluated", data={"x": [1, 2.5, "three"]})))
    line[position % (len(line) - 1)] ^= flip
    with pytest.raises((ValueError, KeyError)):
        journal.decode(bytes(line))


def test_a_torn_last_line_is_dropped_with_a_warning(tmp_path):
    path = written(tmp_path / "journal.jsonl", 3)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.warns(TornLineWarning, match=r"journal\.jsonl:3"):
        events, good = journal.read(path)
    assert [event.data["number"] for event in events] == [0, 1]
    assert whole[:good].endswith(b"\n")


def test_appending_after_a_torn_line_cuts_it_off(tmp_path):
    path = written(tmp_path / "journal.jsonl", 2)
    with path.open("ab") as stream:
        stream.write(b'{"crc": "0000')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        events, good = journal.read(path)
    book = Journal(path, next_seq=len(events), length=good)
    book.append("kind", {"number": 2})
    book.close()
    assert [event.data["number"] for event in journal.read(path)[0]] == [0, 1, 2]


@pytest.mark.parametrize("line", [1, 2, 3])
def test_any_other_damaged_line_is_named(tmp_path, line):
    path = written(tmp_path / "journal.jsonl", 4)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b"number", b"numbre")
    path.write_bytes(b"".join(lines))
    with pytest.raises(JournalError, match=rf"journal\.jsonl:{line}: damaged line: its checksum"):
        journal.read(path)


def test_a_missing_line_is_named(tmp_path):
    path = written(tmp_path / "journal.jsonl", 4)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1] + lines[2:]))
    with pytest.raises(JournalError, match="event 2 where event 1 belongs"):
        journal.read(path)


def test_a_full_disk_loses_nothing_already_recorded(tmp_path, monkeypatch):
    path = written(tmp_path / "journal.jsonl", 2)
    before = path.read_bytes()
    book = Journal(path, next_seq=2, length=len(before))

    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(EnvironmentUnusableError, match="No space left on device"):
        book.append("kind", {"number": 2})
    book.close()
    assert path.read_bytes() == before


def test_a_disk_that_fails_behind_a_verdict_is_named_by_the_next_event_and_takes_both_back(tmp_path, monkeypatch):
    path = written(tmp_path / "journal.jsonl", 2)
    before = path.read_bytes()
    book = Journal(path, next_seq=2, length=len(before))
    failures = [OSError(28, "No space left on device")]

    def fails_once(descriptor):
        if failures:
            raise failures.pop()

    monkeypatch.setattr(os, "fsync", fails_once)

    def judge_and_end():
        book.append("verdict", {"number": 2}, wait=False)
        book.append("generation", {"number": 3})

    with pytest.raises(EnvironmentUnusableError, match="No space left on device"):
        judge_and_end()
    book.close()
    assert path.read_bytes() == before


def test_what_was_not_waited_for_is_on_the_disk_once_a_later_event_is(tmp_path, monkeypatch):
    path = tmp_path / "journal.jsonl"
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    book = Journal(path)
    book.append("verdict", {"number": 0}, wait=False)
    book.append("verdict", {"number": 1}, wait=False)
    assert len(journal.read(path)[0]) == 2
    book.append("generation", {"number": 2})
    assert synced[-1] == path.stat().st_size
    book.close()


def test_lines_are_what_read_gives(tmp_path):
    path = written(tmp_path / "journal.jsonl", 3)
    events, good = journal.read(path)
    found = list(journal.lines(path))
    assert [(line.seq, line.kind, json.loads(line.data)) for line, _ in found] == [
        (event.seq, event.kind, event.data) for event in events
    ]
    assert sum(size for _, size in found) == good


@pytest.mark.parametrize("line", [1, 2, 3])
def test_lines_name_a_damaged_one(tmp_path, line):
    path = written(tmp_path / "journal.jsonl", 4)
    raw = path.read_bytes().splitlines(keepends=True)
    raw[line - 1] = raw[line - 1].replace(b"number", b"numbre")
    path.write_bytes(b"".join(raw))
    with pytest.raises(JournalError, match=rf"journal\.jsonl:{line}: damaged line: its checksum"):
        list(journal.lines(path))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the kernel offers no /dev/full")
def test_a_really_full_device_is_a_clear_error(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.symlink_to("/dev/full")
    book = Journal(path)
    with pytest.raises(EnvironmentUnusableError, match="cannot be written"):
        book.append("kind", {"number": 0})
    book.close()


def test_a_line_of_another_version_names_itself_and_the_field(tmp_path):
    from evo.events import Session

    with pytest.raises(JournalError, match=r"journal\.jsonl:5: not what this version writes: seconds"):
        journal.parsed(Session, {"event": "begin"}, tmp_path / "journal.jsonl", seq=4)
