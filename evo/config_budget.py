"""When a campaign ends, and what is made sure of before."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from evo.config_section import Section


class BudgetConfig(Section):
    """The campaign stops at whichever comes first; at least one of evaluations, seconds, generations, gpu_seconds.

    Limits are looked at between batches: a batch that was begun is judged to its end.
    """

    evaluations: PositiveInt | None = None
    """Judged candidates, the seed included."""
    seconds: PositiveFloat | None = None
    """Wall-clock seconds, those of earlier sessions of the run included."""
    generations: PositiveInt | None = None
    """Generations of `search.offspring` candidates."""
    gpu_seconds: PositiveFloat | None = None
    """Seconds that candidates were checked, timed and profiled on GPUs, summed over candidates and GPUs."""
    tokens: PositiveInt | None = None
    """Tokens of prompts and answers, those of earlier sessions of the run included."""
    dollars: PositiveFloat | None = None
    """Dollars by the prices of the policies, those of earlier sessions of the run included."""
    target_speedup: PositiveFloat | None = None
    """Stop when an elite reaches this speedup over the baseline."""
    roofline_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Stop when the best reaches this share of the evaluator's speed of light (modelled with the cpu evaluator)."""
    stagnation: PositiveInt | None = None
    """Stop after this many generations without a better elite."""


class FinalistsConfig(Section):
    """The best are timed again, in turn, before a run ends; where latencies are measured only."""

    count: Annotated[int, Field(ge=0)] = 8
    """How many: the best of each structure first; 0 leaves it out, and then the luckiest measurement wins."""
    rounds: PositiveInt = 3
    """Times that each of them is timed again; its middle one counts."""
