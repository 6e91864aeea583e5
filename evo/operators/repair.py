"""Repair: a child that failed is taken up again without its last rewrite, or with another argument of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from evaluator.types import EvalStatus, KernelSource
from evo.candidate import Record
from evo.operators.base import Draft, Failure, SearchView
from policy.rewrites import RewriteContext, RewriteError, apply_steps, rewrite_named
from policy.types import Proposal, RewriteStep

REPAIRABLE = frozenset(
    {
        EvalStatus.COMPILE_ERROR,
        EvalStatus.RESOURCE_LIMIT,
        EvalStatus.RUNTIME_ERROR,
        EvalStatus.OUT_OF_MEMORY,
        EvalStatus.WRONG_SHAPE,
        EvalStatus.WRONG_DTYPE,
        EvalStatus.OUT_OF_BOUNDS,
        EvalStatus.INPUT_MUTATED,
        EvalStatus.UNINITIALISED,
        EvalStatus.NON_FINITE,
        EvalStatus.WRONG_VALUE,
        EvalStatus.PRECISION,
        EvalStatus.NONDETERMINISTIC,
        EvalStatus.RACE,
    }
)
"""Verdicts on the kernel itself; an attempt to deceive and trouble of the judge's own are left alone."""
REPAIRS = 2
"""Children that one failure gets."""
LOOKS = 3
"""Failures that are looked at for each child, the latest first: of many a repair is known already."""


class RepairOperator:
    """Tries failed children again from their last correct ancestor. Needs no policy."""

    name = "repair"

    def possible(self, view: SearchView) -> bool:
        """Whether a failure has rewrites of its own and not all of its repairs."""
        return any(_is_open(view, failure) for failure in view.failures)

    def propose(self, view: SearchView, generation: int, count: int, pending: Iterable[str] = ()) -> list[Draft]:
        """Up to `count` children with new structures, each of another failure; `pending`: programs of the batch."""
        drafts: list[Draft] = []
        programs, structures = set(pending), set[str]()
        open_failures = [failure for failure in view.failures if _is_open(view, failure)]
        for failed in open_failures[::-1][: LOOKS * count]:
            base, failure = failed.base, failed.record
            if len(drafts) == count:
                break
            for source, steps in self._ways(view, base, failure, generation):
                program, structure = view.gate.new_program(source), view.gate.new_structure(source)
                if program is None or structure is None or program in programs or structure in structures:
                    continue
                programs.add(program)
                structures.add(structure)
                drafts.append(self._draft(base, failure, source, steps, structure))
                break
        return drafts

    def _ways(
        self, view: SearchView, base: Record, failure: Record, generation: int
    ) -> Iterator[tuple[str, tuple[RewriteStep, ...]]]:
        """Sources and the steps from `base` to them: the last step undone, then its other arguments in random order."""
        context = RewriteContext.of_task(view.task)
        *kept, last = own_steps(base, failure)
        try:
            before = apply_steps(view.source(base.candidate.source_sha), kept, context)
            others = other_arguments(before, last, context)
        except RewriteError:
            # A model's answer may rewrite and edit at once: its steps alone do not lead there.
            return
        if kept:
            yield before, tuple(kept)
        order = view.streams.generator(self.name, generation, failure.number).permutation(len(others))
        for step in (others[place] for place in order):
            try:
                yield apply_steps(before, [step], context), (*kept, step)
            except RewriteError:
                continue

    def _draft(self, base: Record, failure: Record, source: str, steps: Sequence[RewriteStep], structure: str) -> Draft:
        last = own_steps(base, failure)[-1].name
        how = "without" if len(steps) < len(own_steps(base, failure)) else "with another argument of"
        proposal = Proposal(
            source=KernelSource(text=source),
            operator=self.name,
            rewrites=tuple(steps),
            explanation=f"{failure.id} ({failure.evaluation.status}) {how} {last}",
        )
        # The correct ancestor is the first parent: its history is continued, and gains count from its speed.
        return Draft(
            proposal.source,
            self.name,
            (base.ancestor, failure.ancestor),
            structure,
            proposal=proposal,
            island=failure.candidate.island,
            arm=self.name,
        )


def own_steps(base: Record, child: Record) -> tuple[RewriteStep, ...]:
    """The rewrites that led from a first parent to its child."""
    return child.candidate.rewrites[len(base.candidate.rewrites) :]


def other_arguments(source: str, step: RewriteStep, context: RewriteContext) -> list[RewriteStep]:
    """The same rewrite with each other argument setting that applies to `source`. Raises RewriteError."""
    found = rewrite_named(step.name).candidates(source, context)
    steps = [RewriteStep(name=step.name, args=args.model_dump(mode="json")) for args in found]
    return [other for other in steps if other != step]


def _is_open(view: SearchView, failed: Failure) -> bool:
    """Whether there is something to undo since a correct parent, and not enough was tried."""
    base, failure = failed.base, failed.record
    if failure.evaluation.status not in REPAIRABLE or not base.passed:
        return False
    return bool(own_steps(base, failure)) and len(view.children(failure.id)) < REPAIRS
