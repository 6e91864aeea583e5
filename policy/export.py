"""Exports: turns as datasets for training libraries.

`export(turns, "trl-grpo", folder)` writes a folder that `datasets.load_dataset(folder)` reads. Turns of held-out
tasks and modelled timings are refused unless the caller says that they are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluator.errors import KernevoError, UsageError
from evaluator.nearest import nearest
from evaluator.version import __version__
from policy.exports import trl_grpo, trl_sft, writer
from policy.exports.base import Format, Options, Row, component_names
from policy.exports.card import card
from policy.types import Turn

FORMATS: dict[str, Format] = {chosen.name: chosen for chosen in (trl_sft.FORMAT, trl_grpo.FORMAT)}
"""Name on the command line -> format."""


@dataclass(frozen=True)
class Exported:
    """What was written."""

    folder: Path
    files: tuple[Path, ...]
    rows: int
    considered: int
    """Turns there were to choose from."""
    timing_kinds: tuple[str, ...]
    notes: tuple[str, ...]


def export(
    turns: Sequence[Turn],
    format: str,
    folder: Path,
    *,
    allow_modelled: bool = False,
    allow_held_out: bool = False,
    force: bool = False,
    options: Options | None = None,
) -> Exported:
    """Write `turns` as a dataset folder.

    Raises UsageError for an unknown format, a folder that is in use, refused turns; KernevoError when nothing is
    left to export; EnvironmentUnusableError when the folder cannot be written.
    """
    chosen = format_named(format)
    _check_allowed(turns, allow_modelled=allow_modelled, allow_held_out=allow_held_out)
    _check_folder(folder, force=force)
    kept = chosen.select(turns, options or Options())
    if not kept:
        raise KernevoError(f"{chosen.name}: none of {len(turns)} turns can be exported", chosen.empty_hint)
    components = component_names(kept)
    rows = [_complete(chosen.row(turn), chosen, components) for turn in kept]
    text = card(chosen, kept, components, len(turns), __version__)
    writer.write(folder, rows, dict(chosen.features), components, text)
    return Exported(
        folder=folder,
        files=tuple(writer.files_of(folder)),
        rows=len(rows),
        considered=len(turns),
        timing_kinds=tuple(sorted({turn.timing_kind for turn in kept if turn.timing_kind})),
        notes=tuple(chosen.notes(kept)),
    )


def _complete(row: Row, chosen: Format, components: list[str]) -> Row:
    """Give every row the same reward components: one that did not apply contributed 0."""
    for name, kind in chosen.features.items():
        if kind == "components":
            row[name] = {component: row[name].get(component, 0.0) for component in components}
    return row


def format_named(name: str) -> Format:
    """A format of the registry. Raises UsageError with the nearest name."""
    if name in FORMATS:
        return FORMATS[name]
    raise UsageError(f"no export format {name!r}", nearest(name, FORMATS))


def _check_allowed(turns: Sequence[Turn], *, allow_modelled: bool, allow_held_out: bool) -> None:
    held_out = sorted({turn.task for turn in turns if turn.split == "held_out"})
    if held_out and not allow_held_out:
        raise UsageError(
            f"held-out task {held_out[0]} is not for training",
            "leave its run out; --allow-held-out exports it for evaluation",
        )
    modelled = sum(turn.timing_kind == "modelled" for turn in turns)
    if modelled and not allow_modelled:
        raise UsageError(
            f"{modelled} of {len(turns)} turns have modelled timings, which are no measured reward",
            "--allow-modelled exports them with timing_kind=modelled in every row; a run on a GPU measures",
        )


def _check_folder(folder: Path, *, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: a file, not a folder", "give a folder with --out")
    if force or not folder.is_dir():
        return
    if any(folder.iterdir()):
        raise UsageError(f"{folder}: not empty; nothing was overwritten", "give another folder, or --force")
