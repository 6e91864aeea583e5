"""Memory and race faults that answers do not show, from `compute-sanitizer` (memcheck, initcheck, racecheck).

The driver runs without torch's caching allocator, so that every tensor is an allocation of its own and a step over
its end is seen. Findings that Triton's compiler is known to produce for correct programs are kept, but marked:

* Threads that hold copies of one value of a reduction all store it to the same place in shared memory. Racecheck sees
  different bits where butterfly shuffles rounded differently (triton-lang/triton issue 7264).
* An access whose kind the tool does not know (`?`) has a size that it guesses; it misjudges warpgroup products so
  (NVIDIA/compute-sanitizer-samples issue 19).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from evaluator.gpu_tools import Finished, ToolError, find_tool, run_tool
from evaluator.types import EvalStatus, Frozen

Tool = Literal["memcheck", "initcheck", "racecheck"]

OPTIONS: dict[Tool, tuple[str, ...]] = {
    "memcheck": ("--report-api-errors", "no", "--padding", "4096"),
    "initcheck": (),
    "racecheck": ("--racecheck-report", "analysis"),
}
ENVIRONMENT = {
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    # Findings name the line of the source.
    "TRITON_DISABLE_LINE_INFO": "0",
}
_PRINTED_FINDINGS = 50
_PREFIX = re.compile(r"^={8,} ?(.*)$")
_PLACES = (
    re.compile(r"(?P<kernel>.+?)(?:\+|:)0x[0-9a-f]+(?: in (?P<where>.+))?"),
    re.compile(r"0x[0-9a-f]+ in (?P<where>\S+?:\d+):(?P<kernel>.+)"),
    re.compile(r"0x[0-9a-f]+ in (?P<kernel>.+)"),
)
_ACCESS = re.compile(r"(?P<kind>Invalid|Uninitialized) (?P<access>__\w+__ .+?) of size (?P<size>[\d,]+)(?: bytes)?")
_RACE = re.compile(r"(?P<severity>\w+): Race reported between (?P<access>\w+) access at (?P<place>.+)")
_OTHER_RACER = re.compile(r"\s*and (?P<access>\w+) access at (?P<place>.+?)(?:\s*\[[\d,]+ hazards?\])?")
_ADDRESS = re.compile(r"\s*(?:Address|Access (?:to|at)) 0x(?P<address>[0-9a-f]+)(?P<why>.*)")
_SUMMARY = re.compile(
    r"(?:ERROR SUMMARY: (?P<errors>[\d,]+) errors?|RACECHECK SUMMARY: (?P<hazards>[\d,]+) hazards? displayed.*)"
)
_STATUS = {"Invalid": EvalStatus.OUT_OF_BOUNDS, "Uninitialized": EvalStatus.UNINITIALISED}


class Finding(Frozen):
    """One fault, at one place of one kernel."""

    tool: Tool
    status: EvalStatus
    """The verdict that it stands for, unless it is benign."""
    kernel: str
    where: str
    """file:line, or empty."""
    what: str
    """The tool's first line, e.g. `Invalid __global__ write of size 4 bytes`."""
    size: int | None = None
    """Bytes of the access."""
    address: int | None = None
    detail: str = ""
    """What the tool says of the address, or the other access of a race."""
    benign: bool = False
    """Known to happen in correct Triton programs."""

    def line(self) -> str:
        """For people and policies."""
        place = f" at {self.where}" if self.where else ""
        return f"{self.kernel}{place}: {self.what}" + (f" ({self.detail})" if self.detail else "")


class SanitizerReport(Frozen):
    """What one tool found, or the reason why it found out nothing."""

    tool: Tool
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    """Empty when tool and driver ran to their end and all that was counted is among the findings, up to the limit."""


def sanitize(
    tool: Tool,
    driver: Sequence[str],
    folder: Path,
    logs: Path,
    environment: Mapping[str, str],
    seconds: float = 120.0,
    stopped: threading.Event | None = None,
) -> SanitizerReport:
    """Run `driver` under one tool; about 6 s for a small kernel.

    `folder` is the working folder, `logs` one that only the tool is told of. Never raises for a tool that is missing
    or a driver that fails: the report says so; `HarnessError` once `stopped` is set.
    """
    log = logs / f"{tool}.log"
    try:
        command = sanitizer_command(tool, driver, log)
        finished = run_tool(command, log, folder, {**environment, **ENVIRONMENT}, seconds, stopped)
    except ToolError as error:
        return SanitizerReport(tool=tool, reason=str(error))
    return read_findings(tool, finished)


def sanitizer_command(tool: Tool, driver: Sequence[str], log: Path) -> list[str]:
    """The command line. Raises `ToolError` without compute-sanitizer."""
    return [
        find_tool("compute-sanitizer"),
        *("--tool", tool, "--log-file", str(log), "--print-limit", str(_PRINTED_FINDINGS)),
        *("--target-processes", "all", "--show-backtrace", "no"),
        *OPTIONS[tool],
        "--",
        *driver,
    ]


def first_fault(report: SanitizerReport, kernels: Collection[str]) -> Finding | None:
    """The first finding that speaks against one of `kernels` (the candidate's, by name)."""
    return next((found for found in report.findings if not found.benign and found.kernel in kernels), None)


def read_findings(tool: Tool, finished: Finished) -> SanitizerReport:
    """The report of a run from its log: findings of equal place and kind once, in the order of the log."""
    lines = [match[1] for line in finished.log.splitlines() if (match := _PREFIX.match(line))]
    summary = next((match for line in reversed(lines) if (match := _SUMMARY.fullmatch(line.strip()))), None)
    found: dict[tuple[str, str, str], Finding] = {}
    for block in _blocks(lines):
        finding = _finding(tool, block)
        if finding is not None:
            found.setdefault((finding.kernel, finding.where, finding.what), finding)
    reason = ""
    if summary is None:
        said = next((line for line in lines if line.startswith(("Error:", "Fatal:"))), "")
        reason = f"{tool} did not run to its end: {said or finished.last_words[-300:] or f'code {finished.code}'}"
    elif not found and int((summary["errors"] or summary["hazards"]).replace(",", "")):
        reason = f"{tool} counted errors that are no accesses of kernels: {_first_words(lines)}"
    elif finished.code:
        reason = f"the driver ended with code {finished.code} under {tool}: {finished.last_words[-300:]}"
    return SanitizerReport(tool=tool, findings=tuple(found.values()), reason=reason)


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Each finding's first line with what belongs to it."""
    block: list[str] = []
    for line in lines:
        if _ACCESS.fullmatch(line) or _RACE.fullmatch(line):
            if block:
                yield block
            block = [line]
        elif block and (line.startswith(" ") or line.startswith("and ")):
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _finding(tool: Tool, block: Sequence[str]) -> Finding | None:
    race = _RACE.fullmatch(block[0])
    return _race(tool, race, block[1:]) if race else _access(tool, block)


def _access(tool: Tool, block: Sequence[str]) -> Finding | None:
    match = _ACCESS.fullmatch(block[0])
    assert match is not None
    place, address, detail = ("", ""), None, ""
    for line in block[1:]:
        stripped = line.strip()
        if stripped.startswith("at "):
            place = _place(stripped.removeprefix("at "))
        elif at := _ADDRESS.fullmatch(line):
            address, detail = int(at["address"], 16), at["why"].strip()
        elif stripped.startswith("and is "):
            detail = f"{detail} {stripped}".strip()
    return Finding(
        tool=tool,
        status=_STATUS[match["kind"]],
        kernel=place[0],
        where=place[1],
        what=block[0],
        size=int(match["size"].replace(",", "")),
        address=address,
        detail=detail,
        benign="?" in match["access"],
    )


def _race(tool: Tool, first: re.Match[str], rest: Sequence[str]) -> Finding:
    accesses = [(first["access"], first["place"])]
    accesses += [(match["access"], match["place"]) for line in rest if (match := _OTHER_RACER.fullmatch(line))]
    kernel, where = _place(accesses[0][1])
    # One store that several threads do: copies of one value.
    replicated = all(access == "Write" for access, _ in accesses) and len({place for _, place in accesses}) == 1
    return Finding(
        tool=tool,
        status=EvalStatus.RACE,
        kernel=kernel,
        where=where,
        what=f"race between a {accesses[0][0].lower()} and a {accesses[-1][0].lower()} of shared memory",
        detail=f"the other at {_place(accesses[-1][1])[1] or accesses[-1][1]}",
        benign=replicated or first["severity"].lower() == "info",
    )


def _place(text: str) -> tuple[str, str]:
    """Kernel and file:line of a place in any of the forms that versions of the tool print."""
    for form in _PLACES:
        match = form.fullmatch(text.strip())
        if match:
            kernel = match["kernel"].split("(", maxsplit=1)[0].removeprefix("void ")
            return kernel, match.groupdict().get("where") or ""
    return text.strip(), ""


def _first_words(lines: Sequence[str]) -> str:
    return next((line for line in lines if line.strip() and line != "COMPUTE-SANITIZER"), "")
