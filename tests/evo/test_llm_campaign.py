"""Campaigns whose policy asks a model server: what is recorded, and how they survive the server's death."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
import yaml

from evaluator.backends.cpu import CpuEvaluator
from evo import library
from evo.build import draft_evaluator, make_policy
from evo.config_file import load_config
from evo.run import Run
from evo.turns import turns_of_run
from policy.ensemble import EnsemblePolicy
from tests.evo import fakes
from tests.evo.cli_call import call
from tests.evo.configs import load_mapping
from tests.evo.run_maker import RunMaker, passed
from tests.policy.fake_server import FakeServer, calls, structured_answer

pytest.importorskip("openai")

KEY = "sk-very-secret-0123456789"
TOOLS = {"type": "openai", "model": "m", "phases": ["analyse", "generate"], "tools": ["search_kernels"]}


class EasyJudge(fakes.FakeEvaluator):
    """Passes whatever it is shown, shorter files faster."""

    def _judge(self, source):
        with mock.patch("tests.evo.fakes.variant", return_value=(0,)):
            return fakes.passed(source, len(source.text) / 1000, 2.0)


@contextmanager
def easily_judged():
    with mock.patch("evo.build.make_evaluator", side_effect=lambda config, task: EasyJudge()):
        yield


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", KEY)
    with easily_judged():
        yield tmp_path


def write_config(server: FakeServer, **policy) -> None:
    settings = {
        "type": "openai",
        "model": "tiny",
        "base_url": server.url,
        "api_key_env": "MY_KEY",
        "retries": 0,
        **policy,
    }
    config = {
        "task": "softmax",
        "budget": {"evaluations": 13},
        "search": {"population": 4, "offspring": 4, "tuning": {"share": 0.0}},
        "policy": settings,
    }
    Path("my.yaml").write_text(yaml.safe_dump(config))


def all_text(folder: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in sorted(folder.rglob("*")) if path.is_file())


def policies(path: str = "runs/my") -> list[str]:
    return [record.candidate.policy for record in Run.load(path).records() if record.candidate.operator == "rewrite"]


def test_a_campaign_records_what_the_model_answered_and_never_the_key(workplace):
    with FakeServer() as server:
        write_config(server)
        outcome = call("run", "my.yaml")
    assert outcome.code == 0, outcome.err
    turns = turns_of_run(Run.load("runs/my"))
    assert turns
    assert {turn.policy for turn in turns} == {"openai"}
    assert all(turn.answer_token_ids == tuple(turn.answer.encode()) for turn in turns)
    assert all(len(turn.logprobs) == len(turn.answer_token_ids) for turn in turns)
    assert all(turn.prompt_token_ids for turn in turns)
    exported = call("export", "runs/my", "--format", "trl-grpo", "--out", "out", "--allow-modelled")
    assert exported.code == 0, exported.err
    assert KEY not in all_text(workplace) + outcome.out + outcome.err + exported.out + exported.err


def test_a_model_that_is_asked_for_values_gives_children_of_its_parents_structures(workplace):
    with FakeServer() as server:
        write_config(server, tune=0.5)
        outcome = call("run", "my.yaml")
    assert outcome.code == 0, outcome.err
    run = Run.load("runs/my")
    written = [record for record in run.records() if record.candidate.answer]
    tuned = [record for record in written if record.candidate.sampling["form"] == "tunables"]
    assert 0 < len(tuned) < len(written)
    for record in tuned:
        parent = run.record(record.candidate.parent_ids[0])
        assert record.passed
        assert parent.passed
        assert record.candidate.structure == parent.candidate.structure
        assert record.candidate.config != parent.candidate.config
    programs = [record.candidate.ast_hash for record in run.records()]
    assert len(set(programs)) == len(programs)


def test_every_judged_candidate_is_kept_once_and_shown_by_the_next_run_too(workplace):
    with FakeServer() as server:
        write_config(server, attempts="memory/attempts.jsonl", context_tokens=32768)
        assert call("run", "my.yaml").code == 0
        first = Run.load("runs/my")
        kept = [json.loads(line)["attempt"] for line in Path("memory/attempts.jsonl").read_text().splitlines()]
        assert [row["candidate_id"] for row in kept] == [record.id for record in first.records()]
        server.requests.clear()
        assert call("run", "my.yaml", "--name", "again").code == 0
        prompts = [body["messages"][1]["content"] for body in server.requests]
    assert "# Earlier attempts" in prompts[0], "the seed has no children yet in this run"
    again = {record.candidate.source_sha for record in Run.load("runs/again").records()}
    total = len({record.candidate.source_sha for record in first.records()} | again)
    assert len(Path("memory/attempts.jsonl").read_text().splitlines()) == total


def test_a_resumed_run_tells_its_store_what_it_missed(workplace):
    with FakeServer() as server:
        write_config(server, attempts="attempts.jsonl")
        assert call("run", "my.yaml").code == 0
        whole = Path("attempts.jsonl").read_text()
        Path("attempts.jsonl").unlink()
        assert call("resume", "runs/my").code == 0
    assert Path("attempts.jsonl").read_text() == whole


def test_prompts_are_counted_by_the_server_where_no_tokenizer_is_given(workplace):
    with FakeServer(tokenizes=True) as server:
        write_config(server)
        assert call("run", "my.yaml").code == 0
        assert "/tokenize" in server.calls
        asked = len(server.requests)
        assert 0 < server.calls.count("/tokenize") <= 3 * asked
    assert set(policies()) == {"openai"}


def test_the_end_of_a_session_says_what_was_asked_and_what_came_of_it(workplace):
    with FakeServer() as server:
        write_config(server, price_completion=1000.0)
        outcome = call("run", "my.yaml")
        asked = len(server.requests)
    last = json.loads(Path("runs/my/metrics.jsonl").read_text().splitlines()[-1])["policy"]
    assert last["asked"] == asked
    assert f"policy: {asked} answers asked for; {asked} answered" in outcome.err
    assert f"${last['dollars']:.4f}" in outcome.err


def test_a_server_that_dies_in_mid_run_is_replaced_by_rules(workplace):
    with FakeServer(dies_after=5) as server:
        write_config(server)
        outcome = call("run", "my.yaml")
    assert outcome.code == 0, outcome.err
    assert len(Run.load("runs/my").records()) == 13
    assert set(policies()) == {"openai", "rule"}
    assert "fallbacks: " in outcome.err
    assert "unreachable" in outcome.err


def test_a_server_that_is_down_at_the_start_is_replaced_by_rules(workplace):
    with FakeServer() as server:
        write_config(server)
    outcome = call("run", "my.yaml")
    assert outcome.code == 0, outcome.err
    assert set(policies()) == {"rule"}


def test_where_the_config_says_stop_a_dead_server_ends_the_run_with_the_line_that_resumes_it(workplace):
    with FakeServer(dies_after=5) as server:
        write_config(server, on_failure="stop")
        stopped = call("run", "my.yaml")
    assert stopped.code == 1
    assert "cannot be reached" in stopped.err
    assert "Traceback" not in stopped.err
    assert stopped.err.strip().splitlines()[-1] == "resume with: kernevo resume runs/my"
    judged = len(Run.load("runs/my").records())
    assert judged < 13

    with FakeServer() as again:
        resolved = Path("runs/my/config.resolved.json")
        resolved.write_text(resolved.read_text().replace(server.url, again.url))
        resumed = call("resume", "runs/my")
    assert resumed.code == 0, resumed.err
    assert len(Run.load("runs/my").records()) == 13


def test_a_list_of_policies_is_an_ensemble_that_survives_the_round_trip_to_disk(workplace):
    with FakeServer() as server:
        write_config(server)
        config = yaml.safe_load(Path("my.yaml").read_text())
        config["policy"] = [{"weight": 1}, {**config["policy"], "weight": 1}]
        Path("my.yaml").write_text(yaml.safe_dump(config))
        outcome = call("run", "my.yaml")
    assert outcome.code == 0, outcome.err
    assert set(policies()) == {"openai", "rule"}
    assert Run.load("runs/my").config == load_config("my.yaml", [])
    made = make_policy(Run.load("runs/my").config)
    assert isinstance(made, EnsemblePolicy)
    made.close()


@pytest.mark.parametrize(
    ("policy", "key"),
    [
        ({"type": "openai", "model": "m", "api_key_env": "sk-very-secret"}, "policy.api_key_env"),
        ({"type": "openai", "model": "m", "base_url": "http://me:sk-very-secret@host/v1"}, "policy.base_url"),
        ({"type": "openai", "model": "m", "base_url": "localhost:8000"}, "policy.base_url"),
        ({"type": "openai", "model": "m", "adapter_path": "/a"}, "policy.adapter_path"),
        ({"type": "openai", "model": "m", "phases": ["analyse"]}, "policy.phases"),
        ({**TOOLS, "phases": ["generate"]}, "policy.tools: tools are used in the analysis"),
        ({**TOOLS, "type": "vllm"}, "policy.tools: vllm in this process calls no tools"),
        ({**TOOLS, "type": "transformers"}, "policy.tools: transformers in this process calls no tools"),
        ({"type": "transformers", "model": "m", "max_steps": 2}, "policy.max_steps: transformers holds answers of one"),
        ({"type": "transformers", "model": "m", "device": "gpu"}, "policy.device"),
        ({**TOOLS, "tools": ["search_kernels", "search_kernels"]}, "policy.tools: search_kernels is named twice"),
        ({**TOOLS, "documents": "/no/such/folder"}, "policy.documents: no folder is named"),
        ({**TOOLS, "tools": ["evaluate_kernel"], "documents": "."}, "policy.documents: no tool reads them"),
        ({**TOOLS, "tools": ["search_kernel"]}, "policy.tools"),
        ({"type": "openai", "model": "m", "attempts": "/"}, "policy.attempts: '/' is a folder"),
        ([{"type": "openai", "model": "m", "attempts": "a"}] * 2, "policy[1].attempts: an earlier policy"),
        ([{"type": "openai", "modle": "m"}], "policy[0].model"),
        ([{"rewrites": ["exp_to_exp22"]}], "policy[0].rewrites[0]"),
        ([], "policy: the list is empty"),
    ],
)
def test_a_wrong_policy_is_told_by_its_key_and_secrets_are_not_repeated(policy, key):
    with pytest.raises(Exception, match=key.replace("[", r"\[")) as caught:
        load_mapping({"task": "softmax", "budget": {"evaluations": 3}, "policy": policy})
    assert "sk-very-secret" not in str(caught.value)


def test_a_campaign_whose_model_searches_and_tries_a_draft_records_both(workplace):
    def answer(body, index):
        return structured_answer(body, index) if "response_format" in body else "It waits for memory."

    script = [calls("search_kernels", {"query": "load"}), calls("evaluate_kernel", {"source": "x = 1"})]
    made = []
    with FakeServer(script, answer=answer) as server:
        tools = {"tools": ["search_kernels", "evaluate_kernel"], "phases": ["analyse", "generate"]}
        write_config(server, **tools)
        with mock.patch("evo.build.draft_evaluator", side_effect=lambda config: made.append(EasyJudge()) or made[0]):
            outcome = call("run", "my.yaml")
    assert outcome.code == 0, outcome.err
    assert len(made) == 1
    used = [turn.sampling["tools"] for turn in turns_of_run(Run.load("runs/my"))]
    assert any(tools["search_kernels"]["calls"] == tools["evaluate_kernel"]["calls"] == 1 for tools in used)
    assert "tools: 1 search_kernels, 1 evaluate_kernel" in outcome.err


def test_a_model_finds_the_kernels_of_the_campaigns_library(workplace):
    def answer(body, index):
        return structured_answer(body, index) if "response_format" in body else "It waits for memory."

    maker = RunMaker(Path("earlier"))
    maker.add("marvellous = 1\n", passed("marvellous = 1\n", 1.5))
    library.add(Path("lib.sqlite"), [maker.load()])
    with FakeServer([calls("search_kernels", {"query": "marvellous"})], answer=answer) as server:
        write_config(server, tools=["search_kernels"], phases=["analyse", "generate"])
        outcome = call("run", "my.yaml", "--set", "library=lib.sqlite")
        told = [said["content"] for asked in server.requests for said in asked["messages"] if said["role"] == "tool"]
    assert outcome.code == 0, outcome.err
    assert "c000000 of earlier for h200, task softmax, 1.500x its baseline (modelled)" in told[0]
    assert "my" in {Path(one.kernel.run).name for one in library.search(Path("lib.sqlite"), "", 99)}


def test_drafts_are_judged_on_the_cpu_also_where_a_gpu_judges():
    config = load_mapping(
        {"task": "softmax", "budget": {"evaluations": 3}, "evaluator": {"type": "gpu", "target": "a100"}}
    )
    evaluator = draft_evaluator(config)
    assert isinstance(evaluator, CpuEvaluator)
    assert evaluator.task.name == "softmax"
    evaluator.close()


def test_the_shipped_config_is_valid():
    config = load_config("llm")
    assert config.policy.type == "openai"


def doctor(*args) -> dict:
    outcome = call("doctor", "--policy", "my.yaml", "--json", *args)
    document = json.loads(outcome.out)
    return {check["name"].removeprefix("policy: "): check for check in document["checks"]} | {"code": outcome.code}


def test_doctor_asks_one_small_question_and_finds_everything_in_order(workplace):
    with FakeServer(answer=lambda body, index: '{"ready": true}', tokenizes=True) as server:
        write_config(server)
        found = doctor()
        assert len(server.requests) == 1
    assert found.pop("code") == 0
    states = {name: check["state"] for name, check in found.items()}
    wanted = dict.fromkeys(("server", "model", "prompt lengths", "answer", "structured answers", "for learning"), "ok")
    assert states == {"key": "info", **wanted}
    assert "tokens/s" in found["answer"]["detail"]
    assert "8192 tokens of context" in found["model"]["detail"]


def test_doctor_says_that_prompts_are_estimated_where_the_server_does_not_count(workplace):
    with FakeServer() as server:
        write_config(server)
        found = doctor()
    assert found["prompt lengths"]["state"] == "info"
    assert "estimated" in found["prompt lengths"]["detail"]


def test_doctor_names_the_models_when_the_configured_one_is_unknown(workplace):
    with FakeServer(models={"one": 100, "two": None}) as server:
        write_config(server)
        found = doctor()
        assert server.requests == []
    assert found["code"] == 4
    assert found["model"]["fix"] == "set policy.model to one of: one, two"


def test_doctor_says_that_a_server_is_not_there(workplace):
    with FakeServer() as server:
        write_config(server)
    found = doctor()
    assert found["code"] == 4
    assert "cannot be reached" in found["server"]["detail"]


def test_doctor_warns_of_a_server_without_schemas_log_probabilities_and_token_ids(workplace):
    plain = {"choices": [{"message": {"content": "Sure, I am ready!"}}]}
    with FakeServer([lambda server, body, handler: plain]) as server:
        write_config(server)
        found = doctor()
    assert found["code"] == 0
    assert found["structured answers"]["state"] == found["for learning"]["state"] == "warn"


def test_doctor_needs_no_server_for_rules(workplace):
    shutil.copy(Path(__file__).parents[2] / "configs" / "quickstart.yaml", "my.yaml")
    assert doctor()["policy"]["state"] == "ok"
