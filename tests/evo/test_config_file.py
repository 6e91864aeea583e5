"""A config is read as written, or refused with the place and the fix."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.errors import UsageError
from evo.config import CampaignConfig
from evo.config_file import find_config, load_config, shipped_configs
from evo.config_keys import all_keys, nearest_key
from tests.evo.cli_call import call

GOLDEN = Path(__file__).parents[1] / "golden" / "config_errors"
CASES = sorted(path.stem for path in GOLDEN.glob("*.yaml"))
MINIMAL = "task: softmax\nbudget: {evaluations: 10}\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write_text(text: str) -> str:
        Path("my.yaml").write_text(text, encoding="utf-8")
        return "my.yaml"

    return write_text


@pytest.mark.parametrize("case", CASES)
def test_a_bad_config_is_refused_with_the_place_and_the_fix(case, monkeypatch):
    monkeypatch.chdir(GOLDEN)
    with pytest.raises(UsageError) as raised:
        load_config(f"{case}.yaml")
    said = f"{raised.value}\n"
    expected = GOLDEN / f"{case}.txt"
    if os.environ.get("KERNEVO_UPDATE_GOLDEN"):
        expected.write_text(said, encoding="utf-8")
    assert said == expected.read_text(encoding="utf-8")
    assert said.startswith(f"{case}.yaml:")
    assert raised.value.exit_code == 2


def test_the_command_line_prints_the_same_error_and_leaves_with_2(monkeypatch):
    monkeypatch.chdir(GOLDEN)
    outcome = call("run", "unknown_key.yaml", "--dry-run")
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err == "error: " + (GOLDEN / "unknown_key.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", shipped_configs())
def test_every_shipped_config_is_valid(name):
    assert isinstance(load_config(name), CampaignConfig)


def test_a_shipped_config_is_found_by_name_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = shipped_configs()["quickstart"]
    for spec in ("quickstart", "quickstart.yaml", "configs/quickstart.yaml"):
        assert find_config(spec) == shipped
    Path("configs").mkdir()
    Path("configs/quickstart.yaml").write_text(MINIMAL)
    assert find_config("configs/quickstart.yaml") == Path("configs/quickstart.yaml")
    Path("quickstart").mkdir()
    assert find_config("quickstart") == shipped


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nowhere.yaml", "nowhere.yaml: no such file"),
        ("quickstrat", "did you mean configs/quickstart.yaml?"),
        ("my.yml", "did you mean my.yaml?"),
        ("folder", "folder: is a folder"),
        ("folder/my.yaml", "folder/my.yaml: no such file"),
    ],
)
def test_a_file_that_is_not_there_is_named_with_the_nearest_one(write, spec, said):
    write(MINIMAL)
    Path("folder").mkdir()
    with pytest.raises(UsageError) as raised:
        load_config(spec)
    assert said in str(raised.value)


@pytest.mark.parametrize("key", ["task", "name"])
def test_a_value_too_long_for_any_path_is_refused(write, key):
    with pytest.raises(UsageError, match=f"--set {key}: "):
        load_config(write(MINIMAL), [f"{key}={'x' * 5000}"])


@pytest.mark.parametrize("args", [["run"], ["resume"], ["status"]])
def test_an_argument_that_can_be_no_path_is_refused(args):
    outcome = call(*args, "x" * 5000)
    assert outcome.code == 2
    assert ": no such" in outcome.err


def test_a_file_without_end_is_refused(write):
    write(MINIMAL + "#" * (1 << 20))
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        load_config("my.yaml")


def test_defaults_fill_what_the_file_leaves_out(write):
    config = load_config(write(MINIMAL))
    assert config == CampaignConfig(task="softmax", budget={"evaluations": 10})
    assert config.search.objectives == ("speedup",)


def test_lists_become_tuples_and_whole_numbers_serve_as_floats(write):
    text = "search: {selection: nsga2, objectives: [speedup, registers]}\nevaluator: {timeout_s: 5}\n"
    config = load_config(write(MINIMAL + text))
    assert config.search.objectives == ("speedup", "registers")
    assert config.evaluator.timeout_s == 5.0
    assert isinstance(config.evaluator.timeout_s, float)


@pytest.mark.parametrize(("written", "meant"), [("all", "all"), ("2", 2), ("[0, 1]", (0, 1))])
def test_gpus_are_named_by_a_word_an_index_or_a_list(write, written, meant):
    config = load_config(write(MINIMAL + f"evaluator: {{type: gpu, device: {written}}}\n"))
    assert config.evaluator.type == "gpu"
    assert config.evaluator.device == meant


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("al", r"unknown choice 'al'\n  fix: .*`?all"),
        ("'0'", "a whole number is needed, not '0'"),
        ("-1", "must be at least 0, not -1"),
        ("[0, x]", r"device\[1\]: a whole number is needed, not 'x'"),
        ("[]", "at least 1 item"),
        ("[0, 1, 0]", r"device\[2\]: GPU 0 is named twice\n  fix: name each GPU once"),
    ],
)
def test_a_gpu_that_cannot_be_meant_is_refused_once(write, written, said):
    with pytest.raises(UsageError, match=said) as raised:
        load_config(write(MINIMAL + f"evaluator: {{type: gpu, device: {written}}}\n"))
    assert str(raised.value).startswith("my.yaml:3:")
    assert len(str(raised.value).splitlines()) == 2


def test_a_section_without_type_means_the_default_type(write):
    assert load_config(write(MINIMAL + "evaluator: {workers: 2}\n")).evaluator.type == "cpu"
    assert load_config("my.yaml", ["policy.max_steps=3"]).policy.type == "rule"


def test_anchors_and_merge_keys_work(write):
    text = "task: softmax\nbudget: &limits {evaluations: 10}\nsearch: {tuning: &t {share: 0.2}, archive: {}}\n"
    config = load_config(write(text))
    assert config.search.tuning.share == 0.2


def test_an_override_replaces_one_key_and_its_value_is_yaml(write):
    overrides = [
        "search.tuning.share=1e-1",
        "search.selection=nsga2",
        "search.objectives=[speedup, code_size]",
        "name=010",
        "budget.evaluations=",
        "budget.seconds=7",
    ]
    with pytest.raises(UsageError, match=r"--set name: text is needed, not 10"):
        load_config(write(MINIMAL), overrides)
    overrides[3] = "name='010'"
    config = load_config("my.yaml", overrides)
    assert config.search.tuning.share == 0.1
    assert config.search.objectives == ("speedup", "code_size")
    assert config.name == "010"
    assert config.budget.evaluations is None
    assert config.budget.seconds == 7.0


def test_a_later_override_wins(write):
    assert load_config(write(MINIMAL), ["seed=1", "seed=2"]).seed == 2


def test_an_override_mends_a_wrong_value_of_the_file(write):
    assert load_config(write("task: softmax\nbudget: {evaluations: -1}\n"), ["budget.evaluations=5"])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "search.populaton=3",
            "--set search.populaton: unknown key\n  fix: the nearest valid key is `search.population`",
        ),
        ("search.population=-3", "--set search.population: must be greater than 0, not -3"),
        ("search.population=[1", "--set search.population:1:3: not YAML"),
        ("search.population", "--set search.population: no `key=value`"),
        ("=3", "--set =3: no `key=value`"),
        ("search..population=3", "no `key=value`"),
        ("seed.deep=3", "--set seed.deep: seed is not a section"),
        ("task=sofmax", "--set task: no shipped task and no folder is named 'sofmax'"),
        ("search.objectives=[speedup, nothing]", "--set search.objectives: search.objectives[1]: unknown choice"),
    ],
)
def test_a_wrong_override_is_named_as_it_was_typed(write, override, said):
    with pytest.raises(UsageError) as raised:
        load_config(write(MINIMAL + "seed: 3\n"), [override])
    assert said in str(raised.value)


def test_a_task_folder_is_looked_for_beside_the_config_too(tmp_path, monkeypatch):
    (tmp_path / "work" / "my_task").mkdir(parents=True)
    (tmp_path / "work" / "c.yaml").write_text("task: ./my_task\nbudget: {evaluations: 10}\n")
    monkeypatch.chdir(tmp_path)
    assert Path(load_config("work/c.yaml").task) == Path("work/my_task")
    monkeypatch.chdir(tmp_path / "work")
    assert load_config("c.yaml").task == "./my_task"


@pytest.mark.parametrize(("sampler", "package"), [("cmaes", "cmaes"), ("gp", "scipy")])
def test_a_sampler_whose_package_is_missing_is_refused_before_the_run(write, monkeypatch, sampler, package):
    text = MINIMAL + f"search: {{tuning: {{sampler: {sampler}}}}}\n"
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else real("yaml"))
    with pytest.raises(UsageError, match=f"my.yaml:3:28: .*not installed: {package}\n.*pip install {package}"):
        load_config(write(text))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: real("yaml"))
    assert load_config("my.yaml").search.tuning.sampler == sampler


@given(st.sampled_from([key.path for key in all_keys()]), st.data())
def test_one_dropped_letter_always_leads_back_to_the_key(path, data):
    section, _, name = path.rpartition(".")
    if len(name) < 4:
        return
    drop = data.draw(st.integers(0, len(name) - 1))
    typo = name[:drop] + name[drop + 1 :]
    loc = (*section.split("."), typo) if section else (typo,)
    siblings = {key.path for key in all_keys() if key.path.rpartition(".")[0] == section}
    if typo in {sibling.rpartition(".")[2] for sibling in siblings}:
        return
    assert nearest_key(loc, {}) in siblings


@pytest.mark.parametrize(
    "section",
    [
        "evaluator: {type: gpu, device: [0, 2]}",
        "evaluator: {type: gpu, device: 1}",
        "evaluator: {type: gpu}",
        "policy: [{type: rule, rewrites: [whole_row]}, {type: openai, model: m, phases: [analyse, generate]}]",
        "policy: {type: vllm, model: m, rewrites: [whole_row]}",
        "policy: {type: transformers, model: m, device: 'cuda:1', top_k: 50}",
    ],
)
def test_a_resolved_config_is_read_back_as_it_was(tmp_path, section):
    """A run is resumed from `config.resolved.json`, which is read strictly."""
    path = tmp_path / "c.yaml"
    path.write_text(f"task: softmax\n{section}\nbudget: {{evaluations: 3}}\n")
    config = load_config(path)
    assert CampaignConfig.model_validate_json(config.model_dump_json(), strict=True) == config
