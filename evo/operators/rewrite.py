"""Rewrite: the policy changes a parent's structure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass

from evo.asking import Answers, Asking
from evo.candidate import Record
from evo.config_search import SearchConfig
from evo.islands import Island
from evo.operators.base import Draft, SearchView, shown
from evo.selection import ParentSelector
from policy.types import Proposal, ProposalRequest

ROUNDS = 3
"""Times a draft that was not new is asked for again, each time from another parent."""
INSPIRATIONS = 3
"""Elites of other cells that a request shows."""


@dataclass
class _Round:
    """Requests that are asked together, and whom they are about."""

    generation: int
    islands: Sequence[Island]
    parents: Sequence[Record]
    requests: Sequence[ProposalRequest]
    sent: Future[Answers] | None = None
    """Set where the requests went out before their answers were needed."""


class RewriteOperator:
    """Asks the policy for children of parents chosen from archive and population.

    A policy that can be asked ahead gets the first round of a generation while the one before is judged: `prepare`
    builds its requests, `submit` sends them, `propose` collects the answers.
    """

    name = "rewrite"

    def __init__(self, asking: Asking, config: SearchConfig) -> None:
        self._asking = asking
        self._archive = config.archive
        self._parents = ParentSelector(config)
        self._ahead: _Round | None = None

    @property
    def arms(self) -> list[str]:
        """The bandit's arms: one for each policy that can be asked."""
        return [f"{self.name}/{member}" for member in self._asking.members]

    def prepare(self, view: SearchView, generation: int, count: int, members: Sequence[int] = ()) -> None:
        """Build the first requests of `generation` from what is known now. Sends nothing."""
        self.cancel()
        if self._asking.ahead and count > 0 and view.islands.members:
            self._ahead = self._round(view, generation, range(count), (), members)

    def submit(self) -> None:
        """Send the prepared requests, once."""
        if self._ahead is not None and self._ahead.sent is None:
            self._ahead.sent = self._asking.submit(self._ahead.requests)

    def cancel(self) -> None:
        """Forget the prepared requests; answers that are still open are no longer wanted."""
        if self._ahead is not None and self._ahead.sent is not None:
            self._ahead.sent.cancel()
        self._ahead = None

    def propose(
        self,
        view: SearchView,
        generation: int,
        count: int,
        pending: Iterable[str] = (),
        members: Sequence[int] = (),
    ) -> list[Draft]:
        """Up to `count` drafts that were never judged: with new structures, or with configs that the policy chose.

        `pending` holds programs (normalised AST hashes) of the same batch, `members` says whom the first requests ask
        (the rest is drawn by weight). Raises WaitInterruptedError.
        """
        ahead = self._ahead if self._ahead is not None and self._ahead.generation == generation else None
        drafts: list[Draft] = []
        programs = set(pending)
        structures: set[str] = set()
        near: list[str] = []
        for attempt in range(ROUNDS):
            wanted = count - len(drafts)
            # The judge would stand still while a slow policy is asked again: the tuner fills what is missing.
            if wanted <= 0 or (attempt > 0 and ahead is not None and programs):
                break
            if attempt == 0 and ahead is not None:
                asked = ahead
            else:
                first = attempt * count
                asked = self._round(view, generation, range(first, first + wanted), programs, members[-wanted:])
            answers = self._asking.propose(asked.requests, asked.sent)
            for place, proposals in enumerate(answers):
                drafts += self._new(view, asked, place, proposals, programs, structures, near)
        return drafts[:count]

    def _round(
        self, view: SearchView, generation: int, indices: range, pending: Iterable[str], members: Sequence[int]
    ) -> _Round:
        taken = view.gate.programs(pending)
        islands = [view.islands.at(generation, index) for index in indices]
        parents = self._parents.choose(view, generation, indices)
        requests = [
            self._request(view, island, parent, generation, index, taken)
            for island, parent, index in zip(islands, parents, indices, strict=True)
        ]
        named = [
            request.model_copy(update={"member": member}) for request, member in zip(requests, members, strict=False)
        ]
        return _Round(generation, islands, parents, [*named, *requests[len(named) :]])

    def _request(
        self, view: SearchView, island: Island, parent: Record, generation: int, index: int, taken: Set[str]
    ) -> ProposalRequest:
        return ProposalRequest(
            request_id=f"g{generation:05d}-{index:03d}",
            task=view.task,
            parents=(shown(view.source, parent),),
            operator=self.name,
            seed=view.streams.seed("policy", generation, index),
            inspirations=tuple(shown(view.source, elite) for elite in self._inspirations(view, parent, generation)),
            attempts=tuple(shown(view.source, child) for child in view.children(parent.id)),
            taken=taken,
            strategy=island.strategy.text,
            favoured=island.strategy.favoured,
        )

    def _inspirations(self, view: SearchView, parent: Record, generation: int) -> list[Record]:
        """Elites of other cells than the parent's, every cell equally likely, the fastest first.

        Drawn by generation and parent, not by request: children of one parent share one prompt.
        """
        if not self._archive.enabled:
            return []
        own = view.cell(parent) if parent.passed else None
        others = [owner for cell, owner in view.archive if cell != own and owner.id != parent.id]
        rng = view.streams.generator("inspirations", generation, parent.number)
        chosen = rng.permutation(len(others))[:INSPIRATIONS]
        return sorted((others[place] for place in chosen), key=lambda elite: (-(elite.speedup or 0.0), elite.number))

    def _new(
        self,
        view: SearchView,
        asked: _Round,
        place: int,
        proposals: list[Proposal],
        programs: set[str],
        structures: set[str],
        near: list[str],
    ) -> list[Draft]:
        """The proposals that are new. `near` holds the sources of the batch so far."""
        island, parent = asked.islands[place], asked.parents[place]
        arm = self.arms[self._asking.member_for(asked.requests[place])]
        drafts = []
        for proposal in proposals:
            program = view.gate.new_program(proposal.source.text)
            tuned = bool(proposal.tunables)
            structure = parent.candidate.structure if tuned else view.gate.new_structure(proposal.source.text)
            if program is None or structure is None or program in programs or (structure in structures and not tuned):
                continue
            if self._repeats(view, island, proposal, near):
                continue
            near.append(proposal.source.text)
            programs.add(program)
            structures.add(structure)
            drafts.append(
                Draft(
                    proposal.source,
                    self.name,
                    (parent.ancestor,),
                    structure,
                    proposal=proposal,
                    island=island.number,
                    arm=arm,
                )
            )
        return drafts

    def _repeats(self, view: SearchView, island: Island, proposal: Proposal, batch: list[str]) -> bool:
        """Whether a whole file or an edit is nearly what its island or its batch has already.

        A step of the catalogue or another config is a change on purpose, however small.
        """
        if proposal.rewrites or proposal.tunables:
            return False
        survivors = [view.source(record.candidate.source_sha) for record in island.records]
        return view.gate.too_similar(proposal.source.text, [*survivors, *batch])
