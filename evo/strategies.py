"""What an island goes for: words for a prompt, and rewrites that the rule policy then draws more often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FAVOUR = 4.0
"""How much more often a rewrite of the island's direction is drawn."""


@dataclass(frozen=True)
class Strategy:
    """One direction of the search."""

    text: str = ""
    favoured: Mapping[str, float] = field(default_factory=dict)
    """Rewrite -> factor on its weight."""


def _towards(text: str, *rewrites: str) -> Strategy:
    return Strategy(text, dict.fromkeys(rewrites, FAVOUR))


STRATEGIES: dict[str, Strategy] = {
    "open": Strategy(),
    "memory": _towards(
        "Move fewer bytes, and move them better: fuse what passes over the data twice, keep values on chip, load wide "
        "and aligned, use cache hints, write nothing that is read again.",
        "fuse_elementwise",
        "online_reduction",
        "whole_row",
        "cache_hints",
        "alignment_hints",
        "drop_mask",
    ),
    "parallelism": _towards(
        "Change how programs map to the work: split long rows or reductions, several rows to a program, a persistent "
        "grid, an order of programs that reuses the L2 cache, fewer launches.",
        "split_reduction",
        "rows_per_program",
        "persistent_grid",
        "grouped_order",
        "loop_range_options",
    ),
    "instructions": _towards(
        "Execute fewer and cheaper instructions: hoist what does not change, accumulate blockwise, reciprocals in "
        "place of divisions, exp2 in place of exp, tensor cores where a product allows them, no recomputed addresses.",
        "accumulate_blockwise",
        "hoist_invariants",
        "exp_to_exp2",
        "reciprocal_multiply",
        "use_rsqrt",
        "pointer_increment",
        "dot_accumulate",
        "input_precision",
    ),
}
