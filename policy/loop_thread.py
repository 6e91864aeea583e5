"""An event loop in a thread of its own, so that plain code can start coroutines and go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class LoopThread:
    """Runs coroutines from any thread. The thread is a daemon: a killed program does not wait for a server."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Start a coroutine; the future holds its result, or what it raised."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def cancel(self) -> None:
        """Cancel what runs. What was cancelled raises CancelledError from its future."""
        self.start(self._cancel_all()).result()

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancel what still runs, run `last`, stop. What was cancelled raises CancelledError from its future."""
        self.cancel()
        try:
            self.start(last).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _cancel_all(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
