"""Learning inside of a campaign: train on what the run found, keep the better adapter, go on with it.

A training is a process of its own (`kernevo finetune` on the run's folder), so that it can be killed, resumed and frees
its memory. What came of it is journalled; a resumed run swaps the same adapter in again and trains nothing twice.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evaluator.errors import KernevoError, UsageError
from evo.config import AnyPolicyConfig, CampaignConfig
from evo.config_learning import LearningConfig
from evo.events import Learned
from policy.policy import Policy

LOG = logging.getLogger("kernevo.learning")

ADAPTERS = "adapters"
"""Folder of the run with an adapter for each training."""


def run_training(command: Sequence[str]) -> int:
    """`kernevo` with these arguments in a process of its own; its exit code. Its steps are lines on our stderr."""
    done = subprocess.run([sys.executable, "-m", "evo.cli.main", *command], stdout=subprocess.DEVNULL, check=False)
    return done.returncode


class Learner:
    """Knows when to learn, has it done, and gives the policy what was learned."""

    def __init__(
        self, config: CampaignConfig, run: Path, policy: Policy, train: Callable[[Sequence[str]], int] | None = None
    ) -> None:
        """Raises UsageError when the config asks for learning and no policy can change its adapter."""
        self._config = config.learning
        self._run = run
        self._train = train or run_training
        self._policy = adaptable(policy) if self._config is not None else None
        self._adapter = first_adapter(config.policies) if self._config is not None else None
        self._learned: set[int] = set()

    def due(self, generation: int) -> bool:
        """Whether to learn before this generation begins."""
        config = self._config
        return (
            config is not None and generation > 0 and generation % config.every == 0 and generation not in self._learned
        )

    def learn(self, generation: int, seconds: Callable[[], float]) -> Learned | None:
        """Train, and swap the adapter in unless its probe is worse; None when the training was interrupted.

        `seconds` is the run's clock. A training that fails changes nothing and says why on stderr.
        """
        assert self._config is not None
        name = f"g{generation:04d}"
        begun = time.monotonic()
        code = self._train(command(self._config, self._run, name, self._adapter, generation))
        if code in (130, -2):
            return None
        found = {"generation": generation, "adapter": name, "exit_code": code, "took_s": time.monotonic() - begun}
        if code == 0:
            found |= judged(self._run / ADAPTERS / name)
        learned = Learned.model_validate({**found, "seconds": seconds()})
        try:
            self.apply(learned)
        except KernevoError as error:
            LOG.warning("adapter %s is dropped: %s", name, error.message)
            return learned.model_copy(update={"kept": False})
        return learned

    def apply(self, learned: Learned) -> None:
        """Make what was learned the policy's: right after a training, and on resume.

        Raises KernevoError for an adapter that the policy cannot use, which leaves the one before in use.
        """
        self._learned.add(learned.generation)
        if not learned.kept:
            return
        folder = self._run.resolve() / ADAPTERS / learned.adapter
        assert self._policy is not None
        self._policy.use_adapter(f"{self._run.resolve().name}-{learned.adapter}", str(folder))
        self._adapter = str(folder)


def command(config: LearningConfig, run: Path, name: str, adapter: str | None, generation: int) -> list[str]:
    """Arguments of `kernevo` for one training; each has a seed of its own."""
    options = config.model_dump(exclude={"every", "allow_modelled", "seed"})
    words = ["finetune", str(run), "--out", str(run / ADAPTERS / name), "--resume", "--json"]
    for key, value in options.items():
        words += [f"--{key.replace('_', '-')}", str(value)]
    words += ["--seed", str(config.seed + generation)]
    words += ["--allow-modelled"] if config.allow_modelled else []
    return [*words, "--adapter", adapter] if adapter is not None else words


def judged(folder: Path) -> dict[str, Any]:
    """What an adapter's manifest says of it; it is kept unless its probe fell."""
    from policy.training import manifest

    made = manifest.read(folder)
    if made is None:
        return {"exit_code": 1}
    probe = made.probe
    if probe is None:
        return {"version": made.version, "kept": True}
    kept = probe.after >= probe.before
    return {"version": made.version, "kept": kept, "before": probe.before, "after": probe.after}


def adaptable(policy: Policy) -> Any:
    """The policy, or the member of an ensemble, that can change its adapter. Raises UsageError unless it is one."""
    members = getattr(policy, "members", (policy,))
    found = [member for member in members if hasattr(member, "use_adapter")]
    if len(found) != 1:
        raise UsageError(
            f"learning: {len(found)} policies of the campaign can change their adapter, not one",
            "use one policy of `type: openai` with vLLM's server, or one in this process",
        )
    return found[0]


def first_adapter(policies: Sequence[AnyPolicyConfig]) -> str | None:
    """The adapter that the campaign begins with, as a folder."""
    for policy in policies:
        found = getattr(policy, "adapter_path", None) or (
            None if policy.type == "openai" else getattr(policy, "adapter", None)
        )
        if found is not None:
            return str(found)
    return None
