"""Writes rows as a folder that `datasets.load_dataset(folder)` reads: JSONL, a card with the column types, Parquet.

Rows go to the disk as they come. Files appear under their names only when all of them are whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from evaluator.errors import EnvironmentUnusableError
from policy.exports.base import COMPONENTS, Feature, Row

SPLITS = ("train", "test")
CARD = "README.md"
BATCH = 256
"""Rows of one Parquet row group."""


def data(split: str) -> str:
    """Name of a split's JSONL file."""
    return f"{split}.jsonl"


def parquet(split: str) -> str:
    """Name of a split's Parquet file."""
    return f"{split}.parquet"


class Writer:
    """One export being written into a folder; use `opened`."""

    def __init__(self, folder: Path, features: Mapping[str, Feature], components: Sequence[str]) -> None:
        self._folder = folder
        self._features = {name: _resolved(kind, components) for name, kind in features.items()}
        self._schema = arrow_schema(self._features)
        self._streams: dict[str, IO[str]] = {}
        self._tables: dict[str, Any] = {}
        self._batches: dict[str, list[Row]] = {}
        self._temporary: dict[str, Path] = {}

    def add(self, split: str, row: Row) -> None:
        """Write one row."""
        if split not in self._streams:
            self._open(split)
        self._streams[split].write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        if self._schema is not None:
            self._batches[split].append(row)
            if len(self._batches[split]) >= BATCH:
                self._flush(split)

    def add_file(self, name: str, content: str) -> None:
        """Write a whole file."""
        self._path(name).write_text(content, encoding="utf-8")

    def feature_lines(self) -> list[str]:
        """`dataset_info.features` of the card: JSONL loads with these types whatever the first rows hold."""
        lines = ["dataset_info:", "  features:"]
        for name, kind in self._features.items():
            lines += _yaml(name, kind, "  ")
        return lines

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that got rows."""
        return tuple(split for split in SPLITS if split in self._streams)

    def finish(self) -> None:
        """Give every file its name, and remove those of an earlier export that this one has not."""
        for split in self.splits:
            self._flush(split)
        self.close()
        for name in (*map(data, SPLITS), *map(parquet, SPLITS)):
            if name not in self._temporary:
                (self._folder / name).unlink(missing_ok=True)
        for name, path in self._temporary.items():
            path.replace(self._folder / name)

    def close(self) -> None:
        """Close what is open."""
        for stream in (*self._streams.values(), *self._tables.values()):
            stream.close()

    def discard(self) -> None:
        """Remove what has no name yet."""
        for path in self._temporary.values():
            path.unlink(missing_ok=True)

    def _open(self, split: str) -> None:
        self._streams[split] = self._path(data(split)).open("w", encoding="utf-8")
        if self._schema is not None:
            from pyarrow.parquet import ParquetWriter

            self._tables[split] = ParquetWriter(self._path(parquet(split)), self._schema, compression="zstd")
            self._batches[split] = []

    def _flush(self, split: str) -> None:
        if self._schema is None or not self._batches[split]:
            return
        import pyarrow

        self._tables[split].write_table(pyarrow.Table.from_pylist(self._batches[split], schema=self._schema))
        self._batches[split] = []

    def _path(self, name: str) -> Path:
        return self._temporary.setdefault(name, self._folder / f".{name}.{os.getpid()}.tmp")


@contextmanager
def opened(folder: Path, features: Mapping[str, Feature], components: Sequence[str]) -> Iterator[Writer]:
    """A writer whose files appear when the block ends well. Raises EnvironmentUnusableError for a disk that won't."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writer = Writer(folder, features, components)
        try:
            yield writer
            writer.finish()
        finally:
            writer.close()
            writer.discard()
    except OSError as error:
        raise EnvironmentUnusableError(
            f"{folder}: cannot be written: {error.strerror or error}", "give another folder, or free space on that disk"
        ) from error


def files_of(folder: Path) -> list[Path]:
    """The files of an export that lie in `folder`, the data first, the card last."""
    first = [*map(data, SPLITS), *map(parquet, SPLITS)]
    others = sorted(path.name for path in folder.glob("*.py"))
    return [folder / name for name in (*first, *others, CARD) if (folder / name).exists()]


def _resolved(kind: Feature, components: Sequence[str]) -> Feature:
    """The type with the export's reward components in place."""
    return dict.fromkeys(components, "float64") if kind == COMPONENTS else kind


def arrow_schema(features: Mapping[str, Feature]) -> Any:
    """The columns as an Arrow schema; None without pyarrow, which only the training extra brings."""
    try:
        import pyarrow as pa
    except ImportError:
        return None
    plain = {"string": pa.string(), "float64": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}

    def of(kind: Feature) -> Any:
        if isinstance(kind, str):
            return plain[kind]
        if isinstance(kind, list):
            return pa.list_(of(kind[0]))
        return pa.struct([(name, of(inner)) for name, inner in kind.items()])

    return pa.schema([(name, of(kind)) for name, kind in features.items()])


def _yaml(name: str, kind: Feature, indent: str) -> list[str]:
    return [f"{indent}- name: {name}", *_yaml_type(kind, f"{indent}  ")]


def _yaml_type(kind: Feature, indent: str) -> list[str]:
    if isinstance(kind, str):
        return [f"{indent}dtype: {kind}"]
    inner = kind[0] if isinstance(kind, list) else kind
    if isinstance(inner, str):
        return [f"{indent}list: {inner}"]
    word = "list" if isinstance(kind, list) else "struct"
    return [f"{indent}{word}:", *(line for name, one in inner.items() for line in _yaml(name, one, indent))]
