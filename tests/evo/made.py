"""Records for tests of the search's parts."""

from __future__ import annotations

from evaluator.types import EvalStatus, Evaluation, Timing
from evo.candidate import Candidate, Record


def record(
    number: int,
    speedup: float | None,
    structure: str | None = None,
    *,
    low: float | None = None,
    seconds: float = 0.0,
    **facts: object,
) -> Record:
    """A judged candidate: failed where `speedup` is None. `facts` are fields of the candidate."""
    name = structure or f"s{number}"
    known = {"operator": "rewrite", "source_sha": name, "ast_hash": f"{name}-{number}", "generation": 1, **facts}
    candidate = Candidate.model_validate({"id": f"c{number:06d}", "structure": name, **known})
    common = {"source_sha": name, "task": "t", "evaluator": "gpu", "seconds": seconds}
    if speedup is None:
        return Record(candidate=candidate, evaluation=Evaluation(status=EvalStatus.WRONG_VALUE, **common))
    timing = Timing(kind="measured", median_ms=1.0, baseline_ms=speedup, ratio_low=low)
    evaluation = Evaluation(status=EvalStatus.PASSED, timings={"w": timing}, **common)
    return Record(candidate=candidate, evaluation=evaluation)
