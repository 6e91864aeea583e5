"""The cluster as the ray backend sees it: connecting, where actors can be, and which GPU model a run uses."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

from evaluator.errors import EnvironmentUnusableError, UsageError

logger = logging.getLogger(__name__)

GPU, CPU = "GPU", "CPU"
"""Ray's names of what an actor takes one of."""


KNOCK_S = 10.0


class Place(NamedTuple):
    """One GPU's or CPU's worth of a node."""

    node: str
    """Ray's id."""
    host: str


def require_ray() -> None:
    """Raises `UsageError` where the package is missing."""
    if find_spec("ray") is None:
        raise UsageError(
            "backend ray needs the package ray, which is not installed",
            "pip install 'kernevo[ray]', or set backend.type to local",
        )


def connect(address: str | None) -> bool:
    """Join the cluster at `address` (None: RAY_ADDRESS, or a Ray of our own); whether `close` should leave it again.

    A connection that this process has already is used as it is. Raises `EnvironmentUnusableError` when no cluster
    answers.
    """
    require_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray._private import worker
    from ray.exceptions import RayError

    # Ray prints what its daemons say on stdout, where our own answers go, and has no public switch for it.
    setattr(worker, "_worker_logs_enabled", False)  # noqa: B010  (mypy knows nothing of ray)
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    target = address or os.environ.get("RAY_ADDRESS")
    if target in (None, "", "local"):
        options["include_dashboard"] = False
    try:
        _knock(target or "")
        with _own_signals():
            ray.init(address=address, **options)
    except (OSError, ValueError, RuntimeError, RayError) as error:
        where = f"Ray cluster at {target}" if target else "Ray on this machine"
        why = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise EnvironmentUnusableError(
            f"no {where}: {why}",
            "start it with `ray start --head`, correct backend.address, or set RAY_AUTH_MODE=token if it wants tokens",
        ) from error
    return True


def _knock(address: str) -> None:
    """Raises `OSError` where nobody listens at `host:port`: Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=KNOCK_S).close()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray's start takes SIGTERM over, which asks a campaign to drain."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def places(resource: str, most: int | None) -> list[Place]:
    """Where actors that take one `resource` can be, node by node in turn, `most` at most.

    Raises `EnvironmentUnusableError` when no node has any.
    """
    import ray

    nodes = sorted(
        (str(node["NodeManagerHostname"]), str(node["NodeID"]), int(node["Resources"].get(resource, 0)))
        for node in ray.nodes()
        if node["Alive"]
    )
    rounds = range(max((count for _, _, count in nodes), default=0))
    found = [Place(node, host) for index in rounds for host, node, count in nodes if index < count]
    if not found:
        raise EnvironmentUnusableError(
            f"none of the {len(nodes)} nodes of the Ray cluster has a {resource}",
            "start Ray with GPUs (`ray status` shows them), or set evaluator.type to cpu",
        )
    return found[:most]


def one_model(found: Iterable[str], wanted: str | None) -> str:
    """The GPU model that a run uses, of those found. Raises `EnvironmentUnusableError` where that is not one.

    `wanted` is a model's name or a part of it, in any case.
    """
    models = sorted(set(found))
    counted = ", ".join(models) or "none"
    if wanted is None:
        matching = models
        what = f"the Ray cluster has GPUs of several models: {counted}"
    else:
        exact = [name for name in models if name.lower() == wanted.lower()]
        matching = exact or [name for name in models if wanted.lower() in name.lower()]
        what = f"backend.gpu {wanted!r} means {len(matching)} of the cluster's GPU models: {counted}"
    if len(matching) != 1:
        raise EnvironmentUnusableError(what, "name one of them with backend.gpu: latencies of two models do not mix")
    return matching[0]
