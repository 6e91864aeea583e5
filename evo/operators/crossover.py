"""Crossover: the faster of two kernels gets the rewrites of the other that it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from evaluator.types import KernelSource
from evo.candidate import Record
from evo.config_search import SearchConfig
from evo.islands import Island
from evo.operators.base import Draft, SearchView
from evo.selection import ParentSelector
from policy.rewrites import RewriteContext, RewriteError, apply_steps
from policy.types import Proposal, RewriteStep

ROUNDS = 3
"""Pairs that are tried for each child: of many a child is known already."""
FIRST = 1_000_000
"""Index of a generation's first pair: parents are drawn by index, and those below are the policy's."""


class CrossoverOperator:
    """Replays rewrites onto another kernel than the one they were made for. Needs no policy."""

    name = "crossover"

    def __init__(self, config: SearchConfig) -> None:
        self._archive = config.archive.enabled
        self._parents = ParentSelector(config)

    def possible(self, view: SearchView) -> bool:
        """Whether some island has two kernels of which the slower had a rewrite that the faster lacks."""
        pools = [self._pool(view, island) for island in view.islands]
        return any(_mates(one, pool) for pool in pools for one in pool)

    def propose(self, view: SearchView, generation: int, count: int, pending: Iterable[str] = ()) -> list[Draft]:
        """Up to `count` children with new structures. `pending` holds programs of the same batch."""
        drafts: list[Draft] = []
        programs, structures = set(pending), set[str]()
        if count <= 0:
            return drafts
        indices = range(FIRST, FIRST + ROUNDS * count)
        for index, parent in zip(indices, self._parents.choose(view, generation, indices), strict=True):
            if len(drafts) == count:
                break
            draft = self._child(view, parent, generation, index)
            program = view.gate.new_program(draft.source.text) if draft is not None else None
            if draft is None or program is None or program in programs or draft.structure in structures:
                continue
            programs.add(program)
            structures.add(draft.structure)
            drafts.append(draft)
        return drafts

    def _child(self, view: SearchView, one: Record, generation: int, index: int) -> Draft | None:
        island = view.islands.at(generation, index)
        mates = _mates(one, self._pool(view, island)) if one.passed else []
        if not mates:
            return None
        other = mates[int(view.streams.generator(self.name, generation, index).integers(len(mates)))]
        faster, slower = _ranked(one, other)
        context = RewriteContext.of_task(view.task)
        source, steps = replayed(view.source(faster.candidate.source_sha), lacking(faster, slower), context)
        structure = view.gate.new_structure(source) if steps else None
        if structure is None:
            return None
        names = ", ".join(step.name for step in steps)
        proposal = Proposal(
            source=KernelSource(text=source),
            operator=self.name,
            rewrites=steps,
            explanation=f"{faster.id} with what {slower.id} has beyond it: {names}",
        )
        # The faster one is the first parent: its history is continued, and gains count from its speed.
        return Draft(
            proposal.source,
            self.name,
            (faster.ancestor, slower.ancestor),
            structure,
            proposal=proposal,
            island=island.number,
            arm=self.name,
        )

    def _pool(self, view: SearchView, island: Island) -> list[Record]:
        """Passed survivors of an island and its elites, in the order of birth."""
        elites = [owner for owner in view.archive.owners if island.is_home_of(owner)] if self._archive else []
        found = {record.number: record for record in (*island.records, *elites) if record.passed}
        return [found[number] for number in sorted(found)]


def lacking(one: Record, other: Record) -> list[RewriteStep]:
    """Rewrites of `other`'s history that are not in `one`'s, in order; what both did as often counts as shared."""
    shared = Counter(map(_key, one.candidate.rewrites))
    steps = []
    for step in other.candidate.rewrites:
        if shared[_key(step)] > 0:
            shared[_key(step)] -= 1
        else:
            steps.append(step)
    return steps


def replayed(source: str, steps: Iterable[RewriteStep], context: RewriteContext) -> tuple[str, tuple[RewriteStep, ...]]:
    """`source` after those of the steps that apply, and which these were."""
    applied = []
    for step in steps:
        try:
            source = apply_steps(source, [step], context)
        except RewriteError:
            continue
        applied.append(step)
    return source, tuple(applied)


def _key(step: RewriteStep) -> str:
    return step.model_dump_json()


def _ranked(one: Record, other: Record) -> tuple[Record, Record]:
    """The faster first; of equally fast ones the older."""
    first, second = sorted((one, other), key=lambda record: (-(record.speedup or 0.0), record.number))
    return first, second


def _mates(one: Record, pool: Sequence[Record]) -> list[Record]:
    return [other for other in pool if other.id != one.id and lacking(*_ranked(one, other))]
