"""Rewrite: the policy changes a parent's structure."""

from __future__ import annotations

from evaluator.types import KernelSource
from evo.candidate import Record
from evo.operators.base import Draft, SearchView
from policy.policy import Policy
from policy.types import ParentView, Proposal, ProposalRequest

ROUNDS = 3
"""Times a draft that was not new is asked for again, each time from another parent."""


class RewriteOperator:
    """Asks the policy for children of parents chosen from archive and population."""

    name = "rewrite"

    def __init__(self, policy: Policy, archive_share: float) -> None:
        self._policy = policy
        self._archive_share = archive_share

    def propose(self, view: SearchView, generation: int, count: int) -> list[Draft]:
        """Up to `count` drafts with structures that were never judged."""
        drafts: list[Draft] = []
        programs: set[str] = set()
        structures: set[str] = set()
        for attempt in range(ROUNDS):
            wanted = count - len(drafts)
            if wanted <= 0:
                break
            first = attempt * count
            parents = [self._parent(view, generation, first + index) for index in range(wanted)]
            requests = [
                self._request(view, parent, generation, first + index, frozenset(programs))
                for index, parent in enumerate(parents)
            ]
            for parent, proposals in zip(parents, self._policy.propose(requests), strict=True):
                drafts += self._new(view, parent, proposals, programs, structures)
        return drafts[:count]

    def _parent(self, view: SearchView, generation: int, index: int) -> Record:
        rng = view.streams.generator("parent", generation, index)
        if len(view.archive) and rng.random() < self._archive_share:
            return view.archive.sample(rng)
        return view.population.parent(generation, index)

    def _request(
        self, view: SearchView, parent: Record, generation: int, index: int, pending: frozenset[str]
    ) -> ProposalRequest:
        return ProposalRequest(
            request_id=f"g{generation:05d}-{index:03d}",
            task=view.task,
            parents=(
                ParentView(
                    candidate_id=parent.id,
                    source=KernelSource(text=view.source(parent.candidate.source_sha)),
                    evaluation=parent.evaluation,
                    rewrites=parent.candidate.rewrites,
                ),
            ),
            operator=self.name,
            seed=view.streams.seed("policy", generation, index),
            taken=view.gate.programs | pending,
        )

    def _new(
        self,
        view: SearchView,
        parent: Record,
        proposals: list[Proposal],
        programs: set[str],
        structures: set[str],
    ) -> list[Draft]:
        drafts = []
        for proposal in proposals:
            program = view.gate.new_program(proposal.source.text)
            structure = view.gate.new_structure(proposal.source.text)
            if program is None or structure is None or program in programs or structure in structures:
                continue
            programs.add(program)
            structures.add(structure)
            drafts.append(Draft(proposal.source, self.name, (parent,), structure, proposal=proposal))
        return drafts
