"""The campaign: the loop, on one screen.

restore from the journal, or seed
while no stopper fires:
    batch = scheduler.ask(n)                     # choose parents, run operators, gate novelty
    scheduler.ask_ahead()                        # a language model thinks while this batch is judged
    for candidate, evaluation in evaluator.evaluate(batch):
        journal.append(candidate, evaluation)    # before anything else
        scheduler.tell(candidate, evaluation)    # archive, population, Optuna
    trajectories and monitors hear of it
    every N generations: train on the run, swap the better adapter in      # where `learning` asks for it
time the best again, in turn                  # where latencies are measured
harvest; report
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from evaluator.errors import KernevoError, TaskError, UsageError
from evaluator.protocol import Evaluator, Retimer
from evaluator.task import load_task
from evaluator.types import EvaluationJob, Task
from evo import beginning, build, events, finish
from evo.asking import Asking, Span, WaitInterruptedError
from evo.budget import Progress, batch_size, reason_to_stop, roofline_share
from evo.candidate import Record
from evo.config import CampaignConfig
from evo.finalists import Finals
from evo.interrupt import Interrupt
from evo.journal import Line
from evo.learning import Learner
from evo.monitors import Monitors
from evo.operators import shown
from evo.past import Past, no_collection
from evo.prior import Prior
from evo.run import Run, read_config
from evo.run_dir import RunDir
from evo.scheduler import Plan, Scheduler
from evo.seeds import library_drafts
from evo.spending import Spending
from evo.steps import Generation, step_of
from evo.streams import Streams
from policy.policy import Policy
from policy.summary import summary_of

INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class CampaignResult:
    """What a session achieved."""

    run: Run
    best: Record | None
    stopped: str
    """The stopper that fired, `exhausted`, `seed_failed` or `interrupted`."""

    @property
    def interrupted(self) -> bool:
        """Whether the run can be resumed to do more of its budget."""
        return self.stopped == INTERRUPTED


class Campaign:
    """One run from its first candidate to its report.

    Use as `Campaign.from_yaml("quickstart.yaml").run()` or `Campaign.resume("runs/quickstart").run()`. An
    evaluator or policy given here replaces the configured one (its owner closes it).
    """

    def __init__(
        self,
        config: CampaignConfig,
        path: str | Path | None = None,
        *,
        evaluator: Evaluator | None = None,
        policy: Policy | None = None,
        config_text: str | None = None,
    ) -> None:
        self.config = config
        self.dir = RunDir(Path(path) if path is not None else Path(config.runs_dir) / (config.name or config.task))
        self.task: Task = build.with_first_kernel(config, load_task(config.task))
        if self.task.seed_source is None:
            raise TaskError(f"{self.task.origin}: task {self.task.name} has no seed kernel", "add a seed.py to it")
        self.interrupt = Interrupt()
        self._config_text = config_text
        self._given = (evaluator, policy)
        self._past: Past | None = None
        self._seconds_before = 0.0
        self._last_gain = 0
        self._spending = Spending()
        self._finals = Finals(config.finalists)

    @classmethod
    def from_yaml(cls, path: str | Path, overrides: Sequence[str] = (), name: str | None = None) -> Self:
        """A new campaign from a config file and `a.b=c` overrides. Raises UsageError with file:line:column."""
        from evo.config_file import load_config, read_text

        config = load_config(path, overrides)
        folder = name or config.name or Path(path).stem
        return cls(config, Path(config.runs_dir) / folder, config_text=read_text(path))

    @classmethod
    def resume(cls, path: str | Path, *, evaluator: Evaluator | None = None, policy: Policy | None = None) -> Self:
        """Continue a run exactly where its journal ends. Raises UsageError when there is nothing to continue."""
        run_dir = RunDir(Path(path))
        if not run_dir.config_resolved.is_file():
            raise UsageError(f"{path}: holds no run to resume", "kernevo status lists the runs there are")
        campaign = cls(read_config(run_dir), path, evaluator=evaluator, policy=policy)
        past = campaign._past = Past.of(run_dir.journal)
        if past.started is not None and past.started.task_fingerprint != campaign.task.fingerprint:
            raise UsageError(
                f"{path}: task {campaign.task.name} was changed since this run started",
                "put the task back, or start a new run",
            )
        return campaign

    def run(self) -> CampaignResult:
        """Search until a stopper fires or Ctrl-C; everything judged is on the disk before it is used."""
        if self._past is None:
            self.dir.create()
        self.dir.lock()
        try:
            with self.interrupt:
                return self._session()
        finally:
            self.dir.unlock()

    def _session(self) -> CampaignResult:
        self._clock = time.monotonic()
        if self._past is None:
            beginning.write_config(self.config, self.dir, self._config_text)
        self._journal = (self._past or Past(self.dir.journal)).open()
        policy = self._policy = self._given[1] or build.make_policy(beginning.with_own_playbook(self.config, self.dir))
        evaluator = self._given[0] or build.make_evaluator(self.config, self.task)
        prior = build.make_prior(self.config, self.task)
        self._build_search(policy, prior)
        self._monitors = Monitors([])
        try:
            self._restore()
            self._monitors = Monitors(build.make_monitors(self.config, self.dir, len(self._scheduler.judged)))
            stopped = self._search(evaluator)
            if stopped != INTERRUPTED and not self._play_finals(evaluator):
                stopped = INTERRUPTED
            self._note_spent()
            self._note_session("end", stopped)
        finally:
            self._scheduler.drop_ahead()
            self._tell_of_policy(policy)
            if prior is not None:
                prior.close()
            if self._given[0] is None:
                evaluator.close()
            if self._given[1] is None:
                policy.close()
            self._journal.close()
        run = Run.load(self.dir.path)
        finish.write_derived(run, self._scheduler.tuner)
        self._monitors.close()
        return CampaignResult(run, next(iter(run.elites(1)), None), stopped)

    def _build_search(self, policy: Policy, prior: Prior | None) -> None:
        search = self.config.search
        self._asking = Asking(
            policy, ahead=search.prefetch, interrupted=self._asked_to_stop, clock=lambda: self._seconds
        )
        self._learner = Learner(self.config, self.dir.path, policy)
        read = lambda sha: self.dir.source(sha).text  # noqa: E731
        self._scheduler = Scheduler(search, self.task, self._asking, Streams(self.config.seed), read, prior)
        self._scheduler.more_seeds = partial(library_drafts, self.config, self.task)
        self._scheduler.bandit.expect(build.operators_before(beginning.with_own_playbook(self.config, self.dir)))

    def _tell_of_policy(self, policy: Policy) -> None:
        """What a policy that keeps count asked, however the session ends."""
        summary = summary_of(policy)
        if summary:
            self._monitors.policy(summary)

    def _search(self, evaluator: Evaluator) -> str:
        while True:
            if not self._scheduler.in_generation:
                self._remeasure(evaluator)
                if (reason := self._reason_to_stop()) is not None:
                    return reason
                if not self._learn():
                    return INTERRUPTED
                self._scheduler.ask_ahead()  # a resumed run has not asked yet
                try:
                    plan = self._scheduler.ask(self._batch_size(self._scheduler.generation))
                except WaitInterruptedError:
                    return INTERRUPTED
                self._note_spent()
                if not plan.batch.candidates:
                    return "exhausted"
                self._record(plan)
            self._scheduler.ask_ahead()
            began = self._seconds
            for record in self._judge(evaluator):
                self._monitors.candidate(record)
            if self._scheduler.pending:
                return INTERRUPTED
            self._end_generation((began, self._seconds))

    def _play_finals(self, evaluator: Evaluator) -> bool:
        """Time the best again where the evaluator measures, once in a run; False when interrupted."""
        retimer = self._finals.due(self._scheduler.best, evaluator)
        if retimer is None:
            return True
        records = Run.load(self.dir.path).records()
        if not self._finals.play(records, retimer, self.dir.source, self._note_retimed, self._asked_to_stop):
            return False
        result = self._finals.result(records, self._seconds)
        self._journal.append(events.FINALISTS, result.model_dump(mode="json"))
        self._finals.over = True
        self._monitors.finalists(result)
        return True

    def _note_retimed(self, retimed: events.Retimed) -> None:
        self._journal.append(events.RETIMED, retimed.model_dump(mode="json"))
        self._spending.judged(retimed.evaluation)

    def _remeasure(self, evaluator: Evaluator) -> None:
        """Measure again who is due where the evaluator measures; Ctrl-C leaves the rest to the next session."""
        open_ = self._scheduler.remeasuring.open
        if not open_ or not isinstance(evaluator, Retimer):
            return
        jobs = (
            EvaluationJob(job_id=record.id, source=self.dir.source(record.candidate.source_sha))
            for record in list(open_)
            if not self.interrupt.requested
        )
        for job, evaluation in evaluator.retime(jobs):
            event = events.Remeasured(candidate=job.job_id, evaluation=evaluation)
            self._journal.append(events.REMEASURED, event.model_dump(mode="json"))
            self._spending.judged(evaluation)
            self._scheduler.remeasured(event)

    def _asked_to_stop(self) -> bool:
        return self.interrupt.requested

    def _learn(self) -> bool:
        """Train the policy where that is due; False when the training was interrupted."""
        generation = self._scheduler.generation
        if not self._learner.due(generation):
            return True
        learned = self._learner.learn(generation, lambda: self._seconds)
        if learned is not None:
            self._journal.append(events.LEARNED, learned.model_dump(mode="json"))
        return learned is not None

    def _record(self, plan: Plan) -> None:
        self.dir.store(plan.sources)
        self._journal.append(events.BATCH, plan.batch.model_dump(mode="json"))
        self._scheduler.begin(plan.batch)
        self._look_ahead()

    def _judge(self, evaluator: Evaluator) -> Iterator[Record]:
        for job, evaluation in evaluator.evaluate(self._jobs()):
            judged = self._scheduler.news(job.job_id, evaluation)
            self._journal.append(events.EVALUATED, judged.model_dump(mode="json"), wait=False)
            self._spending.judged(evaluation)
            yield self._scheduler.tell(judged)

    def _jobs(self) -> Iterator[EvaluationJob]:
        # Lazily, so that an interrupt lets what is in flight finish and starts nothing more.
        for candidate in self._scheduler.pending:
            if self.interrupt.requested:
                return
            yield EvaluationJob(job_id=candidate.id, source=self.dir.source(candidate.source_sha))

    def _end_generation(self, judged: Span) -> None:
        scheduler = self._scheduler
        batch = scheduler.batch
        before = scheduler.best_before_batch
        summary = scheduler.end_generation(self._seconds)
        if summary.best != before:
            self._last_gain = scheduler.generation
        self._journal.append(events.GENERATION, summary.model_dump(mode="json"))
        self._note_spent()
        self._tell_policy(batch)
        known = Generation(summary, batch, self._asking.take_asked(), judged, self.config.budget.evaluations)
        self._monitors.step(step_of(self._scheduler, known))

    def _tell_policy(self, batch: Sequence[Record]) -> None:
        if self._asking.hears:
            self._asking.tell(self.task, [shown(self._scheduler.source, record) for record in batch])

    def _reason_to_stop(self) -> str | None:
        scheduler = self._scheduler
        if self.interrupt.requested:
            return INTERRUPTED
        if scheduler.generation > 0 and scheduler.best is None:
            return "seed_failed"
        progress = Progress(
            evaluations=len(scheduler.judged),
            generations=scheduler.generation,
            seconds=self._seconds,
            best_speedup=scheduler.best.speedup if scheduler.best else None,
            generations_without_gain=scheduler.generation - self._last_gain,
            gpu_seconds=self._spending.gpu_seconds,
            tokens=self._spending.tokens,
            dollars=self._spending.dollars,
            roofline_share=roofline_share(scheduler.best.evaluation) if scheduler.best else None,
        )
        return reason_to_stop(self.config.budget, progress)

    def _batch_size(self, generation: int) -> int:
        """Candidates of this generation or the next; 0 behind the end of the budget."""
        known = len(self._scheduler.judged) + len(self._scheduler.pending)
        return batch_size(self.config.budget, self.config.search.offspring, generation, known)

    def _look_ahead(self) -> None:
        if not self._spending.all_spent(self.config.budget):  # else the run ends with this batch
            self._scheduler.look_ahead(self._batch_size(self._scheduler.generation + 1))

    @property
    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._clock

    def _restore(self) -> None:
        """Replay the journal; the first line of a new one says what run this is."""
        past = self._past
        if past is None or past.started is None:
            started = beginning.started(self.config, self.dir, self.task)
            self._journal.append(events.STARTED, started.model_dump(mode="json"))
        else:
            with no_collection():
                for line in past.lines():
                    self._replay(line, past.path)
                    if line.seq == past.last_batch:
                        self._look_ahead()  # at earlier batches the answers are in the journal
        self._note_session("begin")

    def _replay(self, line: Line, path: Path) -> None:
        event = events.parsed(line, path)
        match event:
            case events.Evaluated():
                self._spending.judged(event.evaluation)
                self._scheduler.tell(event)
                return  # most lines are verdicts, and they say nothing of the run's seconds
            case events.Batch():
                self._scheduler.begin(event)
            case events.Remeasured():
                self._spending.judged(event.evaluation)
                self._scheduler.remeasured(event)
            case events.Retimed():
                self._spending.judged(event.evaluation)
                self._finals.add(event)
            case events.Finalists():
                self._finals.over = True
            case events.Spent():
                self._spending.add(event)
            case events.Learned():
                self._learner.apply(event)
            case events.GenerationEnd():
                self._replay_generation(event, line.seq)
        self._seconds_before = max(self._seconds_before, getattr(event, "seconds", 0.0))

    def _replay_generation(self, recorded: events.GenerationEnd, seq: int) -> None:
        scheduler = self._scheduler
        before = scheduler.best_before_batch
        batch = scheduler.batch
        again = scheduler.end_generation(recorded.seconds)
        if again != recorded:
            raise KernevoError(
                f"{self.dir.journal}:{seq + 1}: replaying generation {recorded.generation} gives another "
                "state than was recorded",
                "resume with the Kernevo version that started the run (environment.json names it)",
            )
        if again.best != before:
            self._last_gain = scheduler.generation
        self._tell_policy(batch)

    def _note_spent(self) -> None:
        """Journal what the policy cost since the last line, so that the budget knows it after a resume too."""
        spent = self._spending.news(summary_of(self._policy), self._seconds)
        if spent is not None:
            self._journal.append(events.SPENT, spent.model_dump(mode="json"))
            self._spending.add(spent)

    def _note_session(self, event: str, reason: str = "") -> None:
        data = events.Session.model_validate({"event": event, "reason": reason, "seconds": self._seconds})
        self._journal.append(events.SESSION, data.model_dump(mode="json"))
