"""Which turns a training may use, and the rows it makes of them. Needs no torch.

Refusals are UsageErrors of one line with the fix; nothing is left out silently but duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluator.errors import KernevoError, UsageError
from policy.exports import elite, trl_dpo
from policy.exports.base import Options, answer, messages
from policy.training.settings import TrainingSettings
from policy.types import Form, Message, Turn

Row = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """The turns of one run and what they were rewarded by."""

    run: str
    turns: tuple[Turn, ...]
    reward: str
    """The run's reward settings, as text that is equal for equal settings."""


@dataclass(frozen=True)
class Prompt:
    """A prompt to be answered anew."""

    task: str
    messages: tuple[Message, ...]
    parent: str
    """Source that answers are applied to."""
    form: Form

    @property
    def key(self) -> str:
        """Equal for equal prompts about equal parents."""
        return "\0".join([self.task, self.parent, *(f"{one.role}\0{one.content}" for one in self.messages)])


def turns_for(sources: Sequence[Source], settings: TrainingSettings) -> list[Turn]:
    """All turns of all runs. Raises UsageError for turns that must not be trained on, or do not fit together."""
    turns = [turn for source in sources for turn in source.turns]
    if not turns:
        raise KernevoError("the runs hold no turn", "a turn needs a proposed child: let them judge more than the seed")
    _refuse_held_out(turns)
    _refuse_mixed_rewards(sources)
    _refuse_timings(turns, settings)
    return turns


def _refuse_held_out(turns: Sequence[Turn]) -> None:
    held_out = sorted({turn.task for turn in turns if turn.split == "held_out"})
    if held_out:
        raise UsageError(
            f"held-out task {held_out[0]} is never trained on",
            "leave its run out; it measures what was learned",
        )


def _refuse_mixed_rewards(sources: Sequence[Source]) -> None:
    kinds = {source.reward: source.run for source in sources}
    if len(kinds) > 1:
        (first, run), (second, other) = list(kinds.items())[:2]
        raise UsageError(
            f"runs {run} and {other} are rewarded differently ({first}; {second}), which do not compare",
            "train on runs with one `reward` section",
        )


def _refuse_timings(turns: Sequence[Turn], settings: TrainingSettings) -> None:
    kinds = {turn.timing_kind for turn in turns} - {None}
    if len(kinds) > 1:
        raise UsageError("measured and modelled timings do not compare", "train on runs of one evaluator")
    if "modelled" in kinds and not settings.allow_modelled:
        raise UsageError(
            "the timings are modelled, which is no measured reward: the model would learn the cost model",
            "a run on a GPU measures; --allow-modelled trains all the same",
        )


def sft_rows(turns: Sequence[Turn], settings: TrainingSettings) -> list[Row]:
    """Prompt and answer of each elite step: correct, hack-free, faster than its parent, capped for each lineage.

    An answer to the same prompt is taken once, whichever run it comes from. Raises KernevoError when none is left.
    """
    options = Options(min_gain=settings.min_gain, per_lineage=settings.per_lineage)
    seen: set[tuple[str, str]] = set()
    rows: list[Row] = []
    for pick in elite.elites(turns, options).picks:
        turn = turns[pick.places[0]]
        key = (prompt_of(turn).key, turn.answer)
        if key not in seen:
            seen.add(key)
            rows.append({"prompt": messages(turn), "completion": _answer(turn)})
    if not rows:
        raise KernevoError(f"sft: none of {len(turns)} turns is an elite step", elite.EMPTY_HINT)
    return rows


def dpo_rows(turns: Sequence[Turn]) -> list[Row]:
    """The pairs of `trl-dpo`: the best child of a parent and one that earned clearly less, under one prompt.

    Equal pairs are taken once, whichever run they come from. Raises KernevoError when there is none.
    """
    seen: set[tuple[str, str, str]] = set()
    rows: list[Row] = []
    for pick in trl_dpo.pairs(turns).picks:
        best, worse = (turns[place] for place in pick.places)
        key = (prompt_of(best).key, best.answer, worse.answer)
        if key not in seen:
            seen.add(key)
            rows.append({"prompt": messages(best), "chosen": _answer(best), "rejected": _answer(worse)})
    if not rows:
        raise KernevoError(f"dpo: none of {len(turns)} turns makes a pair", trl_dpo.EMPTY_HINT)
    return rows


def conversations(row: Row) -> list[list[Row]]:
    """A row's prompt with each of its answers."""
    return [row["prompt"] + row[name] for name in ("completion", "chosen", "rejected") if name in row]


def prompts_of(turns: Sequence[Turn]) -> list[Prompt]:
    """Every prompt of the turns once, in the order of birth; those that ask for values of tunables are left out."""
    asked = [prompt_of(turn) for turn in turns if turn.sampling.get("form") != "tunables"]
    return list({prompt.key: prompt for prompt in asked}.values())


def prompt_of(turn: Turn) -> Prompt:
    """The prompt that a turn answered."""
    form: Form = turn.sampling.get("form", "structured")
    return Prompt(turn.task, turn.messages, turn.parent_source, form)


def _answer(turn: Turn) -> list[Row]:
    return [answer(turn)]
