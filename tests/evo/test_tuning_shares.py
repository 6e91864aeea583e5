"""Which structures a batch tunes."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from evaluator.source_hash import ast_hash, structure_hash
from evaluator.tunables import apply, extract
from evaluator.types import EvalStatus, KernelSource
from evo.candidate import Candidate, Record
from evo.config_search import TuningConfig
from evo.tuning import EXPLORATION, Tuner
from tests.evo.fakes import SEED, failed, passed

TRIALS = 5


def record(number: int, variant: int, config: dict[str, int], speedup: float | None) -> tuple[Record, str]:
    text = apply(SEED.replace("VARIANT = (0,)", f"VARIANT = ({variant},)"), config)
    source = KernelSource(text=text)
    candidate = Candidate(
        id=f"c{number:06d}",
        generation=0,
        parent_ids=(),
        operator="tune",
        source_sha=source.sha,
        ast_hash=ast_hash(text),
        structure=structure_hash(text),
        config=config,
        rewrites=(),
    )
    judged = failed(source, EvalStatus.COMPILE_ERROR, "no") if speedup is None else passed(source, 1.0, speedup)
    return Record(candidate=candidate, evaluation=judged), text


def by_the_book(tuner: Tuner, count: int) -> Counter[str]:
    """UCB1, one trial after the other, over every structure."""
    given: Counter[str] = Counter()
    total = sum(len(structure.trials) for structure in tuner.structures.values()) + 1
    for _ in range(count):
        best = None
        for key, structure in tuner.structures.items():
            if not tuner.is_open(key) or len(structure.trials) - 1 + given[key] >= TRIALS:
                continue
            tried = len(structure.trials) + given[key]
            known = max(trial.value for trial in structure.trials if trial.value is not None)
            worth = known + EXPLORATION * math.sqrt(2 * math.log(total) / tried)
            if best is None or worth > best[0]:
                best = (worth, key)
        if best is None:
            break
        given[best[1]] += 1
    return +given


SPACE = extract(SEED)
CONFIGS = st.fixed_dictionaries({tunable.name: st.sampled_from(tunable.choices) for tunable in SPACE.tunables})
JUDGED = st.tuples(st.integers(1, 6), CONFIGS, st.none() | st.sampled_from([0.5, 1.0, 1.5, 2.0]))


@given(st.lists(JUDGED, max_size=40), st.integers(0, 12))
def test_trials_go_where_ucb1_sends_them(judged, count):
    texts: dict[str, str] = {}
    tuner = Tuner(TuningConfig(trials=TRIALS), texts.__getitem__)
    for number, (variant, config, speedup) in enumerate(judged):
        told, text = record(number, variant, config, speedup)
        texts[told.candidate.source_sha] = text
        tuner.tell(told, None)
    shares = tuner.shares(count)
    assert shares == by_the_book(tuner, count)
    assert list(shares) == list(by_the_book(tuner, count))
