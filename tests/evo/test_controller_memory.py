"""What the search keeps of the judged: verdicts of those who can have children, a few words of all others."""

from __future__ import annotations

import gc
import weakref

from evaluator.types import Evaluation
from evo.campaign import Campaign
from evo.scheduler import ATTEMPTS
from tests.evo import fakes
from tests.evo.driver import config


class WatchedEvaluator(fakes.FakeEvaluator):
    """Notes which of its verdicts somebody still holds when the last one is given."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self._last = last
        self._given: list[weakref.ref[Evaluation]] = []
        self.alive = -1

    def _judge(self, source):
        evaluation = super()._judge(source)
        self._given.append(weakref.ref(evaluation))
        if len(self._given) == self._last:
            gc.collect()
            self.alive = sum(one() is not None for one in self._given)
        return evaluation


def test_verdicts_are_held_of_parents_and_the_children_that_are_shown_with_them_alone(tmp_path):
    evaluator = WatchedEvaluator(400)
    running = Campaign(config(400), tmp_path / "run", evaluator=evaluator, policy=fakes.FakePolicy())
    running.task = fakes.task()
    running.run()
    search = running._scheduler
    parents = len(search.islands.members) + len(search.archive)
    bound = parents * (1 + ATTEMPTS) + len(search.pareto) + len(search.failures) + config().search.offspring
    assert bound < len(search.judged) == 400
    assert 0 < evaluator.alive <= bound


def test_a_structure_that_left_the_population_is_still_tuned_with_its_parents_history(tmp_path):
    running = Campaign(config(60), tmp_path / "run", evaluator=fakes.FakeEvaluator(), policy=fakes.FakePolicy())
    running.task = fakes.task()
    run = running.run().run
    for record in run.records():
        if record.candidate.operator == "tune":
            parent = run.record(record.candidate.parent_ids[0])
            assert record.candidate.structure == parent.candidate.structure
            assert record.candidate.rewrites == parent.candidate.rewrites
