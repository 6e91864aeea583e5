"""Tune: the same structure with other values of its tunables, chosen by Optuna."""

from __future__ import annotations

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
        for number, (structure, trials) in enumerate(view.tuner.shares(count).items()):
            drafts += self._trials(view, structure, trials, view.streams.seed("tune", generation, number))
        return drafts[:count]

    def _trials(self, view: SearchView, structure: str, count: int, seed: int) -> Iterator[Draft]:
        known = view.tuner.structures[structure]
        best = known.best
        assert best is not None  # shares() only names structures that passed
        # One more than asked: a config can spell a program that was judged under another name.
        for config in view.tuner.suggest(structure, count + 1, seed):
            source = apply(known.base_source, config)
            if view.gate.new_program(source) is not None and count > 0:
                count -= 1
                yield Draft(
                    KernelSource(text=source),
                    self.name,
                    (best,),
                    structure,
                    config,
                    island=best.candidate.island,
                    arm=self.name,
                )
