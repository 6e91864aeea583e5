"""Which runs can be compared, and what to be told before their difference is believed."""

from __future__ import annotations

from collections.abc import Iterator

from evaluator.errors import UsageError
from evaluator.types import TimingKind
from evo.candidate import Record
from evo.run import Run

BASELINE_DRIFT = 0.05
"""Baselines of one workload that differ by more than this share are worth a warning."""
_FIX = "compare runs of one task that were judged alike; `kernevo status` shows task and hardware of each"
Runs = tuple[Run, Run]
Bests = tuple[Record | None, Record | None]


def kind_of(run: Run) -> TimingKind:
    """Whether a run's latencies are measured or modelled."""
    return "measured" if run.config.evaluator.type == "gpu" else "modelled"


def refuse_unlike(runs: Runs, bests: Bests) -> None:
    """Raise UsageError, in one line, for runs whose numbers mean different things."""
    first, second = runs
    if first.path.resolve() == second.path.resolve():
        raise UsageError(f"{first.path}: the same run twice", "name two runs")
    tasks = [run.started.task for run in runs]
    if tasks[0] != tasks[1]:
        _refuse(runs, f"different tasks, {tasks[0]} and {tasks[1]}")
    kinds = [kind_of(run) for run in runs]
    if kinds[0] != kinds[1]:
        _refuse(runs, f"latencies are {kinds[0]} in one and {kinds[1]} in the other")
    baselines = [_asked_baseline(run) for run in runs]
    if baselines[0] != baselines[1]:
        _refuse(runs, f"different baselines, {baselines[0]} and {baselines[1]}")
    if bests[0] is not None and bests[1] is not None:
        _refuse_unlike_bests(runs, bests[0], bests[1])


def _refuse_unlike_bests(runs: Runs, first: Record, second: Record) -> None:
    one, two = first.evaluation, second.evaluation
    if one.target != two.target:
        _refuse(runs, f"different hardware, {one.target or 'unknown'} and {two.target or 'unknown'}")
    if set(one.timings) != set(two.timings):
        only = sorted(set(one.timings) ^ set(two.timings))
        _refuse(runs, f"different workloads, {', '.join(only)} in one of them only")


def _refuse(runs: Runs, why: str) -> None:
    raise UsageError(f"{runs[0].path} and {runs[1].path} cannot be compared: {why}", _FIX)


def _asked_baseline(run: Run) -> str:
    judge = run.config.evaluator
    return judge.baseline if judge.type == "gpu" else "seed"


def warnings_of(runs: Runs, bests: Bests) -> list[str]:
    """What may lie between the runs beside the search, one line each."""
    return [*_of_runs(runs), *_of_bests(bests)]


def _of_runs(runs: Runs) -> Iterator[str]:
    for run in runs:
        if run.status != "finished":
            yield f"{run.path} is {run.status}: its best may still change"
    if runs[0].started.task_fingerprint != runs[1].started.task_fingerprint:
        yield f"the task {runs[0].started.task} was changed between the runs"
    if any(run.config.evaluator.type == "gpu" and run.config.evaluator.platform == "interpreter" for run in runs):
        yield "latencies of `platform: interpreter` mean nothing"
    for name, (one, two) in _versions(runs).items():
        if one != two:
            yield f"{name} differs: {one} and {two}"


def _versions(runs: Runs) -> dict[str, tuple[str, str]]:
    found = []
    for run in runs:
        packages = run.environment.get("packages")
        known = packages if isinstance(packages, dict) else {}
        found.append({"kernevo": run.environment.get("kernevo"), **{name: known.get(name) for name in _PACKAGES}})
    return {name: (str(found[0][name]), str(found[1][name])) for name in found[0] if found[0][name] and found[1][name]}


_PACKAGES = ("torch", "triton")


def _of_bests(bests: Bests) -> Iterator[str]:
    if bests[0] is None or bests[1] is None:
        return
    first, second = bests[0].evaluation, bests[1].evaluation
    if first.evaluator_version != second.evaluator_version:
        versions = [judged.evaluator_version or "unknown" for judged in (first, second)]
        yield f"the evaluator differs: {versions[0]} and {versions[1]}"
    for workload, timing in first.timings.items():
        other = second.timings[workload]
        if timing.baseline != other.baseline:
            yield f"{workload}: the baseline is {timing.baseline or 'unnamed'} and {other.baseline or 'unnamed'}"
        elif timing.baseline_ms and other.baseline_ms and _apart(timing.baseline_ms, other.baseline_ms):
            times = f"{timing.baseline_ms:.4g} ms and {other.baseline_ms:.4g} ms, {timing.kind}"
            yield f"{workload}: the baseline took {times}"


def _apart(one: float, two: float) -> bool:
    return max(one, two) / min(one, two) > 1 + BASELINE_DRIFT
