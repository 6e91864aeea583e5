"""Each format is read, and where it trains anything trained on, by the library it is for.

`datasets` reads all of them in test_export.py. Libraries that are not installed are skipped by name.
"""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace

import pytest

from evaluator.task import load_task
from policy.export import export
from policy.exports.base import Options
from tests.policy.turns import failed_turn, sampled_turn, turn

OPTIONS = Options(tasks={"r": load_task("softmax")})
TURNS = [
    *(turn(number, group=f"g{number}", speedup=1 + number / 10, reward=number / 10) for number in range(1, 5)),
    *(failed_turn(number, group=f"g{number}") for number in range(5, 9)),
]
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{% generation %}{{ message['content'] }}{% endgeneration %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture(scope="module")
def tokenizer():
    """One token for each byte, and a chat template."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    marks = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {token: index for index, token in enumerate([*marks, *sorted(letters)])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(marks)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<|pad|>", eos_token="<|end|>", chat_template=TEMPLATE
    )


@pytest.fixture
def model(tokenizer):
    """A Llama with random weights that fits in 100 kB."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=512,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return transformers.LlamaForCausalLM(config)


def exported(tmp_path, format, turns=TURNS):
    export(turns, format, tmp_path / format, options=OPTIONS)
    return tmp_path / format


def rows_of(folder):
    import datasets

    return datasets.load_dataset(str(folder), split="train")


@pytest.mark.parametrize(
    ("format", "trainer", "settings"),
    [
        ("trl-sft", "SFT", {"assistant_only_loss": True, "max_length": 128}),
        ("trl-dpo", "DPO", {"max_length": 128}),
        ("trl-kto", "KTO", {"max_length": 128}),
        ("trl-grpo", "GRPO", {"num_generations": 2, "max_completion_length": 4, "loss_type": "dr_grpo"}),
    ],
)
def test_trl_trains_on_its_formats(tmp_path, tokenizer, model, format, trainer, settings):
    trl = pytest.importorskip("trl")
    turns = TURNS if format != "trl-dpo" else [*TURNS[:1], *(failed_turn(number) for number in range(5, 9))]
    rows = rows_of(exported(tmp_path, format, turns))
    config = getattr(trl, f"{trainer}Config")(
        output_dir=str(tmp_path / "out"),
        max_steps=1,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=1,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        **settings,
    )
    rewards = []

    def reward(completions, **columns):
        rewards.append(columns)
        return [float(number) for number in range(len(completions))]

    extra = {"GRPO": {"reward_funcs": reward}, "SFT": {}}.get(trainer, {"ref_model": copy.deepcopy(model)})
    made = getattr(trl, f"{trainer}Trainer")(
        model=model, args=config, train_dataset=rows, processing_class=tokenizer, **extra
    )
    done = made.train()
    assert done.global_step == 1
    if trainer == "GRPO":
        assert rewards[0]["task"] == ["softmax", "softmax"], "the reward function sees the columns"


def test_trl_applies_the_chat_template_to_prompts_and_answers(tmp_path, tokenizer):
    trl = pytest.importorskip("trl")
    row = rows_of(exported(tmp_path, "trl-sft"))[0]
    assert trl.data_utils.is_conversational(row)
    assert tokenizer.apply_chat_template(row["messages"], tokenize=False).endswith(
        f"<|assistant|>{TURNS[0].answer}<|end|>"
    )


def test_verl_reads_prompts_and_scores_answers(tmp_path, tokenizer):
    pytest.importorskip("verl")
    omegaconf = pytest.importorskip("omegaconf")
    from verl.trainer.ppo.reward import get_custom_reward_fn
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    folder = exported(tmp_path, "verl")
    config = omegaconf.OmegaConf.create(
        {"max_prompt_length": 512, "filter_overlong_prompts": True, "cache_dir": str(tmp_path)}
    )
    found = RLHFDataset(str(folder / "train.parquet"), tokenizer, config)
    assert len(found) == len(TURNS)
    batch = collate_fn([found[0], found[1]])
    assert batch["raw_prompt"][0] == [message.model_dump() for message in TURNS[0].messages]
    assert list(batch["data_source"]) == ["kernevo/softmax"] * 2
    assert list(batch["index"]) == [0, 1]
    named = {"path": str(folder / "compute_score.py"), "name": "compute_score"}
    score = get_custom_reward_fn(omegaconf.OmegaConf.create({"reward": {"custom_reward_function": named}}))
    given = {"data_source": found[0]["data_source"], "ground_truth": found[0]["reward_model"]["ground_truth"]}
    assert score(solution_str="no idea", extra_info={}, **given)["score"] == -0.4


def test_verl_masks_all_but_the_answer_of_its_sft_rows(tmp_path, tokenizer):
    pytest.importorskip("verl")
    omegaconf = pytest.importorskip("omegaconf")
    multiturn = pytest.importorskip("verl.utils.dataset.multiturn_sft_dataset", exc_type=ImportError)
    config = omegaconf.OmegaConf.create({"max_length": 256, "pad_mode": "right", "truncation": "error"})
    found = multiturn.MultiTurnSFTDataset([str(exported(tmp_path, "verl-sft") / "train.parquet")], tokenizer, config)
    assert len(found) == 4
    row = found[0]
    trained = row["input_ids"][row["loss_mask"].bool()]
    assert tokenizer.decode(trained) == f"{TURNS[0].answer}<|end|>"


def test_openrlhf_reads_prompts_and_labels(tmp_path, tokenizer):
    pytest.importorskip("openrlhf")
    from openrlhf.datasets.prompts_dataset import PromptDataset
    from openrlhf.datasets.utils import blending_datasets

    data = SimpleNamespace(input_key="input", label_key="label", apply_chat_template=True)
    strategy = SimpleNamespace(args=SimpleNamespace(data=data), print=lambda *_: None, is_rank_0=lambda: True)
    folder = exported(tmp_path, "openrlhf")
    found = PromptDataset(blending_datasets(str(folder / "train.jsonl"), strategy=strategy), tokenizer, strategy)
    assert len(found) == len(TURNS)
    source, prompt, label, _ = found[0]
    assert source == "kernevo/softmax"
    assert prompt == "<|system|>rules<|end|><|user|>make it fast<|end|><|assistant|>"
    assert json.loads(label)["parent_source"] == TURNS[0].parent_source


def test_skyrl_reads_prompts_and_hands_the_rest_to_its_environment(tmp_path, tokenizer):
    dataset = pytest.importorskip("skyrl.train.dataset.dataset")
    found = dataset.PromptDataset(
        str(exported(tmp_path, "skyrl") / "train.parquet"), tokenizer, max_prompt_length=512, num_workers=1
    )
    assert len(found) == len(TURNS)
    prompt, env_class, extras, _ = found[0]
    assert (prompt[0]["role"], env_class) == ("system", "kernevo")
    assert extras["reward_spec"]["method"] == "rule"


def test_prime_rl_rows_are_its_training_samples(tmp_path):
    types = pytest.importorskip("prime_rl.transports.rollouts.types")
    msgspec = pytest.importorskip("msgspec")
    rows = rows_of(exported(tmp_path, "prime-rl", [sampled_turn(1), sampled_turn(2, reward=0.1)]))
    fields = set(types.TrainingSample.__struct_fields__)
    for row in rows:
        sample = types.TrainingSample(**{name: value for name, value in row.items() if name in fields})
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(sample), type=types.TrainingSample)
        assert again.advantages == row["advantages"]
        assert len(again.token_ids) == len(again.mask) == len(again.logprobs) == len(again.temperatures) == 5


def test_openevolve_reads_its_traces(tmp_path):
    pytest.importorskip("openevolve")
    from openevolve.evolution_trace import EvolutionTrace
    from openevolve.utils.trace_export_utils import load_traces

    loaded = load_traces(exported(tmp_path, "openevolve") / "train.jsonl")
    assert len(loaded) == len(TURNS)
    traces = [EvolutionTrace(**row) for row in loaded]
    told = traces[0].calculate_improvement()
    assert told == {name: value for name, value in traces[0].improvement_delta.items() if name in told}
