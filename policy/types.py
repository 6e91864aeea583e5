"""What the search asks of a policy and what it gets back; what learning stores of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from evaluator.types import Evaluation, Frozen, KernelSource, Scalar, Split, Task, Timing

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
    member: int | None = None
    """Which of an ensemble's members answers; drawn by weight when None."""
    strategy: str = ""
    """The direction that children shall take, in words for a prompt."""
    favoured: Mapping[str, float] = Field(default_factory=dict)
    """Rewrite -> how much more often rules draw it than by default."""
    taken: Annotated[AbstractSet[str], SkipValidation] = frozenset()
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
    split: Split = "train"
    group: str
    """Children of one parent under one identical prompt share a group."""
    turn: int = 0
    """Place in its chain of turns: how many of its ancestors are answers to prompts as well."""
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
    """temperature, top_p, top_k, seed, finish reason … as far as they are known (docs/llm.md)."""
    policy: str
    policy_version: str
    source: str
    source_sha: str
    ast_hash: str
    parent_source: str
    status: str
    reason: str = ""
    """What the judge says beside the status; empty for most that passed."""
    verdicts: Mapping[str, str] = Field(default_factory=dict)
    """Stage of the evaluation -> its verdict, in order; the last one is the status."""
    is_hack: bool
    timing_kind: Literal["measured", "modelled"] | None
    speedup: float | None
    """Against the task's reward baseline."""
    speedup_low: float | None = None
    """Lower end of its 95 % interval; the speedup itself where there is no interval."""
    parent_speedup: float | None = None
    timings: Mapping[str, Timing] = Field(default_factory=dict)
    """Workload -> its timing with kind, interval and baseline; empty unless passed."""
    coverage: float | None = None
    reward: float
    reward_components: Mapping[str, float]
    reward_type: str = "shaped"
    """The formula and its scale where that is not 1: rewards of different formulas do not compare."""
    seeds: Mapping[str, int] = Field(default_factory=dict)
    target: str = ""
    """The GPU that timings are of."""
    evaluator: str = ""
    """The judge and its version."""
    versions: Mapping[str, str] = Field(default_factory=dict)

    @property
    def importance_gap(self) -> str:
        """Why the turn cannot serve importance-corrected training; empty when it can."""
        if not self.policy_version:
            return "no policy version"
        if self.logprobs is None or not self.prompt_token_ids or not self.answer_token_ids:
            return "no token ids or sampling logprobs"
        if len(self.logprobs) != len(self.answer_token_ids):
            return "logprobs that are not one for each answer token"
        if not all(math.isfinite(value) and value <= 0 for value in self.logprobs):
            return "logprobs that are no logarithms of probabilities"
        return ""
