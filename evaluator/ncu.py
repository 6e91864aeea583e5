"""Hardware counters of a candidate's kernels, from Nsight Compute's command line (`ncu`).

Clocks are left alone (`--clock-control none`); caches are flushed before each replay, as they are when timing. The
numbers are per launch; a kernel that is launched several times appears once, as its longest launch.
"""

from __future__ import annotations

import csv
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from evaluator.gpu_tools import Finished, ToolError, find_tool, run_tool
from evaluator.types import Frozen, KernelCounters

TIME = "gpu__time_duration.sum"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
DRAM_BYTES = "dram__bytes.sum"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
L2_HITS = "lts__t_sector_hit_rate.pct"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
METRICS = (TIME, DRAM, DRAM_BYTES, SM, L2_HITS, OCCUPANCY)
STALLS = "WarpStateStats"
"""The section whose metrics say what warps wait for; their names differ between GPUs."""
MAX_LAUNCHES = 32
TOP_STALLS = 3

_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)(?:_not_issued)?_per_issue_active\.ratio")
_FORBIDDEN = "ERR_NVGPUCTRPERM"
_TO_NS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_TO_BYTES = {"byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9}


class CountersReport(Frozen):
    """Counters by kernel, or the reason why there are none."""

    kernels: tuple[KernelCounters, ...] = ()
    reason: str = ""


def measure_counters(
    driver: Sequence[str],
    kernels: Sequence[str],
    folder: Path,
    logs: Path,
    environment: Mapping[str, str],
    seconds: float = 180.0,
    stopped: threading.Event | None = None,
) -> CountersReport:
    """Run `driver` under ncu and read the counters of `kernels` (compiled names).

    Launches count from where the driver calls cudaProfilerStart. `folder` is the working folder, `logs` one that only
    the tool is told of. Takes about half a minute. Never raises for a tool that is missing, counters that may not be
    read or a driver that fails: the report says so; `HarnessError` once `stopped` is set.
    """
    log = logs / "ncu.csv"
    try:
        finished = run_tool(ncu_command(driver, kernels, log), log, folder, environment, seconds, stopped)
    except ToolError as error:
        return CountersReport(reason=str(error))
    return read_counters(finished)


def ncu_command(driver: Sequence[str], kernels: Sequence[str], log: Path) -> list[str]:
    """The command line. Raises `ToolError` without ncu."""
    names = "|".join(re.escape(name) for name in kernels)
    return [
        find_tool("ncu"),
        *("--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)),
        *("--clock-control", "none", "--cache-control", "all", "--target-processes", "all"),
        *("--kernel-name-base", "function", "--kernel-name", f"regex:^({names})$"),
        *("--profile-from-start", "off", "--launch-count", str(MAX_LAUNCHES)),
        *("--section", STALLS, "--metrics", ",".join(METRICS)),
        "--",
        *driver,
    ]


def read_counters(finished: Finished) -> CountersReport:
    """The report of an ncu run from its log (`--csv --page raw`: names, units, one row per launch)."""
    lines = finished.log.splitlines()
    table = [line for line in lines if line and not line.startswith("==")]
    if _FORBIDDEN in finished.log:
        return CountersReport(
            reason=f"hardware counters may not be read ({_FORBIDDEN}): the driver must be loaded with "
            "NVreg_RestrictProfilingToAdminUsers=0, or the container be given SYS_ADMIN"
        )
    rows = list(csv.reader(table))
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        return CountersReport(reason=_why_empty(lines, finished))
    names, units = rows[0], rows[1]
    found: dict[str, KernelCounters] = {}
    for row in rows[2:]:
        if len(row) != len(names):
            continue
        launch = _launch(dict(zip(names, row, strict=True)), dict(zip(names, units, strict=False)))
        known = found.get(launch.kernel)
        if known is None or (launch.ms or 0.0) > (known.ms or 0.0):
            found[launch.kernel] = launch
    return CountersReport(kernels=tuple(found.values()))


def _why_empty(lines: Sequence[str], finished: Finished) -> str:
    marks = ("==ERROR==", "==WARNING==")
    said = [line.split("==", 2)[-1].strip() for line in lines if line.startswith(marks)]
    text = "; ".join(said) or f"it ended with code {finished.code} and no results"
    return f"ncu: {text}" + (f"; the driver's last words: {finished.last_words[-300:]}" if finished.last_words else "")


def _launch(row: Mapping[str, str], units: Mapping[str, str]) -> KernelCounters:
    def value(metric: str) -> float | None:
        return number(row.get(metric, ""))

    def scaled(metric: str, scales: Mapping[str, float]) -> float | None:
        found = value(metric)
        return None if found is None else found * scales.get(units.get(metric, "").lower(), 1.0)

    ns = scaled(TIME, _TO_NS)
    return KernelCounters(
        kernel=row["Kernel Name"],
        grid=row.get("Grid Size", ""),
        block=row.get("Block Size", ""),
        ms=None if ns is None else ns / 1e6,
        dram_pct=value(DRAM),
        dram_bytes=scaled(DRAM_BYTES, _TO_BYTES),
        sm_pct=value(SM),
        l2_hit_pct=value(L2_HITS),
        occupancy_pct=value(OCCUPANCY),
        stalls=_top_stalls(row),
    )


def _top_stalls(row: Mapping[str, str]) -> dict[str, float]:
    cycles = dict(_stall_cycles(row))
    total = sum(cycles.values())
    # `selected` is a warp that issues: the one state that is no stall.
    ranked = sorted(((value, name) for name, value in cycles.items() if name != "selected"), reverse=True)
    return {name: value / total for value, name in ranked[:TOP_STALLS] if value > 0}


def _stall_cycles(row: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for metric, text in row.items():
        match = _STALL.fullmatch(metric)
        cycles = number(text)
        if match and cycles is not None and "_not_issued_" not in metric:
            yield match[1], cycles


def number(text: str) -> float | None:
    """A number as ncu prints it: `1,234.5`, `1,234.5 (1; 2; 3)` where there are instances, or `n/a`."""
    try:
        return float(text.split(" (", maxsplit=1)[0].replace(",", ""))
    except ValueError:
        return None
