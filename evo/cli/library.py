"""`kernevo library add|search|show`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evo.cli import complete, output
from evo.cli.apps import new_app
from evo.cli.runs import RUNS, find_run

if TYPE_CHECKING:
    from evo.library import Found, Kernel

app = new_app(no_args_is_help=True, help="Keep and find the kernels of many runs.")

LIBRARY = RUNS / "library.sqlite"

_LibraryOption = Annotated[Path, typer.Option("--library", help="The library's file.")]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def add(
    runs: complete.RunArguments,
    library: _LibraryOption = LIBRARY,
    as_json: _JsonOption = False,
) -> None:
    """Add the best kernels of runs; a run that was added before is replaced."""
    folders = list(dict.fromkeys(find_run(run) for run in runs))
    from evo import library as store
    from evo.run import Run

    added = store.add(library, [Run.load(folder) for folder in folders])
    held = store.count(library)
    if as_json:
        output.print_json({"library": str(library), "added": added, "kernels": held})
    else:
        output.print_facts({"library": library, "added": f"{added} kernels", "holds": f"{held} kernels"})


@app.command()
def search(
    words: Annotated[list[str] | None, typer.Argument(help="What to look for; the fastest kernels without.")] = None,
    task: Annotated[str | None, typer.Option(help="Only kernels of the task with this name.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Only kernels judged for a GPU whose name holds this.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Kernels shown at most.")] = 10,
    library: _LibraryOption = LIBRARY,
    as_json: _JsonOption = False,
) -> None:
    """Find kernels by the words of their sources, tasks and rewrites, the best match first."""
    from evo import library as store

    found = store.search(library, " ".join(words or ()), limit, task, hardware)
    if as_json:
        output.print_json({"library": str(library), "kernels": [document_of(one) for one in found]})
    elif not found:
        output.note("no kernel matches")
    else:
        rows = [
            (one.kernel.id, one.kernel.task, speed(one.kernel), steps(one.kernel), Path(one.kernel.run).name)
            for one in found
        ]
        output.print_table(("id", "task", "speedup over the baseline, latency", "rewrites", "run"), rows)


@app.command()
def show(
    kernel: Annotated[str, typer.Argument(metavar="ID", help="A kernel's id, or how it begins.")],
    source: Annotated[bool, typer.Option("--source", help="Print the source and nothing else.")] = False,
    library: _LibraryOption = LIBRARY,
    as_json: _JsonOption = False,
) -> None:
    """Print one kernel: where it comes from, how it was judged, and its source."""
    from evo import library as store
    from evo.report.text import visible

    found = store.kernel(library, kernel)
    if as_json:
        output.print_json(document_of(found))
        return
    if not source:
        output.print_facts(_facts(found.kernel))
        print()
    # Raw for programs; a terminal would obey what the text holds.
    print(_printable(visible(found.source) if sys.stdout.isatty() else found.source), end="")


def _printable(source: str) -> str:
    """A source that any stdout can print."""
    return source.encode("utf-8", "backslashreplace").decode()


def document_of(found: Found) -> dict[str, Any]:
    """What `--json` says of a kernel."""
    return {**found.kernel.model_dump(mode="json"), "source": _printable(found.source)}


def speed(kernel: Kernel) -> str:
    """`1.83x measured (H200), 0.0712 ms measured`: never a number without its kind."""
    latency = f"{kernel.latency_ms:.4g} ms {kernel.kind}"
    if kernel.speedup is None:
        return f"no baseline, {latency}"
    return f"{kernel.speedup:.3f}x {kernel.kind} ({kernel.target}), {latency}"


def steps(kernel: Kernel) -> str:
    """The rewrites that led to a kernel."""
    return " → ".join(step.name for step in kernel.rewrites) or "-"


def _facts(kernel: Kernel) -> dict[str, object]:
    interval = "none"
    if kernel.speedup_low is not None and kernel.speedup_high is not None:
        interval = f"{kernel.speedup_low:.3f} to {kernel.speedup_high:.3f}"
    workloads = [
        f"{name}  {timing.median_ms:.4g} ms" + (f", {timing.speedup:.3f}x" if timing.speedup else "")
        for name, timing in kernel.timings.items()
    ]
    return {
        "kernel": kernel.id,
        "task": kernel.task,
        "verdict": f"{kernel.verdict}, {kernel.checks_passed} of {kernel.checks_total} checks passed",
        "speedup": speed(kernel),
        "95 % interval": interval,
        f"workloads, {kernel.kind}": "\n".join(workloads),
        "run": f"{kernel.run}, candidate {kernel.candidate}" + (", held out" if kernel.split == "held_out" else ""),
        "operator": f"{kernel.operator}, policy {kernel.policy}",
        "rewrites": steps(kernel),
        "versions": ", ".join(f"{name} {version}" for name, version in kernel.versions.items()) or "unknown",
    }
