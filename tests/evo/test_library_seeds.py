"""Campaigns that start from the library, and that add to it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from evaluator.errors import UsageError
from evo import library
from evo.campaign import Campaign
from evo.config import CampaignConfig
from evo.library_file import LibraryWarning
from evo.run import Run
from evo.seeds import library_drafts
from tests.evo import fakes
from tests.evo.cli_call import call
from tests.evo.configs import load_mapping
from tests.evo.driver import campaign
from tests.evo.run_maker import RunMaker, passed
from tests.evo.test_resume import state


def config(**changes) -> CampaignConfig:
    return CampaignConfig.model_validate(
        {
            "task": "softmax",
            "seed": 5,
            "budget": {"evaluations": 30},
            "search": {"population": 6, "offspring": 5},
            "monitors": ("jsonl",),
            **changes,
        }
    )


def start(path: Path, **changes) -> Campaign:
    made = Campaign(config(**changes), path, evaluator=fakes.FakeEvaluator(), policy=fakes.FakePolicy())
    made.task = fakes.task()
    return made


def resume(path: Path) -> Campaign:
    made = Campaign.resume(path, evaluator=fakes.FakeEvaluator(), policy=fakes.FakePolicy())
    made.task = fakes.task()
    return made


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A library that holds one campaign."""
    folder = tmp_path_factory.mktemp("earlier")
    campaign(folder / "first", "start").run()
    library.add(folder / "library.sqlite", [Run.load(folder / "first")])
    return folder / "library.sqlite"


@pytest.fixture
def store(earlier, tmp_path):
    """A copy of it that a test may change."""
    for file in earlier.parent.glob("library.sqlite*"):
        shutil.copy(file, tmp_path)
    return tmp_path / "library.sqlite"


def test_a_run_starts_from_the_best_structures_of_its_task_and_judges_them_itself(store, tmp_path):
    start(tmp_path / "run", seeds={"library": str(store), "top": 3}).run()
    first = [record for record in Run.load(tmp_path / "run").records() if record.candidate.generation == 0]
    assert [record.candidate.operator for record in first] == ["seed", "library", "library", "library"]
    best = library.search(store, "", 3)
    assert [record.candidate.source_sha for record in first[1:]] == [one.kernel.source_sha for one in best]
    assert all(record.passed and record.candidate.parent_ids == () for record in first)
    for record, one in zip(first[1:], best, strict=True):
        assert one.kernel.id in record.candidate.explanation
        assert record.speedup == one.kernel.speedup
    later = {parent for record in Run.load(tmp_path / "run").records() for parent in record.candidate.parent_ids}
    assert later & {record.id for record in first[1:]}, "the search goes on from them"


def made(tmp_path, name, sources, **changes):
    """A library file with a run of these sources -> speedups."""
    maker = RunMaker(tmp_path / name, split=changes.pop("split", "train"))
    for source, speedup in sources.items():
        maker.add(source, passed(source, speedup).model_copy(update=changes))
    library.add(tmp_path / "made.sqlite", [maker.load()])
    return tmp_path / "made.sqlite"


def test_the_seed_itself_is_not_taken_again_and_a_structure_once_with_its_best_config(tmp_path):
    tuned = fakes.SEED.replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 512")
    better = fakes.SEED.replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 1024")
    path = made(tmp_path, "here", {fakes.SEED: 1.0})
    with pytest.warns(LibraryWarning, match="no other kernel"):
        assert library_drafts(config(seeds={"library": str(path)}), fakes.task()) == []
    made(tmp_path, "tuned", {tuned: 2.0})
    made(tmp_path, "better", {better: 3.0})
    drafts = library_drafts(config(seeds={"library": str(path)}), fakes.task())
    assert [draft.source.text for draft in drafts] == [better]


def test_kernels_judged_for_the_same_hardware_come_before_faster_ones_of_another(tmp_path):
    path = made(tmp_path, "here", {"a = 1\n": 2.0, "a = 1\nb = 1\n": 3.0})
    made(tmp_path, "elsewhere", {"c = 1\nd = 1\n": 50.0}, target="a100")
    drafts = library_drafts(config(seeds={"library": str(path)}), fakes.task())
    assert [draft.source.text for draft in drafts] == ["a = 1\nb = 1\n", "a = 1\n", "c = 1\nd = 1\n"]


def test_kernels_of_held_out_runs_seed_held_out_runs_only(tmp_path):
    path = made(tmp_path, "secret", {"a = 1\n": 2.0}, split="held_out")
    asked = {"seeds": {"library": str(path)}}
    with pytest.warns(LibraryWarning, match="no other kernel of task softmax"):
        assert library_drafts(config(**asked), fakes.task()) == []
    assert len(library_drafts(config(**asked, split="held_out"), fakes.task())) == 1


def test_a_library_without_a_kernel_of_the_task_is_a_warning_and_the_run_goes_on(store, tmp_path):
    starting = start(tmp_path / "run", seeds={"library": str(store)})
    starting.task = fakes.task().model_copy(update={"name": "other"})
    with pytest.warns(LibraryWarning, match="no other kernel of task other; the run starts from the task's seed alone"):
        assert starting.run().stopped == "evaluations"


def cut(whole: Path, path: Path, lines: int) -> None:
    """A copy of a run whose process died after so many lines."""
    shutil.copytree(whole, path)
    journal = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (path / "journal.jsonl").write_bytes(b"".join(journal[:lines]))


@pytest.mark.parametrize("lines", [3, 5, 7, 12])
def test_a_resumed_run_needs_the_library_no_more_and_ends_the_same(store, tmp_path, lines):
    start(tmp_path / "whole", seeds={"library": str(store), "top": 3}).run()
    cut(tmp_path / "whole", tmp_path / "again", lines)
    for file in tmp_path.glob("library.sqlite*"):
        file.unlink()
    resume(tmp_path / "again").run()
    assert state(tmp_path / "again") == state(tmp_path / "whole")


def test_a_run_that_died_before_its_first_batch_asks_the_library_again(store, tmp_path):
    start(tmp_path / "whole", seeds={"library": str(store), "top": 3}).run()
    cut(tmp_path / "whole", tmp_path / "again", 2)
    resume(tmp_path / "again").run()
    assert state(tmp_path / "again") == state(tmp_path / "whole")
    cut(tmp_path / "whole", tmp_path / "lost", 2)
    for file in tmp_path.glob("library.sqlite*"):
        file.unlink()
    with pytest.raises(UsageError, match="no library"):
        resume(tmp_path / "lost").run()


def test_a_run_adds_its_best_to_the_library_at_its_end(tmp_path):
    path = tmp_path / "new" / "library.sqlite"
    start(tmp_path / "run", library=str(path)).run()
    elites = {record.id for record in Run.load(tmp_path / "run").elites()}
    assert {one.kernel.candidate for one in library.search(path, "", 100)} == elites


def test_a_library_that_cannot_be_written_costs_the_run_nothing(tmp_path, capsys):
    (tmp_path / "mine").write_text("not a library\n")
    result = start(tmp_path / "run", library=str(tmp_path / "mine")).run()
    assert result.stopped == "evaluations"
    assert "mine was not written" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "not a library\n"


def test_two_campaigns_learn_from_each_other_through_one_library(tmp_path):
    path = str(tmp_path / "library.sqlite")
    start(tmp_path / "one", library=path).run()
    start(tmp_path / "two", library=path, seeds={"library": path, "top": 1}, seed=6).run()
    first, second = Run.load(tmp_path / "one"), Run.load(tmp_path / "two")
    assert second.record("c000001").speedup == first.elites(1)[0].speedup
    assert second.elites(1)[0].speedup >= first.elites(1)[0].speedup
    assert len({one.kernel.run for one in library.search(Path(path), "", 1000)}) == 2


PLAIN = {"task": "softmax", "budget": {"evaluations": 9}}


def test_a_config_whose_library_is_missing_or_a_folder_says_so_before_anything_runs(tmp_path):
    with pytest.raises(UsageError, match=r"my\.yaml:\d+:\d+.*seeds\.library.*no library is at"):
        load_mapping({**PLAIN, "seeds": {"library": str(tmp_path / "none")}})
    with pytest.raises(UsageError, match=r"library.*is a folder"):
        load_mapping({**PLAIN, "library": str(tmp_path)})


def test_more_seeds_than_the_budget_are_refused(store):
    with pytest.raises(UsageError, match=r"seeds\.top.*more than the budget of 9 evaluations"):
        load_mapping({**PLAIN, "seeds": {"library": str(store), "top": 9}})
    assert load_mapping({**PLAIN, "seeds": {"library": str(store), "top": 8}}).seeds.top == 8


def test_a_dry_run_says_what_the_search_starts_from(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(json.dumps({**PLAIN, "seeds": {"library": str(store), "top": 3}}))
    outcome = call("run", "my.yaml", "--dry-run")
    assert f"the task's seed kernel, at most 3 kernels of {store}" in outcome.out
