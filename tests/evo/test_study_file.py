from __future__ import annotations

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from evaluator.errors import EnvironmentUnusableError
from evo.run_dir import RunDir
from evo.study_file import StudyFile


def filled(storage):
    study = optuna.create_study(study_name="one", storage=storage, direction="maximize")
    study.set_user_attr("structure", "abc")
    for value in (0.5, None, 1.5):
        state = optuna.trial.TrialState.COMPLETE if value else optuna.trial.TrialState.PRUNED
        choice = {"x": optuna.distributions.IntDistribution(0, 3)}
        study.add_trial(optuna.create_trial(state=state, value=value, params={"x": 1}, distributions=choice))
    return study


def test_optunas_own_backend_reads_what_was_written(tmp_path):
    file = StudyFile()
    written = filled(file.storage)
    RunDir(tmp_path).write_parts_atomically(tmp_path / "optuna.journal", file.lines())
    (read,) = optuna.get_all_study_summaries(JournalStorage(JournalFileBackend(str(tmp_path / "optuna.journal"))))
    loaded = optuna.load_study(
        study_name="one", storage=JournalStorage(JournalFileBackend(str(tmp_path / "optuna.journal")))
    )
    assert read.user_attrs == {"structure": "abc"}
    assert loaded.trials == written.trials
    assert loaded.best_value == 1.5


def test_the_file_is_what_optunas_own_backend_writes(tmp_path):
    file = StudyFile()
    filled(file.storage)
    (tmp_path / "ours").write_text("".join(file.lines()))
    filled(JournalStorage(JournalFileBackend(str(tmp_path / "theirs"))))
    ours, theirs = ((tmp_path / name).read_text().splitlines() for name in ("ours", "theirs"))
    assert len(ours) == len(theirs) == 5
    assert [line[: line.index(",")] for line in ours] == [line[: line.index(",")] for line in theirs]


def test_a_file_that_cannot_be_replaced_stays(tmp_path):
    (tmp_path / "optuna.journal").mkdir()
    file = StudyFile()
    filled(file.storage)
    with pytest.raises(EnvironmentUnusableError, match=r"optuna\.journal: cannot be written"):
        RunDir(tmp_path).write_parts_atomically(tmp_path / "optuna.journal", file.lines())
