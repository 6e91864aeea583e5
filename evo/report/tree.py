"""The lineages of all elites as one tree: where each node lies, and which are joined."""

from __future__ import annotations

from dataclasses import dataclass

from evo.candidate import Record
from evo.report.lineage import Branch

COLUMN, ROW, MARGIN = 84, 58, 36
"""Pixels between parents and children, between siblings, and around the tree."""


@dataclass(frozen=True)
class Node:
    """One candidate and where it is drawn."""

    record: Record
    x: int
    y: int
    elite: bool
    parent: tuple[int, int] | None
    """Where the line to the parent begins."""


@dataclass(frozen=True)
class Tree:
    """All nodes, parents first, and the size of the drawing in pixels."""

    nodes: tuple[Node, ...]
    width: int
    height: int


def tree_of(branches: list[Branch]) -> Tree:
    """The tree of what `branches` show: generations from left to right, the best elite's lineage on the first row."""
    elites = {branch.elite.id for branch in branches}
    placed: dict[str, Node] = {}
    row = 0
    for branch in branches:
        row += bool(placed) and bool(branch.steps)
        for step in branch.steps:
            parent = placed.get(step.parent.id) if step.parent else None
            x = parent.x + COLUMN if parent else MARGIN
            start = (parent.x, parent.y) if parent else None
            record = step.record
            placed[record.id] = Node(record, x, MARGIN + row * ROW, record.id in elites, start)
    nodes = tuple(placed.values())
    width = max((node.x for node in nodes), default=0) + COLUMN
    return Tree(nodes, width, (row + 1) * ROW + MARGIN // 2)
