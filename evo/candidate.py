"""A candidate: where a source came from. A record: a candidate with the judge's answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from evaluator.types import Evaluation, Frozen
from policy.types import Message, RewriteStep


class Candidate(Frozen):
    """One member of a campaign. The source itself lies in `kernels/<source_sha>.py` of the run."""

    id: str
    """`c` and six digits, in the order of birth: `c000042`."""
    generation: int
    parent_ids: tuple[str, ...] = ()
    operator: str
    """`seed`, `rewrite`, `tune`, `crossover`, `repair`."""
    island: int = 0
    """The island whose parent it is a child of; the seed belongs to all."""
    arm: str = ""
    """The bandit's arm that made it: `tune`, `rewrite/rule` …; empty for the seed."""
    source_sha: str
    ast_hash: str
    structure: str
    """Hash of the AST with tunables masked: candidates that share it differ in their config only."""
    config: Mapping[str, int] = Field(default_factory=dict)
    rewrites: tuple[RewriteStep, ...] = ()
    """The whole rewrite history from the seed, this candidate's own step last."""
    explanation: str = ""
    policy: str = "rule"
    policy_version: str = "0"
    messages: tuple[Message, ...] = ()
    answer: str = ""
    sampling: Mapping[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ancestor:
    """What a child takes from a parent. Thousands are kept for good, so that it holds nothing else."""

    id: str
    island: int
    rewrites: tuple[RewriteStep, ...]
    config: Mapping[str, int]


class Record(Frozen):
    """A judged candidate."""

    candidate: Candidate
    evaluation: Evaluation

    @property
    def id(self) -> str:
        """The candidate's id."""
        return self.candidate.id

    @property
    def number(self) -> int:
        """The candidate's place in the order of birth: 42 for `c000042`."""
        return int(self.candidate.id[1:])

    @property
    def ancestor(self) -> Ancestor:
        """What its children take from it."""
        known = self.candidate
        return Ancestor(known.id, known.island, known.rewrites, known.config)

    @property
    def passed(self) -> bool:
        """Whether the candidate is correct and timed."""
        return self.evaluation.status.passed

    @property
    def speedup(self) -> float | None:
        """Geometric-mean speedup over the baseline; None unless passed."""
        return self.evaluation.speedup
