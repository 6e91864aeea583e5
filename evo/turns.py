"""From a run's records to the turns that learning stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import UsageError
from evaluator.types import Evaluation, KernelSource
from evo import events, journal
from evo.candidate import Candidate, Record
from evo.run import Run, existing, read_config, read_environment
from evo.run_dir import RunDir
from policy.reward import RewardSettings
from policy.trajectory import JudgedChild, RunMeta, encode, turns_of
from policy.types import Turn


class _Parent(NamedTuple):
    """What a child's turn says of its parent."""

    source_sha: str
    speedup: float | None


def turns_of_run(run: Run) -> list[Turn]:
    """Every turn of a run with its reward, in the order of birth, computed from the journal."""
    return list(stream_turns(run.path))


def stream_turns(path: Path) -> Iterator[Turn]:
    """Every turn of the run in a folder, one by one: of earlier generations only a few words are kept in memory.

    Raises UsageError when the folder holds no run, JournalError when its journal is damaged.
    """
    run_dir = existing(path)
    return _turns(run_dir, _children(run_dir))


def turn_of(run: Run, candidate_id: str) -> Turn | None:
    """One candidate's turn with its reward; None without a prompt, and where our own harness failed on it."""
    wanted = run.record(candidate_id)
    family = {record.id for record in run.lineage(candidate_id)}
    program = wanted.candidate.ast_hash
    # Its ancestors say which lineage it is of, an earlier one with the same program that it repeats it.
    told = [record for record in run.records() if record.id in family or record.candidate.ast_hash == program]
    turns = _turns(run.dir, (_told(run, record) for record in told))
    return next((turn for turn in turns if turn.candidate_id == candidate_id), None)


def write_trajectories(run: Run) -> None:
    """Write `trajectories.jsonl` anew: it is derived, and a reward that was configured differently shows at once."""
    lines = (encode(turn).decode() for turn in stream_turns(run.path))
    run.dir.write_parts_atomically(run.path / "trajectories.jsonl", lines)


def _turns(run_dir: RunDir, children: Iterator[JudgedChild]) -> Iterator[Turn]:
    environment, config, started = read_environment(run_dir), read_config(run_dir), started_of(run_dir)
    own = {name: str(environment[name]) for name in ("kernevo", "python") if name in environment}
    meta = RunMeta(
        run=run_dir.path.resolve().name,
        task=started.task,
        split=started.split,
        seeds={"search": config.seed, "evaluator": config.evaluator.seed},
        versions={**own, **environment.get("packages", {})},
    )
    return turns_of(children, meta, RewardSettings.model_validate(config.reward.model_dump()))


def started_of(run_dir: RunDir) -> events.Started:
    """The first line of a run's journal."""
    for event in journal.stream(run_dir.journal):
        return journal.parsed(events.Started, event.data, run_dir.journal, event.seq)
    raise UsageError(f"{run_dir.journal}: empty", "start the run again under another name")


def _children(run_dir: RunDir) -> Iterator[JudgedChild]:
    """The judged candidates of a journal, read line by line."""
    waiting: dict[str, Candidate] = {}
    parents: dict[str, _Parent] = {}
    for event in journal.stream(run_dir.journal):
        if event.kind == events.BATCH:
            batch = journal.parsed(events.Batch, event.data, run_dir.journal, event.seq)
            waiting |= {candidate.id: candidate for candidate in batch.candidates}
        elif event.kind == events.EVALUATED:
            judged = journal.parsed(events.Evaluated, event.data, run_dir.journal, event.seq)
            candidate = waiting.pop(judged.candidate)
            parent = parents[candidate.parent_ids[0]] if candidate.parent_ids else None
            parents[candidate.id] = _Parent(candidate.source_sha, judged.evaluation.speedup)
            yield _child(candidate, judged.evaluation, parent, run_dir.source)


def _told(run: Run, record: Record) -> JudgedChild:
    parent = run.record(record.candidate.parent_ids[0]) if record.candidate.parent_ids else None
    known = _Parent(parent.candidate.source_sha, parent.speedup) if parent else None
    return _child(record.candidate, record.evaluation, known, run.source)


def _child(
    candidate: Candidate, evaluation: Evaluation, parent: _Parent | None, source: Callable[[str], KernelSource]
) -> JudgedChild:
    return JudgedChild(
        candidate_id=candidate.id,
        parent_ids=candidate.parent_ids,
        generation=candidate.generation,
        operator=candidate.operator,
        island=candidate.island,
        source=source(candidate.source_sha).text,
        program=candidate.ast_hash,
        parent_source=source(parent.source_sha).text if parent else "",
        messages=candidate.messages,
        answer=candidate.answer,
        evaluation=evaluation,
        parent_speedup=parent.speedup if parent else None,
        sampling=candidate.sampling,
        policy=candidate.policy,
        policy_version=candidate.policy_version,
    )
