"""GRPO and TRLOO on TRL's GRPOTrainer. Imports torch and TRL.

TRL's private methods that are overridden here are pinned by tests/policy/training/test_trl_hooks.py:
`_generate_and_score_completions` (advantages, rejection, mismatch), `_get_per_token_logps_and_entropies`
(probabilities over the answers there are) and `_prepare_inputs` (time).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from evaluator.errors import UsageError
from policy import rejection
from policy.token_trie import Node
from policy.training.arguments import Fit, common
from policy.training.base_model import lora
from policy.training.rollouts import Rollout, Rollouts
from policy.training.sampling import PER_SEQUENCE
from policy.training.settings import TrainingSettings
from policy.training.shared_prompts import answer_logits
from policy.training.watching import Steps, Watch, Watched, quiet

SIGMA = "mismatch.json"
"""File of the checkpoints' folder with the scatter at step 0, which a resumed training must not measure again."""


class EvolutionTrainer(Watched, GRPOTrainer):  # type: ignore[misc]  # TRL is not typed for us
    """GRPOTrainer whose answers, rewards and advantages come from `Rollouts`. For one process."""

    rollouts: Rollouts
    settings: TrainingSettings

    def ready(self, settings: TrainingSettings, rollouts: Rollouts, watch: Watch, at_once: int) -> None:
        """Give what the constructor cannot take."""
        self.settings, self.rollouts, self.watch, self._at_once = settings, rollouts, watch, at_once
        self._items: list[int] = []
        self._rollout: Rollout | None = None
        self._rewards: list[float | None] = []
        self._trees: dict[tuple[int, ...], Node | None] = {}
        self._sigma = _read_sigma(Path(self.args.output_dir))

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        with self.watch.clock.part("overhead"):
            return super()._prepare_inputs(generation_batch)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._items = [row["item"] for row in inputs]
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        assert self._rollout is not None
        found = self.rollouts.advantages(self._rollout, self._rewards)
        if found is not None:
            output["advantages"] = torch.tensor(found, device=output["advantages"].device)
        kept = self._kept(output)
        output["advantages"] = output["advantages"] * kept.to(output["advantages"])
        if self.rollouts.off_policy:
            output["old_per_token_logps"] = output["sampling_per_token_logps"]
        self.watch.extras |= self.rollouts.metrics()
        return output

    def roll(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """TRL's `rollout_func`: tokens and log-probabilities of one answer to each row."""
        model = self.accelerator.unwrap_model(self.model)
        model.eval()
        try:
            with self.accelerator.autocast():
                rollout = self.rollouts.answer(self._items, model, self._at_once)
        finally:
            model.train()
        self._rollout = rollout
        self._trees |= {tuple(ids): tree for ids, tree in zip(rollout.prompts, rollout.trees, strict=True)}
        return {"prompt_ids": rollout.prompts, "completion_ids": rollout.answers, "logprobs": rollout.logprobs}

    def reward(self, prompts: Any, completions: Any, completion_ids: Any, **columns: Any) -> list[float | None]:
        """TRL's reward function."""
        assert self._rollout is not None
        texts = [completion[-1]["content"] for completion in completions]
        cut = [ids[-1] not in self.eos_token_ids for ids in completion_ids]
        self._rewards = self.rollouts.rewards(self._rollout, texts, cut)
        return self._rewards

    def _kept(self, output: dict[str, Any]) -> torch.Tensor:
        """1 for sequences that train, 0 for those MRS rejects; the mismatch of sampler and trainer is logged."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        length = output["completion_ids"].size(1)
        with torch.no_grad(), self.watch.clock.part("training"):
            scored, *_ = self._get_per_token_logps_and_entropies(
                self.model, ids, mask, length, batch_size=self.args.per_device_train_batch_size
            )
        tokens = output["completion_mask"].sum(dim=1).tolist()
        train = [row[:count] for row, count in zip(scored.tolist(), tokens, strict=True)]
        sampled = [row[:count] for row, count in zip(output["sampling_per_token_logps"].tolist(), tokens, strict=True)]
        if self._sigma is None:
            self._sigma = rejection.mrs_sigma(train, sampled)
            _write_sigma(Path(self.args.output_dir), self._sigma)
        kept = [True] * len(train)
        if self.settings.method == "trloo":
            sigma = self._sigma
            kept = [rejection.mrs_keeps(*pair, sigma) for pair in zip(train, sampled, strict=True)]
        gaps = [abs(a - b) for pair in zip(train, sampled, strict=True) for a, b in zip(*pair, strict=True)]
        self.watch.extras |= {
            "mismatch/mean_abs": sum(gaps) / len(gaps),
            "mismatch/max_abs": max(gaps),
            "mismatch/sigma": self._sigma,
            "mismatch/rejected": 1 - sum(kept) / len(kept),
        }
        return torch.tensor(kept)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **more: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """TRL's, but where answers were listed: probabilities over those, as they were sampled."""
        trees = self._trees_of(input_ids, attention_mask, logits_to_keep)
        if not any(trees):
            return super()._get_per_token_logps_and_entropies(  # type: ignore[no-any-return]
                model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, **more
            )
        size = batch_size or len(input_ids)
        parts = [
            self._along(
                model, input_ids[at : at + size], attention_mask[at : at + size], logits_to_keep, trees[at : at + size]
            )
            for at in range(0, len(input_ids), size)
        ]
        logprobs, entropies = (torch.cat(part) for part in zip(*parts, strict=True))
        return logprobs, entropies if compute_entropy else None, None

    def _trees_of(self, ids: torch.Tensor, mask: torch.Tensor, keep: int) -> list[Node | None]:
        """The tree of each row, known by its prompt."""
        rows = zip(ids[:, :-keep].tolist(), mask[:, :-keep].tolist(), strict=True)
        prompts = [tuple(token for token, real in zip(*row, strict=True) if real) for row in rows]
        return [self._trees.get(prompt) for prompt in prompts]

    def _along(
        self, model: Any, ids: torch.Tensor, mask: torch.Tensor, keep: int, trees: Sequence[Node | None]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        answers = ids[:, -keep:]
        with self.accelerator.autocast():
            logits = answer_logits(model, ids, mask, keep, share=not self.args.gradient_checkpointing)
        logits = logits.float() / self.temperature
        allowed = allowed_tokens(answers, mask[:, -keep:], trees, logits.size(-1))
        logs = logits.masked_fill(~allowed, -torch.inf).log_softmax(-1)
        chosen = logs.gather(2, answers[:, :, None])[:, :, 0]
        with torch.no_grad():
            terms = logs.exp() * logs
            entropy = -torch.where(allowed, terms, torch.zeros_like(terms)).sum(-1)
        return chosen.masked_fill(mask[:, -keep:] == 0, 0.0), entropy


def allowed_tokens(
    answers: torch.Tensor, mask: torch.Tensor, trees: Sequence[Node | None], vocabulary: int
) -> torch.Tensor:
    """(rows, tokens, vocabulary): what could have been sampled at each place; everything without a tree and behind an
    answer's end."""
    held = [row for row, tree in enumerate(trees) if tree is not None]
    found: list[tuple[int, int, int]] = []
    for row, (tree, tokens, length) in enumerate(zip(trees, answers.tolist(), mask.sum(dim=1).tolist(), strict=True)):
        node = tree
        for place, token in enumerate(tokens[:length]):
            if node is None:
                break
            found += [(row, place, following) for following in node.following]
            node = node.following[token]
    allowed = torch.ones((*answers.shape, vocabulary), dtype=torch.bool, device=answers.device)
    if held:
        rows = torch.tensor(held, device=answers.device)
        allowed[rows] = mask[rows, :, None] == 0
        allowed[torch.tensor(found, device=answers.device).unbind(1)] = True
    return allowed


def rl_trainer(
    settings: TrainingSettings, folder: Path, fit: Fit, model: Any, tokenizer: Any, rollouts: Rollouts, watch: Watch
) -> EvolutionTrainer:
    """A trainer on `rollouts`. Raises UsageError when started as one of several processes."""
    arguments = GRPOConfig(
        **common(settings, folder, fit),
        loss_type="dr_grpo",
        scale_rewards="none",
        beta=0.0,
        num_generations=settings.group,
        max_completion_length=settings.answer_tokens,
        temperature=settings.temperature,
        disable_dropout=True,
    )
    if arguments.world_size > 1:
        raise UsageError(f"{settings.method} trains in one process, not {arguments.world_size}", "start it once")
    made: list[EvolutionTrainer] = []

    def reward(*args: Any, **kwargs: Any) -> list[float | None]:
        return made[0].reward(*args, **kwargs)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*rollout_func.*experimental")  # pinned by a test
        trainer = EvolutionTrainer(
            model=model,
            reward_funcs=[reward],
            args=arguments,
            train_dataset=Dataset.from_list(rollouts.rows),
            processing_class=tokenizer,
            peft_config=None if settings.adapter else lora(settings.rank),
            rollout_func=lambda prompts, trainer: trainer.roll(prompts, trainer),
        )
    made.append(trainer)
    trainer.ready(settings, rollouts, watch, PER_SEQUENCE * fit.micro_batch)
    trainer.add_callback(Steps(watch, trainer.model))
    quiet(trainer)
    return trainer


def _read_sigma(folder: Path) -> float | None:
    try:
        return float(json.loads((folder / SIGMA).read_text(encoding="utf-8"))["sigma"])
    except (OSError, ValueError, KeyError):
        return None


def _write_sigma(folder: Path, sigma: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SIGMA).write_text(json.dumps({"sigma": sigma}), encoding="utf-8")
