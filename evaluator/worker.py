"""The untrusted side: runs one job inside a confined, freshly forked process and writes one frame back.

A job is a dict with `kind`, `source` and the kind's data; no reference, seed or expected output is ever in it.
The answer is `{"nonce", "result"}` or `{"nonce", "error"}`; the nonce and the channel live in local variables of
the serving frame only, so that a candidate cannot simply import them. What a candidate can forge at worst is
its own output, which the judge compares with values that are not here.
"""

from __future__ import annotations

import copy
import dataclasses
import errno
import math
import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaluator import correctness, wire
from evaluator.candidate_module import FILE_NAME
from evaluator.digests import digests
from evaluator.types import EvalStatus

EXIT_NOT_CONFINED = 86
_MAX_TEXT = 4000
CANNOT_JUDGE = "the CPU evaluator cannot judge it"
"""Begins the reason where the interpreter lacks something, which says nothing about the kernel."""
_PLAIN = {
    EvalStatus.OUT_OF_MEMORY: "asked for more memory than it may have",
    EvalStatus.OUTPUT_LIMIT: "wrote a file larger than it may",
    EvalStatus.PROCESS_LIMIT: "tried to start a process or a thread",
}


WARM_UP = """
import torch
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), axis=0)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, total, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), BLOCK=16)
        return out
"""


def preload() -> None:
    """Import what every job needs and run one small kernel, in the zygote.

    The first run of each path imports a thousand modules (torch._dynamo among them, about 2 s).
    """
    import torch
    from triton import knobs

    from evaluator import compile, interpret, trace

    inputs = [torch.zeros(20)]
    if knobs.runtime.interpret:
        _spare_overflow_checks()
        try:
            interpret.run_small(WARM_UP, [], {}, inputs, poison=math.nan)
            trace.trace_workload(WARM_UP, [], inputs, {}, max_programs=1)
        except Exception as error:
            _interpreter_fault.append(_not_usable(error))
    else:
        compile.warm_up(90)
        compile.compile_workload(WARM_UP, [], inputs, {}, "h200")


_interpreter_fault: list[str] = []
"""Why Triton's interpreter does not work with the installed packages, for every job that needs it."""


def _not_usable(error: Exception) -> str:
    import numpy
    import triton

    found = f"triton {triton.__version__} with numpy {numpy.__version__}"
    return f"Triton's interpreter does not work here ({found}): {error}; Triton before 3.8 needs numpy < 2.4"


def _need_interpreter() -> None:
    from evaluator.interpreter_hooks import UnsupportedError

    if _interpreter_fault:
        raise UnsupportedError(_interpreter_fault[0])


def _spare_overflow_checks() -> None:
    """Nearly half of the interpreter's time goes into integer overflow checks that compiled kernels do not have."""
    from triton.runtime import interpreter

    interpreter.interpreter_builder.options = dataclasses.replace(
        interpreter.interpreter_builder.options, sanitize_overflow=False
    )


def serve(descriptor: int) -> None:
    """Read one job from the channel, run it, write the answer and end the process. Never returns."""
    channel = socket.socket(fileno=descriptor)
    job = wire.load(receive(channel))
    nonce = job.pop("nonce")

    def answer(content: dict[str, Any]) -> None:
        channel.setblocking(True)
        channel.sendall(wire.dump({"nonce": nonce, **content}))

    try:
        content = {"result": _JOBS[job.pop("kind")](job)}
    except BaseException as error:
        content = {"error": describe(error)}
    _send(answer, content)
    # Neither atexit hooks nor destructors of the candidate may run after the answer.
    os._exit(0)


def _send(answer: Callable[[dict[str, Any]], None], content: dict[str, Any]) -> None:
    try:
        answer(content)
    except (wire.WireError, MemoryError) as error:
        answer({"error": _error(EvalStatus.RUNTIME_ERROR, f"its result cannot be sent: {error}")})


def receive(channel: socket.socket) -> bytes:
    """One frame of the judge's; this process ends when the judge has given up."""
    prefix = _exactly(channel, wire.PREFIX.size)
    return prefix + _exactly(channel, wire.frame_size(prefix, 1 << 40))


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = channel.recv(size - len(data))
        if not chunk:
            os._exit(0)  # the judge gave up
        data += chunk
    return bytes(data)


def _compile(job: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Compiled launches of every workload, in launch order."""
    from evaluator.compile import compile_workload

    return [
        [
            launch.model_dump()
            for launch in compile_workload(
                job["source"], shapes["init_args"], shapes["inputs"], shapes["state"], job["target"]
            )
        ]
        for shapes in job["workloads"]
    ]


def _trace(job: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Launch traces of every workload, in launch order."""
    from evaluator.trace import trace_workload

    _need_interpreter()
    return [
        [
            launch.model_dump()
            for launch in trace_workload(
                job["source"],
                shapes["init_args"],
                shapes["inputs"],
                shapes["state"],
                max_programs=job["max_programs"],
            )
        ]
        for shapes in job["workloads"]
    ]


def _check(job: dict[str, Any]) -> list[dict[str, Any]]:
    """What every case gave; the first case that raises is the last."""
    _need_interpreter()
    results: list[dict[str, Any]] = []
    for case in job["cases"]:
        try:
            results.append(_check_one(job["source"], case, job["redzone_bytes"]))
        except Exception as error:
            results.append({"error": describe(error)})
            break
    return results


def _check_one(source: str, case: dict[str, Any], redzone_bytes: int) -> dict[str, Any]:
    """Outputs, digests of inputs after the run, findings, and digests of repeated runs.

    Fresh memory is filled with NaN. A repeat with another filling that gives other outputs is repeated again with the
    first one, which tells unwritten memory from chance.
    """
    found, after = _run(source, case, redzone_bytes, math.nan)
    result = {
        "outputs": [plain_output(out) for out in found.outputs],
        "digests": after,
        "out_of_bounds": [str(finding) for finding in found.out_of_bounds],
        "kernels": list(found.kernels),
    }
    if case["repeat"] or any(_has_nan(out) for out in found.outputs):
        first, other = _digests(found), _digests(_run(source, case, redzone_bytes, 1e30)[0])
        result["other_filling"] = other
        result["same_filling"] = first if other == first else _digests(_run(source, case, redzone_bytes, math.nan)[0])
    return result


def _run(source: str, case: dict[str, Any], redzone_bytes: int, poison: float) -> tuple[Any, dict[str, str]]:
    from evaluator.interpret import run_small

    state, inputs = copy.deepcopy(case["state"]), copy.deepcopy(case["inputs"])
    found = run_small(source, case["init_args"], state, inputs, redzone_bytes=redzone_bytes, poison=poison)
    return found, digests(state, inputs)


def plain_output(output: object) -> Any:
    """An exact `torch.Tensor` as it is, anything else as its type's name (see `correctness.compare`)."""
    import torch

    if type(output) is torch.Tensor:
        return output
    prefix = correctness.TENSOR_SUBCLASS if isinstance(output, torch.Tensor) else ""
    return prefix + type(output).__name__


def _has_nan(output: object) -> bool:
    import torch

    return isinstance(output, torch.Tensor) and output.is_floating_point() and bool(output.isnan().any())


def _digests(found: Any) -> list[str]:
    return [out if isinstance(out, str) else wire.digest(out) for out in map(plain_output, found.outputs)]


_JOBS: dict[str, Callable[[dict[str, Any]], Any]] = {"compile": _compile, "check": _check, "trace": _trace}


def describe(error: BaseException) -> dict[str, str]:
    """Status, one line and several lines about an exception that a candidate (or this harness) caused."""
    if isinstance(error, SystemExit):
        return _error(EvalStatus.EXITED, f"raised SystemExit({error.code!r}) instead of returning")
    root = _root_cause(error)
    status = _status_of(root)
    where = _candidate_line(error) or _candidate_line(root)
    # Memory that the harness asks for in vain is memory that the candidate has taken.
    blameless = _is(root, "UnsupportedError") or status is EvalStatus.OUT_OF_MEMORY
    if not where and not blameless and (own := _harness_line(root)):
        text = f"{own}: {type(root).__name__}: {_first_line(root)}"
        return _error(EvalStatus.HARNESS_ERROR, f"the worker failed in {text}")
    text = _PLAIN.get(status) or f"{type(root).__name__}: {_first_line(root)}"
    if _is(root, "UnsupportedError"):
        text = f"{CANNOT_JUDGE}: {_first_line(root)}"
    reason = f"{text} ({where})" if where else text
    explain = "".join(traceback.format_exception_only(root))[-_MAX_TEXT:].strip()
    return _error(status, reason, f"{where}\n{explain}" if where else explain)


def _error(status: EvalStatus, reason: str, explain: str = "") -> dict[str, str]:
    return {"status": status.value, "reason": reason[:500], "explain": explain or reason}


def _root_cause(error: BaseException) -> BaseException:
    """The innermost explicit cause: Triton wraps what happened inside a kernel."""
    seen = {id(error)}
    while error.__cause__ is not None and id(error.__cause__) not in seen:
        error = error.__cause__
        seen.add(id(error))
    return error


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _status_of(error: BaseException) -> EvalStatus:
    text = str(error)
    words = ("can't allocate memory", "not enough memory")
    if isinstance(error, MemoryError) or _is(error, "OutOfMemoryError") or any(part in text for part in words):
        return EvalStatus.OUT_OF_MEMORY
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return EvalStatus.OUTPUT_LIMIT
    if isinstance(error, BlockingIOError) or "can't start new thread" in text:
        return EvalStatus.PROCESS_LIMIT
    if isinstance(error, SyntaxError):
        return EvalStatus.SYNTAX_ERROR
    if isinstance(error, AttributeError) and error.name == "ModelNew":
        return EvalStatus.MISSING_ENTRY_POINT
    if _is(error, "CompilationError"):
        return EvalStatus.COMPILE_ERROR
    return EvalStatus.RUNTIME_ERROR


def _is(error: BaseException, name: str) -> bool:
    return any(base.__name__ == name for base in type(error).__mro__)


def _candidate_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.endswith(FILE_NAME)]
    return f"{FILE_NAME}:{own[-1].lineno}" if own else ""


def _harness_line(error: BaseException) -> str:
    """Where this package itself raised; "" when the candidate's model was being loaded, built or called."""
    frames = traceback.extract_tb(error.__traceback__)
    here = Path(__file__).parent
    if not frames or any(Path(frame.filename) == here / "candidate_module.py" for frame in frames):
        return ""
    own = [frame for frame in frames if Path(frame.filename).parent == here]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
