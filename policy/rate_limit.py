"""A token bucket: so much a minute, with a minute's worth saved up at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class RateLimit:
    """Lets `per_minute` units pass each minute; None lets everything pass. Waiters pass in the order they came."""

    def __init__(
        self,
        per_minute: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._sleep = sleep
        self._level = per_minute or 0.0
        self._filled = clock()
        self._turn = asyncio.Lock()

    async def take(self, amount: float = 1.0) -> None:
        """Wait until `amount` units may pass. More than a minute's worth counts as a minute's worth."""
        if self._per_minute is None:
            return
        amount = min(amount, self._per_minute)
        async with self._turn:
            self._fill(self._per_minute)
            if amount > self._level:
                await self._sleep((amount - self._level) * 60 / self._per_minute)
                self._fill(self._per_minute)
            self._level -= amount

    def _fill(self, per_minute: float) -> None:
        now = self._clock()
        self._level = min(per_minute, self._level + (now - self._filled) * per_minute / 60)
        self._filled = now
