"""The parts of a prompt as the templates want them, and the order in which they give way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluator.errors import UsageError
from evaluator.source_hash import ast_hash
from evaluator.tunables import extract
from policy.hack_kinds import HACK_KINDS
from policy.prompting.facts import (
    ATTEMPT_LINES,
    PARENT_LINES,
    difference,
    hardware_lines,
    hardware_of,
    history,
    log_of,
    outcome,
)
from policy.prompting.fit import Choice, Piece, Size
from policy.prompting.text import clipped, plain
from policy.prompting.types import Phase, Repair
from policy.prompts import rewrite_line
from policy.rewrites.base import RewriteArgs
from policy.types import Form, ParentView, ProposalRequest

REPAIR_LINES = 40


@dataclass(frozen=True)
class Asked:
    """Everything a prompt is made of."""

    request: ProposalRequest
    phase: Phase
    form: Form
    applicable: Mapping[str, Sequence[RewriteArgs]]
    analysis: str
    notes: tuple[str, ...]
    strategy: str
    repair: Repair | None
    reward: str

    @property
    def parent(self) -> ParentView:
        """The kernel the prompt is about."""
        return self.request.parents[0]

    @property
    def second(self) -> ParentView | None:
        """The other parent of a crossover."""
        return self.request.parents[1] if len(self.request.parents) > 1 else None

    @property
    def inspirations(self) -> tuple[ParentView, ...]:
        """Elites of other cells that the prompt does not show already; a tuned kernel keeps its structure, so none."""
        if self.phase == "tune":
            return ()
        seen = {ast_hash(view.source.text) for view in (*self.request.parents, *self.request.attempts)}
        fresh = []
        for view in self.request.inspirations:
            if ast_hash(view.source.text) not in seen:
                seen.add(ast_hash(view.source.text))
                fresh.append(view)
        return tuple(fresh)

    @property
    def target(self) -> str:
        """The GPU that the kernels were judged on or modelled for; empty where nothing was judged."""
        views = (*self.request.parents, *self.request.attempts, *self.request.inspirations)
        return next((view.evaluation.target for view in views if view.evaluation and view.evaluation.target), "")


@dataclass(frozen=True)
class Shown:
    """One kernel in a prompt."""

    number: int
    outcome: str
    source: str | None
    """None when it is left out."""
    log: str
    history: str
    difference: str = ""
    cheats: bool = False


def pieces_of(asked: Asked) -> list[Piece]:
    """What the prompt can do without, most important first."""
    pieces = [Piece("earlier answer")] if asked.repair is not None else []
    if asked.parent.evaluation is not None:
        pieces.append(Piece("verdict", ("whole", "short"), lost="details"))
    if asked.second is not None:
        pieces.append(Piece("second parent", ("whole", "short")))
    if hardware_of(asked.target) is not None:
        pieces.append(Piece("hardware"))
    if asked.analysis.strip():
        pieces.append(Piece("analysis"))
    if asked.strategy.strip():
        pieces.append(Piece("strategy"))
    pieces += [
        Piece(f"attempt {number}", ("whole",) if _cheats(view) else ("whole", "short"))
        for number, view in enumerate(asked.request.attempts, 1)
    ]
    pieces += [Piece(f"note {number}") for number, _ in enumerate(asked.notes, 1)]
    pieces += [Piece(f"inspiration {number}", ("whole", "short")) for number, _ in enumerate(asked.inspirations, 1)]
    return pieces


def values_of(asked: Asked, choice: Choice) -> dict[str, object]:
    """The templates' variables for one choice of pieces."""
    sheet = hardware_of(asked.target)
    return {
        "task": asked.request.task,
        "kinds": HACK_KINDS,
        "phase": asked.phase,
        "form": asked.form,
        "answer": asked.form if asked.phase == "generate" else asked.phase,
        "target": asked.target,
        "hardware": hardware_lines(sheet, asked.request.task) if sheet and "hardware" in choice else None,
        "parent": _parent(asked.parent, choice.get("verdict")),
        "second": _kernel(asked, asked.second, 2, choice["second parent"])
        if asked.second is not None and "second parent" in choice
        else None,
        "attempts": _kernels(asked, "attempt", asked.request.attempts, choice),
        "inspirations": _kernels(asked, "inspiration", asked.inspirations, choice),
        "notes": [f"- {note}" for number, note in enumerate(asked.notes, 1) if f"note {number}" in choice],
        "analysis": asked.analysis if "analysis" in choice else "",
        "strategy": asked.strategy if "strategy" in choice else "",
        "rewrites": [rewrite_line(name, settings) for name, settings in asked.applicable.items()],
        "tunables": _tunables(asked.parent) if asked.phase == "tune" else [],
        "reward": asked.reward,
        "answer_shown": "earlier answer" in choice,
        "error": "\n".join(clipped(asked.repair.error, REPAIR_LINES)) if asked.repair is not None else "",
    }


def check(asked: Asked) -> None:
    """Raises UsageError when there is nothing that an answer of the form asked for could say."""
    if asked.form == "structured" and asked.phase != "tune" and not asked.applicable:
        raise UsageError(
            f"{asked.parent.candidate_id}: no rewrite applies to it, so no structured answer exists",
            "ask for the form full or diff",
        )
    if asked.phase == "tune" and not extract(asked.parent.source.text).tunables:
        raise UsageError(f"{asked.parent.candidate_id}: it has no tunables", "ask for the phase generate instead")


def _parent(view: ParentView, size: Size | None) -> Shown:
    log = ""
    if view.evaluation is not None and size is not None:
        whole = size == "whole"
        log = log_of(view.evaluation, PARENT_LINES if whole else ATTEMPT_LINES, launches=whole)
    return Shown(0, outcome(view.evaluation), view.source.text, log, history(view))


def _kernels(asked: Asked, kind: str, views: Sequence[ParentView], choice: Choice) -> list[Shown]:
    return [
        _kernel(asked, view, number, choice[f"{kind} {number}"])
        for number, view in enumerate(views, 1)
        if f"{kind} {number}" in choice
    ]


def _kernel(asked: Asked, view: ParentView, number: int, size: Size) -> Shown:
    log = log_of(view.evaluation, ATTEMPT_LINES, launches=False) if view.evaluation is not None else ""
    source = view.source.text if size == "whole" and not _cheats(view) else None
    return Shown(
        number, outcome(view.evaluation), source, log, history(view), difference(asked.parent, view), _cheats(view)
    )


def _cheats(view: ParentView) -> bool:
    """Whether showing the source would teach a way to cheat."""
    return view.evaluation is not None and view.evaluation.status.is_hack


def _tunables(view: ParentView) -> list[str]:
    return [
        f"{tunable.name}: {tunable.default} now; try {', '.join(str(value) for value in tunable.choices)}"
        for tunable in extract(view.source.text).tunables
    ]


def answer_text(repair: Repair) -> str:
    """The answer that is repaired, as the assistant's message."""
    return plain(repair.answer)
