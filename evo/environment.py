"""What machine and which versions a run's numbers come from."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from evaluator.types import Frozen
from evaluator.version import __version__

PACKAGES = ("torch", "triton", "numpy", "deap", "optuna", "pydantic", "libcst")


class EnvironmentFacts(Frozen):
    """Recorded once per run and shown in every report."""

    kernevo: str
    python: str
    platform: str
    processor: str
    cores: int
    packages: dict[str, str]
    target: str
    """GPU that latencies are for."""


def facts(target: str) -> EnvironmentFacts:
    """Versions and hardware of this process. Imports none of the packages it names."""
    return EnvironmentFacts(
        kernevo=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        processor=platform.processor() or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        packages={name: _version(name) for name in PACKAGES},
        target=target,
    )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
