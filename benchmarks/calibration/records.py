"""What the calibration keeps: judged points with their features, and measured rows. Both are JSON lines, gzipped."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from evaluator.trace import LaunchTrace
from evaluator.types import EvalStatus, Frozen, KernelResources
from policy.types import RewriteStep

DATA = Path(__file__).parent / "data"
RecordT = TypeVar("RecordT", bound=Frozen)


class Launch(Frozen):
    """One launch of one workload: what it does and what the compiler made of it."""

    trace: LaunchTrace
    resources: KernelResources


class Point(Frozen):
    """One source: a structure under one config, judged by the CPU evaluator."""

    id: str
    task: str
    structure: int
    """Number of the structure within its task; 0 is the seed's."""
    rewrites: tuple[RewriteStep, ...]
    """What made the structure of the seed."""
    config: Mapping[str, int]
    """Every tunable's value in this source."""
    source: str
    status: EvalStatus
    reason: str = ""
    launches: Mapping[str, tuple[Launch, ...]] = {}
    """By workload name, in launch order; empty unless passed."""


class Measured(Frozen):
    """One point at one workload on a GPU."""

    id: str
    workload: str
    error: str = ""
    """Why there is no time: what the kernel raised, or that its result differs."""
    max_error: float | None = None
    """Largest |actual - expected|."""
    median_ms: float | None = None
    p20_ms: float | None = None
    p80_ms: float | None = None
    samples: int = 0
    host_ms: float | None = None
    """Host time of one call: what launching costs."""
    resources: tuple[KernelResources, ...] = ()
    """Of each launch, as the Triton of the measuring machine compiled it."""


class Machine(Frozen):
    """The measuring machine, and what an empty kernel and copies take on it under the same procedure."""

    gpu: str
    versions: Mapping[str, str]
    empty_ms: float
    """A Triton kernel of one program of four warps that does nothing."""
    start_ms: Mapping[str, float]
    """The same for other numbers of programs and warps, by `PROGRAMSxWARPS`."""
    copy_ms: Mapping[int, float]
    """A Triton copy by bytes moved (read plus written)."""
    torch_copy_ms: Mapping[int, float]
    """torch's device copy by bytes moved."""
    date: str


def read(path: Path, kind: type[RecordT]) -> list[RecordT]:
    """The records of one file, in order. Lines of other kinds raise ValidationError."""
    return [kind.model_validate_json(line) for line in lines(path)]


def lines(path: Path) -> Iterator[str]:
    """Lines of a plain or gzipped file."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    yield from (line for line in text.splitlines() if line.strip())


def write(path: Path, records: Iterable[Frozen]) -> None:
    """Replace a gzipped file at once; the same records give the same bytes."""
    text = "".join(json.dumps(_rounded(record.model_dump(mode="json"))) + "\n" for record in records)
    scratch = path.with_suffix(".part")
    scratch.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    os.replace(scratch, path)


def _rounded(value: Any) -> Any:
    """Floats to seven digits: more than any count or clock here means."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list) else value


def read_points(folder: Path = DATA) -> list[Point]:
    """Every judged point of every task in `folder`, failed ones included."""
    return [point for path in sorted(folder.glob("points_*.jsonl.gz")) for point in read(path, Point)]
