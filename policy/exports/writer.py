"""Writes rows as a folder that `datasets.load_dataset(folder)` reads: JSONL, a card with the column types, Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from evaluator.errors import EnvironmentUnusableError
from policy.exports.base import Feature, Row

DATA = "train.jsonl"
PARQUET = "train.parquet"
CARD = "README.md"


def write(folder: Path, rows: Sequence[Row], features: dict[str, Feature], components: list[str], card: str) -> None:
    """Write all files; each appears whole or not at all. Raises EnvironmentUnusableError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _atomically(folder / DATA, lambda path: _write_jsonl(path, rows))
        table = _table(rows, features, components)
        if table is None:
            (folder / PARQUET).unlink(missing_ok=True)
        else:
            _atomically(folder / PARQUET, lambda path: _write_parquet(path, table))
        _atomically(folder / CARD, lambda path: _write_text(path, card))
    except OSError as error:
        raise EnvironmentUnusableError(
            f"{folder}: cannot be written: {error.strerror or error}", "give another folder, or free space on that disk"
        ) from error


def files_of(folder: Path) -> list[Path]:
    """The files of an export that lie in `folder`, the data first."""
    return [folder / name for name in (DATA, PARQUET, CARD) if (folder / name).exists()]


def _atomically(path: Path, make: Callable[[Path], None]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        make(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_text(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")


def _write_jsonl(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def _write_parquet(path: Path, table: Any) -> None:
    from pyarrow import parquet

    parquet.write_table(table, path, compression="zstd")


def _table(rows: Sequence[Row], features: dict[str, Feature], components: list[str]) -> Any:
    """The rows as an Arrow table; None without pyarrow, which only the training extra brings."""
    try:
        import pyarrow as pa
    except ImportError:
        return None
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    types = {
        "string": pa.string(),
        "float64": pa.float64(),
        "int64": pa.int64(),
        "bool": pa.bool_(),
        "messages": pa.list_(message),
        "components": pa.struct([(name, pa.float64()) for name in components]),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in features.items()])
    return pa.Table.from_pylist(list(rows), schema=schema)


def feature_lines(features: dict[str, Feature], components: list[str]) -> list[str]:
    """`dataset_info.features` of the card, so that JSONL loads with these types whatever the first rows hold."""
    lines = ["dataset_info:", "  features:"]
    for name, kind in features.items():
        lines.append(f"  - name: {name}")
        if kind == "messages":
            lines += [
                "    list:",
                "    - name: role",
                "      dtype: string",
                "    - name: content",
                "      dtype: string",
            ]
        elif kind == "components":
            lines.append("    struct:")
            for component in components:
                lines += [f"    - name: {component}", "      dtype: float64"]
        else:
            lines.append(f"    dtype: {kind}")
    return lines
