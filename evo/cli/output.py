"""What commands print: results on stdout (text, or one JSON document), progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluator.errors import EnvironmentUnusableError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from evo.candidate import Record

SCHEMA_VERSION = 1
"""Of every --json document; grows when a field is renamed or removed."""
_PLAIN_WIDTH = 160


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout, its schema_version first."""
    print(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2, default=str))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """A table on stdout, wide enough for scripts when stdout is no terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    _print(table)


def _print(table: Table) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH).print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    """`name  value` lines on stdout; values of several lines are indented under the first."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        lines = str(value).splitlines() or [""]
        print(f"{name:<{width}}  {lines[0]}".rstrip())
        for line in lines[1:]:
            print(f"{'':<{width}}  {line}".rstrip())


def note(message: str) -> None:
    """A line of progress or advice, on stderr."""
    print(message, file=sys.stderr, flush=True)


def write_file(path: Path, text: str) -> None:
    """Write a result file, making its folder. Raises EnvironmentUnusableError naming the path."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentUnusableError(
            f"{path}: cannot be written: {error.strerror}", "give another place with --out"
        ) from None


def read_kernel(path: Path) -> str:
    """The text of a kernel file. Raises UsageError when it cannot be read as text."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", "give the path of a Python file") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})", "give a Python source file") from None


def speedup_text(record: Record) -> str:
    """`1.83x modelled (h200), 0.0712 ms modelled`: never a number without its kind."""
    evaluation = record.evaluation
    if evaluation.latency_ms is None:
        return str(evaluation.status)
    kind = f"{evaluation.kind} ({evaluation.target})"
    ratio = "no baseline" if evaluation.speedup is None else f"{evaluation.speedup:.3f}x {kind}"
    return f"{ratio}, {evaluation.latency_ms:.4g} ms {evaluation.kind}"


def record_facts(record: Record) -> dict[str, Any]:
    """A judged candidate for --json output."""
    evaluation = record.evaluation
    return {
        "id": record.id,
        "status": str(evaluation.status),
        "speedup": evaluation.speedup,
        "latency_ms": evaluation.latency_ms,
        "timing_kind": evaluation.kind,
        "target": evaluation.target,
        "operator": record.candidate.operator,
        "config": dict(record.candidate.config),
        "rewrites": [step.model_dump() for step in record.candidate.rewrites],
        "source_sha": record.candidate.source_sha,
    }
