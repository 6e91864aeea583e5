"""Where reinforcement learning's answers come from: the model now, or the runs' records. Imports torch."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evaluator.errors import KernevoError, UsageError
from policy import advantages
from policy.token_trie import Node
from policy.training.choices import Choices
from policy.training.data import Prompt
from policy.training.judging import Judge, Judged, shares
from policy.training.sampling import sample
from policy.training.settings import TrainingSettings
from policy.training.stopwatch import Stopwatch
from policy.types import Turn


@dataclass(frozen=True)
class Rollout:
    """The answers of one step, in the order of the rows they were asked for."""

    prompts: list[list[int]]
    """Token ids."""
    answers: list[list[int]]
    logprobs: list[list[float]]
    """Of each token of each answer, where it was sampled."""
    trees: list[Node | None]
    items: list[int] = field(default_factory=list)
    """What each row is about: the place of its prompt, or of its recorded turn."""


class Rollouts(Protocol):
    """Gives answers to rows and says what they are worth."""

    off_policy: bool
    """Whether the answers are an earlier policy's, so that token ratios must correct for it."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What the trainer's data set holds: a `prompt` for TRL and our own `item`."""
        ...

    def answer(self, items: Sequence[int], model: Any, at_once: int) -> Rollout:
        """One answer for each row; neighbours of one item are its group."""
        ...

    def rewards(self, rollout: Rollout, texts: Sequence[str], cut: Sequence[bool]) -> list[float | None]:
        """What each answer earns; None for those nothing is known of."""
        ...

    def advantages(self, rollout: Rollout, rewards: Sequence[float | None]) -> list[float] | None:
        """What each answer counts; None to leave it to TRL."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """Of the answers that were rewarded last."""
        ...


class SampledAnswers:
    """The model answers, constrained to the answers there are where they can be listed; a judge rewards them."""

    off_policy = False

    def __init__(
        self,
        settings: TrainingSettings,
        prompts: Sequence[Prompt],
        tokenizer: Any,
        choices: Choices,
        judge: Judge,
        clock: Stopwatch,
    ) -> None:
        self.prompts = prompts
        self._settings, self._tokenizer, self._choices, self._judge = settings, tokenizer, choices, judge
        self._clock = clock
        self._ids = [tokens_of(tokenizer, prompt) for prompt in prompts]
        self._judged: list[Judged] = []
        self._random = random.Random(settings.seed)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One for each prompt."""
        return [{"prompt": _chat(prompt), "item": item} for item, prompt in enumerate(self.prompts)]

    def answer(self, items: Sequence[int], model: Any, at_once: int) -> Rollout:
        """Sample, `at_once` answers together."""
        trees = [self._choices.tree(self.prompts[item]) for item in items]
        prompts = [self._ids[item] for item in items]
        with self._clock.part("generation"):
            found = sample(
                model,
                prompts,
                trees,
                end=[self._tokenizer.eos_token_id],
                tokens=self._settings.answer_tokens,
                temperature=self._settings.temperature,
                at_once=at_once,
            )
        return Rollout(prompts, [one.tokens for one in found], [one.logprobs for one in found], trees, list(items))

    def rewards(self, rollout: Rollout, texts: Sequence[str], cut: Sequence[bool]) -> list[float | None]:
        """Judge all answers in one batch; with `shuffled`, each group's rewards are dealt out anew."""
        asked = [(self.prompts[item], text, short) for item, text, short in zip(rollout.items, texts, cut, strict=True)]
        with self._clock.part("evaluation"):
            self._judged = self._judge.judge(asked)
        rewards = [one.reward for one in self._judged]
        if all(reward is None for reward in rewards):
            raise KernevoError(
                "the evaluator failed on every answer of a step, so that nothing is known of them",
                "kernevo doctor says what is wrong with this machine; --resume goes on",
            )
        return shuffled(rewards, self._settings.group, self._random) if self._settings.shuffled else rewards

    def advantages(self, rollout: Rollout, rewards: Sequence[float | None]) -> list[float] | None:
        """TRL's own for grpo; for trloo leave-one-out among the answers to one prompt (chains of one turn)."""
        if self._settings.method != "trloo":
            return None
        known = [index for index, reward in enumerate(rewards) if reward is not None]
        groups = [index // self._settings.group for index in known]
        made = advantages.trloo([[rewards[index] or 0.0] for index in known], groups, self._settings.gamma)
        found = [0.0] * len(rewards)
        for index, one in zip(known, made, strict=True):
            found[index] = float(one[0])
        return found

    def metrics(self) -> Mapping[str, float]:
        """Shares of valid, correct and fast answers …"""
        return shares(self._judged, self._settings.group) if self._judged else {}


class RecordedAnswers:
    """The runs' own answers with the log-probabilities they were sampled with. Judged already."""

    off_policy = True

    def __init__(self, settings: TrainingSettings, turns: Sequence[Turn], tokenizer: Any) -> None:
        """Raises UsageError for turns without logprobs, whose importance nobody can know."""
        without = sum(turn.logprobs is None or turn.answer_token_ids is None for turn in turns)
        if without:
            raise UsageError(
                f"{without} of {len(turns)} recorded answers have no log-probabilities to correct for",
                "--answers sampled answers anew; sft and dpo need none; `policy.logprobs: true` records them",
            )
        self._settings, self._turns, self._tokenizer = settings, turns, tokenizer
        rewards = [turn.reward for turn in turns]
        if settings.shuffled:
            rewards = _shuffled_by_key(rewards, [turn.group for turn in turns], random.Random(settings.seed))
        self._rewards = rewards
        self._advantages = recorded_advantages(settings, turns, rewards)
        order = list(range(len(turns)))
        self._chunks = [order[start : start + settings.group] for start in range(0, len(order), settings.group)]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One for each chunk of `group` turns; TRL repeats a row `group` times."""
        return [{"prompt": _chat(self._turns[chunk[0]]), "item": item} for item, chunk in enumerate(self._chunks)]

    def answer(self, items: Sequence[int], model: Any, at_once: int) -> Rollout:
        """The turns of each chunk; a last one that is short begins anew."""
        found = []
        for place, item in enumerate(items):
            chunk = self._chunks[item]
            found.append(chunk[place % self._settings.group % len(chunk)])
        turns = [self._turns[index] for index in found]
        prompts = [list(turn.prompt_token_ids or tokens_of(self._tokenizer, turn)) for turn in turns]
        answers = [list(turn.answer_token_ids or ()) for turn in turns]
        return Rollout(prompts, answers, [list(turn.logprobs or ()) for turn in turns], [None] * len(turns), found)

    def rewards(self, rollout: Rollout, texts: Sequence[str], cut: Sequence[bool]) -> list[float | None]:
        """What they were recorded with."""
        return [self._rewards[index] for index in rollout.items]

    def advantages(self, rollout: Rollout, rewards: Sequence[float | None]) -> list[float] | None:
        """Against all recorded answers of their group, not those of the step alone."""
        return [self._advantages[index] for index in rollout.items]

    def metrics(self) -> Mapping[str, float]:
        """Nothing is judged."""
        return {}


def recorded_advantages(settings: TrainingSettings, turns: Sequence[Turn], rewards: Sequence[float]) -> list[float]:
    """grpo: centred within the turn's group; trloo: over chains of turns, groups by (task, turn)."""
    if settings.method == "grpo":
        return [float(value) for value in advantages.grpo(rewards, [turn.group for turn in turns])]
    chains = chains_of(turns)
    made = advantages.trloo(
        [[rewards[index] for index in chain] for chain in chains],
        [turns[chain[0]].task for chain in chains],
        settings.gamma,
    )
    found = [0.0] * len(turns)
    for chain, values in zip(chains, made, strict=True):
        for index, value in zip(chain, values, strict=True):
            found[index] = float(value)
    return found


def chains_of(turns: Sequence[Turn]) -> list[list[int]]:
    """Trajectories as places in `turns`: turn t + 1 follows the turn t whose child it changes.

    Where several follow one turn, the first goes on with its chain and the others begin chains of their own.
    """
    born = {(turn.run, turn.candidate_id): index for index, turn in enumerate(turns)}
    chain_at: dict[int, list[int]] = {}
    chains: list[list[int]] = []
    for index, turn in enumerate(turns):
        before = born.get((turn.run, turn.parent_ids[0])) if turn.turn and turn.parent_ids else None
        chain = chain_at.get(before) if before is not None else None
        if chain is None or chain[-1] != before or turns[chain[-1]].turn != turn.turn - 1:
            chain = []
            chains.append(chain)
        chain.append(index)
        chain_at[index] = chain
    return chains


def shuffled(rewards: Sequence[float | None], group: int, rng: random.Random) -> list[float | None]:
    """The rewards of each group of neighbours, in another order."""
    found: list[float | None] = []
    for start in range(0, len(rewards), group):
        found += rng.sample(list(rewards[start : start + group]), len(rewards[start : start + group]))
    return found


def _shuffled_by_key(rewards: Sequence[float], keys: Sequence[Hashable], rng: random.Random) -> list[float]:
    places: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        places.setdefault(key, []).append(index)
    found = list(rewards)
    for members in places.values():
        for index, other in zip(members, rng.sample(members, len(members)), strict=True):
            found[index] = rewards[other]
    return found


def tokens_of(tokenizer: Any, asked: Prompt | Turn) -> list[int]:
    """A prompt's tokens under the chat template, up to where the answer begins."""
    found = tokenizer.apply_chat_template(_chat(asked), add_generation_prompt=True, tokenize=True, return_dict=True)
    return list(found["input_ids"])


def _chat(asked: Prompt | Turn) -> list[dict[str, str]]:
    from policy.exports.base import chat

    return [chat(message) for message in asked.messages]
