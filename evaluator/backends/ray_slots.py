"""Which actor judges what: places with one actor each, lost actors replaced, places given up that cannot have one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from evaluator.backends.ray_cluster import Place
from evaluator.errors import EnvironmentUnusableError, KernevoError

logger = logging.getLogger(__name__)

LOSSES = 3
"""Actors lost in a row, without a verdict between, after which a place is given up."""
ATTEMPTS = 6
"""To replace a lost actor where the GPU is still in use by what it left behind."""
PAUSE_S = 5.0
"""Seconds between them."""


class _State(Enum):
    STARTING = "starting"
    READY = "ready"
    GONE = "gone"


@dataclass(eq=False)
class _Slot:
    place: Place
    actor: Any
    state: _State = _State.READY
    busy: int = 0
    turn: int = 0
    """Counts the actors that this place has had."""
    losses: int = 0


class Taken(NamedTuple):
    """An actor, for one job."""

    slot: _Slot
    turn: int
    actor: Any

    @property
    def host(self) -> str:
        """Name of the node."""
        return self.slot.place.host


class Slots:
    """Prepared actors, each with at most `room` jobs in flight. Thread-safe.

    `start` makes and prepares another actor at a place; it raises when that cannot be. `stop` ends one.
    """

    def __init__(
        self,
        actors: Sequence[tuple[Place, Any]],
        room: int,
        start: Callable[[Place], Any],
        stop: Callable[[Any], None],
    ) -> None:
        self._slots = [_Slot(place, actor) for place, actor in actors]
        self._room = room
        self._start = start
        self._stop = stop
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._replacing: list[threading.Thread] = []

    def take(self) -> Taken:
        """The actor with the least to do, once one has room.

        Raises `EnvironmentUnusableError` when no place is left that could have one.
        """
        with self._changed:
            while True:
                ready = [one for one in self._slots if one.state is _State.READY and one.busy < self._room]
                if ready and not self._closed.is_set():
                    slot = min(ready, key=lambda one: one.busy)
                    slot.busy += 1
                    return Taken(slot, slot.turn, slot.actor)
                if self._closed.is_set() or all(one.state is _State.GONE for one in self._slots):
                    raise EnvironmentUnusableError(
                        "the Ray cluster has nothing left that this run could judge on",
                        "look at the nodes (`ray status`), then continue with kernevo resume: no verdict is lost",
                    )
                self._changed.wait()

    def give_back(self, taken: Taken) -> None:
        """The job has its verdict."""
        with self._changed:
            if taken.turn == taken.slot.turn:
                taken.slot.busy -= 1
                taken.slot.losses = 0
            self._changed.notify_all()

    def lose(self, taken: Taken) -> None:
        """The actor is lost or of no use: another takes its place, in the background."""
        slot = taken.slot
        with self._changed:
            if taken.turn != slot.turn:
                return  # its other job said so
            if self._closed.is_set():
                slot.busy -= 1
                self._changed.notify_all()
                return
            slot.turn += 1
            slot.busy = 0
            slot.losses += 1
            slot.state = _State.STARTING if slot.losses < LOSSES else _State.GONE
            self._changed.notify_all()
        self._stop(taken.actor)
        if slot.state is _State.STARTING:
            logger.warning("an actor on %s was lost; another takes its place", slot.place.host)
            thread = threading.Thread(target=self._replace, args=(slot,), name="kernevo-replace", daemon=True)
            self._replacing.append(thread)
            thread.start()
        else:
            logger.error("%d actors in a row were lost on %s, which is used no more", LOSSES, slot.place.host)

    def close(self) -> None:
        """Stop all actors; jobs in flight end as lost."""
        with self._changed:
            self._closed.set()
            actors = [slot.actor for slot in self._slots if slot.state is _State.READY]
            for slot in self._slots:
                slot.state = _State.GONE
            self._changed.notify_all()
        with ThreadPoolExecutor(len(actors) or 1, thread_name_prefix="kernevo-stop") as pool:
            list(pool.map(self._stop, actors))

    def wait(self) -> None:
        """After `close`, and once actors that were being started are stopped too: until no thread needs one."""
        for thread in self._replacing:
            thread.join(PAUSE_S)
        with self._changed:
            self._changed.wait_for(lambda: not any(slot.busy for slot in self._slots), timeout=PAUSE_S)

    def _replace(self, slot: _Slot) -> None:
        actor = self._another(slot.place)
        with self._changed:
            late = self._closed.is_set()
            if not late:
                slot.actor = actor
                slot.state = _State.GONE if actor is None else _State.READY
            self._changed.notify_all()
        if late and actor is not None:
            self._stop(actor)

    def _another(self, place: Place) -> Any:
        """A new actor; None when there can be none, for whatever reason."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._start(place)
            except EnvironmentUnusableError as error:  # what the lost actor left behind may still be dying
                if attempt == ATTEMPTS or self._closed.wait(PAUSE_S):
                    reason = error.message
                    break
            except KernevoError as error:
                reason = error.message
                break
            except Exception as error:  # whatever Ray says of a node that is gone; nobody must wait for this place
                reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
                break
        if not self._closed.is_set():
            logger.error("%s is used no more: %s", place.host, reason)
        return None
