"""Seeds from the library: a campaign starts from what other runs found for its task.

They are drafts of the first generation like the task's own seed: judged anew, and recorded in the journal with their
source. Once that is done, a resumed run needs the library no more. Kernels of held-out runs seed held-out runs only.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from evaluator.source_hash import ast_hash, structure_hash
from evaluator.tunables import extract
from evaluator.types import KernelSource, Task
from evo.config import CampaignConfig
from evo.library import Found, of_task
from evo.library_file import LibraryWarning
from evo.operators import Draft
from policy.types import Proposal

OPERATOR = "library"


def library_drafts(config: CampaignConfig, task: Task) -> list[Draft]:
    """The kernels that `seeds` asks for, none of them the task's own seed. Raises UsageError without a library."""
    if config.seeds is None:
        return []
    path = Path(config.seeds.library)
    held_out = "held_out" in (config.split, task.split)
    known = [found for found in of_task(path, task.name) if held_out or found.kernel.split == "train"]
    chosen = _best_of_each_structure(_ranked(known, config, task), task)[: config.seeds.top]
    if not chosen:
        message = f"{path}: no other kernel of task {task.name}; the run starts from the task's seed alone"
        warnings.warn(message, LibraryWarning, stacklevel=2)
    return [_draft(found) for found in chosen]


def _ranked(kernels: Iterable[Found], config: CampaignConfig, task: Task) -> list[Found]:
    """Those first whose speedup says most about this campaign."""
    kind = "measured" if config.evaluator.type == "gpu" else "modelled"

    def rank(found: Found) -> tuple[bool, bool, float]:
        kernel = found.kernel
        alike = kernel.kind == kind and config.evaluator.target.lower() in kernel.target.lower()
        return kernel.task_fingerprint == task.fingerprint, alike, kernel.speedup or 0.0

    return sorted(kernels, key=rank, reverse=True)


def _best_of_each_structure(ranked: Iterable[Found], task: Task) -> list[Found]:
    own = ast_hash(task.seed_source) if task.seed_source is not None else None
    best: dict[str, Found] = {}
    for found in ranked:
        if found.kernel.ast_hash != own:
            best.setdefault(found.kernel.structure, found)
    return list(best.values())


def _draft(found: Found) -> Draft:
    kernel, source = found.kernel, KernelSource(text=found.source)
    proposal = Proposal(
        source=source,
        operator=OPERATOR,
        explanation=f"kernel {kernel.id} of the library: candidate {kernel.candidate} of {kernel.run}",
        policy=OPERATOR,
    )
    return Draft(source, OPERATOR, (), structure_hash(source.text), extract(source.text).defaults, proposal)
