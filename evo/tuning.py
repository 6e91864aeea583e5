"""Optuna tunes the tunables of one structure.

A `Tuner` holds what is known of each structure: its base source, its space, and every judged config. For each
question a fresh in-memory study is filled with those trials and asked, so nothing but the journal needs saving and
the answer depends only on the trials and a seed drawn from the campaign's named streams.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, islice
from statistics import median

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler, BruteForceSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from evaluator.tunables import TunableSpace, extract
from evaluator.types import EvalStatus, Evaluation
from evo.candidate import Ancestor, Record
from evo.config_search import TuningConfig
from evo.study_file import StudyFile

ATTEMPTS = 24
"""Questions to a sampler before an unseen config is picked from the space instead."""

LARGEST_ENUMERATED = 100_000
"""Spaces beyond this are enumerated in part only, when a sampler finds nothing new in them."""

EXPLORATION = 0.15
"""Weight of the upper-confidence term that decides which structure is tuned next, in units of log speedup."""


HOT = 64
"""Structures whose trials are kept as Optuna's, the ones asked for last."""

SCREEN, CONFIRM = 0, 1
"""Steps of a trial: intermediate values are log speedups of these tiers."""

INFEASIBLE = {EvalStatus.RESOURCE_LIMIT: 1.0, EvalStatus.COMPILE_ERROR: 2.0}
"""Verdicts on the config that are constraints to Optuna, with how far each is from what would do (0 and less does)."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One judged config of a structure."""

    config: Mapping[str, int]
    value: float | None
    """Log speedup; None where the config failed."""
    infeasible: float = 0.0
    """Above 0: the config cannot be built, however fast it would be."""
    screened: float | None = None
    """Log speedup of the screen tier, where there was one."""
    confirmed: bool = True
    """Whether nothing thorougher was left out."""


def trial_of(config: Mapping[str, int], evaluation: Evaluation) -> Trial:
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


class Spaces:
    """The tunables of structures, read from their sources. Most structures have the same, which is kept once."""

    def __init__(self, read: Callable[[str], str]) -> None:
        self.read = read
        self._known: dict[tuple[tuple[str, int, tuple[int, ...]], ...], TunableSpace] = {}

    def of(self, source_sha: str) -> TunableSpace:
        """Of a stored source; lines may be another's."""
        found = extract(self.read(source_sha))
        key = tuple((tunable.name, tunable.default, tunable.choices) for tunable in found.tunables)
        return self._known.setdefault(key, found)


@dataclass(slots=True)
class Structure:
    """What the tuner knows of one structure. A campaign has thousands: what can be read again is not kept."""

    place: int
    """In the order of birth."""
    source_sha: str
    """Of its first candidate."""
    spaces: Spaces
    trials: list[Trial] = field(default_factory=list)
    """In the order they were judged."""
    best: Ancestor | None = None
    score: float | None = None
    """Best log speedup so far."""
    parent: str | None = None
    """The structure this one was rewritten from."""
    _space: TunableSpace | None = None

    def add(self, record: Record, trial: Trial) -> None:
        """One more judged config."""
        self.trials.append(trial)
        if trial.value is not None and (self.score is None or trial.value > self.score):
            self.best, self.score = record.ancestor, trial.value

    @property
    def base_source(self) -> str:
        """The source of its first candidate."""
        return self.spaces.read(self.source_sha)

    @property
    def space(self) -> TunableSpace:
        """Its tunables, read from the source when first needed: a resume needs few."""
        if self._space is None:
            self._space = self.spaces.of(self.source_sha)
        return self._space

    @property
    def seen(self) -> set[tuple[int, ...]]:
        """Configs already judged, as value tuples in the order of the space."""
        space = self.space
        return {key_of(space, trial.config) for trial in self.trials}

    @property
    def size(self) -> int:
        """Number of configs in the space."""
        return math.prod(len(tunable.choices) for tunable in self.space.tunables)


def key_of(space: TunableSpace, config: Mapping[str, int]) -> tuple[int, ...]:
    """A config as a hashable tuple; names that the space lacks do not count."""
    return tuple(config.get(tunable.name, tunable.default) for tunable in space.tunables)


_Entry = tuple[float, int, str]
"""Negative score, place and key of a structure."""


class Tuner:
    """The structures of a campaign and which config to try next on each."""

    def __init__(self, config: TuningConfig, read: Callable[[str], str]) -> None:
        """`read` gives the text of a stored source."""
        self._config = config
        self._spaces = Spaces(read)
        self.structures: dict[str, Structure] = {}
        # Number of trials -> open structures with that many, the most promising first.
        self._open: dict[int, list[_Entry]] = {}
        self._listed: dict[str, tuple[int, _Entry]] = {}
        self._unlisted: set[str] = set()
        self._judged = 0
        self._frozen: dict[str, list[FrozenTrial]] = {}
        # Optuna logs every trial at INFO; the campaign's monitors say what matters.
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def tell(self, record: Record, parent: str | None) -> None:
        """Learn one judged config. The first record of a structure defines its base source, space and parent."""
        key = record.candidate.structure
        if key not in self.structures:
            sha = record.candidate.source_sha
            self.structures[key] = Structure(len(self.structures), sha, self._spaces, parent=parent)
        self.structures[key].add(record, trial_of(record.candidate.config, record.evaluation))
        self._judged += 1
        self._unlisted.add(key)

    def _list(self, key: str) -> None:
        """Put a structure where `shares` finds it, or take it away."""
        structure = self.structures[key]
        if (known := self._listed.pop(key, None)) is not None:
            row = self._open[known[0]]
            del row[bisect_left(row, known[1])]
        if self.is_open(key):
            entry = (-(structure.score or 0.0), structure.place, key)
            insort(self._open.setdefault(len(structure.trials), []), entry)
            self._listed[key] = (len(structure.trials), entry)

    def is_open(self, key: str) -> bool:
        """Whether a structure may get another trial: it passed once, has configs left and trials left."""
        structure = self.structures[key]
        tried = len(structure.trials) - 1
        return structure.best is not None and tried < self._config.trials and tried < structure.size - 1

    def shares(self, count: int) -> Counter[str]:
        """How many of `count` trials each open structure gets, the one most worth a trial first.

        Worth is the best so far plus a bonus for few trials (UCB1), counting trials that were just given out. Ties go
        to the older structure. Less than `count` in all when every structure's trials are used up.
        """
        while self._unlisted:
            self._list(self._unlisted.pop())
        given: Counter[str] = Counter()
        rows = {tried: iter(row) for tried, row in self._open.items()}
        queue: list[_Entry] = []
        # Of structures with as many trials only the best needs a look: a campaign has thousands of them.
        for row in rows.values():
            self._next(row, queue)
        while queue and given.total() < count:
            _, _, key = heappop(queue)
            structure = self.structures[key]
            if not given[key]:
                self._next(rows[len(structure.trials)], queue)
            given[key] += 1
            if len(structure.trials) - 1 + given[key] < self._config.trials:
                heappush(queue, self._entry(key, given[key]))
        return given

    def _next(self, row: Iterator[_Entry], queue: list[_Entry]) -> None:
        for _, _, key in islice(row, 1):
            heappush(queue, self._entry(key, 0))

    def _entry(self, key: str, pending: int) -> _Entry:
        structure = self.structures[key]
        return -self._priority(structure, self._judged + 1, pending), structure.place, key

    def _priority(self, structure: Structure, total: int, pending: int) -> float:
        trials = len(structure.trials) + pending
        return (structure.score or 0.0) + EXPLORATION * math.sqrt(2 * math.log(total) / max(1, trials))

    def suggest(self, key: str, seed: int) -> Iterator[dict[str, int]]:
        """Unseen configs for a structure, the most promising first, until its space runs out.

        Warm start: the best config its parent has by now comes first, fitted to this structure's choices. Each config
        is asked for when it is taken: a sampler takes milliseconds to think of one.
        """
        structure = self.structures[key]
        parent = self.structures.get(structure.parent or "")
        space = structure.space
        inherited = [fit(space, parent.best.config)] if parent and parent.best else []
        seen = structure.seen
        for config in chain(inherited, self._asked(key, seed)):
            if key_of(space, config) not in seen:
                seen.add(key_of(space, config))
                yield config

    def _asked(self, key: str, seed: int) -> Iterator[dict[str, int]]:
        structure, study = self.structures[key], self._study(key, seed)
        space, known = structure.space, structure.seen
        for _ in range(ATTEMPTS):
            trial = study.ask(_distributions(space))
            config = {tunable.name: tunable.choices[trial.params[tunable.name]] for tunable in space.tunables}
            if key_of(space, config) in known:
                # Told as it is known, so that the sampler moves on instead of asking for it again.
                study.tell(trial, state=TrialState.PRUNED)
                continue
            known.add(key_of(space, config))
            yield config
        yield from _unseen(structure, known, seed)

    def _study(self, key: str, seed: int) -> optuna.Study:
        study = optuna.create_study(direction="maximize", sampler=_sampler(self._config.sampler, seed))
        frozen = self._frozen[key] = _frozen(self.structures[key], self._frozen.pop(key, []))
        if len(self._frozen) > HOT:
            del self._frozen[next(iter(self._frozen))]
        study.add_trials(frozen)
        return study

    def export(self) -> Iterator[str]:
        """Every study as the lines of an Optuna journal file, readable by optuna-dashboard."""
        file = StudyFile()
        for key, structure in self.structures.items():
            if structure.space.tunables:
                study = optuna.create_study(study_name=key[:12], storage=file.storage, direction="maximize")
                study.set_user_attr("structure", key)
                study.add_trials(_frozen(structure, []))
        return file.lines()


def fit(space: TunableSpace, wish: Mapping[str, int]) -> dict[str, int]:
    """A config of `space` that keeps what it can of `wish`; everything else stays at its default."""
    return {
        tunable.name: wish[tunable.name] if wish.get(tunable.name) in tunable.choices else tunable.default
        for tunable in space.tunables
    }


def _unseen(structure: Structure, known: set[tuple[int, ...]], seed: int) -> Iterator[dict[str, int]]:
    """Unseen configs in a random order, for a sampler that keeps coming back to what is known."""
    space = structure.space
    tunables = space.tunables
    rng = np.random.default_rng(seed)
    sizes = [len(tunable.choices) for tunable in tunables]
    for index in rng.permutation(min(structure.size, LARGEST_ENUMERATED)):
        place = np.unravel_index(int(index), sizes) if sizes else ()
        config = {tunable.name: tunable.choices[int(at)] for tunable, at in zip(tunables, place, strict=True)}
        if key_of(space, config) not in known:
            known.add(key_of(space, config))
            yield config


def _distributions(space: TunableSpace) -> dict[str, BaseDistribution]:
    # Indices into the ordered choices: samplers then know that 128 lies between 64 and 256.
    return {tunable.name: IntDistribution(0, len(tunable.choices) - 1) for tunable in space.tunables}


def _frozen(structure: Structure, made: list[FrozenTrial]) -> list[FrozenTrial]:
    """A structure's trials as Optuna's, in order; the first of them are `made` already."""
    space, done = structure.space, len(made)
    confirmed = [trial.value for trial in structure.trials[:done] if trial.value is not None and trial.confirmed]
    for trial in structure.trials[done:]:
        fitted = fit(space, trial.config)
        pruned = trial.value is None or _prunes(trial, confirmed)
        if trial.value is not None and trial.confirmed:
            confirmed.append(trial.value)
        made.append(_frozen_trial(space, trial, fitted, pruned))
    return made


def _frozen_trial(space: TunableSpace, trial: Trial, fitted: Mapping[str, int], pruned: bool) -> FrozenTrial:
    steps = {SCREEN: trial.screened, CONFIRM: trial.value if trial.confirmed else None}
    return create_trial(
        # Optuna ignores FAIL trials but ranks PRUNED ones below every completed one, which is what a config that
        # failed deserves.
        state=TrialState.PRUNED if pruned else TrialState.COMPLETE,
        value=None if pruned else trial.value,
        params={tunable.name: tunable.choices.index(fitted[tunable.name]) for tunable in space.tunables},
        distributions=_distributions(space),
        user_attrs={"config": dict(fitted)},
        intermediate_values={step: value for step, value in steps.items() if value is not None},
        constraints={"builds": trial.infeasible},
    )


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
