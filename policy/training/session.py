"""A training from turns to an adapter's folder.

    DIR/adapter_config.json, adapter_model.safetensors   the adapter
    DIR/manifest.json      how it was made; written last, so that a folder with it is whole
    DIR/training.json      the settings, which a resumed training must be given again
    DIR/metrics.jsonl      one line for each step; DIR/tensorboard/ holds the same
    DIR/checkpoints/       what a killed training resumes from

Imports torch, TRL and PEFT when called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.errors import EnvironmentUnusableError, KernevoError, UsageError
from evaluator.protocol import Evaluator
from policy.reward import RewardSettings
from policy.training import backoff, base_model, data, manifest, probe
from policy.training.arguments import Fit
from policy.training.checkpoints import last_checkpoint, step_of
from policy.training.choices import Choices
from policy.training.data import Prompt, Source
from policy.training.judging import Judge
from policy.training.manifest import Manifest, Probe
from policy.training.metrics_log import MetricsLog
from policy.training.settings import TrainingSettings

SETTINGS = "training.json"


@dataclass
class _Session:
    settings: TrainingSettings
    out: Path
    sources: Sequence[Source]
    judge: Judge
    evaluators: Mapping[str, Evaluator]

    def __post_init__(self) -> None:
        from policy.training.watching import Watch

        self.turns = data.turns_for(self.sources, self.settings)
        self.tokenizer = base_model.load_tokenizer(self.settings.base)
        self.prompts = self._prompts()
        self.checkpoints = self.out / "checkpoints"
        tasks = {name: evaluator.task for name, evaluator in self.evaluators.items()}
        self.choices = Choices(tasks, self._encode, self.tokenizer.eos_token_id, self.settings.rewrites)
        found = last_checkpoint(self.checkpoints)
        log = MetricsLog(self.out / "metrics.jsonl", 0 if found is None else step_of(found) or 0)
        self.watch = Watch(self.checkpoints, log)
        self.rows = 0

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _prompts(self) -> list[Prompt]:
        """Those that leave room for an answer."""
        from policy.training.rollouts import tokens_of

        room = self.settings.context_tokens - self.settings.answer_tokens
        found = data.prompts_of(self.turns)
        kept = [prompt for prompt in found if len(tokens_of(self.tokenizer, prompt)) <= room]
        if not kept and self.settings.samples:
            raise KernevoError(
                f"none of {len(found)} prompts leaves room for an answer: all have more than {room} tokens",
                "raise --context-tokens, or lower --answer-tokens",
            )
        return kept

    def trainer(self, fit: Fit) -> Any:
        """A trainer with fresh weights."""
        settings = self.settings
        common = (settings, self.out, fit, base_model.load_model(settings.base, settings.adapter), self.tokenizer)
        if settings.reinforces:
            from policy.training.reinforcement import rl_trainer

            rollouts = self._rollouts()
            self.rows = len(rollouts.rows)
            return rl_trainer(*common, rollouts, self.watch)
        from policy.training.supervised import dpo_trainer, sft_trainer

        rows = data.sft_rows(self.turns, settings) if settings.method == "sft" else data.dpo_rows(self.turns)
        rows = self._fitting(rows)
        self.rows = len(rows)
        make = sft_trainer if settings.method == "sft" else dpo_trainer
        return make(*common, rows, self.watch)

    def _fitting(self, rows: Sequence[data.Row]) -> list[data.Row]:
        """Rows whose prompt and longest answer fit; TRL would cut the others, and the answer is at the end."""
        kept = [row for row in rows if max(map(self._tokens, data.conversations(row))) <= self.settings.context_tokens]
        if not kept:
            raise KernevoError(
                f"none of {len(rows)} rows fits: all have more than {self.settings.context_tokens} tokens",
                "raise --context-tokens",
            )
        return kept

    def _tokens(self, conversation: Sequence[data.Row]) -> int:
        return len(self.tokenizer.apply_chat_template(list(conversation), tokenize=True, return_dict=True)["input_ids"])

    def _rollouts(self) -> Any:
        from policy.training.rollouts import RecordedAnswers, SampledAnswers

        if self.settings.answers == "recorded":
            return RecordedAnswers(self.settings, self.turns, self.tokenizer)
        return SampledAnswers(self.settings, self.prompts, self.tokenizer, self.choices, self.judge, self.watch.clock)

    def probed(self, model: Any) -> float:
        """What the probe's answers earn with `model`."""
        asked = probe.chosen(self.prompts, self.settings.probe)
        return probe.mean_reward(self.settings, asked, model, self.tokenizer, self.choices, self.judge)

    def before(self) -> float | None:
        """The probe before training; measured once, also where the training is resumed."""
        if not self.settings.probe:
            return None
        path = self.out / "probe.json"
        if path.is_file():
            return float(json.loads(path.read_text(encoding="utf-8"))["before"])
        model = base_model.load_model(self.settings.base, self.settings.adapter)
        found = self.probed(_on_device(model))
        path.write_text(json.dumps({"before": found}), encoding="utf-8")
        return found

    def manifest(self, times: int, before: float | None, after: float | None) -> Manifest:
        """What to say of the adapter."""
        settings = self.settings
        parent = manifest.read(Path(settings.adapter)) if settings.adapter else None
        asked = len(probe.chosen(self.prompts, settings.probe)) if settings.probe else 0
        measured = None if before is None or after is None else (before, after)
        return Manifest(
            version=manifest.version_of(self.out),
            base=settings.base,
            method=settings.method,
            runs=tuple(source.run for source in self.sources),
            turns=len(self.turns),
            rows=self.rows,
            parents=() if parent is None else (*parent.parents, parent.version),
            settings=settings,
            seeds={"training": settings.seed},
            metrics=self.watch.log.rows[-1] if self.watch.log.rows else {},
            alarms=tuple(self.watch.rung),
            out_of_memory=times,
            probe=None
            if measured is None
            else Probe(before=measured[0], after=measured[1], prompts=asked, answers=settings.group),
            libraries=manifest.libraries(),
        )


def finetune(
    settings: TrainingSettings,
    sources: Sequence[Source],
    evaluators: Mapping[str, Evaluator],
    out: Path,
    *,
    reward: RewardSettings | None = None,
    resume: bool = False,
) -> Manifest:
    """Train an adapter into `out`. `evaluators` by task judge what is sampled; they stay the caller's to close.

    Raises UsageError for what cannot be trained on, NotFiniteError, EnvironmentUnusableError for missing packages and
    memory. A training that was killed goes on from its newest checkpoint with `resume`; one that is done is returned.
    """
    base_model.require_packages()
    if (done := _prepare(settings, out, resume=resume)) is not None:
        return done
    session = _Session(settings, out, sources, Judge(evaluators, reward), evaluators)
    before = session.before()
    trainer, times = backoff.train(session.trainer, Fit.first(settings), settings.rows, session.checkpoints)
    model = trainer.accelerator.unwrap_model(trainer.model)
    after = session.probed(model) if settings.probe else None
    model.save_pretrained(str(out), selected_adapters=["default"])
    made = session.manifest(times, before, after)
    made.write(out)
    return made


def _prepare(settings: TrainingSettings, out: Path, *, resume: bool) -> Manifest | None:
    """Make the folder, or check that it holds this very training; its manifest where it is done."""
    stored = out / SETTINGS
    if resume and stored.is_file():
        told = json.loads(stored.read_text(encoding="utf-8"))
        if told != settings.model_dump(mode="json"):
            given = settings.model_dump(mode="json")
            changed = sorted(name for name in given if told.get(name) != given[name])
            raise UsageError(
                f"{out}: was begun with other settings: {', '.join(changed)}", "give the same, or another --out"
            )
        return manifest.read(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(
            f"{out}: not empty; nothing was overwritten", "--resume goes on with a training; or another --out"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        stored.write_text(settings.model_dump_json(indent=2), encoding="utf-8")
    except OSError as error:
        raise EnvironmentUnusableError(f"{out}: cannot be written: {error.strerror}", "give another --out") from error
    return None


def _on_device(model: Any) -> Any:
    import torch

    return model.to("cuda") if torch.cuda.is_available() else model
