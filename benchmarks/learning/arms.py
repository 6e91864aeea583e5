"""One training seed of the proof, phase by phase; each phase leaves a file, so that what was killed goes on.

FOLDER/sft, rl, shuffled      adapters with metrics.jsonl
FOLDER/ARM.SPLIT.json         judged answers of an arm; SPLIT is training, held_out or free
FOLDER/seconds.json           what each phase took
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.learning.dataset import evaluators, sources
from benchmarks.learning.pairs import NAMES
from benchmarks.learning.records import Measured, RecordedEvaluator
from evaluator.types import Frozen
from policy.training.base_model import load_model, load_tokenizer
from policy.training.choices import Choices
from policy.training.data import Prompt, Source, prompts_of
from policy.training.judging import Judge, Judged
from policy.training.session import finetune
from policy.training.settings import TrainingSettings

BASE, SFT, RL, SHUFFLED = ARMS = ("base", "sft", "rl", "shuffled")
SPLITS = ("training", "held_out")
FREE = "free"
"""Held-out prompts, answered without the list of answers that apply."""
AT_ONCE = 256
"""Answers written at once at most; fewer where memory runs out."""


class ProofSettings(Frozen):
    """What all seeds share."""

    base: str
    """Folder of the model."""
    measured: str
    """Hash of the table that rewards are looked up in."""
    training: tuple[str, ...]
    held_out: tuple[str, ...]
    """Names of tasks."""
    answers: int
    """To each prompt, of each arm."""
    sft_steps: int
    sft_rate: float
    rl_steps: int
    rl_rate: float
    group: int
    prompts: int
    """Of one step of reinforcement learning."""
    micro_batch: int
    rank: int
    answer_tokens: int
    context_tokens: int

    def of_method(self, method: str, seed: int, **more: Any) -> TrainingSettings:
        """A training's settings."""
        given = {"base": self.base, "seed": seed, "group": self.group, "prompts": self.prompts, "rewrites": NAMES}
        given |= {"micro_batch": self.micro_batch, "rank": self.rank, "answer_tokens": self.answer_tokens}
        given |= {"context_tokens": self.context_tokens, "save_every": 5, **more}
        return TrainingSettings.model_validate({"method": method, **given})


@dataclass(frozen=True)
class Split:
    """Training or held-out pairs."""

    judging: Mapping[str, RecordedEvaluator]
    runs: Sequence[Source]

    @classmethod
    def of(cls, names: Sequence[str], rows: Sequence[Measured]) -> Split:
        """Everything about some tasks."""
        judging = evaluators(names, rows)
        return cls(judging, sources(judging.values(), rows))

    @cached_property
    def prompts(self) -> list[Prompt]:
        """Each once."""
        return prompts_of([turn for run in self.runs for turn in run.turns])

    @cached_property
    def judge(self) -> Judge:
        """It remembers for all arms."""
        return Judge(self.judging)


class Seed:
    """The phases of one training seed."""

    def __init__(self, settings: ProofSettings, seed: int, folder: Path, splits: Mapping[str, Split]) -> None:
        self._settings, self._seed, self._folder, self._splits = settings, seed, folder, splits

    def remaining(self) -> list[str]:
        """Phases that are not done, in order."""
        return [name for name, done in phases(self._folder).items() if not done.is_file()]

    def run(self, name: str) -> None:
        """Do one phase, or what a kill has left of it."""
        started = time.perf_counter()
        arm, _, split = name.partition(".")
        if split:
            self._answer(arm, split)
        else:
            self._train(arm)
        path = self._folder / "seconds.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        write(path, known | {name: round(known.get(name, 0.0) + time.perf_counter() - started, 1)})

    def _train(self, arm: str) -> None:
        settings, split = self._settings, self._splits["training"]
        if arm == SFT:
            # Half the rows of a step of reinforcement learning: there are not many elite steps, and what is learned by
            # heart leaves nothing to explore.
            rate: dict[str, Any] = {"steps": settings.sft_steps, "learning_rate": settings.sft_rate}
            # Its rows share no prompt, those of a group do: as many prompts go through the model at once.
            rate["micro_batch"] = max(settings.micro_batch // settings.group, 1)
            wanted = settings.of_method("sft", self._seed, prompts=max(settings.prompts // 2, 1), **rate)
        else:
            more = {"adapter": str(self._folder / SFT), "shuffled": arm == SHUFFLED}
            rate = {"steps": settings.rl_steps, "learning_rate": settings.rl_rate}
            wanted = settings.of_method("trloo", self._seed, **rate, **more)
        out = self._folder / arm
        finetune(wanted, split.runs, split.judging, out, resume=True)
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
        _free()

    def _answer(self, arm: str, name: str) -> None:
        split = self._splits["held_out" if name == FREE else name]
        adapter = None if arm == BASE else str(self._folder / arm)
        found = answered(self._settings, self._seed, split, adapter, held=name != FREE)
        told = {pair: [[asdict(one) for one in group] for group in groups] for pair, groups in found.items()}
        write(self._folder / f"{arm}.{name}.json", told)
        _free()


def phases(folder: Path) -> dict[str, Path]:
    """Name -> the file that is there when it is done, in order."""
    found = {arm: folder / arm / "manifest.json" for arm in (SFT, RL, SHUFFLED)}
    for arm, split in _answers():
        found[f"{arm}.{split}"] = folder / f"{arm}.{split}.json"
    return found


def _answers() -> Iterator[tuple[str, str]]:
    for arm in ARMS:
        yield from ((arm, split) for split in SPLITS)
    yield from ((arm, FREE) for arm in (BASE, SFT))


def answered(
    settings: ProofSettings, seed: int, split: Split, adapter: str | None, *, held: bool
) -> dict[str, list[list[Judged]]]:
    """By pair the judged answers to each prompt; all arms draw the same random numbers."""
    import torch

    from policy.training.rollouts import tokens_of
    from policy.training.sampling import sample

    tokenizer = load_tokenizer(settings.base)
    model = load_model(settings.base, adapter).eval()
    model = model.to("cuda") if torch.cuda.is_available() else model
    tasks = {name: evaluator.task for name, evaluator in split.judging.items()}
    choices = Choices(
        tasks, lambda text: tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id, NAMES
    )
    asked = [prompt for prompt in split.prompts for _ in range(settings.answers)]
    torch.manual_seed(seed + 1_000_003)
    answers = sample(
        model,
        [tokens_of(tokenizer, prompt) for prompt in asked],
        [choices.tree(prompt) if held else None for prompt in asked],
        end=[tokenizer.eos_token_id],
        tokens=settings.answer_tokens,
        temperature=1.0,
        at_once=AT_ONCE,
    )
    texts = tokenizer.batch_decode([one.tokens for one in answers], skip_special_tokens=True)
    cut = [one.finish_reason == "length" for one in answers]
    judged = split.judge.judge(list(zip(asked, texts, cut, strict=True)))
    found: dict[str, list[list[Judged]]] = {}
    for index, prompt in enumerate(split.prompts):
        found.setdefault(prompt.task, []).append(judged[index * settings.answers : (index + 1) * settings.answers])
    return found


def write(path: Path, content: Any) -> None:
    """A JSON file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def _free() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
