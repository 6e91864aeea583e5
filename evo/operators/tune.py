"""Tune: the same structure with other values of its tunables, chosen by Optuna."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from evaluator.tunables import apply
from evaluator.types import KernelSource
from evo.operators.base import Draft, SearchView


class TuneOperator:
    """Spends a batch's tuning share on the structures most worth it."""

    name = "tune"

    def propose(self, view: SearchView, generation: int, count: int) -> list[Draft]:
        """Up to `count` drafts; fewer when every structure's trials or configs are used up."""
        drafts: list[Draft] = []
        for number, (structure, trials) in enumerate(self._shares(view, count).items()):
            drafts += self._trials(view, structure, trials, view.streams.seed("tune", generation, number))
        return drafts[:count]

    def _shares(self, view: SearchView, count: int) -> Counter[str]:
        pending: Counter[str] = Counter()
        for _ in range(count):
            ranked = view.tuner.ranked(pending)
            if not ranked:
                break
            pending[ranked[0]] += 1
        return pending

    def _trials(self, view: SearchView, structure: str, count: int, seed: int) -> Iterator[Draft]:
        known = view.tuner.structures[structure]
        best = known.best
        assert best is not None  # ranked() only returns structures that passed
        # One more than asked: a config can spell a program that was judged under another name.
        for config in view.tuner.suggest(structure, count + 1, seed):
            source = apply(known.base_source, config)
            if view.gate.new_program(source) is not None and count > 0:
                count -= 1
                yield Draft(KernelSource(text=source), self.name, (best,), structure, config)
