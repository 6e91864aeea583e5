"""Optuna tunes the tunables of one structure.

A `Tuner` holds what is known of each structure: its base source, its space, and every judged config. For each
question a fresh in-memory study is filled with those trials and asked, so nothing but the journal needs saving and
the answer depends only on the trials and a seed drawn from the campaign's named streams.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import chain
from statistics import median

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, BruteForceSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from evaluator.tunables import TunableSpace, extract
from evaluator.types import EvalStatus, Evaluation
from evo.candidate import Record
from evo.config_search import TuningConfig
from evo.study_file import StudyFile

ATTEMPTS = 24
"""Questions to a sampler before an unseen config is picked from the space instead."""

LARGEST_ENUMERATED = 100_000
"""Spaces beyond this are enumerated in part only, when a sampler finds nothing new in them."""

EXPLORATION = 0.15
"""Weight of the upper-confidence term that decides which structure is tuned next, in units of log speedup."""


SCREEN, CONFIRM = 0, 1
"""Steps of a trial: intermediate values are log speedups of these tiers."""

INFEASIBLE = {EvalStatus.RESOURCE_LIMIT: 1.0, EvalStatus.COMPILE_ERROR: 2.0}
"""Verdicts on the config that are constraints to Optuna, with how far each is from what would do (0 and less does)."""


@dataclass(frozen=True)
class Trial:
    """One judged config of a structure."""

    config: dict[str, int]
    value: float | None
    """Log speedup; None where the config failed."""
    infeasible: float = 0.0
    """Above 0: the config cannot be built, however fast it would be."""
    screened: float | None = None
    """Log speedup of the screen tier, where there was one."""
    confirmed: bool = True
    """Whether nothing thorougher was left out."""


def trial_of(config: dict[str, int], evaluation: Evaluation) -> Trial:
    """What Optuna is told of a verdict."""
    speedup = evaluation.speedup
    timings = list(evaluation.timings.values())
    ratios = [timing.screened for timing in timings]
    known = [math.log(ratio) for ratio in ratios if ratio]
    return Trial(
        config,
        None if speedup is None else math.log(speedup),
        INFEASIBLE.get(evaluation.status, 0.0),
        math.fsum(known) / len(known) if known and len(known) == len(ratios) else None,
        not any(timing.tier == "screen" for timing in timings),
    )


@dataclass
class Structure:
    """What the tuner knows of one structure."""

    place: int
    """In the order of birth."""
    base_source: str
    space: TunableSpace
    trials: list[Trial] = field(default_factory=list)
    """In the order they were judged."""
    best: Record | None = None
    parent: str | None = None
    """The structure this one was rewritten from."""

    @property
    def size(self) -> int:
        """Number of configs in the space."""
        return math.prod(len(tunable.choices) for tunable in self.space.tunables)

    @property
    def seen(self) -> set[tuple[int, ...]]:
        """Configs already judged, as value tuples in the order of the space."""
        return {self.key(trial.config) for trial in self.trials}

    def key(self, config: Mapping[str, int]) -> tuple[int, ...]:
        """A config as a hashable tuple; names that the space lacks do not count."""
        return tuple(config.get(tunable.name, tunable.default) for tunable in self.space.tunables)

    @property
    def score(self) -> float | None:
        """Best log speedup so far."""
        return None if self.best is None else math.log(self.best.speedup or 1.0)


class Tuner:
    """The structures of a campaign and which config to try next on each."""

    def __init__(self, config: TuningConfig) -> None:
        self._config = config
        self.structures: dict[str, Structure] = {}
        self._open: set[str] = set()
        self._judged = 0
        # Optuna logs every trial at INFO; the campaign's monitors say what matters.
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def tell(self, record: Record, source: str, parent: str | None) -> None:
        """Learn one judged config. The first record of a structure defines its base source, space and parent."""
        key = record.candidate.structure
        if key not in self.structures:
            self.structures[key] = Structure(len(self.structures), source, extract(source), parent=parent)
        structure = self.structures[key]
        config = dict(record.candidate.config) or structure.space.defaults
        speedup = record.speedup
        structure.trials.append(trial_of(config, record.evaluation))
        if speedup is not None and (structure.best is None or speedup > (structure.best.speedup or 0.0)):
            structure.best = record
        self._judged += 1
        (self._open.add if self.is_open(key) else self._open.discard)(key)

    def is_open(self, key: str) -> bool:
        """Whether a structure may get another trial: it passed once, has configs left and trials left."""
        structure = self.structures[key]
        budget = min(self._config.trials, structure.size - 1)
        return structure.best is not None and len(structure.trials) - 1 < budget

    def shares(self, count: int) -> Counter[str]:
        """How many of `count` trials each open structure gets, the one most worth a trial first.

        Worth is the best so far plus a bonus for few trials (UCB1), counting trials that were just given out. Ties go
        to the older structure. Less than `count` in all when every structure's trials are used up.
        """
        given: Counter[str] = Counter()
        # Once per batch, not per trial: a long campaign has thousands of open structures.
        queue = [self._entry(key, 0) for key in self._open]
        heapify(queue)
        while queue and given.total() < count:
            _, _, key = queue[0]
            given[key] += 1
            if len(self.structures[key].trials) - 1 + given[key] < self._config.trials:
                heapreplace(queue, self._entry(key, given[key]))
            else:
                heappop(queue)
        return given

    def _entry(self, key: str, pending: int) -> tuple[float, int, str]:
        structure = self.structures[key]
        return -self._priority(structure, self._judged + 1, pending), structure.place, key

    def _priority(self, structure: Structure, total: int, pending: int) -> float:
        trials = len(structure.trials) + pending
        return (structure.score or 0.0) + EXPLORATION * math.sqrt(2 * math.log(total) / max(1, trials))

    def suggest(self, key: str, count: int, seed: int) -> list[dict[str, int]]:
        """Up to `count` unseen configs for a structure; fewer when its space runs out.

        Warm start: the best config its parent has by now comes first, fitted to this structure's choices.
        """
        structure = self.structures[key]
        parent = self.structures.get(structure.parent or "")
        inherited = [fit(structure.space, parent.best.candidate.config)] if parent and parent.best else []
        seen = structure.seen
        chosen: list[dict[str, int]] = []
        for config in chain(inherited, self._asked(structure, seed)):
            if len(chosen) == count:
                break
            if structure.key(config) not in seen:
                seen.add(structure.key(config))
                chosen.append(config)
        return chosen

    def _asked(self, structure: Structure, seed: int) -> Iterator[dict[str, int]]:
        study = self._study(structure, seed)
        known = structure.seen
        for _ in range(ATTEMPTS):
            trial = study.ask(_distributions(structure.space))
            config = {tunable.name: tunable.choices[trial.params[tunable.name]] for tunable in structure.space.tunables}
            if structure.key(config) in known:
                # Told as it is known, so that the sampler moves on instead of asking for it again.
                study.tell(trial, state=TrialState.PRUNED)
                continue
            known.add(structure.key(config))
            yield config
        yield from _unseen(structure, known, seed)

    def _study(self, structure: Structure, seed: int) -> optuna.Study:
        study = optuna.create_study(direction="maximize", sampler=_sampler(self._config.sampler, seed))
        study.add_trials(_frozen(structure))
        return study

    def export(self) -> Iterator[str]:
        """Every study as the lines of an Optuna journal file, readable by optuna-dashboard."""
        file = StudyFile()
        for key, structure in self.structures.items():
            if structure.space.tunables:
                study = optuna.create_study(study_name=key[:12], storage=file.storage, direction="maximize")
                study.set_user_attr("structure", key)
                study.add_trials(_frozen(structure))
        return file.lines()


def fit(space: TunableSpace, wish: Mapping[str, int]) -> dict[str, int]:
    """A config of `space` that keeps what it can of `wish`; everything else stays at its default."""
    return {
        tunable.name: wish[tunable.name] if wish.get(tunable.name) in tunable.choices else tunable.default
        for tunable in space.tunables
    }


def _unseen(structure: Structure, known: set[tuple[int, ...]], seed: int) -> Iterator[dict[str, int]]:
    """Unseen configs in a random order, for a sampler that keeps coming back to what is known."""
    tunables = structure.space.tunables
    rng = np.random.default_rng(seed)
    sizes = [len(tunable.choices) for tunable in tunables]
    for index in rng.permutation(min(structure.size, LARGEST_ENUMERATED)):
        place = np.unravel_index(int(index), sizes) if sizes else ()
        config = {tunable.name: tunable.choices[int(at)] for tunable, at in zip(tunables, place, strict=True)}
        if structure.key(config) not in known:
            known.add(structure.key(config))
            yield config


def _distributions(space: TunableSpace) -> dict[str, BaseDistribution]:
    # Indices into the ordered choices: samplers then know that 128 lies between 64 and 256.
    return {tunable.name: IntDistribution(0, len(tunable.choices) - 1) for tunable in space.tunables}


def _frozen(structure: Structure) -> list[FrozenTrial]:
    """A structure's trials as Optuna's, in order."""
    frozen: list[FrozenTrial] = []
    confirmed: list[float] = []
    for trial in structure.trials:
        fitted = fit(structure.space, trial.config)
        pruned = trial.value is None or _prunes(trial, confirmed)
        if trial.value is not None and trial.confirmed:
            confirmed.append(trial.value)
        steps = {SCREEN: trial.screened, CONFIRM: trial.value if trial.confirmed else None}
        frozen.append(
            create_trial(
                # Optuna ignores FAIL trials but ranks PRUNED ones below every completed one, which is what a config
                # that failed deserves.
                state=TrialState.PRUNED if pruned else TrialState.COMPLETE,
                value=None if pruned else trial.value,
                params={
                    tunable.name: tunable.choices.index(fitted[tunable.name]) for tunable in structure.space.tunables
                },
                distributions=_distributions(structure.space),
                user_attrs={"config": dict(fitted)},
                intermediate_values={step: value for step, value in steps.items() if value is not None},
                constraints={"builds": trial.infeasible},
            )
        )
    return frozen


def _prunes(trial: Trial, confirmed: list[float]) -> bool:
    """Whether a config ended at the screen tier below the median of the structure's confirmed ones."""
    return not trial.confirmed and bool(confirmed) and (trial.value or 0.0) < median(confirmed)


def _sampler(name: str, seed: int) -> BaseSampler:
    match name:
        case "tpe":
            return TPESampler(seed=seed, n_startup_trials=4, multivariate=True, constant_liar=True)
        case "random":
            return RandomSampler(seed=seed)
        case "cmaes":
            return CmaEsSampler(seed=seed, n_startup_trials=4)
        case "gp":
            return GPSampler(seed=seed, n_startup_trials=4, deterministic_objective=True)
        case "grid":
            return BruteForceSampler(seed=seed)
    raise AssertionError(name)
