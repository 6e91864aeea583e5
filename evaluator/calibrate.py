"""Fits the cost model to measured latencies, and says how well it predicts tasks that the fit has not seen.

The fit minimises soft-L1 of log(measured / modelled), every task weighing the same, with every coefficient held to its
documented default by a log-normal prior: what the data do not determine stays where it was. Scores follow how a search
uses the model: does it order the configs of one structure (Kendall's tau-b within a structure and workload), does it
order structures (tau of their best times), and how much slower than the best is the best of its top tenth (regret).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares  # type: ignore[import-untyped]
from scipy.stats import kendalltau  # type: ignore[import-untyped]

from evaluator.calibration import Spread
from evaluator.cost_model import DEFAULT, Coefficients, latencies
from evaluator.hardware import Hardware
from evaluator.launch_features import Array, Features, features
from evaluator.types import Frozen, KernelResources

if TYPE_CHECKING:
    from evaluator.trace import LaunchTrace

SOFT = 0.2
"""Log error beyond which a point pulls linearly: 20 %."""
TOP = 0.1
MIN_CONFIGS = 3
"""Configs of one structure at one workload below which their order says nothing."""


class Parameter(NamedTuple):
    """One number the fit may move, in log space."""

    name: str
    """A field of `Coefficients`, `issue_cost.PIPE`, or `hardware.FIELD`."""
    low: float
    high: float
    sigma: float = math.log(2)
    """Of the prior around the default: 68 % of the belief lies within a factor of exp(sigma)."""


PARAMETERS: tuple[Parameter, ...] = (
    Parameter("overlap", 1.2, 12.0),
    Parameter("dram_reach", 0.5, 1.0, 0.1),
    Parameter("l2_usable", 0.2, 1.0, 0.3),
    Parameter("sm_pull", 1.0, 8.0),
    Parameter("reduction_s", 1e-9, 1e-6),
    Parameter("barrier_s", 1e-9, 1e-6),
    Parameter("program_s", 1e-8, 5e-6),
    Parameter("issue_cost.fma", 0.1, 10.0),
    Parameter("issue_cost.alu", 0.02, 5.0),
    Parameter("issue_cost.compare", 0.02, 5.0),
    Parameter("issue_cost.convert", 0.1, 10.0),
    Parameter("issue_cost.mufu", 0.5, 20.0),
    Parameter("issue_cost.divide", 1.0, 40.0),
    Parameter("issue_cost.reduce", 0.1, 20.0),
    Parameter("memory_instruction", 0.5, 30.0),
    Parameter("mma_share", 0.1, 1.0),
    Parameter("tile_overhead", 1.0, 200.0),
    Parameter("hardware.l2_bytes_per_s", 2e12, 2e13, 0.3),
    Parameter("hardware.dram_latency_s", 2e-7, 3e-6, 0.4),
    Parameter("hardware.l2_latency_s", 5e-8, 1e-6, 0.4),
    Parameter("hardware.launch_s", 5e-7, 8e-6),
)


class Observation(NamedTuple):
    """One measured point: a structure under one config at one workload."""

    task: str
    family: str
    structure: int
    workload: str
    launches: Sequence[tuple[LaunchTrace, KernelResources]]
    measured_ms: float


class Scores(Frozen):
    """How predictions compare with measurements; tau is 1 for the same order, 0 for none, -1 for the reverse."""

    points: int
    config_tau: float
    """Configs of one structure at one workload; mean over such groups, weighted by their pairs."""
    config_regret: float
    """Measured time of the modelled best config over the best one's, less 1; mean over the same groups."""
    structural_tau: float
    """Structures of a task at one workload, each by the best of its configs; mean weighted by pairs."""
    regret_top10: float
    """Of a task's points at a workload: best time in the modelled best tenth over the best of all, less 1; mean."""
    median_abs_log_error: float


class Fit(NamedTuple):
    """A fitted model."""

    hardware: Hardware
    coefficients: Coefficients


@dataclass(frozen=True)
class Table:
    """Observations as arrays: features of all their launches, and which observation each belongs to."""

    observations: tuple[Observation, ...]
    features: Features
    owner: NDArray[np.intp]
    log_ms: Array

    @classmethod
    def of(cls, observations: Iterable[Observation], hardware: Hardware) -> Table:
        """Raises ValueError for no observation, or a launch that does not fit on an SM."""
        held = tuple(observations)
        if not held:
            raise ValueError("there is nothing to fit")
        launches = [launch for observation in held for launch in observation.launches]
        owner = np.repeat(np.arange(len(held)), [len(observation.launches) for observation in held])
        log_ms = np.log([observation.measured_ms for observation in held])
        return cls(held, features(launches, hardware), owner, log_ms)

    def predicted(self, fit: Fit) -> Array:
        """(observations,) log of modelled milliseconds."""
        seconds = latencies(self.features, fit.hardware, fit.coefficients).latency_s
        totals = np.zeros(len(self.observations))
        np.add.at(totals, self.owner, seconds)
        return np.log(totals * 1e3)

    def weights(self) -> Array:
        """(observations,) so that every task counts the same, with mean 1."""
        counts: dict[str, int] = defaultdict(int)
        for observation in self.observations:
            counts[observation.task] += 1
        share = len(self.observations) / len(counts)
        return np.array([share / counts[observation.task] for observation in self.observations])


def fit(observations: Iterable[Observation], hardware: Hardware, start: Coefficients = DEFAULT) -> Fit:
    """The model that explains `observations` best without leaving its defaults for nothing."""
    table = Table.of(observations, hardware)
    default = Fit(hardware, start)
    centre = np.log([value_of(default, parameter.name) for parameter in PARAMETERS])
    low, high = (np.log([getattr(parameter, end) for parameter in PARAMETERS]) for end in ("low", "high"))
    sigma = np.array([parameter.sigma for parameter in PARAMETERS])
    weight = np.sqrt(table.weights())

    def residuals(point: Array) -> Array:
        errors = table.log_ms - table.predicted(moved(default, point))
        return np.concatenate([weight * softened(errors), SOFT * (point - centre) / sigma])

    inside = np.clip(centre, low + 1e-6, high - 1e-6)
    found = least_squares(residuals, inside, bounds=(low, high), x_scale=sigma, max_nfev=100)
    return moved(default, found.x)


def softened(errors: Array) -> Array:
    """Residuals whose squares are soft-L1 of `errors`: quadratic below `SOFT`, linear far above."""
    cost = 2 * SOFT**2 * (np.sqrt(1 + (errors / SOFT) ** 2) - 1)
    result: Array = np.sign(errors) * np.sqrt(cost)
    return result


def value_of(model: Fit, name: str) -> float:
    """A parameter's value in a model."""
    owner, _, field = name.rpartition(".")
    if owner == "hardware":
        return float(getattr(model.hardware, field))
    return float(model.coefficients.issue_cost[field] if owner else getattr(model.coefficients, field))


def moved(model: Fit, logs: Array) -> Fit:
    """`model` with its parameters at exp(`logs`), in the order of `PARAMETERS`."""
    values = {parameter.name: math.exp(log) for parameter, log in zip(PARAMETERS, logs, strict=True)}
    plain = {name: value for name, value in values.items() if "." not in name}
    pipes = {name.split(".")[1]: value for name, value in values.items() if name.startswith("issue_cost.")}
    figures = {name.split(".")[1]: value for name, value in values.items() if name.startswith("hardware.")}
    coefficients = model.coefficients.model_copy(update={**plain, "issue_cost": pipes})
    return Fit(model.hardware.model_copy(update=figures), coefficients)


def scores(observations: Sequence[Observation], predicted: Array) -> Scores:
    """Scores of `predicted`, the log of modelled ms of each observation."""
    measured = np.log([observation.measured_ms for observation in observations])
    configs = _groups(observations, lambda seen: (seen.task, seen.structure, seen.workload), MIN_CONFIGS)
    shapes = _groups(observations, lambda seen: (seen.task, seen.workload), 1)
    best = [_best_by_structure(observations, rows, measured, predicted) for rows in shapes]
    return Scores(
        points=len(observations),
        config_tau=_mean_tau([(measured[rows], predicted[rows]) for rows in configs]),
        config_regret=_mean([_regret(measured[rows], predicted[rows], 1) for rows in configs]),
        structural_tau=_mean_tau([pair for pair in best if len(pair[0]) > 1]),
        regret_top10=_mean(
            [_regret(measured[rows], predicted[rows], math.ceil(TOP * len(rows))) for rows in shapes if len(rows) > 1]
        ),
        median_abs_log_error=float(np.median(np.abs(measured - predicted))),
    )


def _groups(
    observations: Sequence[Observation], key: Callable[[Observation], Hashable], smallest: int
) -> list[list[int]]:
    found: dict[Hashable, list[int]] = defaultdict(list)
    for row, observation in enumerate(observations):
        found[key(observation)].append(row)
    return [rows for rows in found.values() if len(rows) >= smallest]


def _best_by_structure(
    observations: Sequence[Observation], rows: Sequence[int], measured: Array, predicted: Array
) -> tuple[Array, Array]:
    """(measured, modelled) best log times of each structure among `rows`."""
    by_structure: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        by_structure[observations[row].structure].append(row)
    held = list(by_structure.values())
    return np.array([measured[own].min() for own in held]), np.array([predicted[own].min() for own in held])


def _mean_tau(pairs: Sequence[tuple[Array, Array]]) -> float:
    """Tau-b of each pair, weighted by the pairs of its members; 0 where the model sees no difference."""
    if not pairs:
        return math.nan
    taus = [kendalltau(measured, predicted).statistic for measured, predicted in pairs]
    weights = [len(measured) * (len(measured) - 1) / 2 for measured, _ in pairs]
    return float(np.average(np.nan_to_num(taus), weights=weights))


def _regret(measured: Array, predicted: Array, count: int) -> float:
    chosen = np.argsort(predicted, kind="stable")[:count]
    return float(np.expm1(measured[chosen].min() - measured.min()))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


class HeldOut(NamedTuple):
    """Predictions of tasks that the fit behind them has not seen."""

    observations: tuple[Observation, ...]
    before: Array
    """(observations,) log ms of the documented defaults."""
    after: Array
    """(observations,) log ms of the model fitted to all other tasks."""


def leave_tasks_out(observations: Sequence[Observation], hardware: Hardware) -> HeldOut:
    """Each task predicted by a fit to all the others. Raises ValueError for fewer than two tasks."""
    tasks = sorted({observation.task for observation in observations})
    if len(tasks) < 2:
        raise ValueError("leaving a task out needs points of two tasks")
    seen: list[Observation] = []
    before, after = [], []
    for task in tasks:
        own = [observation for observation in observations if observation.task == task]
        model = fit([observation for observation in observations if observation.task != task], hardware)
        table = Table.of(own, hardware)
        seen += own
        before.append(table.predicted(Fit(hardware, DEFAULT)))
        after.append(table.predicted(model))
    return HeldOut(tuple(seen), np.concatenate(before), np.concatenate(after))


def spreads(held: HeldOut) -> tuple[Spread, Mapping[str, Spread]]:
    """10 % and 90 % quantiles of measured / modelled of held-out points: over all, and by family."""
    errors = np.array([math.log(seen.measured_ms) for seen in held.observations]) - held.after
    families = np.array([seen.family for seen in held.observations])
    return _spread(errors), {family: _spread(errors[families == family]) for family in sorted(set(families))}


def _spread(errors: Array) -> Spread:
    low, high = np.exp(np.quantile(errors, [0.1, 0.9]))
    return Spread(low=float(low), high=float(high), points=len(errors))
