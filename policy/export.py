"""Exports: turns as datasets for training libraries.

`export(turns, "trl-grpo", folder)` writes a folder that `datasets.load_dataset(folder)` reads. Turns of held-out
tasks and modelled timings are refused unless the caller says that they are wanted. Memory does not grow with prompts,
answers and sources: turns wait on the disk, and rows are written one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaluator.errors import KernevoError, UsageError
from evaluator.nearest import nearest
from evaluator.version import __version__
from policy.exports import (
    openevolve,
    openrlhf,
    prime_rl,
    prime_sft,
    skyrl,
    trl_dpo,
    trl_grpo,
    trl_kto,
    trl_sft,
    verl,
    verl_sft,
    writer,
)
from policy.exports.base import COMPONENTS, Format, Options, Pick, Row, Selection
from policy.exports.card import card
from policy.exports.checks import check_allowed, check_fits, check_folder
from policy.exports.shelf import Shelf
from policy.exports.splits import split_of, tasks_to_test
from policy.exports.tally import Tally
from policy.types import Turn

FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT
    for module in (
        trl_sft,
        trl_grpo,
        trl_dpo,
        trl_kto,
        verl,
        verl_sft,
        openrlhf,
        skyrl,
        prime_rl,
        prime_sft,
        openevolve,
    )
}
"""Name on the command line -> format."""


@dataclass(frozen=True)
class Exported:
    """What was written."""

    folder: Path
    files: tuple[Path, ...]
    rows: int
    splits: dict[str, int]
    """Split -> rows."""
    considered: int
    """Turns there were to choose from."""
    left_out: dict[str, int]
    """Why turns are in no row -> how many."""
    timing_kinds: tuple[str, ...]
    notes: tuple[str, ...]


def export(
    turns: Iterable[Turn],
    format: str,
    folder: Path,
    *,
    allow_modelled: bool = False,
    allow_held_out: bool = False,
    split_by: Literal["task"] | None = None,
    force: bool = False,
    options: Options | None = None,
) -> Exported:
    """Write `turns` as a dataset folder.

    Raises UsageError for an unknown format, a folder that is in use, refused turns; KernevoError when nothing is
    left to export; EnvironmentUnusableError when the folder cannot be written.
    """
    chosen, options = format_named(format), options or Options()
    check_folder(folder, force=force)
    with Shelf() as shelf:
        found = _shelve(turns, shelf)
        check_allowed(found, allow_modelled=allow_modelled, allow_held_out=allow_held_out)
        check_fits(chosen, found, options)
        selection = chosen.select(shelf, options)
        if not selection.picks:
            raise KernevoError(f"{chosen.name}: none of {len(shelf)} turns can be exported", chosen.empty_hint)
        drawn = tasks_to_test(found.facts["tasks"], found.held_out) if split_by == "task" else frozenset()
        return _write(chosen, shelf, selection, folder, sorted(found.components), drawn, options)


def _shelve(turns: Iterable[Turn], shelf: Shelf) -> Tally:
    found = Tally()
    for turn in turns:
        found.add(turn)
        shelf.append(turn)
    return found


def _write(
    chosen: Format,
    shelf: Shelf,
    selection: Selection,
    folder: Path,
    components: list[str],
    drawn: frozenset[str],
    options: Options,
) -> Exported:
    used, rows = Tally(), Counter[str]()
    seen: set[int] = set()
    with writer.opened(folder, chosen.features, components) as out:
        for pick in selection.picks:
            members = [shelf[place] for place in pick.places]
            for place, turn in zip(pick.places, members, strict=True):
                if place not in seen:
                    used.add(turn)
                    seen.add(place)
            used.add_values(pick.values)
            split = split_of(members[0], drawn)
            rows[split] += 1
            out.add(split, _row(chosen, members, pick, options, components))
        for name, content in chosen.files(used).items():
            out.add_file(name, content)
        told = card(chosen, used, selection, rows=rows, considered=len(shelf), writer=out, version=__version__)
        out.add_file(writer.CARD, told)
    return Exported(
        folder=folder,
        files=tuple(writer.files_of(folder)),
        rows=rows.total(),
        splits=dict(rows),
        considered=len(shelf),
        left_out=dict(selection.left_out),
        timing_kinds=tuple(sorted({kind for kind, _ in used.judges})),
        notes=tuple(chosen.notes(used)),
    )


def _row(chosen: Format, members: list[Turn], pick: Pick, options: Options, components: list[str]) -> Row:
    """The row, with the same reward components as every other: one that did not apply contributed 0."""
    row = chosen.row(members, pick, options)
    for name, kind in chosen.features.items():
        if kind == COMPONENTS:
            row[name] = {component: row[name].get(component, 0.0) for component in components}
    return row


def format_named(name: str) -> Format:
    """A format of the registry. Raises UsageError with the nearest name."""
    if name in FORMATS:
        return FORMATS[name]
    raise UsageError(f"no export format {name!r}", nearest(name, FORMATS))
