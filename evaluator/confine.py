"""Kernel-side walls that need no privileges: a seccomp filter and a Landlock file policy (Linux).

Both are one-way for the calling process. Each function raises `OSError` where the kernel lacks the feature, so
that the caller can record why a wall is missing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_SET_DUMPABLE = 4
PR_CAP_AMBIENT = 47
CAP_DAC_READ_SEARCH = 2
CAP_SYS_ADMIN = 21
CLONE_NEWNET = 0x40000000
CLONE_NEWNS = 0x00020000
_MS_REC_PRIVATE = 0x4000 | 0x40000
SHARED_MEMORY = Path("/dev/shm")
_AMBIENT_RAISE = 2

# System call numbers from the kernel's asm/unistd tables; -1 where the architecture has no such call.
_CALLS = {
    "x86_64": {
        "audit": 0xC000003E, "fork": 57, "vfork": 58, "clone": 56, "clone3": 435, "execve": 59, "execveat": 322,
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "socket": 41, "kill": 62, "tkill": 200,
        "tgkill": 234, "pidfd_open": 434, "pidfd_getfd": 438, "rt_sigqueueinfo": 129, "bpf": 321, "io_uring_setup": 425,
        "memfd_create": 319, "shmget": 29, "unshare": 272, "setns": 308, "open_by_handle_at": 304,
    },
    "aarch64": {
        "audit": 0xC00000B7, "fork": -1, "vfork": -1, "clone": 220, "clone3": 435, "execve": 221, "execveat": 281,
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "socket": 198, "kill": 129, "tkill": 130,
        "tgkill": 131, "pidfd_open": 434, "pidfd_getfd": 438, "rt_sigqueueinfo": 138, "bpf": 280, "io_uring_setup": 425,
        "memfd_create": 279, "shmget": 194, "unshare": 97, "setns": 268, "open_by_handle_at": 265,
    },
}  # fmt: skip
_NO_PROCESS = ("fork", "vfork", "clone")
_FOR_COMPILERS = (
    "fork",
    "vfork",
    "clone",
    "clone3",
    "execve",
    "execveat",
    "memfd_create",
    "shmget",
    *("kill", "tgkill"),
)
_TO_SELF = ("kill", "tkill", "tgkill")
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446


def prctl(option: int, value: int) -> None:
    """`prctl(2)` with one argument; `OSError` on refusal."""
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise _last_error("prctl")


def keep_only_capabilities(*capabilities: int) -> None:
    """Give up every capability but these; they must be in the permitted set (PR_SET_KEEPCAPS before setuid)."""
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    mask = sum(1 << capability for capability in capabilities)
    data = ctypes.create_string_buffer(struct.pack("IIIIII", mask, mask, 0, 0, 0, 0))
    if _LIBC.capset(header, data) != 0:
        raise _last_error("capset")


def pass_on_capability(capability: int) -> None:
    """Let programs that this process starts have a capability of its own; `OSError` when it has it not."""
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(24)
    if _LIBC.capget(header, data) != 0:
        raise _last_error("capget")
    low, high = struct.unpack("III", data.raw[:12]), struct.unpack("III", data.raw[12:])
    inheritable = low[2] | 1 << capability
    if _LIBC.capset(header, ctypes.create_string_buffer(struct.pack("IIIIII", *low[:2], inheritable, *high))) != 0:
        raise _last_error("capset")
    if _LIBC.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(_AMBIENT_RAISE), ctypes.c_ulong(capability), 0, 0) != 0:
        raise _last_error("prctl")


def new_network_namespace() -> None:
    """Leave every network interface behind; needs CAP_SYS_ADMIN (`OSError` without)."""
    if _LIBC.unshare(CLONE_NEWNET) != 0:
        raise _last_error("unshare")


def own_shared_memory(nbytes: int) -> None:
    """An empty /dev/shm of at most `nbytes` that nobody else sees and that goes with this process.

    Needs CAP_SYS_ADMIN (`OSError` without). What was open stays open.
    """
    if _LIBC.unshare(CLONE_NEWNS) != 0:
        raise _last_error("unshare")
    # Mounts made from here on stay in here.
    if _LIBC.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None) != 0:
        raise _last_error("mount")
    options = f"size={nbytes},mode=1777".encode()
    target = os.fsencode(SHARED_MEMORY)
    if _LIBC.mount(b"tmpfs", target, b"tmpfs", ctypes.c_ulong(0), options) != 0:
        raise _last_error("mount")


def forbid_system_calls(allow_processes: bool = False) -> None:
    """Refuse new processes and threads, exec, ptrace, sockets, shared memory and signals to others.

    Refused calls return EAGAIN (processes, as RLIMIT_NPROC would) or EPERM. PR_SET_NO_NEW_PRIVS must be set.
    `allow_processes` leaves processes, threads and shared memory, for a process that must start compilers.
    """
    calls = _CALLS.get(platform.machine())
    if calls is None:
        raise OSError(errno.ENOSYS, f"no system call table for {platform.machine()}")
    if allow_processes:
        calls = {name: number for name, number in calls.items() if name not in _FOR_COMPILERS}
    program = b"".join(_filter(calls, os.getpid()))
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(fprog, len(fprog))
    if _LIBC.prctl(PR_SET_SECCOMP, 2, ctypes.byref(holder), 0, 0) != 0:
        raise _last_error("seccomp")


def _filter(calls: dict[str, int], pid: int) -> Iterable[bytes]:
    """Classic BPF over `struct seccomp_data {int nr; u32 arch; u64 ip; u64 args[6];}`."""
    load, equal, ret = 0x20, 0x15, 0x06
    allow, refuse, kill = 0x7FFF0000, 0x00050000, 0x80000000

    def op(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, jump_true, jump_false, value)

    yield op(load, 4)
    yield op(equal, calls["audit"], 1, 0)
    yield op(ret, kill)
    yield op(load, 0)
    for name, number in calls.items():
        if name == "audit" or number < 0:
            continue
        if name in _TO_SELF:
            # Signals to itself stay allowed, so that abort() still says SIGABRT.
            yield op(equal, number, 0, 4)
            yield op(load, 16)
            yield op(equal, pid, 1, 0)
            yield op(ret, refuse | errno.EPERM)
            yield op(ret, allow)
        else:
            refusal = errno.EAGAIN if name in _NO_PROCESS else errno.ENOSYS if name == "clone3" else errno.EPERM
            yield op(equal, number, 0, 1)
            yield op(ret, refuse | refusal)
    yield op(ret, allow)


def restrict_files(readable: Iterable[Path], writable: Iterable[Path], listable: Iterable[Path] = ()) -> None:
    """Landlock: read and execute beneath `readable`, everything beneath `writable`, names of files beneath `listable`,
    nothing elsewhere.

    A process so restricted also may not look into processes outside (their environment or memory under /proc). Sets
    PR_SET_NO_NEW_PRIVS.
    """
    version = _LIBC.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 0:
        raise _last_error("landlock")
    # The file rights of the first version, and from the second on moving files between folders.
    handled = (1 << 14) - 1 if version > 1 else (1 << 13) - 1
    attribute = ctypes.create_string_buffer(struct.pack("Q", handled))
    ruleset = _LIBC.syscall(_LANDLOCK_CREATE, attribute, ctypes.c_size_t(8), 0)
    if ruleset < 0:
        raise _last_error("landlock")
    try:
        for path in readable:
            _allow_beneath(ruleset, path, 0b1101)  # execute, read file, read folder
        for path in listable:
            _allow_beneath(ruleset, path, 0b1000)  # read folder
        for path in writable:
            _allow_beneath(ruleset, path, handled)
        # What the kernel asks of everybody but the administrator.
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        if _LIBC.syscall(_LANDLOCK_RESTRICT, ruleset, 0) != 0:
            raise _last_error("landlock")
    finally:
        os.close(ruleset)


def _allow_beneath(ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not path.is_dir():
            rights &= 0b0111  # execute, write, read: the rights that files have
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor))
        if _LIBC.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0) != 0:
            raise _last_error("landlock")
    finally:
        os.close(descriptor)


def _last_error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
