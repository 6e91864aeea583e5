"""Replays a candidate for NVIDIA's tools: `python -m evaluator.gpu_replay HOME PLATFORM`.

`HOME` holds one job (see `write_job`): the source and, for each workload, constructor arguments, parameters and inputs.
References, expected outputs and seeds are never in it. `forward` is called twice on each workload; the second calls are
what a profiler that waits for cudaProfilerStart sees. Ends with 0, or with 1 and the candidate's words on stderr.

The tool is connected and the device open before anything is walled off. Left as they are, since tools rely on them:
the user (counters may be for the administrator only) and system calls; of root's powers only these remain.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluator import confine, sandbox

if TYPE_CHECKING:
    import torch

    from evaluator.gpu_platform import Platform

JOB = "job.bin"
CPU_SECONDS = 300
"""A replay that its judge has left alone ends by itself."""


def write_job(home: Path, source: str, workloads: Sequence[Mapping[str, Any]]) -> None:
    """Put a job into `home`; each workload has `init_args`, `state` and `inputs`.

    Float tensors on the meta device stand for any values of that shape: they are drawn when the job is replayed.
    """
    from evaluator import wire

    job = {"source": source, "workloads": [dict(workload) for workload in workloads]}
    (home / JOB).write_bytes(wire.dump(job))


def main(home: Path, name: str) -> None:
    """Replay the job in `home` on a platform, confined."""
    os.environ.update(sandbox.private_folders(home))
    os.chdir(home)
    tempfile.tempdir = str(home)
    from evaluator import wire
    from evaluator.gpu_platform import PLATFORMS
    from evaluator.gpu_worker import warm_up

    job = wire.load((home / JOB).read_bytes())
    platform = PLATFORMS[name]()
    warm_up(platform)
    enter(home, platform.writable)
    try:
        replay(platform, job["source"], job["workloads"])
    except BaseException:  # a candidate that leaves early (SystemExit) has not been looked at
        traceback.print_exc()
        raise SystemExit(1) from None


def enter(home: Path, writable: Sequence[Path]) -> dict[str, str]:
    """Give up what neither a kernel nor a tool that looks into it needs; returns what became of each wall."""
    from evaluator.gpu_walls import wall_off

    walls = wall_off(home, writable)
    sandbox.limit(resource.RLIMIT_CPU, CPU_SECONDS, CPU_SECONDS)
    kept = (confine.CAP_SYS_ADMIN, confine.CAP_DAC_READ_SEARCH)
    walls["capabilities"] = sandbox.attempt(lambda: confine.keep_only_capabilities(*kept))
    confine.prctl(confine.PR_SET_NO_NEW_PRIVS, 1)
    return walls


def replay(platform: Platform, source: str, workloads: Sequence[Mapping[str, Any]]) -> None:
    """Two calls of each workload; whatever the candidate raises comes out."""
    from evaluator.candidate_module import build_model_on, forward, load_candidate

    module = load_candidate(source)
    ready = []
    for workload in workloads:
        state = {key: _placed(value, platform.device) for key, value in workload["state"].items()}
        model = build_model_on(platform.device, module, workload["init_args"], state)
        ready.append((model, [_placed(value, platform.device) for value in workload["inputs"]]))
    for model, inputs in ready:
        # Tunes what tunes itself.
        forward(model, inputs)
        platform.timer.synchronize()
    if platform.device == "cuda":
        import torch

        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    for model, inputs in ready:
        forward(model, inputs)
        platform.timer.synchronize()


def _placed(value: Any, device: str) -> Any:
    """A tensor on the device, with contents; anything else as it is."""
    from evaluator.gpu_memory import is_tensor

    if not is_tensor(value):
        return value
    return _drawn(value, device) if value.is_meta else value.to(device)


def _drawn(like: torch.Tensor, device: str) -> torch.Tensor:
    """Normally distributed values in a tensor's shape and strides."""
    import torch

    if not like.numel():
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)
    extent = 1 + sum((size - 1) * step for size, step in zip(like.shape, like.stride(), strict=True))
    return torch.randn(extent, device=device).to(like.dtype).as_strided(like.shape, like.stride())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
