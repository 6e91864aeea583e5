"""Settings of what one run takes from others."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from evo.config_section import Section


class SeedsConfig(Section):
    """Kernels of other runs in the first generation, beside the task's own seed and judged like it."""

    library: Annotated[str, Field(min_length=1)]
    """File of a library (`kernevo library add`) whose kernels of this task are taken."""
    top: Annotated[int, Field(ge=1, le=1000)] = 4
    """Structures taken at most: those judged on the same task and hardware first, then the fastest."""
