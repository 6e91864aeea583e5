"""The library of judged kernels: what it holds, finds, and survives."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from evaluator.errors import EnvironmentUnusableError, UsageError
from evaluator.types import EvalStatus, Timing
from evo import library
from evo.library_file import VERSION, LibraryWarning
from evo.run import Run
from tests.evo.cli_call import call
from tests.evo.driver import campaign
from tests.evo.run_maker import RunMaker, failed, passed

SEED = "import triton.language as tl\ntile = tl.load(0)\n"
ATOMIC = "import triton.language as tl\ntl.atomic_add(outPtr, 1)\n"
WRONG = "wrong = 1\n"


def structure(run: str, number: int) -> str:
    """The source of a run's structure."""
    return f"{ATOMIC}of_{run}_{number}(tl)\n"


def made_run(path: Path, *speedups: float, task: str = "softmax", **changes) -> Run:
    """A run with a seed, a failure, and one structure for each further speedup."""
    maker = RunMaker(path, task=task)
    seed = maker.add(SEED, passed(SEED).model_copy(update=changes))
    maker.add(WRONG, failed(WRONG, EvalStatus.WRONG_VALUE, "smoke"), seed)
    for number, speedup in enumerate(speedups):
        source = structure(path.name, number)
        maker.add(source, passed(source, speedup).model_copy(update=changes), seed)
    return maker.load()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "library.sqlite"


def ids(found):
    return [one.kernel.id for one in found]


def test_a_library_holds_the_correct_structures_of_a_run_as_they_were_judged(tmp_path, path):
    run = made_run(tmp_path / "one", 2.0)
    assert library.add(path, [run]) == 2
    best = library.search(path, "", 10)[0]
    record = run.elites(1)[0]
    assert best.source == run.source(record.candidate.source_sha).text
    assert (best.kernel.speedup, best.kernel.kind, best.kernel.target) == (2.0, "modelled", "h200")
    assert (best.kernel.verdict, best.kernel.checks_passed) == ("passed", 7)
    assert (best.kernel.run, best.kernel.candidate) == (str((tmp_path / "one").resolve()), record.id)
    assert [step.name for step in best.kernel.rewrites] == ["grow"]
    assert best.kernel.timings == record.evaluation.timings


def test_a_measured_speedup_has_its_interval_and_a_modelled_one_has_none(tmp_path, path):
    bounds = {"ratio": 2.0, "ratio_low": 1.9, "ratio_high": 2.1}
    timings = {"w": Timing(kind="measured", median_ms=0.5, baseline_ms=1.0, **bounds)}
    maker = RunMaker(tmp_path / "measured")
    maker.add(ATOMIC, passed(ATOMIC).model_copy(update={"timings": timings, "profile": None, "target": "H200"}))
    library.add(path, [maker.load(), made_run(tmp_path / "modelled")])
    measured, modelled = library.search(path, "", 10)
    assert (measured.kernel.speedup_low, measured.kernel.speedup_high) == pytest.approx((1.9, 2.1))
    assert (modelled.kernel.speedup_low, modelled.kernel.speedup_high) == (None, None)


def test_kernels_are_found_by_identifiers_their_parts_and_rewrites(tmp_path, path):
    library.add(path, [made_run(tmp_path / "one", 2.0)])
    for query in ("atomic_add", "atomic", "ptr", "GROW", "nothing atomic"):
        assert [one.source for one in library.search(path, query, 10)] == [structure("one", 0)], query
    assert library.search(path, "tensor_descriptor", 10) == []
    assert library.search(path, '"*', 10) == []


def test_search_can_be_held_to_a_task_and_to_hardware(tmp_path, path):
    made_run(tmp_path / "one", 2.0)
    made_run(tmp_path / "two", 3.0, task="matmul", target="NVIDIA A100")
    library.add(path, [Run.load(tmp_path / "one"), Run.load(tmp_path / "two")])
    assert {one.kernel.task for one in library.search(path, "tl", 10)} == {"softmax", "matmul"}
    assert {one.kernel.task for one in library.search(path, "tl", 10, task="matmul")} == {"matmul"}
    assert {one.kernel.target for one in library.search(path, "tl", 10, hardware="a100")} == {"NVIDIA A100"}
    assert library.search(path, "tl", 10, task="attention") == []


def test_a_run_that_is_added_again_is_replaced(tmp_path, path):
    maker = RunMaker(tmp_path / "one")
    maker.add(SEED, passed(SEED))
    library.add(path, [maker.load()])
    maker.add(SEED.replace("0", "1"), passed(ATOMIC, 2.0), "c000000")
    maker.add(ATOMIC, passed(ATOMIC, 3.0), "c000000")
    for _ in range(2):
        library.add(path, [maker.load()])
    run = maker.load()
    assert [one.kernel.candidate for one in library.search(path, "", 10)] == [one.id for one in run.elites()]
    with closing(sqlite3.connect(path)) as database:
        counts = [database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("sources", "words")]
    assert counts == [len(run.elites())] * 2


def test_a_program_that_two_runs_judged_alike_is_found_once(tmp_path, path):
    runs = [made_run(tmp_path / name) for name in ("one", "two")]
    library.add(path, runs)
    (found,) = library.search(path, "load", 10)
    assert found.kernel.run == str(runs[1].path.resolve())


def test_a_kernel_is_found_by_the_beginning_of_its_id(tmp_path, path):
    library.add(path, [made_run(tmp_path / "one", *(1.0 + number for number in range(20)))])
    one = library.search(path, "", 1)[0]
    assert library.kernel(path, one.kernel.id[:10]) == one
    digits = [found.kernel.id[0] for found in library.search(path, "", 99)]
    with pytest.raises(UsageError, match=r"\d+ kernels begin with"):
        library.kernel(path, max(digits, key=digits.count))
    for wanted in ("nothing", "", "%"):
        with pytest.raises(UsageError, match="no kernel"):
            library.kernel(path, wanted)


def test_a_models_search_sees_the_fastest_kernels_of_each_task_and_nothing_of_held_out_runs(tmp_path, path):
    assert library.for_tools(path) == []
    library.add(path, [made_run(tmp_path / "one", 2.0), made_run(tmp_path / "two", 3.0, task="matmul")])
    maker = RunMaker(tmp_path / "secret", split="held_out")
    maker.add("secret = 1\n", passed("secret = 1\n", 9.0))
    library.add(path, [maker.load()])
    shown = library.for_tools(path)
    softmax, matmul = [("softmax", 2.0), ("softmax", 1.0)], [("matmul", 3.0), ("matmul", 1.0)]
    assert sorted((one.task, round(one.speedup or 0, 6)) for one in shown) == sorted(softmax + matmul)
    assert all(one.kind == "modelled" for one in shown)


def test_a_source_that_is_no_valid_unicode_comes_back_byte_for_byte(tmp_path, path):
    maker = RunMaker(tmp_path / "one")
    maker.add(SEED + "# \ud800 \r\n", passed(SEED + "# \ud800 \r\n"))
    library.add(path, [maker.load()])
    assert library.search(path, "load", 1)[0].source == SEED + "# \ud800 \r\n"


WRITER = """
import sys
from pathlib import Path
from evo import library
from evo.run import Run
sys.stdin.readline()
for folder in sys.argv[2:]:
    library.add(Path(sys.argv[1]), [Run.load(folder)])
"""


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwrite(path: Path) -> None:
    path.write_bytes(b"nonsense" * 4000)


def scribble(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)


def change_facts(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE kernels SET facts = '{}'")


@pytest.mark.parametrize("harm", [None, overwrite], ids=["a healthy file", "a damaged file"])
def test_two_writers_at_once_lose_nothing(tmp_path, path, harm):
    folders = [[tmp_path / f"{writer}{number}" for number in range(4)] for writer in "ab"]
    before = tmp_path / "before"
    everything = [*folders[0], *folders[1], before]
    for folder in everything:
        made_run(folder, 2.0)
    library.add(path, [Run.load(before)])
    if harm is not None:
        harm(path)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, *mine], stdin=subprocess.PIPE, text=True)
        for mine in folders
    ]
    for writer in writers:
        writer.communicate("go\n", timeout=120)
    assert [writer.returncode for writer in writers] == [0, 0]
    with closing(sqlite3.connect(path)) as database:
        held = {run for (run,) in database.execute("SELECT run FROM kernels")}
    assert held == {str(folder.resolve()) for folder in everything}
    assert len(list(tmp_path.glob("*.damaged*"))) == (harm is not None)


FULL = """
import resource, sys
from pathlib import Path
from evo import library
from evo.run import Run
path, run = Path(sys.argv[1]), Run.load(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 1000,) * 2)
try:
    library.add(path, [run])
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_full_disk_is_explained_and_leaves_the_library_as_it_was(tmp_path, path):
    library.add(path, [made_run(tmp_path / "one", 2.0)])
    before = library.search(path, "", 10)
    made_run(tmp_path / "two", *(2.0 + number for number in range(40)))
    done = subprocess.run(
        [sys.executable, "-c", FULL, path, tmp_path / "two"], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.startswith(f"EnvironmentUnusableError {path}: ")
    assert library.search(path, "", 10) == before


@pytest.mark.parametrize("damage", [truncate, overwrite, scribble, change_facts])
def test_a_damaged_library_is_built_anew_from_its_runs_and_the_old_file_is_kept(tmp_path, path, damage):
    library.add(path, [made_run(tmp_path / "one", 2.0), made_run(tmp_path / "two", 3.0)])
    before = library.search(path, "atomic", 10)
    damage(path)
    damaged = path.read_bytes()
    with pytest.warns(
        LibraryWarning, match=r"built anew from 2 runs, because it .*; the old file is kept as .*damaged"
    ):
        assert library.search(path, "atomic", 10) == before
    assert (tmp_path / "library.sqlite.damaged").read_bytes() == damaged
    assert library.search(path, "atomic", 10) == before


def test_a_writer_mends_a_damaged_library_before_it_adds(tmp_path, path):
    library.add(path, [made_run(tmp_path / "one", 2.0)])
    overwrite(path)
    with pytest.warns(LibraryWarning, match="built anew from 1 runs"):
        library.add(path, [made_run(tmp_path / "two", 3.0)])
    assert {Path(one.kernel.run).name for one in library.search(path, "", 10)} == {"one", "two"}


def test_a_library_that_was_deleted_comes_back(tmp_path, path):
    library.add(path, [made_run(tmp_path / "one", 2.0)])
    before = library.search(path, "", 10)
    path.unlink()
    with pytest.warns(LibraryWarning, match="because it is missing"):
        assert library.search(path, "", 10) == before


def test_kernels_of_a_run_that_is_gone_are_named_and_stay_in_the_old_file(tmp_path, path):
    library.add(path, [made_run(tmp_path / "one", 2.0), made_run(tmp_path / "two", 3.0)])
    shutil.rmtree(tmp_path / "two")
    assert len({one.kernel.run for one in library.search(path, "atomic", 10)}) == 2, "a healthy library needs no runs"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 0")
    with pytest.warns(LibraryWarning) as warned:
        assert [Path(one.kernel.run).name for one in library.search(path, "atomic", 10)] == ["one"]
    said = [str(warning.message) for warning in warned]
    assert any("it is of version 0; the old file is kept as" in line for line in said)
    assert any("without the kernels of" in line and "two" in line for line in said)
    with closing(sqlite3.connect(tmp_path / "library.sqlite.v0")) as database:
        assert database.execute("SELECT count(DISTINCT run) FROM kernels").fetchone() == (2,)


def test_files_that_were_put_aside_are_never_overwritten(tmp_path, path):
    library.add(path, [made_run(tmp_path / "one", 2.0)])
    for _ in range(2):
        overwrite(path)
        with pytest.warns(LibraryWarning):
            library.search(path, "", 1)
    assert {file.name for file in tmp_path.glob("*.damaged*")} == {
        "library.sqlite.damaged",
        "library.sqlite.damaged-1",
    }


def test_a_library_of_a_newer_version_is_refused_and_left_alone(tmp_path, path):
    run = made_run(tmp_path / "one", 2.0)
    library.add(path, [run])
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = path.read_bytes()
    for use in (lambda: library.search(path, "", 1), lambda: library.add(path, [run])):
        with pytest.raises(UsageError, match=f"version {VERSION + 1}, this Kernevo knows up to {VERSION}"):
            use()
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["text", "sqlite"])
def test_a_file_that_is_no_library_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "mine"
    if content == "text":
        path.write_text("task: softmax\n" * 500)
    else:
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    run = made_run(tmp_path / "one", 2.0)
    for use in (lambda: library.search(path, "", 1), lambda: library.add(path, [run])):
        with pytest.raises(UsageError, match="no library of Kernevo's; nothing was changed"):
            use()
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("mine.*"))


def test_a_run_that_cannot_be_read_leaves_the_library_as_it_was(tmp_path, path):
    run = made_run(tmp_path / "one", 2.0)
    library.add(path, [run])
    before = library.search(path, "", 10)
    worse = made_run(tmp_path / "two", 3.0)
    for kernel in worse.dir.kernels.iterdir():
        kernel.unlink()
    with pytest.raises(Exception, match="restore the kernels/ folder"):
        library.add(path, [Run.load(tmp_path / "two")])
    assert library.search(path, "", 10) == before


def test_a_folder_in_the_librarys_place_is_explained(tmp_path, path):
    path.mkdir()
    with pytest.raises(EnvironmentUnusableError, match=r"library\.sqlite"):
        library.add(path, [made_run(tmp_path / "one")])


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A working folder with a finished campaign `runs/one`."""
    monkeypatch.chdir(tmp_path)
    campaign(tmp_path / "runs" / "one", "start").run()
    return tmp_path


def test_the_commands_add_find_and_show_kernels(work):
    added = call("library", "add", "one")
    assert added.code == 0
    run = Run.load("runs/one")
    assert f"{len(run.elites())} kernels" in added.out
    found = json.loads(call("library", "search", "copy_kernel", "--task", "softmax", "--json").out)["kernels"]
    assert len(found) == 10
    best = json.loads(call("library", "search", "--limit", "1", "--json").out)["kernels"][0]
    record = run.elites(1)[0]
    assert (best["candidate"], best["speedup"], best["kind"]) == (record.id, record.speedup, "modelled")
    shown = call("library", "show", best["id"])
    source = run.source(record.candidate.source_sha).text
    assert f"{record.speedup:.3f}x modelled (h200)" in shown.out
    assert shown.out.endswith(f"\n\n{source}")
    assert call("library", "show", best["id"], "--source").out == source
    assert json.loads(call("library", "show", best["id"], "--json").out)["source"] == source
    table = call("library", "search", "copy_kernel").out
    assert "modelled (h200)" in table
    assert "one" in table


def test_nothing_found_and_no_library_are_said(work):
    missing = call("library", "search", "softmax")
    assert missing.code == 2
    assert "runs/library.sqlite: no library" in missing.err
    call("library", "add", "one")
    nothing = call("library", "search", "softmax", "--hardware", "a100")
    assert (nothing.code, nothing.out) == (0, "")
    assert "no kernel matches" in nothing.err
    assert call("library", "show", "zzz").code == 2
    assert call("library", "add", "two").code == 2


def test_a_damaged_library_is_a_warning_in_plain_words_on_the_command_line(work):
    call("library", "add", "one")
    overwrite(work / "runs" / "library.sqlite")
    outcome = call("library", "search", "copy_kernel")
    assert outcome.code == 0
    assert "copy" in outcome.err or "modelled" in outcome.out
    assert outcome.err.startswith("warning: runs/library.sqlite: built anew from 1 runs")
