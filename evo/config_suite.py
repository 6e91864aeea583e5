"""Many problems under one budget."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from evo.config_section import Section


class SuiteConfig(Section):
    """In place of `task`: one campaign for each problem, one after the other; `budget` is that of each."""

    tasks: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False, min_length=1)]
    """Tasks, or whole suites such as `kernelbench:PATH`, in the order in which they are done."""
    levels: Annotated[tuple[PositiveInt, ...], Field(strict=False)] = ()
    """Only these levels of KernelBench; all when left out."""
    numbers: Literal["all", "even", "odd"] = "all"
    """Only KernelBench problems with such a number."""
    most: PositiveInt | None = None
    """At most this many problems, spread evenly over those that there are."""
    seconds: PositiveFloat | None = None
    """Wall-clock seconds for all problems, those of earlier sessions included; a problem that was begun is finished."""
    first_kernels: str | None = None
    """Folder with first kernels for problems without one: `level1_24.py` for `kernelbench:PATH/level1/24`; `inductor`:
    torch.compile's for all of them."""
