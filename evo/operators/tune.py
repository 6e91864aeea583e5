"""Tune: the same structure with other values of its tunables, chosen by Optuna."""

from __future__ import annotations

from itertools import islice

from evaluator.tunables import apply
from evaluator.types import KernelSource
from evo.operators.base import Draft, SearchView
from evo.prior import Prior, preferred


class TuneOperator:
    """Spends a batch's tuning share on the structures most worth it."""

    name = "tune"

    def __init__(self, prior: Prior | None = None, pool: int = 1) -> None:
        """With a `prior`, `pool` configs are drawn for each place and it says which of them are measured."""
        self._prior = prior
        self._pool = pool if prior is not None else 1

    def propose(self, view: SearchView, generation: int, count: int) -> list[Draft]:
        """Up to `count` drafts; fewer when every structure's trials or configs are used up."""
        drafts: list[Draft] = []
        for number, (structure, trials) in enumerate(view.tuner.shares(count).items()):
            drafts += self._trials(view, structure, trials, view.streams.seed("tune", generation, number))
        return drafts[:count]

    def _trials(self, view: SearchView, structure: str, count: int, seed: int) -> list[Draft]:
        known = view.tuner.structures[structure]
        best = known.best
        assert best is not None  # shares() only names structures that passed
        wanted = count if self._prior is None else count * self._pool + 1
        drafts: list[Draft] = []
        # One more than asked: a config can spell a program that was judged under another name.
        for config in islice(view.tuner.suggest(structure, seed), count * self._pool + 1):
            if len(drafts) == wanted:
                break
            source = apply(known.base_source, config)
            if view.gate.new_program(source) is not None:
                drafts.append(
                    Draft(
                        KernelSource(text=source),
                        self.name,
                        (best,),
                        structure,
                        config,
                        island=best.island,
                        arm=self.name,
                    )
                )
        if self._prior is None or len(drafts) <= count:
            return drafts[:count]
        expected = self._prior.latencies([draft.source for draft in drafts])
        return [drafts[index] for index in preferred(expected, count, seed)]
