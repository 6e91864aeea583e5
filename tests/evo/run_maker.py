"""Run folders written event by event, for runs that no campaign of ours would make."""

from __future__ import annotations

from pathlib import Path

from evaluator.source_hash import ast_hash, structure_hash
from evaluator.types import EvalStatus, Evaluation, Frozen, KernelSource, LaunchProfile, Profile, StageRecord, Timing
from evo import events
from evo.candidate import Candidate, Record
from evo.config import CampaignConfig
from evo.journal import Journal
from evo.run import Run
from evo.run_dir import RunDir
from policy.types import Message, RewriteStep

STAGES = ("static", "compile", "smoke", "model")


def passed(source: str, speedup: float = 1.0, **profile) -> Evaluation:
    """A correct candidate with one workload whose baseline takes 1 ms."""
    launch = {
        "kernel": "k",
        "grid": (8, 1, 1),
        "occupancy": 0.5,
        "waves": 1.0,
        "latency_ms": 1 / speedup,
        "dram_bytes": 1e9,
        "l2_bytes": 1e9,
        "flops": 1e9,
        "terms": {"dram": 1 / speedup, "issue": 0.1},
        "bound": "dram",
    }
    shown = LaunchProfile(**{**launch, **profile})
    return Evaluation(
        source_sha=KernelSource(text=source).sha,
        task="softmax",
        evaluator="cpu",
        status=EvalStatus.PASSED,
        stages=tuple(StageRecord(name=name, status=EvalStatus.PASSED, seconds=0.1) for name in STAGES),
        timings={"w": Timing(kind="modelled", median_ms=1 / speedup, baseline_ms=1.0)},
        profile=Profile(kind="modelled", target="h200", launches={"w": (shown,)}, bottleneck="dram"),
        checks_passed=7,
        checks_total=7,
        target="h200",
    )


def failed(source: str, status: EvalStatus, stage: str, reason: str = "") -> Evaluation:
    """A candidate that ended in `stage`."""
    names = STAGES[: STAGES.index(stage) + 1]
    verdicts = [*[EvalStatus.PASSED] * (len(names) - 1), status]
    return Evaluation(
        source_sha=KernelSource(text=source).sha,
        task="softmax",
        evaluator="cpu",
        status=status,
        reason=reason,
        stages=tuple(StageRecord(name=n, status=v, seconds=0.1) for n, v in zip(names, verdicts, strict=True)),
    )


class RunMaker:
    """Adds candidates one by one; the folder holds a readable run after every step."""

    def __init__(
        self, path: Path, task: str = "softmax", split: str = "train", policy: object = None, **evaluator: str
    ) -> None:
        self.dir = RunDir(path)
        self.dir.create()
        config = CampaignConfig.model_validate(
            {
                "task": task,
                "budget": {"evaluations": 9},
                "evaluator": {"type": "cpu", **evaluator},
                "policy": policy or {"type": "rule"},
            }
        )
        self.dir.write_atomically(self.dir.config_resolved, config.model_dump_json())
        self._journal = Journal(self.dir.journal)
        self._records: dict[str, Record] = {}
        started = events.Started(
            kernevo_version="0.1.0",
            name=path.name,
            task=task,
            task_fingerprint="",
            split=split,
            seed=5,
            config_fingerprint="",
        )
        self._journal.append(events.STARTED, started.model_dump(mode="json"))

    def add(self, source: str, evaluation: Evaluation, parent: str | None = None, **changes) -> str:
        """One judged candidate; returns its id."""
        number = len(self._records)
        kept = KernelSource(text=source)
        self.dir.store([kept])
        history = self._records[parent].candidate.rewrites if parent else ()
        if parent and "rewrites" not in changes:
            changes["rewrites"] = (*history, RewriteStep(name="grow", args={"step": number}))
        given = {
            "id": f"c{number:06d}",
            "generation": number,
            "parent_ids": (parent,) if parent else (),
            "operator": "rewrite" if parent else "seed",
            "source_sha": kept.sha,
            "ast_hash": ast_hash(source),
            "structure": structure_hash(source),
        }
        candidate = Candidate(**{**given, **changes})
        self._records[candidate.id] = Record(candidate=candidate, evaluation=evaluation)
        batch = events.Batch(generation=number, candidates=(candidate,))
        self._journal.append(events.BATCH, batch.model_dump(mode="json"))
        judged = {"candidate": candidate.id, "evaluation": evaluation.model_dump(mode="json")}
        self._journal.append(events.EVALUATED, judged)
        return candidate.id

    def end_generation(self, archive: dict[str, str] | None = None) -> None:
        """Close a generation with an archive of cells."""
        best = max(self._records.values(), key=lambda record: record.speedup or 0.0, default=None)
        end = events.GenerationEnd(
            generation=0,
            evaluations=len(self._records),
            population=(),
            archive=archive or {},
            best=best.id if best else None,
            best_speedup=best.speedup if best else None,
            stream=0,
            seconds=1.5,
        )
        self._journal.append(events.GENERATION, end.model_dump(mode="json"))

    def say(self, kind: str, event: Frozen) -> None:
        """Any other line of the journal."""
        self._journal.append(kind, event.model_dump(mode="json"))

    def load(self) -> Run:
        """The run as readers see it."""
        return Run.load(self.dir.path)


def prompt(text: str) -> tuple[Message, ...]:
    """A prompt of one message."""
    return (Message(role="user", content=text),)
