"""Judges tasks whose reference nobody trusts, in a confined process (forked by `evaluator.zygote`, kind `judge`).

Elsewhere the judge runs a task's reference in its own process, because whoever made the task runs the judge. Where the
reference comes over a network, the whole judge is put behind walls instead: no network, no files but its own folder,
another user where possible, bounded memory. Its workers are confined once more, so a candidate still holds no expected
output. What a hostile reference can forge in here are the verdicts on its own task; its host can kill all of it.

Commands come as wire frames, like those of a gpu worker, and each gets one frame back.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from evaluator import confine, gpu_walls, sandbox, wire
from evaluator.errors import KernevoError, TaskError
from evaluator.init_task import init_task
from evaluator.nearest import nearest
from evaluator.protocol import Evaluator
from evaluator.task import TOLERANCES, list_tasks, load_task, shape_parameters
from evaluator.types import Evaluation, EvaluationJob, Frozen, KernelSource, OpPolicy, Task, Tolerance, Workload
from evaluator.worker import receive

_MOST = 16


class ForeignTask(Frozen):
    """What somebody else wants kernels to be judged on: a reference of theirs, or a shipped task, and changes to it."""

    task: str = ""
    """A shipped task's name; empty where a reference is given."""
    reference_code: str = ""
    """A module in KernelBench form: Model, get_inputs, perhaps get_init_inputs."""
    seed_code: str | None = None
    """A correct kernel; the baseline of modelled speedups."""
    dtype: str | None = None
    tolerance: Tolerance | None = None
    op_policy: OpPolicy | None = None
    allow_tf32: bool | None = None
    allow_atomics: bool | None = None
    input_precisions: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    workloads: Annotated[tuple[Workload, ...], Field(max_length=_MOST)] = ()
    """What is timed; the reference's own sizes when empty."""
    check_shapes: Annotated[tuple[Workload, ...], Field(max_length=_MOST)] = ()
    """Small shapes; derived from the reference when empty."""

    @property
    def key(self) -> str:
        """SHA-256 over all of it, 64 hex digits."""
        return hashlib.sha256(self.model_dump_json().encode("utf-8", "surrogatepass")).hexdigest()


def make_task(wanted: ForeignTask, folder: Path) -> Task:
    """The task, written to and read from `folder`. Runs the reference. Raises `TaskError`."""
    if wanted.task:
        if wanted.task not in list_tasks():
            raise TaskError(f"no shipped task {wanted.task!r}", f"shipped tasks: {', '.join(list_tasks())}")
        task = load_task(wanted.task)
    elif wanted.dtype and wanted.workloads and wanted.check_shapes:
        return _as_told(wanted)
    else:
        module = folder / "reference_code.py"
        module.write_text(wanted.reference_code, encoding="utf-8", errors="surrogatepass")
        name = f"foreign_{wanted.key[:12]}"
        task = load_task(str(init_task(module, folder / name).folder))
    return Task.model_validate({**{name: getattr(task, name) for name in Task.model_fields}, **_changes(wanted)})


def _as_told(wanted: ForeignTask) -> Task:
    """Where dtype, workloads and shapes are given there is nothing to find out by running the reference."""
    known = shape_parameters(wanted.reference_code, "reference_code.py")
    for workload in (*wanted.workloads, *wanted.check_shapes):
        for name in workload.params:
            if name not in known:
                raise TaskError(
                    f"{workload.name}: parameter {name} is no top-level literal of reference_code", nearest(name, known)
                )
    bound = TOLERANCES.get(str(wanted.dtype), 0.0)
    told = {
        "name": f"foreign_{wanted.key[:12]}",
        "description": "",
        "reference_source": wanted.reference_code,
        "seed_source": None,
        "origin": "reference_code",
        "tolerance": Tolerance(atol=bound, rtol=bound),
        "op_policy": "mixed",
    }
    return Task.model_validate({**told, **_changes(wanted)})


def _changes(wanted: ForeignTask) -> dict[str, Any]:
    names = [name for name in ForeignTask.model_fields if name not in ("task", "reference_code", "seed_code")]
    found = {name: value for name in names if (value := getattr(wanted, name)) not in (None, ())}
    return found if wanted.seed_code is None else {**found, "seed_source": wanted.seed_code}


class Session:
    """One task and its evaluator; one method per command. What the user can mend is answered as `refused`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._evaluator: Evaluator | None = None
        self._answers: Iterator[tuple[EvaluationJob, Evaluation]] = iter(())

    def open(self, task: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
        """Make the task and its evaluator; nothing is judged yet."""
        from evaluator import backends

        try:
            made = make_task(ForeignTask.model_validate(task), self._home)
            self._evaluator = backends.create({**settings, "cache_dir": str(self._home / "verdicts")}, made)
        except KernevoError as error:
            return self._refused(error)
        return {"task": made.name}

    def judge(self, sources: list[str]) -> None:
        """Begin with these kernels; `answer` gives the verdicts in their order."""
        assert self._evaluator is not None
        jobs = [EvaluationJob(job_id=str(index), source=KernelSource(text=text)) for index, text in enumerate(sources)]
        self._answers = iter(self._evaluator.evaluate(jobs))

    def answer(self) -> dict[str, Any]:
        """The next verdict."""
        try:
            _, evaluation = next(self._answers)
        except KernevoError as error:
            return self._refused(error)
        return {"evaluation": evaluation.model_dump(mode="json")}

    def _refused(self, error: KernevoError) -> dict[str, Any]:
        said = {name: str(getattr(error, name)).replace(f"{self._home}/", "") for name in ("message", "hint")}
        return {"refused": {"kind": type(error).__name__, **said}}


def preload() -> None:
    """Import what every judge needs; no device is touched."""
    import torch._dynamo  # noqa: F401

    from evaluator import backends  # noqa: F401


def main(descriptor: int, platform: str, confined: bool, slot: int, host_bytes: int) -> None:
    """Go behind the walls, then serve commands until the socket closes."""
    from evaluator import gpu_worker

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    receive(channel)
    walls = enter(Path.cwd(), platform, slot, host_bytes) if confined else {}
    channel.sendall(wire.dump({"walls": walls}))
    gpu_worker.serve(channel, Session(Path.cwd()))


def enter(home: Path, platform: str, slot: int, host_bytes: int) -> dict[str, str]:
    """The walls of a gpu worker, whose compilers this process starts too; says what became of each."""
    writable = [Path(os.environ[name]) for name in ("XDG_RUNTIME_DIR",) if name in os.environ]  # the GPUs' locks
    if platform == "cuda":
        import torch

        torch.zeros(1, device="cuda")  # the driver's mappings must not count as the reference's memory
        writable += [*sorted(Path("/dev").glob("nvidia*")), Path("/dev/shm")]
    # Its workers are programs of their own: they look for this package in its folder, and Python may be readable with
    # a capability only, which is why /etc and /dev are out of reach: errors in a reference are shown to who sent it.
    package = Path(__file__).resolve().parents[1]
    walls = gpu_walls.enter(home, slot, writable, host_bytes, system=("/proc", "/sys"), listable=[package])
    sandbox.attempt(lambda: confine.pass_on_capability(confine.CAP_DAC_READ_SEARCH))
    return walls
