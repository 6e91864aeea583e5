"""From a run's records to the turns that learning stores."""

from __future__ import annotations

from evo.candidate import Record
from evo.run import Run
from policy.reward import RewardSettings
from policy.trajectory import JudgedChild, RunMeta, encode, turns_of
from policy.types import Turn


def turns_of_run(run: Run) -> list[Turn]:
    """Every turn of a run with its reward, in the order of birth, computed from the journal."""
    return _turns(run, run.records())


def turn_of(run: Run, candidate_id: str) -> Turn | None:
    """One candidate's turn with its reward; None without a prompt, and where our own harness failed on it."""
    wanted = run.record(candidate_id)
    family = {record.id for record in run.lineage(candidate_id)}
    program = wanted.candidate.ast_hash
    # Its ancestors say which lineage it is of, an earlier one with the same program that it repeats it.
    told = [record for record in run.records() if record.id in family or record.candidate.ast_hash == program]
    return next((turn for turn in _turns(run, told) if turn.candidate_id == candidate_id), None)


def _turns(run: Run, records: list[Record]) -> list[Turn]:
    meta = RunMeta(
        run=run.name,
        task=run.started.task,
        seeds={"search": run.config.seed, "evaluator": run.config.evaluator.seed},
        versions=dict(run.environment.get("packages", {})),
    )
    settings = RewardSettings.model_validate(run.config.reward.model_dump())
    return turns_of((_child(run, record) for record in records), meta, settings)


def write_trajectories(run: Run) -> None:
    """Write `trajectories.jsonl` anew: it is derived, and a reward that was configured differently shows at once."""
    text = b"".join(encode(turn) for turn in turns_of_run(run)).decode()
    run.dir.write_atomically(run.path / "trajectories.jsonl", text)


def _child(run: Run, record: Record) -> JudgedChild:
    candidate = record.candidate
    parent = run.record(candidate.parent_ids[0]) if candidate.parent_ids else None
    return JudgedChild(
        candidate_id=candidate.id,
        parent_ids=candidate.parent_ids,
        generation=candidate.generation,
        operator=candidate.operator,
        source=run.source(candidate.source_sha).text,
        parent_source=run.source(parent.candidate.source_sha).text if parent else "",
        messages=candidate.messages,
        answer=candidate.answer,
        evaluation=record.evaluation,
        parent_evaluation=parent.evaluation if parent else None,
        sampling=candidate.sampling,
        policy=candidate.policy,
        policy_version=candidate.policy_version,
    )
