"""The GPUs or CPUs of a Ray cluster behind one evaluator: one actor each, with worker processes of its own inside.

Ray is imported by the first `evaluate`, never by importing this module.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from evaluator.backends.cpu import CpuEvaluator
from evaluator.backends.gpu import GpuEvaluator
from evaluator.backends.local import LocalEvaluator
from evaluator.backends.ray_actor import About, Fault, Judge, Make, Register, installed, make_evaluator
from evaluator.backends.ray_cluster import CPU, GPU, Place, connect, one_model, places, require_ray
from evaluator.backends.ray_slots import Slots
from evaluator.errors import EnvironmentUnusableError
from evaluator.types import EvalStatus, Evaluation, EvaluationJob, KernelSource, Task
from evaluator.version import __version__

logger = logging.getLogger(__name__)

IN_FLIGHT = {GPU: 2, CPU: 1}
"""Jobs of one actor at most: on a GPU one is compiled while another is timed."""
STOP_S = 20.0
"""Seconds that an actor has for removing its files before it is killed."""
WAIT_S = 120.0


class RayEvaluator(LocalEvaluator):
    """One actor for each GPU or CPU of a Ray cluster; see `evaluator.protocol.Evaluator` for the contract.

    `settings` are those of the cpu or gpu evaluator with its `type`; `backend` has `address`, `gpu` and `wait_s`
    (evo.config has their meaning and defaults). `workers` bounds the actors on CPUs; a GPU has one actor with two
    candidates at once. Every actor prepares itself as the evaluators do on one machine: each GPU times a baseline of
    its own. A job whose actor or node is lost is `WORKER_LOST` and not tried again, since it may be what killed the
    actor; another actor takes the place.

    `evaluate` raises `TaskError` and `EnvironmentUnusableError` before any candidate is run, as on one machine, and
    `EnvironmentUnusableError` later when no actor is left.
    """

    def __init__(
        self, task: Task, settings: Mapping[str, Any], backend: Mapping[str, Any], make: Make = make_evaluator
    ) -> None:
        require_ray()
        self._settings, self._backend, self._make = dict(settings), dict(backend), make
        kind = str(settings.get("type", "cpu"))
        evaluator: type[CpuEvaluator] | type[GpuEvaluator] = CpuEvaluator if kind == "cpu" else GpuEvaluator
        self.name, self.revision = evaluator.name, evaluator.revision
        # Says now what is wrong with task or settings, and what a verdict depends on.
        front = evaluator(task, {**settings, "device": 0, "cache": False})
        self._context = front._cache_context()
        on_gpu = kind == "gpu" and settings.get("platform", "cuda") == "cuda"
        self._resource = GPU if on_gpu else CPU
        self._room = IN_FLIGHT[GPU if kind == "gpu" else CPU]
        # What was measured belongs to a GPU model, which is not known yet.
        super().__init__(task, {**settings, "cache": settings.get("cache", True) and not on_gpu}, front._target)
        self._slots: Slots | None = None
        self._opened: list[tuple[Place, Any]] = []
        self._alive: dict[int, Any] = {}
        self._register: Any = None
        self._model = ""
        self._owns_ray = False

    def _cache_context(self) -> dict[str, object]:
        return {**self._context, "gpu": self._model} if self._model else self._context

    def evaluate(self, jobs: Iterable[EvaluationJob]) -> Iterator[tuple[EvaluationJob, Evaluation]]:
        """Judge `jobs`, several on each GPU at once, yielding in submission order."""
        self._open()
        yield from super().evaluate(jobs)

    def _open(self) -> None:
        """Join the cluster and find out what its actors are, without preparing them."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the evaluator is closed")
            if self._slots is not None or self._opened:
                return
            self._owns_ray = connect(self._backend.get("address")) or self._owns_ray
            most = self._settings.get("workers") if self._resource == CPU else None
            where = places(self._resource, most)
            askers = self._room * len(where) + 2  # candidates wait for one another, and others must get through
            self._register = self._remote(Register, num_cpus=0, max_concurrency=askers).remote(self._task)
            found = self._look_at([(place, self._actor(place)) for place in where])
            model = one_model([about.gpu for _, _, about in found], self._backend.get("gpu"))
            for place, actor, about in found:
                if about.gpu == model:
                    self._opened.append((place, actor))
                else:
                    logger.warning("the %s on %s is not used: this run uses %s", about.gpu, place.host, model)
                    self._stop(actor)
            self._model = model
            self._workers = self._room * len(self._opened)
            if self._resource == GPU and self._settings.get("cache", False) and self._reads:
                self._cache = self._open_cache(self._settings)

    def _prepare(self) -> None:
        """Prepare all actors at the same time. The task's fault is raised; so is the machines' when none is usable."""
        if self._slots is not None:
            return
        with ThreadPoolExecutor(len(self._opened), thread_name_prefix="kernevo-prepare") as pool:
            outcomes = list(pool.map(lambda one: self._tried(*one), self._opened))
        faults = [outcome for outcome in outcomes if outcome is not None]
        for fault in faults:
            if not isinstance(fault, EnvironmentUnusableError):
                raise fault
        usable = [one for one, outcome in zip(self._opened, outcomes, strict=True) if outcome is None]
        if not usable:
            raise faults[0]
        for (place, actor), outcome in zip(self._opened, outcomes, strict=True):
            if outcome is not None:
                logger.warning("%s is not used: %s", place.host, outcome)
                self._stop(actor)
        self._slots = Slots(usable, self._room, self._start, self._stop)

    def _tried(self, place: Place, actor: Any) -> Exception | None:
        """What kept an actor from being prepared."""
        import ray
        from ray.exceptions import RayError

        try:
            fault: Fault | None = ray.get(actor.prepare.remote())
        except RayError as error:
            return EnvironmentUnusableError(f"an actor on {place.host} was lost: {_first_line(error)}", "see its node")
        if fault is None:
            return None
        kind, message, hint = fault
        if issubclass(kind, EnvironmentUnusableError):
            message = f"{place.host}: {message}"
        return kind(message, hint)

    def _judge(self, source: KernelSource) -> Evaluation:
        import ray
        from ray.exceptions import RayError, RayTaskError

        slots, register = self._slots, self._register
        assert slots is not None
        taken = slots.take()
        started = time.perf_counter()
        try:
            evaluation: Evaluation = ray.get(taken.actor.judge.remote(source))
        except RayTaskError as error:
            status, reason = EvalStatus.HARNESS_ERROR, f"the judge on {taken.host} failed: {_first_line(error.cause)}"
        except RayError as error:
            status, reason = EvalStatus.WORKER_LOST, f"the actor on {taken.host} was lost: {_first_line(error)}"
        else:
            slots.give_back(taken)
            return evaluation
        if not self._closed:
            logger.error("%s: %s", self._task.name, reason)
            register.forget.remote(source.sha)  # others may wait for its verdict
        slots.lose(taken)
        return Evaluation(
            source_sha=source.sha,
            task=self._task.name,
            evaluator=self.name,
            status=status,
            reason=reason,
            explain=reason,
            evaluator_version=f"{__version__}.{self.revision}",
            target=self._model or self._target,
            seconds=time.perf_counter() - started,
        )

    def _release(self) -> None:
        slots, self._slots, self._opened = self._slots, None, []
        if slots is not None:
            slots.close()
        for actor in list(self._alive.values()):
            self._stop(actor)
        if slots is not None:
            slots.wait()
        if self._register is not None:
            import ray

            ray.kill(self._register)
            self._register = None
        if self._owns_ray:
            import ray

            ray.shutdown()
            self._owns_ray = False

    def _start(self, place: Place) -> Any:
        """A prepared actor in the place of a lost one. Raises `KernevoError`, or Ray's errors."""
        actor = self._actor(place)
        try:
            if self._closed:
                raise EnvironmentUnusableError("the evaluator is closed")
            ((_, _, about),) = self._look_at([(place, actor)])
            if about.gpu != self._model:
                raise EnvironmentUnusableError(f"{place.host} now gives a {about.gpu}, not {self._model}")
            if (fault := self._tried(place, actor)) is not None:
                raise fault
        except Exception:
            self._stop(actor)
            raise
        return actor

    def _actor(self, place: Place) -> Any:
        """An actor that is being started at a place."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        settings = {**self._settings, "workers": self._room, "device": 0, "cache": False}
        options = {"num_gpus": 1, "num_cpus": 0} if self._resource == GPU else {"num_cpus": 1}
        actor = self._remote(
            Judge,
            **options,
            max_concurrency=self._room + 1,  # and one to close it
            scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
        ).remote(self._task, settings, self._make, self._register)
        self._alive[id(actor)] = actor
        return actor

    def _remote(self, kind: type[Any], **options: Any) -> Any:
        import ray

        return ray.remote(max_restarts=0, max_task_retries=0, **options)(kind)

    def _look_at(self, started: Sequence[tuple[Place, Any]]) -> list[tuple[Place, Any, About]]:
        """The actors that came up in time. Raises `EnvironmentUnusableError` for none, or for another installation."""
        import ray
        from ray.exceptions import RayError

        wait_s = float(self._backend.get("wait_s", WAIT_S))
        asked = [(place, actor, actor.about.remote()) for place, actor in started]
        ray.wait([answer for _, _, answer in asked], num_returns=len(asked), timeout=wait_s)
        found, reason = [], ""
        for place, actor, answer in asked:
            try:
                about: About = ray.get(answer, timeout=0)
            except RayError as error:
                late = f"no free {self._resource} in {wait_s:g} s (backend.wait_s)"
                reason = f"{place.host}: {late if isinstance(error, TimeoutError) else _first_line(error)}"
                logger.warning("not used: %s", reason)
                self._stop(actor)
                continue
            self._compare(place, about)
            found.append((place, actor, about))
        if not found:
            raise EnvironmentUnusableError(
                f"no actor of the Ray cluster came up; {reason}", "`ray status` shows what its nodes have and lack"
            )
        return found

    def _compare(self, place: Place, about: About) -> None:
        """Raises `EnvironmentUnusableError` where a node has other versions: verdicts would depend on the node."""
        ours = installed()
        differing = [name for name in ours if about.versions.get(name) != ours[name]]
        if differing:
            theirs = ", ".join(f"{name} {about.versions.get(name)}" for name in differing)
            here = ", ".join(f"{name} {ours[name]}" for name in differing)
            raise EnvironmentUnusableError(
                f"{place.host} has {theirs}; this machine has {here}", "install the same on every node"
            )

    def _stop(self, actor: Any) -> None:
        import ray
        from ray.exceptions import RayError

        with suppress(RayError):  # an actor that is lost already
            ray.get(actor.close.remote(), timeout=STOP_S)
        ray.kill(actor)
        self._alive.pop(id(actor), None)


def _first_line(error: object) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
