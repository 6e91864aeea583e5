"""Whether answers come from memory that a candidate keeps between calls, however it recognises its inputs.

Equal inputs come again and again while what the candidate keeps (and what follows its inputs) is overwritten before
each call. A kernel that computes its answer does not notice; one that remembers it returns what was written.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from evaluator.gpu_cases import DeviceCase
from evaluator.gpu_host import WorkerError
from evaluator.gpu_memory import settle
from evaluator.gpu_refusal import RefusedError, refused
from evaluator.types import EvalStatus

if TYPE_CHECKING:
    from evaluator.gpu_correct import Checker

RECALLS = 9
"""Calls before and after the overwriting: one more than the input sets of a ring."""
LEAST_SHARE = 2
"""Blocks below this fraction (one half) of an answer's size are left alone: counters, locks, seeds."""
LEAST_BYTES = 512
_LOOKS = 2


def check_recall(checker: Checker) -> None:
    """The check for one benchmark workload. Raises `RefusedError` (REPLAY) and `WorkerError`."""
    workload = checker.stand.workload
    for number in (0, 1):  # one after the other: two cases of gigabytes are better not held at once
        checker.put(checker.cases.plain(workload, number), number)
    settle(checker.bench.arena)
    size = sum(place.nbytes for place in checker.carved.sinks[0])
    least = max(LEAST_BYTES, size // LEAST_SHARE)
    answer = checker.bench.request("keeps", name=workload.name, sets=[0, 1], count=RECALLS, least=least)
    if not answer["changed"]:
        return
    first = checker.cases.plain(workload, 0)
    keep = max(2, min(RECALLS, checker.bench.keep_bytes // max(size, 1)))
    try:
        checker.bench.request("recall", name=workload.name, number=0, count=RECALLS, keep=keep, least=least)
    except WorkerError as failure:
        if failure.status is not EvalStatus.RUNTIME_ERROR:
            raise
        raise _remembers(checker, first, failure.reason) from None
    for _ in range(_LOOKS):
        _, outputs = checker.bench.kept(secrets.randbelow(keep), checker.carved)
        found = checker.cases.compare(first, outputs)
        if found.status is not None:
            raise _remembers(checker, first, found.reason)


def _remembers(checker: Checker, case: DeviceCase, reason: str) -> RefusedError:
    text = f"{case.label}: the answer comes from memory that earlier calls left behind: {reason}"
    return refused(EvalStatus.REPLAY, text, "compute every output from the inputs of its own call")
