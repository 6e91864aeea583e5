"""Settings of where candidates are judged."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from evo.config_section import Section


class LocalBackendConfig(Section):
    """Everything on this machine."""

    type: Literal["local"] = "local"
    """Where evaluators run."""


class RayBackendConfig(Section):
    """A Ray cluster, one actor for each GPU (each CPU for the cpu evaluator); needs `pip install 'kernevo[ray]'`."""

    type: Literal["ray"]
    """Where evaluators run."""
    address: str | None = None
    """The cluster's head as `host:port`, or `auto` for the one of this machine. When left out: RAY_ADDRESS, and where
    that is not set a Ray of the campaign's own on this machine."""
    gpu: Annotated[str, Field(min_length=1)] | None = None
    """GPU model to judge on, or a part of its name, e.g. `H200`; needed where the cluster has several models."""
    wait_s: PositiveFloat = 120.0
    """Seconds for actors to come up; GPUs that are not free by then are not used."""


BackendConfig = Annotated[LocalBackendConfig | RayBackendConfig, Field(discriminator="type")]
