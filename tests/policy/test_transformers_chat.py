"""A tiny model with random weights: what it says is nonsense, how it is said is the real thing."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager

import pytest

from evaluator.errors import EnvironmentUnusableError
from evaluator.types import KernelSource
from policy.chat import AskError, Question
from policy.model_children import Workshop
from policy.model_policy import ModelSettings
from policy.testing import PolicyTestCase
from policy.transformers_chat import TransformersChat
from policy.transformers_engine import TransformersEngine, TransformersSettings, load
from policy.transformers_policy import TransformersPolicy
from policy.types import Message, ParentView
from tests.policy.asking import SEED, request
from tests.policy.prompt_cases import passed
from tests.policy.tiny_model import write_adapter, write_tiny_model

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

SCHEMA = {
    "type": "object",
    "properties": {"choice": {"enum": ["red", "green", "blue", "a longer colour"]}},
    "required": ["choice"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model"), [SEED, "a question of colours"])


@pytest.fixture(scope="module")
def adapters(folder, tmp_path_factory):
    pytest.importorskip("peft")
    home = tmp_path_factory.mktemp("adapters")
    return [str(write_adapter(home / f"v{seed}", folder, seed=seed)) for seed in (1, 2)]


def settings(folder, **changes) -> TransformersSettings:
    return TransformersSettings(model=str(folder), device="cpu", **changes)


def question(text: str = "which colour?", **changes) -> Question:
    return Question((Message(role="user", content=text),), 10, changes.pop("max_tokens", 24), **{"seed": 1, **changes})


def ask(model, *questions):
    async def every():
        try:
            return await asyncio.gather(*(model.ask(one) for one in questions), return_exceptions=True)
        finally:
            await model.close()

    return asyncio.run(every())


def model_logits(folder, answer):
    """The model's logits at each token of an answer, from one plain pass over prompt and answer."""
    model = load(settings(folder))._base
    ids = torch.tensor([answer.prompt_token_ids + answer.answer_token_ids])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0]
    return logits[len(answer.prompt_token_ids) - 1 : -1]


def at(logprobs, answer):
    return [float(row[token]) for row, token in zip(logprobs, answer.answer_token_ids, strict=True)]


def test_log_probabilities_are_of_the_distribution_that_was_drawn_from(folder):
    ((answer,),) = ask(TransformersChat(settings(folder, temperature=0.7, top_k=5)), question())
    logits = model_logits(folder, answer)
    kept = torch.topk(logits / 0.7, 5)
    drawn = torch.full_like(logits, -torch.inf).scatter_(-1, kept.indices, kept.values).log_softmax(-1)
    assert answer.logprobs == pytest.approx(at(drawn, answer), abs=1e-4)
    assert answer.model_logprobs == pytest.approx(at(logits.log_softmax(-1), answer), abs=1e-4)
    assert answer.completion_tokens == len(answer.answer_token_ids) == len(answer.logprobs)


def test_log_probabilities_of_a_held_answer_are_among_what_its_schema_allows(folder):
    ((answer,),) = ask(TransformersChat(settings(folder)), question(schema=SCHEMA, max_tokens=64))
    tokenizer = load(settings(folder)).tokenizer
    texts = [json.dumps({"choice": choice}, separators=(",", ":")) for choice in SCHEMA["properties"]["choice"]["enum"]]
    listed = [(*tokenizer(text)["input_ids"], tokenizer.eos_token_id) for text in texts]
    assert answer.text in texts
    assert answer.answer_token_ids in listed
    logits = model_logits(folder, answer) / 0.8
    for place, (token, logprob) in enumerate(zip(answer.answer_token_ids, answer.logprobs, strict=True)):
        begun = answer.answer_token_ids[:place]
        allowed = sorted({one[place] for one in listed if one[:place] == begun})
        assert logprob == pytest.approx(float(logits[place][allowed].log_softmax(-1)[allowed.index(token)]), abs=1e-4)


def test_held_answers_are_valid_and_not_all_the_same(folder):
    (answers,) = ask(TransformersChat(settings(folder)), question(n=24, schema=SCHEMA, max_tokens=64))
    chosen = {json.loads(answer.text)["choice"] for answer in answers}
    assert chosen <= set(SCHEMA["properties"]["choice"]["enum"])
    assert len(chosen) > 1
    assert {answer.finish_reason for answer in answers} == {"stop"}


def test_an_answer_is_the_same_alone_and_among_longer_and_shorter_questions(folder):
    chat = settings(folder)
    questions = [question("x" * length, seed=length, n=2) for length in (5, 300, 40)]
    together = ask(TransformersChat(chat), *questions)
    alone = [ask(TransformersChat(chat), one)[0] for one in questions]
    assert [[a.answer_token_ids for a in one] for one in together] == [
        [a.answer_token_ids for a in one] for one in alone
    ]
    for many, one in zip(together, alone, strict=True):
        assert many[0].logprobs == pytest.approx(one[0].logprobs, abs=1e-3)
        assert many[0].answer_token_ids != many[1].answer_token_ids


def test_torchs_own_random_numbers_are_left_alone(folder, adapters):
    """The evaluator's checks draw from them."""
    torch.manual_seed(7)
    before = torch.get_rng_state()
    ask(TransformersChat(settings(folder, adapter=adapters[0])), question(seed=None), question(schema=SCHEMA))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() is torch.float32


def test_more_answers_than_fit_at_once_are_written_in_turns(folder):
    few, many = (ask(TransformersChat(settings(folder, batch=size)), question(n=7))[0] for size in (2, 64))
    assert [answer.answer_token_ids for answer in few] == [answer.answer_token_ids for answer in many]


def test_where_memory_runs_out_fewer_are_written_at_once(folder, monkeypatch):
    engine = load(settings(folder))
    written, real = [], engine._generator._together

    def together(rows, sampling):
        if len(rows) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        written.append(len(rows))
        return real(rows, sampling)

    monkeypatch.setattr(engine._generator, "_together", together)
    (answers,) = ask(TransformersChat(settings(folder), load_engine=lambda _: engine), question(n=8))
    (expected,) = ask(TransformersChat(settings(folder)), question(n=8))
    assert [answer.answer_token_ids for answer in answers] == [answer.answer_token_ids for answer in expected]
    assert written == [2, 2, 2, 2]


def test_schemas_that_cannot_be_listed_and_answers_that_do_not_fit_are_refused(folder):
    open_schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    found = ask(
        TransformersChat(settings(folder)),
        question(schema=open_schema),
        question(schema=SCHEMA, max_tokens=3),
        question(schema=SCHEMA, max_tokens=64),
    )
    assert [getattr(one, "reason", "") for one in found] == ["bad_request", "bad_request", ""]
    assert "leaves $ open" in found[0].message
    assert "raise policy.max_tokens" in found[1].hint


def test_answers_that_do_not_fit_into_max_tokens_are_not_given(folder):
    longest = max(len(answer.answer_token_ids) for answer in _colours(folder, 64))
    short = _colours(folder, longest - 1)
    assert {json.loads(answer.text)["choice"] for answer in short} <= {"red", "green", "blue"}


def _colours(folder, max_tokens):
    (answers,) = ask(TransformersChat(settings(folder)), question(n=32, schema=SCHEMA, max_tokens=max_tokens))
    return answers


def test_a_prompt_that_is_too_long_spoils_no_other(folder):
    small = settings(folder, max_model_len=200)
    good, bad = ask(TransformersChat(small), question(), question("word " * 400))
    assert good[0].text
    assert bad.reason == "context_overflow"


def test_the_model_sleeps_between_questions_and_works_under_the_guard(folder, monkeypatch):
    log = []
    for name in ("wake", "generate", "rest"):
        real = getattr(TransformersEngine, name)
        monkeypatch.setattr(TransformersEngine, name, _noting(log, name, real))

    @contextmanager
    def alone():
        log.append("alone")
        yield
        log.append("free")

    ask(TransformersChat(settings(folder), alone=alone), question())
    assert log == ["alone", "rest", "free", "alone", "wake", "generate", "rest", "free"]


def _noting(log, name, real):
    def noted(*arguments):
        log.append(name)
        return real(*arguments)

    return noted


def test_an_adapter_is_swapped_in_and_out_without_loading_the_model_again(folder, adapters):
    loads = []

    def counted(wanted):
        loads.append(wanted)
        return load(wanted)

    async def talk():
        chat = TransformersChat(settings(folder), load_engine=counted)
        said = [(await chat.ask(question()))[0]]
        for name, path in (("v1", adapters[0]), ("v2", adapters[1]), ("v1 again", adapters[0]), ("", None)):
            await chat.use_adapter(name, path)
            said.append((await chat.ask(question()))[0])
        await chat.close()
        return said

    base, first, second, again, without = asyncio.run(talk())
    assert len(loads) == 1
    assert [answer.model for answer in (base, first, second, again, without)] == [
        str(folder),
        "v1",
        "v2",
        "v1 again",
        str(folder),
    ]
    assert first.answer_token_ids == again.answer_token_ids
    assert base.answer_token_ids == without.answer_token_ids
    assert len({answer.answer_token_ids for answer in (base, first, second)}) == 3
    assert first.logprobs == pytest.approx(again.logprobs)


def test_what_an_adapter_says_is_what_peft_computes(folder, adapters):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    ((answer,),) = ask(TransformersChat(settings(folder, adapter=adapters[0])), question())
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), adapters[0])
    ids = torch.tensor([answer.prompt_token_ids + answer.answer_token_ids])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0][len(answer.prompt_token_ids) - 1 : -1]
    assert answer.model_logprobs == pytest.approx(at(logits.log_softmax(-1), answer), abs=1e-3)


@pytest.mark.parametrize("in_use", [False, True])
def test_an_adapter_that_does_not_fit_leaves_the_one_before_in_use(folder, adapters, tmp_path, in_use):
    from safetensors.torch import load_file, save_file

    wrong = tmp_path / "wrong"
    write_adapter(wrong, folder)
    weights = load_file(wrong / "adapter_model.safetensors")
    save_file({name: torch.cat([w, w]) for name, w in weights.items()}, wrong / "adapter_model.safetensors")
    other = tmp_path / "other"
    write_adapter(other, folder)
    save_file({f"x.{name}": w for name, w in weights.items()}, other / "adapter_model.safetensors")

    async def talk():
        chat = TransformersChat(settings(folder, adapter=adapters[0] if in_use else None))
        before = await chat.ask(question())
        for bad in (str(wrong), str(other), str(tmp_path)):
            with pytest.raises(AskError) as raised:
                await chat.use_adapter("bad", bad)
            assert raised.value.reason == "adapter"
            assert await chat.ask(question()) == before
        await chat.use_adapter("v2", adapters[1])
        after = await chat.ask(question())
        await chat.close()
        return before, after

    before, after = asyncio.run(talk())
    assert before[0].answer_token_ids != after[0].answer_token_ids


def test_proposals_carry_the_adapter_that_wrote_them_as_their_version(folder, adapters):
    policy = TransformersPolicy(settings(folder), ModelSettings(max_tokens=128, on_failure="stop"))
    try:
        ((base,),) = policy.propose([request()])
        policy.use_adapter("round 1", adapters[0])
        ((child,),) = policy.propose([request()])
    finally:
        policy.close()
    assert (base.policy_version, child.policy_version) == (str(folder), "round 1")
    assert child.sampling["asked_model"] == "round 1"
    assert len(child.sampling["logprobs"]) == len(child.sampling["model_logprobs"])
    assert child.sampling["logprobs_of"] == "the distribution drawn from"


def test_values_of_tunables_are_held_to_their_schema_too(folder):
    parent = ParentView(candidate_id="c0", source=KernelSource(text=SEED), evaluation=passed(SEED, 1.5))
    asked = ModelSettings(tune=1.0, max_tokens=256, repair=False, on_failure="stop")
    policy = TransformersPolicy(settings(folder), asked)
    (proposals,) = policy.propose([request(parents=(parent,), count=6)])
    policy.close()
    assert not policy.summary()["unusable"]
    assert proposals
    assert all(proposal.tunables and proposal.sampling["logprobs"] for proposal in proposals)


@pytest.mark.parametrize(
    ("broken", "match"),
    [
        (lambda home: None, "holds no config.json"),
        (lambda home: (home / "config.json").write_text("{}"), "cannot load"),
    ],
)
def test_a_folder_without_a_model_is_said_once_and_not_tried_again(tmp_path, broken, match):
    broken(tmp_path)
    found = ask(TransformersChat(settings(tmp_path)), question(), question())
    assert [error.reason for error in found] == ["unreachable"] * 2
    with pytest.raises(EnvironmentUnusableError, match=match):
        load(settings(tmp_path))


def test_a_tokenizer_without_a_chat_template_is_refused_with_the_fix(folder, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(EnvironmentUnusableError, match="no chat template") as raised:
        load(settings(tmp_path))
    assert "chat_template.jinja" in raised.value.hint


def test_a_missing_package_or_gpu_is_named(folder, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentUnusableError, match="package transformers") as raised:
        load(settings(folder))
    assert "pip install" in raised.value.hint
    monkeypatch.undo()
    with pytest.raises(EnvironmentUnusableError, match="cuda:99"):
        load(TransformersSettings(model=str(folder), device="cuda:99"))


@pytest.mark.gpu
def test_on_a_gpu_the_same_is_said_and_the_weights_leave_it_between_questions(folder, adapters):
    engines = []

    def kept(wanted):
        engines.append(load(wanted))
        return engines[-1]

    wanted = TransformersSettings(model=str(folder), device="cuda", dtype="float32", adapter=adapters[0])
    ((there,),) = ask(TransformersChat(wanted, load_engine=kept), question(schema=SCHEMA, max_tokens=64))
    ((here,),) = ask(TransformersChat(settings(folder, adapter=adapters[0])), question(schema=SCHEMA, max_tokens=64))
    assert there.answer_token_ids == here.answer_token_ids
    assert there.logprobs == pytest.approx(here.logprobs, abs=1e-2)
    assert {str(weight.device) for weight in engines[0]._model.parameters()} == {"cpu"}


class TestTransformersPolicy(PolicyTestCase):
    @pytest.fixture(autouse=True)
    def _model(self, folder):
        self.folder = folder

    def make_policy(self):
        asked = ModelSettings(max_tokens=256, on_failure="stop")
        return TransformersPolicy(settings(self.folder), asked, Workshop())
