"""Turns and prompts of the proof, made of measured rows by the product's own prompts, rewards and turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.learning.pairs import applicable, pairs
from benchmarks.learning.records import Measured, RecordedEvaluator
from evaluator.types import EvaluationJob, Task
from policy.prompts import structured_prompt
from policy.rule_policy import structured_answer
from policy.training.data import Source
from policy.trajectory import JudgedChild, RunMeta, turns_of
from policy.types import ParentView, ProposalRequest


def evaluators(names: Sequence[str], rows: Sequence[Measured]) -> dict[str, RecordedEvaluator]:
    """One for each (task, shape) pair of the named tasks that was measured."""
    known: dict[str, list[Measured]] = defaultdict(list)
    for row in rows:
        known[row.task].append(row)
    found = {}
    for pair in pairs(names):
        task = pair.name.split("@")[0]
        if known[task]:
            found[pair.name] = RecordedEvaluator(pair, known[task])
    return found


def sources(judging: Iterable[RecordedEvaluator], rows: Sequence[Measured]) -> list[Source]:
    """For each pair the turns that judged every child once, as if a run had made them."""
    return [_source(evaluator, rows) for evaluator in judging]


def _source(evaluator: RecordedEvaluator, rows: Sequence[Measured]) -> Source:
    pair = evaluator.task
    own = [row for row in rows if row.task == pair.name.split("@")[0]]
    by_sha = {row.source.sha: row for row in own}
    judged = {
        job.job_id: found
        for job, found in evaluator.evaluate(EvaluationJob(job_id=row.source.sha, source=row.source) for row in own)
    }
    children = []
    for row in own:
        parent = by_sha.get(row.parent)
        asked = (
            {}
            if parent is None or row.step is None
            else {
                "parent_ids": (row.parent,),
                "parent_source": parent.source.text,
                "messages": structured_prompt(_request(pair, parent, evaluator), applicable(pair, parent.source.text)),
                "answer": structured_answer([row.step]),
                "parent_speedup": judged[row.parent].speedup,
                "sampling": {"form": "structured"},
            }
        )
        child = JudgedChild(
            candidate_id=row.source.sha,
            generation=0 if parent is None else 1,
            operator="rewrite",
            source=row.source.text,
            evaluation=judged[row.source.sha],
            **asked,
        )
        children.append(child)
    turns = turns_of(children, RunMeta(run=pair.name, task=pair.name))
    return Source(run=pair.name, turns=tuple(turns), reward="shaped")


def _request(pair: Task, parent: Measured, evaluator: RecordedEvaluator) -> ProposalRequest:
    ((_, found),) = evaluator.evaluate([EvaluationJob(job_id="parent", source=parent.source)])
    view = ParentView(candidate_id=parent.source.sha, source=parent.source, evaluation=found)
    return ProposalRequest(request_id="proof", task=pair, parents=(view,), operator="rewrite", seed=0)
