"""What stays in a prompt that is too long: pieces in order of their priority, each whole, shortened or left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Size = Literal["whole", "short"]
Choice = Mapping[str, Size]
"""Piece -> how it is shown; a piece that is missing is left out."""


@dataclass(frozen=True)
class Piece:
    """A part that a prompt can do without. `sizes` are the ways to show it, the longest first."""

    name: str
    sizes: tuple[Size, ...] = ("whole",)
    lost: str = "source"
    """What the short form leaves out."""


def fit(pieces: Sequence[Piece], fits: Callable[[Choice], bool]) -> dict[str, Size]:
    """The pieces that fit. `pieces` come most important first; each takes what those before it left over.

    `fits` is asked about whole prompts: tokens of parts do not always add up. The prompt without any piece must fit.
    """
    everything: dict[str, Size] = {piece.name: piece.sizes[0] for piece in pieces}
    if fits(everything):
        return everything
    chosen: dict[str, Size] = {}
    for piece in pieces:
        for size in piece.sizes:
            if fits({**chosen, piece.name: size}):
                chosen[piece.name] = size
                break
    return chosen


def missing(pieces: Sequence[Piece], chosen: Choice) -> tuple[str, ...]:
    """What `chosen` leaves out or shortens, in the order of `pieces`."""
    lost = []
    for piece in pieces:
        if piece.name not in chosen:
            lost.append(piece.name)
        elif chosen[piece.name] != piece.sizes[0]:
            lost.append(f"{piece.name}: {piece.lost}")
    return tuple(lost)
