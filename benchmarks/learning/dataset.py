"""Turns and prompts of the proof, made of measured rows by the product's own prompts, rewards and turns."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.learning.pairs import applicable, children, pairs
from benchmarks.learning.records import Measured, RecordedEvaluator
from evaluator.types import Evaluation, EvaluationJob, Task
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
    """For each pair the turns that judged every child once, as if a run had made them.

    A parent of which not all children were measured is left out with a word on stderr: an answer that nobody knows the
    worth of would count against whoever gives it.
    """
    return [_source(evaluator, rows) for evaluator in judging]


def _source(evaluator: RecordedEvaluator, rows: Sequence[Measured]) -> Source:
    pair = evaluator.task
    own = [row for row in rows if row.task == pair.name.split("@")[0]]
    by_sha = {row.source.sha: row for row in own}
    jobs = [EvaluationJob(job_id=row.source.sha, source=row.source) for row in own]
    judged = {job.job_id: found for job, found in evaluator.evaluate(jobs)}
    families: dict[str, list[Measured]] = defaultdict(list)
    for row in own:
        families[row.parent if row.step is not None else ""].append(row)
    made = [_child(row, judged) for row in families.pop("", [])]
    for sha, family in families.items():
        parent = by_sha.get(sha)
        if parent is None or not _whole(pair, parent, judged):
            print(f"{pair.name}: a parent is left out, not all of its children were measured", file=sys.stderr)
            continue
        messages = structured_prompt(_request(pair, parent, judged[sha]), applicable(pair, parent.source.text))
        asked = {"messages": messages, "parent_source": parent.source.text, "parent_speedup": judged[sha].speedup}
        made += [_child(row, judged, **asked) for row in family]
    turns = turns_of(made, RunMeta(run=pair.name, task=pair.name))
    return Source(run=pair.name, turns=tuple(turns), reward="shaped")


def _child(row: Measured, judged: Mapping[str, Evaluation], **asked: Any) -> JudgedChild:
    """A row as a campaign's child; with `asked` as the answer to a prompt."""
    if asked:
        assert row.step is not None
        asked |= {"parent_ids": (row.parent,), "answer": structured_answer([row.step])}
        asked |= {"sampling": {"form": "structured"}}
    return JudgedChild(
        candidate_id=row.source.sha,
        generation=1 if asked else 0,
        operator="rewrite",
        source=row.source.text,
        evaluation=judged[row.source.sha],
        **asked,
    )


def _whole(pair: Task, parent: Measured, judged: Mapping[str, Evaluation]) -> bool:
    found = [judged.get(child.sha) for _, child in children(pair, parent.source.text)]
    return all(one is not None and not one.status.blames_harness for one in found)


def _request(pair: Task, parent: Measured, found: Evaluation) -> ProposalRequest:
    view = ParentView(candidate_id=parent.source.sha, source=parent.source, evaluation=found)
    return ProposalRequest(request_id="proof", task=pair, parents=(view,), operator="rewrite", seed=0)
