"""The rule policy: composes catalogue rewrites, guided by the parent's bottleneck. Needs no model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evaluator.errors import UsageError
from evaluator.source_hash import ast_hash
from evaluator.types import KernelSource
from policy.applicable import Applicable, parses
from policy.prompts import structured_prompt
from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.types import Message, ParentView, Proposal, ProposalRequest, RewriteStep

ATTEMPTS_PER_CHILD = 6
"""Compositions tried before a child is given up: the rest of the neighbourhood is taken or does not apply."""
VERSION = "1"

STRUCTURAL = 3.0
"""Weight of a rewrite that `WEIGHTS` does not list: structure changes what the hardware can reach at all."""

# The local rewrites change how well it gets there.
WEIGHTS: Mapping[str, float] = {
    "alignment_hints": 0.3,
    "cache_hints": 0.7,
    "dot_accumulate": 2.0,
    "drop_mask": 1.5,
    "exp_to_exp2": 1.0,
    "fuse_elementwise": 4.0,
    "hoist_invariants": 2.5,
    "input_precision": 2.0,
    "loop_range_options": 1.2,
    "pointer_increment": 1.5,
    "reciprocal_multiply": 1.0,
    "use_rsqrt": 1.0,
}

# How much more a rewrite is worth where this term dominates the parent's time.
BY_BOTTLENECK: Mapping[str, Mapping[str, float]] = {
    "dram": {
        "fuse_elementwise": 3.0,
        "online_reduction": 3.0,
        "whole_row": 3.0,
        "cache_hints": 2.0,
        "drop_mask": 1.5,
        "loop_range_options": 1.5,
    },
    "l2": {
        "grouped_order": 3.0,
        "cache_hints": 2.0,
        "fuse_elementwise": 2.0,
        "hoist_invariants": 2.0,
        "whole_row": 2.0,
    },
    "tensor": {"input_precision": 3.0, "grouped_order": 2.0, "dot_accumulate": 2.0, "pointer_increment": 1.5},
    "issue": {
        "accumulate_blockwise": 2.0,
        "drop_mask": 2.0,
        "exp_to_exp2": 2.0,
        "reciprocal_multiply": 2.0,
        "use_rsqrt": 2.0,
        "pointer_increment": 2.0,
        "alignment_hints": 1.5,
    },
    "latency": {
        "loop_range_options": 3.0,
        "split_reduction": 2.0,
        "rows_per_program": 2.0,
        "persistent_grid": 2.0,
        "accumulate_blockwise": 2.0,
        "hoist_invariants": 2.0,
        "whole_row": 1.5,
    },
    "launch": {"fuse_elementwise": 4.0, "rows_per_program": 2.0, "persistent_grid": 2.0},
}


class RulePolicy:
    """Proposes compositions of one to `max_steps` rewrites that apply, drawn by weight.

    Deterministic: a request's `seed` is the only randomness, and no answer depends on earlier requests.
    `rewrites` limits the catalogue; unknown names raise UsageError. `priors` holds what earlier campaigns learned:
    bottleneck (`""` for those not listed) -> rewrite -> factor on its weight.
    """

    name = "rule"
    deterministic = True

    def __init__(
        self,
        *,
        max_steps: int = 2,
        rewrites: Sequence[str] | None = None,
        priors: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        if max_steps < 1:
            raise UsageError(f"max_steps is {max_steps}", "use 1 or more")
        self.max_steps = max_steps
        self._known = Applicable(rewrites)
        self.rewrites = self._known.rewrites
        self._priors = priors or {}

    def propose(self, requests: Sequence[ProposalRequest]) -> list[list[Proposal]]:
        """Up to `count` children per request; fewer where nothing new applies."""
        return [self._children(request) for request in requests]

    def close(self) -> None:
        """Forget cached sources."""
        self._known.clear()

    def _children(self, request: ProposalRequest) -> list[Proposal]:
        rng = np.random.default_rng(request.seed)
        context = RewriteContext.of_task(request.task)
        taken = {ast_hash(parent.source.text) for parent in request.parents}
        parents = [parent for parent in request.parents if parses(parent.source.text)]
        children: list[Proposal] = []
        if not parents:
            return children
        for _ in range(request.count * ATTEMPTS_PER_CHILD):
            if len(children) == request.count:
                break
            parent = parents[int(rng.integers(len(parents)))]
            source, steps = self._compose(parent, context, rng, request.favoured)
            if not steps:
                continue
            program = ast_hash(source)
            if program not in taken and program not in request.taken:
                taken.add(program)
                children.append(self._proposal(request, parent, context, source, steps))
        return children

    def _compose(
        self,
        parent: ParentView,
        context: RewriteContext,
        rng: np.random.Generator,
        favoured: Mapping[str, float],
    ) -> tuple[str, list[tuple[Rewrite[Any], RewriteArgs]]]:
        """A source some steps away from the parent; no steps where no rewrite applies."""
        source = parent.source.text
        steps: list[tuple[Rewrite[Any], RewriteArgs]] = []
        wanted = 1 + int(rng.integers(self.max_steps))
        weights = self._weights(parent, favoured)
        while len(steps) < wanted:
            move = self._move(source, context, dict(weights), rng)
            if move is None:
                break
            rewrite, args, source = move
            steps.append((rewrite, args))
            weights[rewrite.name] /= 2
        return source, steps

    def _move(
        self, source: str, context: RewriteContext, weights: dict[str, float], rng: np.random.Generator
    ) -> tuple[Rewrite[Any], RewriteArgs, str] | None:
        """One rewrite drawn by weight among those that apply; None when none does."""
        while weights:
            names = list(weights)
            shares = np.array([weights[name] for name in names])
            name = names[int(rng.choice(len(names), p=shares / shares.sum()))]
            settings = self._known.settings(source, name, context)
            if settings:
                rewrite, args = self.rewrites[name], settings[int(rng.integers(len(settings)))]
                try:
                    return rewrite, args, rewrite.apply(source, args, context)
                except RewriteError:
                    # An earlier step may have produced a form that the rewrite lists but cannot change.
                    pass
            del weights[name]
        return None

    def _weights(self, parent: ParentView, wanted: Mapping[str, float]) -> dict[str, float]:
        """Weight of each rewrite: what the parent's bottleneck and the request ask for, less what it already had."""
        evaluation = parent.evaluation
        profile = None if evaluation is None else evaluation.profile
        bottleneck = "" if profile is None else profile.bottleneck
        favoured = BY_BOTTLENECK.get(bottleneck, {})
        prior = self._priors.get(bottleneck, self._priors.get("", {}))
        used = [step.name for step in parent.rewrites]
        return {
            name: WEIGHTS.get(name, STRUCTURAL)
            * favoured.get(name, 1.0)
            * prior.get(name, 1.0)
            * wanted.get(name, 1.0)
            / (1 + used.count(name))
            for name in self.rewrites
        }

    def _proposal(
        self,
        request: ProposalRequest,
        parent: ParentView,
        context: RewriteContext,
        source: str,
        steps: Sequence[tuple[Rewrite[Any], RewriteArgs]],
    ) -> Proposal:
        taken_steps = tuple(
            RewriteStep(name=rewrite.name, args=args.model_dump(mode="json")) for rewrite, args in steps
        )
        return Proposal(
            source=KernelSource(text=source),
            operator=request.operator,
            rewrites=taken_steps,
            explanation="; ".join(rewrite.explain(args) for rewrite, args in steps),
            policy=self.name,
            policy_version=VERSION,
            messages=self._prompt(request, parent, context),
            answer=structured_answer(taken_steps),
        )

    def _prompt(self, request: ProposalRequest, parent: ParentView, context: RewriteContext) -> tuple[Message, ...]:
        asked = request.model_copy(update={"parents": (parent,)})
        return structured_prompt(asked, self._known.all(parent.source.text, context))


def structured_answer(steps: Sequence[RewriteStep]) -> str:
    """The JSON text of a structured answer (see `policy.rewrites.json_schema`)."""
    payload = {"steps": [{"name": step.name, "args": dict(step.args)} for step in steps]}
    return json.dumps(payload, separators=(",", ":"))
