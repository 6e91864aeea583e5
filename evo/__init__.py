"""The search, the campaign and the user's surface. Importing it loads neither torch nor triton."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evaluator.version import __version__

if TYPE_CHECKING:
    from evo.campaign import Campaign, CampaignResult
    from evo.run import Run

__all__ = ["Campaign", "CampaignResult", "Run", "__version__"]

_HOMES = {"Campaign": "evo.campaign", "CampaignResult": "evo.campaign", "Run": "evo.run"}


def __getattr__(name: str) -> Any:
    """Import the module of a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
