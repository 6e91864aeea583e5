"""Kernels of `evaluator.testing.TASK` for `benchmarks.abuse`: good ones, and ones that harm whoever runs them.

The harm is done where a candidate meets the device and not before: at 7 rows, which is a check shape and no benchmark
workload, or after `OFTEN` calls, by when it is being timed. Should one of these run outside of a worker, it deletes
nothing, and what it forks lasts ten minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from evaluator.testing import changed
from evaluator.types import EvalStatus, KernelSource

OFTEN = 60
ONCE = "x.shape[0] == 7"
TIMED = f"len(CALLS) > {OFTEN}"

ALLOCATES = "        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)\n"

_TIMEOUT = frozenset({EvalStatus.TIMEOUT})
_EXITED = frozenset({EvalStatus.EXITED})
_CRASHED = frozenset({EvalStatus.CRASHED})
_NO_MEMORY = frozenset({EvalStatus.OUT_OF_MEMORY})
# What becomes of a process whose memory or descriptors are gone is chance; that it is told apart from a pass is not.
_BROKEN = frozenset(
    {EvalStatus.CRASHED, EvalStatus.RUNTIME_ERROR, EvalStatus.EXITED, EvalStatus.HARNESS_TAMPER, EvalStatus.TIMEOUT}
)
_WRONG = frozenset(
    {EvalStatus.OUT_OF_BOUNDS, EvalStatus.INPUT_MUTATED, EvalStatus.WRONG_VALUE, EvalStatus.NON_FINITE}
    | {EvalStatus.UNINITIALISED, EvalStatus.NONDETERMINISTIC, EvalStatus.FALLBACK, EvalStatus.REPLAY}
)


@dataclass(frozen=True)
class Abuse:
    """One way to harm a worker, its neighbours or the machine."""

    name: str
    host: str
    """Lines of `forward`, run when `when` holds; `x` is the input and `out` the output to be."""
    allowed: frozenset[EvalStatus]
    """The verdicts that are right."""
    kernel: str = ""
    """A kernel of its own that `host` launches."""
    when: str = ONCE

    def source(self, mark: int) -> KernelSource:
        """The seed with the harm in it, distinct for each `mark`."""
        lines = "".join(f"            {line}\n" for line in self.host.splitlines())
        text = changed(ALLOCATES, f"{ALLOCATES}        CALLS.append(0)\n        if {self.when}:\n{lines}").text
        return KernelSource(text=f"{text}\n\n{self.kernel}\nCALLS = []\nKEPT = []\nMARK = {mark}\n")


_WAITS = """@triton.jit
def wait_kernel(flag_ptr):
    while tl.load(flag_ptr, volatile=True) == 0:
        pass
"""
_SWEEPS = """@triton.jit
def sweep_kernel(x_ptr):
    tl.store(x_ptr + (tl.program_id(0).to(tl.int64) + 1) * 8192, 1.0)
"""
_NOWHERE = """@triton.jit
def nowhere_kernel(x_ptr):
    place = tl.program_id(0).to(tl.int64) + 64
    tl.store(place.to(tl.pointer_type(tl.float32)), 1.0)
"""
_ASKEW = """@triton.jit
def askew_kernel(x_ptr):
    place = x_ptr.to(tl.int64, bitcast=True) + 1
    tl.store(place.to(tl.pointer_type(tl.float32)), 1.0)
"""
_HOARD = "while True:\n    KEPT.append(torch.empty(1 << 28, device=x.device))"
_HOARD_AND_HOLD = """try:
    while True:
        KEPT.append(torch.empty(1 << 28, device=x.device))
except Exception:
    while True:
        pass"""
_FORK_APART = """import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os._exit(0)"""
_FORK_CROWD = """import os, time
for _ in range(16):
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
os._exit(0)"""
_FORK_HELD = """import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
    os._exit(0)
while True:
    pass"""
_DELETE = """import os, shutil
home = os.environ["HOME"]
if os.path.basename(home).startswith("worker-"):
    shutil.rmtree(home, ignore_errors=True)
return out"""
_FILL = """import os
with open(os.path.join(os.environ["TMPDIR"], "filler"), "wb") as filler:
    while True:
        filler.write(bytes(1 << 22))"""
_CLOSE = """import os
os.closerange(3, 1024)"""
_SCRIBBLE = """import os
for descriptor in range(3, 64):
    if os.path.exists(f"/proc/self/fd/{descriptor}") and "socket" in os.readlink(f"/proc/self/fd/{descriptor}"):
        os.write(descriptor, b"nonsense" * 9)"""
_HOST_MEMORY = """for _ in range(64):
    KEPT.append(torch.ones(1 << 25))
raise ValueError("got 8 GiB")"""
_ASSERT = "torch._assert_async(torch.zeros(1, device=x.device))"
_FLOOD = "while True:\n    print('x' * 65536)"
_STOP = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"

ABUSES: tuple[Abuse, ...] = (
    Abuse("hangs on the device", "wait_kernel[(1,)](torch.zeros(1, device=x.device))", _TIMEOUT, _WAITS),
    Abuse("segfaults", "import ctypes\nctypes.string_at(0)", _CRASHED),
    Abuse("writes far behind its input", "sweep_kernel[(512,)](x)", _WRONG | _BROKEN, _SWEEPS),
    Abuse("forks a child that outlives it", _FORK_APART, _EXITED | _TIMEOUT),
    Abuse("hoards device memory", _HOARD, _NO_MEMORY),
    Abuse("writes to an illegal address", "nowhere_kernel[(1,)](x)", _CRASHED, _NOWHERE),
    Abuse("closes its descriptors", _CLOSE, _BROKEN),
    Abuse("exits as if all were well", "import os\nos._exit(0)", _EXITED),
    Abuse("hangs on the host", "while True:\n    pass", _TIMEOUT),
    Abuse("floods stdout", _FLOOD, frozenset({EvalStatus.OUTPUT_LIMIT})),
    Abuse("deletes its files", _DELETE, _WRONG),
    Abuse("exhausts host memory", _HOST_MEMORY, _NO_MEMORY | _TIMEOUT),
    Abuse("trips an assertion on the device", _ASSERT, _CRASHED | {EvalStatus.RUNTIME_ERROR}),
    Abuse("stops itself", _STOP, _TIMEOUT),
    Abuse("aborts", "import os\nos.abort()", _CRASHED),
    Abuse("asks for 64 TiB on the device", "torch.empty(1 << 44, device=x.device)", _NO_MEMORY),
    Abuse("forks a crowd", _FORK_CROWD, _EXITED | _TIMEOUT),
    Abuse("writes askew", "askew_kernel[(1,)](x)", _WRONG | _CRASHED, _ASKEW),
    Abuse("exits while it is timed", "raise SystemExit(0)", _EXITED, when=TIMED),
    Abuse("hoards device memory and holds it", _HOARD_AND_HOLD, _TIMEOUT | _NO_MEMORY),
    Abuse("scribbles on its channel", _SCRIBBLE, frozenset({EvalStatus.HARNESS_TAMPER})),
    Abuse("poisons its context while it is timed", "nowhere_kernel[(1,)](x)", _CRASHED, _NOWHERE, when=TIMED),
    Abuse("hangs in C, holding the interpreter's lock", "sum(range(1 << 60))", _TIMEOUT),
    Abuse("recurses without end", "self.forward(x)", frozenset({EvalStatus.RUNTIME_ERROR})),
    Abuse("fills the disk", _FILL, frozenset({EvalStatus.OUTPUT_LIMIT})),
    Abuse("forks a child and hangs", _FORK_HELD, _TIMEOUT),
    Abuse("asks for 256 TiB on the host", "torch.zeros(1 << 46)", _NO_MEMORY),
)  # fmt: skip
"""Every kind of harm. The first eight are one of each sort, for short runs."""

GOOD_BLOCKS, GOOD_WARPS = (64, 128, 256, 1024), (2, 4)


def good_kinds() -> dict[str, str]:
    """Correct kernels by name: the seed with other blocks and warps."""
    kinds = {}
    for block, warps in itertools.product(GOOD_BLOCKS, GOOD_WARPS):
        text = changed("BLOCK = 64\n", f"BLOCK = {block}\n").text
        kinds[f"BLOCK {block}, {warps} warps"] = text.replace("num_warps=4", f"num_warps={warps}")
    return kinds


@dataclass(frozen=True)
class Planned:
    """One candidate of the mixed run."""

    kind: str
    source: KernelSource
    allowed: frozenset[EvalStatus] | None
    """None for a good one."""


def plan(count: int, kinds: int | None = None) -> list[Planned]:
    """`count` candidates, every third one bad, all kinds in turn. No two sources are equal.

    `kinds` is how many good kernels there are to take turns; all of them when left out.
    """
    abuses, good = itertools.cycle(ABUSES), itertools.cycle(list(good_kinds().items())[:kinds])
    return [_bad(next(abuses), mark) if mark % 3 == 1 else _good(*next(good), mark) for mark in range(count)]


def alone(repeats: int, kinds: int | None = None) -> Iterator[Planned]:
    """Every good kernel `repeats` times; distinct, too, from all that `plan` gives."""
    for repeat in range(repeats):
        for number, (name, text) in enumerate(list(good_kinds().items())[:kinds]):
            yield _good(name, text, -1 - number - repeat * len(good_kinds()))


def _good(name: str, text: str, mark: int) -> Planned:
    return Planned(name, KernelSource(text=f"{text}\nMARK = {mark}\n"), None)


def _bad(abuse: Abuse, mark: int) -> Planned:
    return Planned(abuse.name, abuse.source(mark), abuse.allowed)
