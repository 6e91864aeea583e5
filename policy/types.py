"""What the search asks of a policy and what it gets back; what learning stores of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from evaluator.types import Evaluation, Frozen, KernelSource, Scalar, Task

Role = Literal["system", "user", "assistant", "tool"]
Form = Literal["structured", "diff", "full"]
"""How a policy answers: rewrites of the catalogue as JSON, search/replace blocks, or a whole file."""


class Message(Frozen):
    """One chat message, in the shape TRL, vLLM and every OpenAI-compatible server read."""

    role: Role
    content: str


class RewriteStep(Frozen):
    """One application of a catalogue rewrite with its typed arguments."""

    name: str
    args: Mapping[str, Scalar] = Field(default_factory=dict)


class ParentView(Frozen):
    """What a policy may know about a parent: its file, its verdict and how it came to be."""

    candidate_id: str
    source: KernelSource
    evaluation: Evaluation | None = None
    rewrites: tuple[RewriteStep, ...] = ()
    cell: Mapping[str, str] = Field(default_factory=dict)
    """Behaviour descriptor -> word, e.g. `programs` -> `persistent`; empty where it was not placed in the archive."""


class ProposalRequest(Frozen):
    """One request for children of `parents` (one parent, or two for crossover)."""

    request_id: str
    task: Task
    parents: tuple[ParentView, ...] = Field(min_length=1)
    operator: str
    """Variation operator asking, e.g. `rewrite`."""
    seed: int
    """The only randomness a deterministic policy may use."""
    count: int = Field(default=1, ge=1)
    inspirations: tuple[ParentView, ...] = ()
    """Elites of other cells of the archive, best first."""
    attempts: tuple[ParentView, ...] = ()
    """Judged children of the same parents, earliest first; failed ones too."""
    taken: frozenset[str] = frozenset()
    """Normalised AST hashes already judged in this run: proposing one again is a waste."""


class Proposal(Frozen):
    """One proposed child. Everything needed to replay, reward and train on it."""

    source: KernelSource
    operator: str
    rewrites: tuple[RewriteStep, ...] = ()
    tunables: Mapping[str, int] = Field(default_factory=dict)
    """Of a child that has its parent's structure and another config: the values that changed."""
    explanation: str = ""
    policy: str = "rule"
    policy_version: str = "0"
    messages: tuple[Message, ...] = ()
    """The prompt; empty where no prompt exists."""
    answer: str = ""
    """The policy's raw answer; for the rule policy the structured JSON a model would have given."""
    sampling: Mapping[str, Any] = Field(default_factory=dict)
    """temperature, token ids, logprobs … whatever the server gave."""


class Turn(Frozen):
    """One prompt, one answer, one judged child (docs: trajectories)."""

    run: str
    task: str
    split: Literal["train", "held_out"] = "train"
    group: str
    """Children of one parent under one identical prompt share a group."""
    turn: int = 0
    candidate_id: str
    parent_ids: tuple[str, ...]
    lineage: str = ""
    """The first ancestor below the seed (itself for a child of the seed): exports cap by it."""
    operator: str
    island: int = 0
    generation: int
    messages: tuple[Message, ...]
    answer: str
    prompt_token_ids: tuple[int, ...] | None = None
    answer_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    sampling: Mapping[str, Any] = Field(default_factory=dict)
    policy: str
    policy_version: str
    source: str
    source_sha: str
    ast_hash: str
    parent_source: str
    status: str
    is_hack: bool
    timing_kind: Literal["measured", "modelled"] | None
    speedup: float | None
    """Against the task's reward baseline."""
    speedup_low: float | None = None
    """Lower end of its 95 % interval; the speedup itself where there is no interval."""
    parent_speedup: float | None = None
    coverage: float | None = None
    reward: float
    reward_components: Mapping[str, float]
    seeds: Mapping[str, int] = Field(default_factory=dict)
    target: str = ""
    versions: Mapping[str, str] = Field(default_factory=dict)
