"""A prewarmed process that forks one confined child per job (run as `python -m evaluator.zygote FD [gpu|judge]`).

torch and triton are imported once (about 3 s), a fork costs about 20 ms. Control messages arrive on a
SOCK_SEQPACKET socket: a JSON line with four descriptors (channel, stdout, stderr, status). On the status
socket the zygote writes the child's pid, later its wait status; anything written or closed by the other side
kills the child. When the control socket closes, every child is killed and the zygote ends, so nothing
outlives the controller however it dies. What a child started and left behind, in a session of its own even,
becomes a child of the zygote's, which kills it.

With `gpu` the children are workers of the gpu evaluator, which take many commands. A CUDA context does not survive a
fork, so the parent touches no device and each child makes its own. With `judge` they are judges of tasks whose
reference nobody trusts (`evaluator.foreign`).
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import struct
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from evaluator import confine

PID = struct.Struct("<i")
FDS_PER_JOB = 4
READY = b"ready"


def main(descriptor: int, kind: str = "job") -> None:
    """Serve jobs from the control socket `descriptor` until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    confine.prctl(confine.PR_SET_CHILD_SUBREAPER, 1)
    control = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    _preload(kind)
    control.send(READY)
    _Server(control).serve()


def _preload(kind: str) -> None:
    import torch

    from evaluator import foreign, gpu_worker, worker

    torch.set_num_threads(1)
    if kind == "gpu":
        gpu_worker.preload()
    elif kind == "judge":
        foreign.preload()
    else:
        worker.preload()
    # The heap so far is shared with every child: keep the collector from touching (and so copying) it.
    gc.collect()
    gc.freeze()


class _Server:
    """The loop: fork on request, report pids and wait statuses, kill on demand."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ, None)
        self.status: dict[int, socket.socket] = {}
        wake_read, self.wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(self.wake_write, False)
        self.wake_read = wake_read
        self.selector.register(wake_read, selectors.EVENT_READ, None)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.control:
                    if not self._accept():
                        return self._kill_all()
                elif key.fileobj == self.wake_read:
                    os.read(self.wake_read, 4096)
                elif key.data in self.status:
                    self.selector.unregister(key.fileobj)
                    with suppress(OSError):  # closed before it had read everything
                        self.status[key.data].recv(64)
                    _kill(key.data)
            self._reap()

    def _accept(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self.control, 1 << 16, FDS_PER_JOB)
        if not message:
            return False
        channel, out, err, status = descriptors
        pid = os.fork()
        if pid == 0:
            self._child(json.loads(message), channel, out, err)
        for descriptor in (channel, out, err):
            os.close(descriptor)
        self.status[pid] = socket.socket(fileno=status)
        self.selector.register(self.status[pid], selectors.EVENT_READ, pid)
        self._tell(pid, pid)
        return True

    def _child(self, request: dict[str, Any], channel: int, out: int, err: int) -> None:
        """Never returns: the job's own exit is `os._exit`."""
        from evaluator import foreign, gpu_worker, sandbox, worker

        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (out, 1), (err, 2)):
                os.dup2(source, target)
            home = Path(request["home"])
            _move_in(home)
            for kind, main in (("gpu", gpu_worker.main), ("judge", foreign.main)):
                if kind in request:
                    os.chdir(home)
                    sandbox.close_all_but({0, 1, 2, channel})
                    main(channel, **request[kind])
                    os._exit(0)
            sandbox.enter(sandbox.Limits(**request["limits"]), (channel,), home, request["slot"])
        except BaseException as error:
            os.write(2, f"cannot enter the sandbox: {error}".encode())
            os._exit(worker.EXIT_NOT_CONFINED)
        worker.serve(channel)

    def _reap(self) -> None:
        while True:
            self._kill_strays()
            try:
                # Look before reaping: until then the pid cannot be reused, so its group can be killed safely.
                seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if seen is None:
                return
            _kill(seen.si_pid)
            _, wait_status = os.waitpid(seen.si_pid, 0)
            if seen.si_pid not in self.status:
                continue
            self._tell(seen.si_pid, wait_status)
            status = self.status.pop(seen.si_pid)
            if status in self.selector.get_map():
                self.selector.unregister(status)
            status.close()

    def _tell(self, pid: int, number: int) -> None:
        try:
            self.status[pid].send(PID.pack(number))
        except OSError:  # the judge has given this job up
            _kill(pid)

    def _kill_strays(self) -> None:
        """Kill what a job started and did not wait for, once its parent has gone."""
        for pid in _children() - set(self.status):
            _kill(pid)

    def _kill_all(self) -> None:
        for pid in self.status:
            _kill(pid)
        while True:
            self._kill_strays()
            try:
                pid, _ = os.waitpid(-1, 0)
            except ChildProcessError:
                return
            self.status.pop(pid, None)


def _move_in(home: Path) -> None:
    from evaluator import sandbox

    os.environ.update(sandbox.private_folders(home))
    tempfile.tempdir = str(home)


def _children() -> set[int]:
    return set(map(int, Path("/proc/thread-self/children").read_text(encoding="ascii").split()))


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
