"""The judge's end of a gpu worker: starts processes ahead of time, talks to them, and kills them.

Whatever a worker does (dies, hangs, floods its output, answers nonsense) becomes a `WorkerError` with a verdict.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from evaluator import sandbox, wire
from evaluator.errors import HarnessError
from evaluator.stages import reported
from evaluator.types import EvalStatus
from evaluator.worker_host import verdict_of_signal
from evaluator.zygote import PID, READY

logger = logging.getLogger(__name__)

START_SECONDS = 180.0
MAX_ANSWER_BYTES = 16 << 20
DEATH_SECONDS = 5.0
"""How long a worker that closed its channel may take to end."""
KILL_SECONDS = 20.0
"""How long one that was killed may take: the driver waits for the device to give up its kernels."""
OUTPUT_BYTES = 8 << 20
KEPT_OUTPUT = 16 << 10
_CHUNK = 1 << 18
# Faults that end a CUDA context; the process that made them is of no more use.
_FATAL_WORDS = ("illegal memory access", "device-side assert", "misaligned address", "unspecified launch failure")


class WorkerError(Exception):
    """A command that gave no result."""

    def __init__(self, status: EvalStatus, reason: str, explain: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.explain = explain or reason


class Nursery:
    """The process that workers are forked from: torch is imported once for all of them. Thread-safe.

    `kind` is the sort of child: `gpu` runs one candidate, `judge` judges the kernels of one foreign task.
    """

    def __init__(self, folder: Path, platform: str, extra: Mapping[str, str], kind: str = "gpu") -> None:
        home = folder / "nursery"
        home.mkdir()
        self._lock = threading.Lock()
        self.platform, self._kind = platform, kind
        self._home, self._filling = home, threading.Lock()
        interpret = {"TRITON_INTERPRET": "1"} if platform == "interpreter" else {}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = home / "stderr.txt"
        with theirs, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "evaluator.zygote", str(theirs.fileno()), kind],
                env=sandbox.environment(home, {**interpret, **extra}),
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._ready = False

    def fork(
        self, home: Path, output: int, *, confined: bool, slot: int, host_bytes: int
    ) -> tuple[socket.socket, socket.socket]:
        """The channel to a new worker, and the socket on which its pid and its end are told.

        `host_bytes` of host memory are what a confined one may add once it is warm.
        """
        channel, channel_child = socket.socketpair()
        status, status_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = {"platform": self.platform, "confined": confined, "slot": slot, "host_bytes": host_bytes}
        message = json.dumps({"home": str(home), self._kind: child}).encode()
        with channel_child, status_child, self._lock:
            try:
                self._wait_ready()
                ends = [channel_child.fileno(), output, output, status_child.fileno()]
                socket.send_fds(self._control, [message], ends)
            except OSError as error:
                words = self._errors.read_text(errors="replace").strip().splitlines()[-1:]
                raise HarnessError(
                    f"gpu workers cannot be started: {error}: {''.join(words)}", "kernevo doctor says what works"
                ) from None
        return channel, status

    @property
    def alive(self) -> bool:
        """Whether its process still runs."""
        return self._process.poll() is None

    def first_cache(self, fill: Callable[[Path], None]) -> Path:
        """Triton's cache after a first worker's warm-up: `fill` makes it, once for all pools."""
        kept = self._home / "warm-cache"
        with self._filling:
            if not kept.exists():
                fill(kept)
        return kept

    def close(self) -> None:
        """End it, and with it every worker."""
        self._control.close()
        try:
            self._process.wait(timeout=10.0 if self._ready else 0.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_ready(self) -> None:
        if not self._ready:
            self._control.settimeout(START_SECONDS)
            if self._control.recv(64) != READY:
                raise OSError("the process they come from ended")
            self._control.settimeout(None)
            self._ready = True


class GpuWorker:
    """One process. Not thread-safe: one judge thread uses it at a time."""

    def __init__(
        self, nursery: Nursery, folder: Path, *, confined: bool, slot: int, host_bytes: int, cache: Path | None
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="worker-", dir=folder))
        if cache is not None:
            # What Triton compiles once per cache folder: helper modules of the driver, and the warm-up kernel.
            shutil.copytree(cache, self.home / "triton")
        self._ready = False
        self._pids_seen = 0
        self._output = (folder / f"{self.home.name}.out").open("w+b")
        self._channel, self._status = nursery.fork(
            self.home, self._output.fileno(), confined=confined, slot=slot, host_bytes=host_bytes
        )

    def start(self) -> None:
        """Let it warm up on the device, and wait for it. Raises `HarnessError` with its last words when it fails."""
        if self._ready:
            return
        try:
            self._channel.sendall(wire.dump({"go": True}))
            answer = self._answer(time.monotonic() + START_SECONDS)
        except WorkerError as failure:
            raise HarnessError(
                f"a gpu worker did not start: {failure.reason}: {self.last_words(600)}",
                "kernevo doctor says what works",
            ) from None
        logger.debug("a gpu worker is ready: %s", answer)
        self._ready = True

    def request(self, command: str, seconds: float, **arguments: Any) -> Any:
        """The result of one command. Raises `WorkerError`; the worker is then dead or in an unknown state."""
        self.start()
        nonce = os.urandom(16).hex()
        deadline = time.monotonic() + seconds
        try:
            self._channel.sendall(wire.dump({"nonce": nonce, "command": command, **arguments}))
        except OSError:
            raise self._death() from None
        answer = self._answer(deadline)
        if not isinstance(answer, dict) or answer.get("nonce") != nonce:
            raise WorkerError(EvalStatus.HARNESS_TAMPER, "the worker's answer does not carry the command's secret")
        if "error" in answer:
            raise _reported(answer["error"])
        if "result" not in answer:
            raise WorkerError(EvalStatus.HARNESS_TAMPER, "the worker's answer holds no result")
        return answer["result"]

    def last_words(self, size: int = 2000) -> str:
        """The end of what it printed."""
        self._output.flush()
        total = os.fstat(self._output.fileno()).st_size
        self._output.seek(max(0, total - min(size, KEPT_OUTPUT)))
        return self._output.read(KEPT_OUTPUT).decode(errors="replace").strip()[-size:]

    def end(self) -> None:
        """End the process without waiting for that; may be called while another thread waits for an answer."""
        with suppress(OSError):
            self._status.send(b"kill")

    def kill(self) -> None:
        """End the process and everything it started, and remove its files; safe to call twice."""
        self.end()
        deadline = time.monotonic() + KILL_SECONDS
        if self._wait_status(KILL_SECONDS) is None and time.monotonic() >= deadline:
            logger.warning("a gpu worker runs on %g s after it was killed; others may be timed too slow", KILL_SECONDS)
        self._channel.close()
        self._status.close()
        if not self._output.closed:
            self._output.close()
        Path(self._output.name).unlink(missing_ok=True)
        shutil.rmtree(self.home, ignore_errors=True)

    def _wait_status(self, seconds: float) -> int | None:
        """How the process ended; None when that is not known within `seconds`."""
        messages = 2 - self._pids_seen
        try:
            self._status.settimeout(seconds)
            for _ in range(messages):
                message = self._status.recv(64)
                if not message:
                    return None
                self._pids_seen += 1
                value = int(PID.unpack(message)[0])
        except OSError:
            return None
        return value if messages else None

    def _answer(self, deadline: float) -> Any:
        prefix = self._receive(wire.PREFIX.size, deadline)
        try:
            rest = self._receive(wire.frame_size(prefix, MAX_ANSWER_BYTES), deadline)
            return wire.load(prefix + rest, MAX_ANSWER_BYTES, allow_meta=False)
        except wire.WireError as error:
            raise WorkerError(
                EvalStatus.HARNESS_TAMPER, f"something else came in place of an answer: {error}"
            ) from None

    def _receive(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise WorkerError(EvalStatus.TIMEOUT, "still running at the time limit")
            if os.fstat(self._output.fileno()).st_size > OUTPUT_BYTES:
                raise WorkerError(EvalStatus.OUTPUT_LIMIT, f"printed more than {OUTPUT_BYTES >> 20} MiB")
            ready, _, _ = select.select([self._channel], [], [], min(left, 0.25))
            if not ready:
                continue
            try:
                chunk = self._channel.recv(min(size - len(data), _CHUNK))
            except OSError:
                chunk = b""
            if not chunk:
                raise self._death()
            data += chunk
        return bytes(data)

    def _death(self) -> WorkerError:
        status = self._wait_status(DEATH_SECONDS)
        if status is None:
            return WorkerError(EvalStatus.HARNESS_TAMPER, "closed its channel to the judge")
        code, words = os.waitstatus_to_exitcode(status), self.last_words()
        if code >= 0:
            return WorkerError(EvalStatus.EXITED, f"ended its process (exit code {code}) instead of returning", words)
        return WorkerError(*verdict_of_signal(-code, words), words)


def _reported(error: Any) -> WorkerError:
    """A candidate's exception as the worker describes it; only known failures are believed."""
    found = reported(error)
    fatal = any(word in found.reason for word in _FATAL_WORDS)
    return WorkerError(EvalStatus.CRASHED if fatal else found.status, found.reason, found.explain)


class WorkerPool:
    """Keeps workers warm, so that a candidate never waits for torch to be imported. Thread-safe."""

    def __init__(
        self,
        folder: Path,
        nursery: Nursery,
        *,
        warm: int,
        gate: Callable[[], AbstractContextManager[None]],
        host_bytes: int = sandbox.Limits().memory_bytes,
    ) -> None:
        """`gate` is held while a worker opens or leaves the device: both would disturb whoever times on it.

        `host_bytes` of host memory are what a candidate may add to a warm worker's.
        """
        self._folder, self._gate, self._host_bytes = folder, gate, host_bytes
        self._nursery = nursery
        self._warm: queue.Queue[GpuWorker] = queue.Queue()
        self._lock = threading.Lock()
        self._closed = False
        self._all: set[GpuWorker] = set()
        self._cache: Path | None = None
        self._size = warm

    def open(self) -> None:
        """Start the warm workers. Apart, because the process they come from takes seconds to import torch."""
        if self._nursery.platform == "cuda":
            self._cache = self._nursery.first_cache(self._first_cache)
        for _ in range(self._size):
            self._start()

    def take(self) -> GpuWorker:
        """A warm worker, whose place is taken by a new one. Raises `HarnessError` when workers do not start."""
        try:
            worker = self._warm.get(timeout=START_SECONDS)
        except queue.Empty:
            raise HarnessError("no gpu worker became free", "kernevo doctor says what works") from None
        self._start()
        with self._gate():
            worker.start()  # says what went wrong, if anything did
        return worker

    def trusted(self) -> GpuWorker:
        """A worker of its own for the baseline."""
        worker = self._worker(confined=False, slot=0)
        with self._lock:
            self._all.add(worker)
        with self._gate():
            worker.start()
        return worker

    def _worker(self, *, confined: bool, slot: int) -> GpuWorker:
        return GpuWorker(
            self._nursery,
            self._folder,
            confined=confined,
            slot=slot,
            host_bytes=self._host_bytes,
            cache=self._cache,
        )

    def give_up(self, worker: GpuWorker) -> None:
        """Kill a worker that has judged its candidate."""
        with self._gate():
            worker.kill()
        with self._lock:
            self._all.discard(worker)

    def close(self) -> None:
        """Kill them all."""
        with self._lock:
            self._closed = True
            workers, self._all = list(self._all), set()
        for worker in workers:
            worker.kill()

    def _first_cache(self, kept: Path) -> None:
        """Triton's cache after a trusted worker's warm-up."""
        first = self.trusted()
        try:
            shutil.copytree(first.home / "triton", kept)
        finally:
            self.give_up(first)

    def _start(self) -> None:
        with self._lock:
            if self._closed:
                return
            slot = next(sandbox.SLOTS)
            worker = self._worker(confined=True, slot=slot)
            self._all.add(worker)
        threading.Thread(target=self._warm_up, args=(worker,), name="kernevo-warm-up", daemon=True).start()

    def _warm_up(self, worker: GpuWorker) -> None:
        try:
            with self._gate():
                worker.start()
        except (HarnessError, OSError, ValueError) as error:
            # Whoever takes it meets the same error; a pool that is closed meanwhile is none.
            logger.debug("a worker did not warm up: %s", error)
        self._warm.put(worker)
