"""Which programs and iterations stand for all of them when a launch is traced."""

from __future__ import annotations

from evaluator.interpreter_hooks import in_grid_order

PROBES = 10
"""Programs looked at to decide whether a launch shares lines at all, before a whole wave is."""


def spread(total: int, count: int) -> list[int]:
    """At most `count` of `range(total)`, the middles of equal parts."""
    if total <= count:
        return list(range(total))
    return [int((2 * part + 1) * total / (2 * count)) for part in range(count)]


def sample(grid: tuple[int, int, int], count: int) -> list[tuple[int, int, int]]:
    """Programs spread over all axes at once: middles of equal parts of axis 0, golden-ratio steps along the others."""
    nx, ny, nz = grid
    if nx * ny * nz <= count:
        return list(in_grid_order(grid, range(nx * ny * nz)))
    golden = 0.6180339887498949
    return [
        (
            int((part + 0.5) * nx / count),
            int((0.5 + part * golden) % 1.0 * ny),
            int((0.5 + part * golden * golden) % 1.0 * nz),
        )
        for part in range(count)
    ]


def probes(wave: int, row: int) -> list[int]:
    """A few programs that would share lines if any do: neighbours, and the same place in other rows of the grid."""
    wanted = [0, 1, 2, 3, row, row + 1, 2 * row, wave // 2, wave - 2, wave - 1]
    return sorted({index for index in wanted if 0 <= index < wave})[:PROBES]
