"""Turns the calling process into one that may run untrusted code (Linux).

`enter` gives up privileges, network, other processes, most files, most memory and every descriptor that it is
not told to keep. What it does not cover: CPU caches and other side channels, reading the installed Python
packages, and a kernel bug. Walls that the machine refuses are reported by `capabilities` with the reason.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from evaluator import confine
from evaluator.types import Frozen

# Users 60578 to 61183 belong to nobody on systemd machines; one each keeps neighbours from signalling each other.
FIRST_UID = 60700
UID_COUNT = 400
SLOTS = itertools.count(1)
"""Numbers for the jobs and workers of this process, all of its evaluators together."""


class Limits(Frozen):
    """What one untrusted job may use. Sizes in bytes, times in seconds."""

    wall_seconds: float = 30.0
    memory_bytes: int = 6144 << 20
    """Address space on top of what the prewarmed process maps."""
    output_bytes: int = 8 << 20
    """stdout and stderr together."""
    answer_bytes: int = 1 << 30
    file_bytes: int = 64 << 20
    """Largest single file."""
    open_files: int = 128


def environment(home: Path, extra: dict[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a worker: an allow-list, so that no secret of the parent's is inherited."""
    allowed = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "TRITON_DEFAULT_FP_FUSION")
    kept = {name: os.environ[name] for name in allowed if name in os.environ}
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    python = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(import_path()),
        # The paths and lines of temporary files would make equal code differ.
        "TRITON_DISABLE_LINE_INFO": "1",
    }
    return {"TRITON_DEFAULT_FP_FUSION": "1", **kept, **one_thread, **python, **private_folders(home), **(extra or {})}


def private_folders(home: Path) -> dict[str, str]:
    """The variables that keep everything torch and triton write beneath `home`."""
    return {
        "HOME": str(home),
        "TMPDIR": str(home),
        "TRITON_CACHE_DIR": str(home / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
    }


def enter(limits: Limits, keep: Iterable[int], home: Path, slot: int = 0) -> dict[str, str]:
    """Confine this process for good and return what became of each wall (`on`, or the reason it is missing).

    `home` is the only folder left writable; `keep` are the descriptors left open beside 0, 1 and 2. Call it in a
    freshly forked child. A wall that the machine refuses does not raise; the always available ones do.
    """
    os.umask(0o077)
    os.chdir(home)
    close_all_but({0, 1, 2, *keep})
    walls = {"network": attempt(confine.new_network_namespace)}
    _set_limits(limits)
    walls["files"] = attempt(lambda: confine.restrict_files(readable(), [home]))
    walls["user"] = drop_root(home, slot, files_are_walled=walls["files"] == "on")
    confine.prctl(confine.PR_SET_NO_NEW_PRIVS, 1)
    # After the change of user, which clears it: the job dies with the process that forked it.
    confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)
    walls["system calls"] = attempt(confine.forbid_system_calls)
    if walls["system calls"] == "on":
        # No process can be made and no socket opened, with or without the namespace.
        walls["network"] = "on"
    return walls


def capabilities() -> dict[str, str]:
    """Which walls this machine can raise, by name: `on` or the reason why not. Takes about 0.2 s.

    Found out by raising them in a throw-away process.
    """
    with tempfile.TemporaryDirectory(prefix="kernevo-probe-") as home:
        command = [sys.executable, "-P", "-m", "evaluator.sandbox", home]
        done = subprocess.run(
            command, env=environment(Path(home)), capture_output=True, text=True, timeout=60, check=False
        )
    try:
        answer = json.loads(done.stdout)
        return {str(name): str(state) for name, state in answer.items()}
    except ValueError:
        lines = done.stderr.strip().splitlines()
        return {"sandbox": lines[-1] if lines else f"the probe ended with code {done.returncode}"}


def attempt(raise_wall: Callable[[], None]) -> str:
    """`on` when the wall stands, or why the machine refuses it."""
    try:
        raise_wall()
    except OSError as error:
        return error.strerror or str(error)
    return "on"


def close_all_but(keep: set[int]) -> None:
    """Close every descriptor that is not in `keep`."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:  # the descriptor that listed the folder
                continue


def _set_limits(limits: Limits) -> None:
    with open("/proc/self/statm", encoding="ascii") as statm:
        mapped = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    cpu = int(limits.wall_seconds) + 2
    for which, soft_wanted, hard_wanted in (
        (resource.RLIMIT_AS, mapped + limits.memory_bytes, mapped + limits.memory_bytes),
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files, limits.open_files),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_NPROC, 0, 0),
    ):
        limit(which, soft_wanted, hard_wanted)


def limit_private_memory(more: int) -> None:
    """Let this process write no more than `more` bytes of memory of its own beyond what it has now."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    now = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
    limit(resource.RLIMIT_DATA, now + more, now + more)


def limit(which: int, soft: int, hard: int) -> None:
    """Set a resource limit of this process; one that is lower already stays."""
    ceiling = resource.getrlimit(which)[1]
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(which, (soft, hard))


def drop_root(home: Path, slot: int, files_are_walled: bool) -> str:
    """RLIMIT_NPROC and file permissions do not bind root, so root becomes a user that owns nothing.

    Where Python itself is readable by root only, the new user keeps the right to read what Landlock leaves.
    """
    if os.getuid() != 0:
        return "on"
    uid = FIRST_UID + slot % UID_COUNT
    unreadable = [str(path) for path in _packages() if not _others_can_enter(path)]
    if unreadable and not files_are_walled:
        return f"stays root: {unreadable[0]} is readable by root only"
    for folder, _, files in os.walk(home):
        for path in (folder, *(os.path.join(folder, file) for file in files)):
            os.chown(path, uid, uid)
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        if unreadable:
            confine.prctl(confine.PR_SET_KEEPCAPS, 1)
        os.setresuid(uid, uid, uid)
        if unreadable:
            confine.keep_only_capabilities(confine.CAP_DAC_READ_SEARCH)
    except OSError as error:
        return f"stays root: {error.strerror}"
    return "on"


def _others_can_enter(path: Path) -> bool:
    resolved = path.resolve()
    return all(folder.stat().st_mode & 0o001 for folder in (resolved, *resolved.parents) if folder.is_dir())


def import_path() -> list[str]:
    """Import path of a child process beside the interpreter's own: this package's parent and the user's PYTHONPATH."""
    here = str(Path(__file__).resolve().parent.parent)
    return [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def _packages() -> list[Path]:
    """What a candidate's imports may read."""
    own = Path(__file__).resolve().parent
    others = [path for path in import_path() if Path(path) != own.parent]
    prefixes = [sys.prefix, sys.base_prefix, sysconfig.get_paths()["purelib"], *others]
    return [own, *(Path(prefix) for prefix in dict.fromkeys(prefixes))]


def readable() -> list[Path]:
    """What any confined process may read: Python, the packages, the system's libraries."""
    system = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime", "/sys/devices/system/cpu")
    devices = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/proc/self", "/proc/cpuinfo", "/proc/meminfo")
    return [*_packages(), *map(Path, (*system, *devices))]


def _probe(home: Path) -> None:
    walls = enter(Limits(), (), home)
    try:
        pid = os.fork()
    except OSError:
        walls["processes"] = "on"
    else:
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        walls["processes"] = "a candidate can fork (its whole process group is killed after each job)"
    print(json.dumps(walls))


if __name__ == "__main__":
    _probe(Path(sys.argv[1]))
