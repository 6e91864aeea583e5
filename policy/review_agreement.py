"""How often a reviewer and the evaluator say the same."""

from __future__ import annotations

from pydantic import Field

from evaluator.types import Frozen


class Agreement(Frozen):
    """A confusion matrix: counts of sources by what either said."""

    both_accept: int = Field(ge=0)
    both_reject: int = Field(ge=0)
    only_reviewer_rejects: int = Field(ge=0)
    only_evaluator_rejects: int = Field(ge=0)

    @property
    def total(self) -> int:
        """Sources that both had an opinion about."""
        return self.both_accept + self.both_reject + self.only_reviewer_rejects + self.only_evaluator_rejects

    @property
    def share(self) -> float | None:
        """Share on which they agree, in [0, 1]; None without sources."""
        return (self.both_accept + self.both_reject) / self.total if self.total else None

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa (1960): agreement beyond chance, 1 at best, 0 for chance; None where chance alone explains all.

        A reviewer that accepts everything agrees often where most candidates are honest; its kappa is 0.
        """
        if self.share is None:
            return None
        reviewer = (self.both_reject + self.only_reviewer_rejects) / self.total
        evaluator = (self.both_reject + self.only_evaluator_rejects) / self.total
        chance = reviewer * evaluator + (1 - reviewer) * (1 - evaluator)
        return (self.share - chance) / (1 - chance) if chance < 1 else None

    def line(self) -> str:
        """For people and logs."""
        if self.share is None:
            return "reviewer and evaluator: nothing to compare yet"
        kappa = "" if self.kappa is None else f", kappa {self.kappa:.2f}"
        return (
            f"reviewer and evaluator agree on {self.share:.0%} of {self.total} sources{kappa} (both accept "
            f"{self.both_accept}, both reject {self.both_reject}, only the reviewer rejects "
            f"{self.only_reviewer_rejects}, only the evaluator {self.only_evaluator_rejects})"
        )
