"""Writes the journal of a campaign that never ran: as long as asked, for timing a resume.

Every structure has twelve configs, every candidate a verdict with a profile, and the search folds all of it as a
campaign would; only nobody thinks of candidates, and no kernel is stored.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from evaluator.task import load_task
from evaluator.types import Evaluation, KernelSource
from evo import beginning, events
from evo.asking import Asking
from evo.candidate import Candidate
from evo.config import CampaignConfig
from evo.journal import Journal
from evo.run_dir import RunDir
from evo.scheduler import Scheduler
from evo.streams import Streams
from tests.evo.fakes import SEED, FakePolicy, passed

CONFIGS = 12
OFFSPRING = 8


def write(path: Path, config: CampaignConfig, lines: int) -> None:
    """A run at `path` whose journal has at least `lines` lines."""
    run_dir, task = RunDir(path), load_task(config.task)
    run_dir.create()
    beginning.write_config(config, run_dir, None)
    search = Scheduler(config.search, task, Asking(FakePolicy()), Streams(config.seed), lambda sha: SEED)
    journal = Journal(run_dir.journal)
    written = journal.append(events.STARTED, beginning.started(config, run_dir, task).model_dump(mode="json")).seq
    while written < lines - 1:
        batch = events.Batch(generation=search.generation, candidates=_candidates(search))
        journal.append(events.BATCH, batch.model_dump(mode="json"), wait=False)
        search.begin(batch)
        for candidate in batch.candidates:
            judged = search.news(candidate.id, _evaluation(int(candidate.id[1:])))
            journal.append(events.EVALUATED, judged.model_dump(mode="json"), wait=False)
            search.tell(judged)
        end = search.end_generation(0.0).model_dump(mode="json")
        written = journal.append(events.GENERATION, end, wait=False).seq
    journal.close()


def _candidates(search: Scheduler) -> tuple[Candidate, ...]:
    if search.generation == 0:
        return (_candidate(0, 0, ()),)
    members = search.islands.members
    first = len(search.judged)
    return tuple(
        _candidate(number, search.generation, (members[number % len(members)].record.id,))
        for number in range(first, first + OFFSPRING)
    )


def _candidate(number: int, generation: int, parents: tuple[str, ...]) -> Candidate:
    return Candidate(
        id=f"c{number:06d}",
        generation=generation,
        parent_ids=parents,
        operator="tune" if number % CONFIGS else "rewrite",
        source_sha=_hash("source", number),
        ast_hash=_hash("program", number),
        structure=_hash("structure", number // CONFIGS),
        config={"copy_kernel.BLOCK_SIZE": 2 ** (6 + number % CONFIGS)},
    )


def _evaluation(number: int) -> Evaluation:
    # Slowly faster, with steps back, so that survivors and owners change all along.
    return passed(KernelSource(text=SEED), 1.0 / (1.0 + number / 1e4 + number % 7 / 10), 1.0)


def _hash(kind: str, number: int) -> str:
    return hashlib.sha256(f"{kind} {number}".encode()).hexdigest()
