"""A run that is killed and resumed ends where an uninterrupted one ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from evaluator.errors import KernevoError, UsageError
from evo import events, journal
from evo.journal import JournalError, TornLineWarning
from evo.run import Run
from tests.evo.driver import campaign

ROOT = Path(__file__).parents[2]
KILLS = 20


def start(path: Path, mode: str, hash_seed: str = "0", policy: str = "fake") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.evo.driver", str(path), mode, policy],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


def state(path: Path) -> dict[str, object]:
    """Everything that has to be equal: candidates, verdicts, survivors, archive, random stream; no clocks."""
    run = Run.load(path)
    return {
        "candidates": [record.candidate.model_dump() for record in run.records()],
        "verdicts": [record.evaluation.model_dump(exclude={"seconds", "stages", "cached"}) for record in run.records()],
        "generations": [end.model_dump(exclude={"seconds"}) for end in run.generations()],
    }


def resumed_from_cuts(whole, cuts, tmp_path, policy="fake"):
    """States of runs that went on from the first lines of `whole`'s journal."""
    lines = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    for cut in cuts:
        path = tmp_path / f"cut{cut}"
        path.mkdir()
        for name in ("kernels", "config.resolved.json", "environment.json"):
            (path / name).symlink_to(whole / name)
        (path / "journal.jsonl").write_bytes(b"".join(lines[:cut]))
        campaign(path, "resume", policy=policy).run()
        yield state(path)


def size(path: Path) -> int:
    try:
        return (path / "journal.jsonl").stat().st_size
    except FileNotFoundError:
        return 0


def kill_when_grown(process: subprocess.Popen[str], path: Path, target: int) -> bool:
    """SIGKILL once the journal holds `target` bytes; False when the run ended before."""
    while process.poll() is None:
        if size(path) >= target:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            return process.returncode == -signal.SIGKILL
    process.communicate()
    return False


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    assert finish(start(path, "start")) == "evaluations"
    return path


@pytest.mark.timeout(600)
@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_a_run_killed_at_twenty_random_points_ends_like_an_uninterrupted_one(uninterrupted, tmp_path, hash_seed):
    path = tmp_path / "run"
    whole = size(uninterrupted)
    rng = random.Random(hash_seed)
    targets = sorted(rng.randrange(1, whole) for _ in range(KILLS))
    process, killed = start(path, "start", hash_seed), 0
    for target in targets:
        killed += kill_when_grown(process, path, target)
        # Killed before its config was written, a run has nothing to resume and starts again in the same folder.
        mode = "resume" if (path / "config.resolved.json").exists() else "start"
        process = start(path, mode, hash_seed)
    finish(process)
    assert killed >= KILLS // 2
    assert state(path) == state(uninterrupted)


def test_every_torn_tail_of_the_last_line_resumes_to_the_same_end(uninterrupted, tmp_path):
    expected = state(uninterrupted)
    whole = (uninterrupted / "journal.jsonl").read_bytes().splitlines(keepends=True)
    rng = random.Random(3)
    for cut in (5, 17, 40):
        path = tmp_path / f"run{cut}"
        subprocess.run(["cp", "-r", str(uninterrupted), str(path)], check=True)
        torn = whole[cut][: rng.randrange(1, len(whole[cut]))]
        (path / "journal.jsonl").write_bytes(b"".join(whole[:cut]) + torn)
        with pytest.warns(TornLineWarning, match=rf"journal\.jsonl:{cut + 1}"):
            campaign(path, "resume").run()
        assert state(path) == expected


def test_a_damaged_line_in_the_middle_stops_the_resume_and_is_named(uninterrupted, tmp_path):
    path = tmp_path / "run"
    subprocess.run(["cp", "-r", str(uninterrupted), str(path)], check=True)
    lines = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    lines[9] = lines[9].replace(b"e", b"f", 1)
    (path / "journal.jsonl").write_bytes(b"".join(lines))
    before = (path / "journal.jsonl").read_bytes()
    with pytest.raises(JournalError, match=r"journal\.jsonl:10"):
        campaign(path, "resume")
    assert (path / "journal.jsonl").read_bytes() == before


def test_a_finished_run_resumes_to_itself(uninterrupted, tmp_path):
    path = tmp_path / "run"
    subprocess.run(["cp", "-r", str(uninterrupted), str(path)], check=True)
    result = campaign(path, "resume").run()
    assert result.stopped == "evaluations"
    assert state(path) == state(uninterrupted)
    assert result.run.status == "finished"


def test_a_replay_that_disagrees_with_the_journal_is_refused(uninterrupted, tmp_path):
    path = tmp_path / "run"
    subprocess.run(["cp", "-r", str(uninterrupted), str(path)], check=True)
    history, _ = journal.read(path / "journal.jsonl")
    changed = []
    for event in history:
        data = dict(event.data)
        if event.kind == events.GENERATION and data["generation"] == 2:
            data["population"] = data["population"][::-1]
        changed.append(journal.encode(journal.Event(seq=event.seq, kind=event.kind, data=data)))
    (path / "journal.jsonl").write_bytes(b"".join(changed))
    with pytest.raises(KernevoError, match="replaying generation 2 gives another state"):
        campaign(path, "resume").run()


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path):
    with pytest.raises(UsageError, match="holds no run to resume"):
        campaign(tmp_path, "resume")


def test_ctrl_c_drains_and_the_run_resumes_to_the_same_end(uninterrupted, tmp_path):
    path = tmp_path / "run"
    process = start(path, "start")
    while process.poll() is None and size(path) < size(uninterrupted) // 3:
        pass
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out.strip()) == (130, "interrupted"), err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Run.load(path).status == "interrupted"
    assert 0 < len(Run.load(path).records()) < len(Run.load(uninterrupted).records())
    finish(start(path, "resume"))
    assert state(path) == state(uninterrupted)
