"""The judge's end of a zygote: sends one job to one confined child and turns whatever happens into data."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluator import sandbox, wire
from evaluator.errors import HarnessError
from evaluator.types import EvalStatus
from evaluator.zygote import PID, READY

START_SECONDS = 120.0
KEPT_OUTPUT = 16 << 10
_CHUNK = 1 << 18
_GRACE_SECONDS = 2.0


@dataclass(frozen=True)
class JobOutcome:
    """What one job came to: an `answer` (and no status), or a status with its reason."""

    answer: Any = None
    status: EvalStatus | None = None
    reason: str = ""
    explain: str = ""
    output: str = ""
    """The last of what the job printed, stderr after stdout."""
    seconds: float = 0.0


class WorkerHost:
    """One zygote in one Triton mode and the jobs it runs. Thread-safe; a lost zygote is respawned.

    `interpret` chooses Triton's interpreter (the mode is fixed when triton is imported). The zygote is started by
    the first job, or earlier by `start`.
    """

    def __init__(self, folder: Path, interpret: bool) -> None:
        self._folder = folder
        self._interpret = interpret
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready = False
        self._closed = False

    def start(self) -> None:
        """Start the zygote without waiting for it to be ready."""
        with self._lock:
            self._spawn()

    def run(self, job: dict[str, Any], limits: sandbox.Limits) -> JobOutcome:
        """Run `job` in a fresh confined process; never raises for anything the job does.

        A lost zygote is replaced and the job tried once more; then the outcome is `WORKER_LOST`.
        """
        nonce = os.urandom(16).hex()
        request = wire.dump({**job, "nonce": nonce})
        outcome = JobOutcome(status=EvalStatus.WORKER_LOST, reason="the worker process was lost")
        for _ in range(2):
            number = next(sandbox.SLOTS)
            home = Path(tempfile.mkdtemp(prefix=f"job{number}-", dir=self._folder))
            try:
                outcome = self._run_once(request, nonce, limits, home, number)
            finally:
                shutil.rmtree(home, ignore_errors=True)
            if outcome.status is not EvalStatus.WORKER_LOST or self._closed:
                break
        return outcome

    def close(self) -> None:
        """Kill the zygote and every job; safe to call twice and while jobs run."""
        with self._lock:
            self._closed = True
            self._stop()

    def _run_once(self, request: bytes, nonce: str, limits: sandbox.Limits, home: Path, number: int) -> JobOutcome:
        job = _Job(request, nonce, limits)
        message = json.dumps({"home": str(home), "slot": number, "limits": limits.model_dump()}).encode()
        try:
            with self._lock:
                control = self._connect()
                socket.send_fds(control, [message], job.child_ends())
        except OSError as error:
            job.abandon()
            self._lose()
            return JobOutcome(status=EvalStatus.WORKER_LOST, reason=f"the worker process was lost: {error}")
        outcome = job.wait()
        if outcome.status is EvalStatus.WORKER_LOST:
            self._lose()
        return outcome

    def _connect(self) -> socket.socket:
        self._spawn()
        assert self._control is not None
        if not self._ready:
            self._control.settimeout(START_SECONDS)
            if self._control.recv(64) != READY:
                raise HarnessError(*self._why_not_started())
            self._control.settimeout(None)
            self._ready = True
        return self._control

    def _spawn(self) -> None:
        if self._closed:
            raise HarnessError("the evaluator is closed")
        if self._process is not None and self._process.poll() is None:
            return
        self._stop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        home = self._folder / ("interpreter" if self._interpret else "compiler")
        home.mkdir(exist_ok=True)
        extra = {"TRITON_INTERPRET": "1"} if self._interpret else {}
        with theirs, (home / "stderr.txt").open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "evaluator.zygote", str(theirs.fileno())],
                env=sandbox.environment(home, extra),
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                # Ctrl-C in the terminal is for the controller, which decides what becomes of running jobs.
                start_new_session=True,
            )
        self._control, self._ready = ours, False

    def _why_not_started(self) -> tuple[str, str]:
        lines = []
        for file in self._folder.glob("*/stderr.txt"):
            lines += file.read_text(errors="replace").strip().splitlines()[-1:]
        return (
            f"the worker process did not start: {'; '.join(lines) or 'no message'}",
            "run `kernevo doctor`; torch and triton must import in this environment",
        )

    def _lose(self) -> None:
        with self._lock:
            if self._process is not None and not self._closed:
                self._stop()

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                # The closed control socket makes it kill its jobs and leave; while it still imports it has none.
                self._process.wait(timeout=_GRACE_SECONDS if self._ready else 0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


@dataclass
class _Stream:
    """A bounded record of one output pipe."""

    total: int = 0
    tail: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self.tail += data
        del self.tail[:-KEPT_OUTPUT]


class _Job:
    """The descriptors and bookkeeping of one running job."""

    def __init__(self, request: bytes, nonce: str, limits: sandbox.Limits) -> None:
        self.limits = limits
        self.nonce = nonce
        self.pending = memoryview(request)
        self.answer = bytearray()
        self.channel, self._channel_child = socket.socketpair()
        self.status, self._status_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.out, self._out_child = os.pipe()
        self.err, self._err_child = os.pipe()
        self.streams = {self.out: _Stream(), self.err: _Stream()}
        self.pid: int | None = None
        self.wait_status: int | None = None
        self.killed: tuple[EvalStatus, str] | None = None
        self.lost = False

    def child_ends(self) -> list[int]:
        return [self._channel_child.fileno(), self._out_child, self._err_child, self._status_child.fileno()]

    def abandon(self) -> None:
        """Close everything; the zygote kills the child when its status socket closes."""
        self._close_child_ends()
        for sock in (self.channel, self.status):
            sock.close()
        for descriptor in (self.out, self.err):
            os.close(descriptor)

    def wait(self) -> JobOutcome:
        """Feed and drain the job until it has ended, been killed or been lost."""
        self._close_child_ends()
        started = time.monotonic()
        try:
            self._pump(started)
        finally:
            self.abandon()
        return self._outcome(time.monotonic() - started)

    def _close_child_ends(self) -> None:
        if self._out_child >= 0:
            self._channel_child.close()
            self._status_child.close()
            os.close(self._out_child)
            os.close(self._err_child)
            self._out_child = self._err_child = -1

    def _pump(self, started: float) -> None:
        deadline = started + self.limits.wall_seconds
        self.channel.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.channel, selectors.EVENT_READ | selectors.EVENT_WRITE)
            for source in (self.out, self.err, self.status):
                selector.register(source, selectors.EVENT_READ)
            while self.wait_status is None and not self.lost:
                left = deadline - time.monotonic()
                if left <= 0 and self.killed is None:
                    self._kill(EvalStatus.TIMEOUT, f"still running after {self.limits.wall_seconds:g} s")
                    deadline = time.monotonic() + _GRACE_SECONDS
                elif left <= 0:
                    self.lost = True
                for key, events in selector.select(max(left, 0.0)):
                    self._handle(selector, key.fileobj, events)
            self._drain(selector)

    def _handle(self, selector: selectors.BaseSelector, source: Any, events: int) -> None:
        if source is self.status:
            self._read_status(selector)
        elif source is self.channel:
            if events & selectors.EVENT_WRITE:
                self._write(selector)
            if events & selectors.EVENT_READ:
                self._read_answer(selector)
        elif not self._read_output(source):
            selector.unregister(source)

    def _read_status(self, selector: selectors.BaseSelector) -> None:
        try:
            message = self.status.recv(64)
        except ConnectionResetError:  # the job ended by itself just before it was to be killed
            message = PID.pack(signal.SIGKILL) if self.killed else b""
        if not message:
            self.lost = True
            selector.unregister(self.status)
        elif self.pid is None:
            self.pid = PID.unpack(message)[0]
        else:
            self.wait_status = PID.unpack(message)[0]

    def _write(self, selector: selectors.BaseSelector) -> None:
        try:
            self.pending = self.pending[self.channel.send(self.pending[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # the job ended before it read its request
            self.pending = self.pending[:0]
        if not self.pending:
            selector.modify(self.channel, selectors.EVENT_READ)

    def _read_answer(self, selector: selectors.BaseSelector) -> bool:
        try:
            data = self.channel.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            selector.unregister(self.channel)
            return False
        self.answer += data
        if len(self.answer) > self.limits.answer_bytes:
            self._kill(EvalStatus.OUTPUT_LIMIT, f"its results exceed {self.limits.answer_bytes >> 20} MiB")
            selector.unregister(self.channel)
            return False
        return True

    def _read_output(self, source: int) -> bool:
        data = os.read(source, _CHUNK)
        self.streams[source].add(data)
        if sum(stream.total for stream in self.streams.values()) > self.limits.output_bytes:
            limit = self.limits.output_bytes >> 20
            self._kill(EvalStatus.OUTPUT_LIMIT, f"printed more than {limit} MiB and was stopped")
        return bool(data)

    def _kill(self, status: EvalStatus, reason: str) -> None:
        if self.killed is None:
            self.killed = (status, reason)
            try:
                self.status.send(b"kill")
            except OSError:
                self.lost = True

    def _drain(self, selector: selectors.BaseSelector) -> None:
        """Take what is still in the pipes, without waiting for descriptors somebody else may hold."""
        while ready := [key.fileobj for key, events in selector.select(0) if events & selectors.EVENT_READ]:
            moved = False
            for source in ready:
                if source is self.channel:
                    moved |= self._read_answer(selector)
                elif source is not self.status and isinstance(source, int):
                    if self.killed is None and self._read_output(source):
                        moved = True
                    else:
                        selector.unregister(source)
            if not moved:
                return

    def _outcome(self, seconds: float) -> JobOutcome:
        output = "".join(stream.tail.decode(errors="replace") for stream in self.streams.values())
        status, reason, answer = self._judge(output)
        return JobOutcome(answer=answer, status=status, reason=reason, output=output, seconds=seconds)

    def _judge(self, output: str) -> tuple[EvalStatus | None, str, Any]:
        from evaluator.worker import EXIT_NOT_CONFINED

        if self.killed is not None:
            return (*self.killed, None)
        if self.lost or self.wait_status is None:
            return EvalStatus.WORKER_LOST, "the worker process was lost", None
        code = os.waitstatus_to_exitcode(self.wait_status)
        if code == EXIT_NOT_CONFINED:
            return EvalStatus.HARNESS_ERROR, output.strip() or "the sandbox could not be entered", None
        if code < 0:
            return (*verdict_of_signal(-code, output), None)
        if not self.answer or code != 0:
            return EvalStatus.EXITED, f"ended its process (exit code {code}) instead of returning", None
        return self._read()

    def _read(self) -> tuple[EvalStatus | None, str, Any]:
        try:
            answer = wire.load(self.answer, self.limits.answer_bytes, allow_meta=False)
        except wire.WireError as error:
            return EvalStatus.HARNESS_TAMPER, f"something else was written in place of the result: {error}", None
        if not isinstance(answer, dict) or answer.get("nonce") != self.nonce:
            return EvalStatus.HARNESS_TAMPER, "the result does not carry this job's secret", None
        return None, "", answer


def verdict_of_signal(number: int, output: str) -> tuple[EvalStatus, str]:
    """Status and reason for a process that died of a signal after printing `output`."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if name == "SIGXCPU":
        return EvalStatus.TIMEOUT, "used up its processor time"
    if any(word in output for word in ("bad_alloc", "out of memory", "Cannot allocate memory")):
        return EvalStatus.OUT_OF_MEMORY, f"ran out of memory ({name})"
    return EvalStatus.CRASHED, f"the process died of {name}"
