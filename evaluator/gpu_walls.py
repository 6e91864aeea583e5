"""The walls around processes that use a GPU or start compilers; `evaluator.sandbox` has the tighter ones."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evaluator import confine, sandbox

SYSTEM = ("/etc", "/opt", "/dev", "/proc", "/sys", "/run")
"""What the driver, its tools and compilers read."""
_SHARED_BYTES = 64 << 20


def enter(
    home: Path,
    slot: int,
    writable: Sequence[Path],
    host_bytes: int,
    system: Sequence[str] = SYSTEM,
    listable: Sequence[Path] = (),
) -> dict[str, str]:
    """Give up what a kernel does not need; unlike the CPU evaluator's jobs, this process may start compilers.

    `writable` is what stays so beside `home`; `host_bytes` is what the process may add to its private memory, since the
    driver's mappings rule out a limit on address space. `system` can be read, beneath `listable` only names can.
    Returns what became of each wall.
    """
    shared = sandbox.attempt(lambda: confine.own_shared_memory(_SHARED_BYTES))  # no candidate leaves notes for the next
    walls = {"shared memory": shared, **wall_off(home, writable, system, listable)}
    sandbox.limit_private_memory(host_bytes)
    walls["user"] = sandbox.drop_root(home, slot, files_are_walled=walls["files"] == "on")
    confine.prctl(confine.PR_SET_NO_NEW_PRIVS, 1)
    confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)
    walls["system calls"] = sandbox.attempt(lambda: confine.forbid_system_calls(allow_processes=True))
    return walls


def wall_off(
    home: Path, writable: Sequence[Path], system: Sequence[str] = SYSTEM, listable: Sequence[Path] = ()
) -> dict[str, str]:
    """The walls that whoever uses the device can have, and whatever tool looks into it: network, files, limits."""
    os.umask(0o077)
    tempfile.tempdir = str(home)
    walls = {"network": sandbox.attempt(confine.new_network_namespace)}
    for which, limit in (
        (resource.RLIMIT_FSIZE, 256 << 20),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 512),
    ):
        sandbox.limit(which, limit, limit)
    readable = [*sandbox.readable(), *map(Path, system)]
    writable = [home, Path(os.devnull), *writable]
    walls["files"] = sandbox.attempt(lambda: confine.restrict_files(readable, writable, listable))
    return walls
