"""What a run writes before its first candidate: its settings, its machine, and the journal's first line."""

from __future__ import annotations

import hashlib

from evaluator.types import Task
from evaluator.version import __version__
from evo import environment
from evo.config import CampaignConfig
from evo.events import Started
from evo.playbook import GIVEN, Playbook
from evo.run_dir import RunDir


def started(config: CampaignConfig, run_dir: RunDir, task: Task) -> Started:
    """The journal's first line: what run this is."""
    return Started(
        kernevo_version=__version__,
        name=run_dir.path.name,
        task=task.name,
        task_fingerprint=task.fingerprint,
        split="held_out" if "held_out" in (config.split, task.split) else "train",
        seed=config.seed,
        config_fingerprint=hashlib.sha256(config.model_dump_json().encode()).hexdigest(),
    )


def write_config(config: CampaignConfig, run_dir: RunDir, text: str | None) -> None:
    """Keep the settings (`text` is the user's own file), the playbook and the facts of this machine."""
    if config.search.playbook is not None:
        book = Playbook.load(config.search.playbook)
        run_dir.write_atomically(run_dir.path / GIVEN, book.model_dump_json(indent=2))
    resolved = config.model_dump_json(indent=2)
    run_dir.write_atomically(run_dir.config_yaml, text or resolved)
    run_dir.write_atomically(run_dir.config_resolved, resolved)
    facts = environment.facts(config.evaluator.target)
    run_dir.write_atomically(run_dir.environment, facts.model_dump_json(indent=2))


def with_own_playbook(config: CampaignConfig, run_dir: RunDir) -> CampaignConfig:
    """The settings with the run's own copy of its playbook, which does not change between sessions."""
    own = run_dir.path / GIVEN
    if config.search.playbook is None or not own.is_file():
        return config
    search = config.search.model_copy(update={"playbook": str(own)})
    return config.model_copy(update={"search": search})
