"""The catalogue: every rewrite under its name, what a structured answer looks like, and how to apply one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from policy.rewrites.accumulate_blockwise import AccumulateBlockwise
from policy.rewrites.alignment_hints import AlignmentHints
from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cache_hints import CacheHints
from policy.rewrites.dot_accumulate import DotAccumulate
from policy.rewrites.drop_mask import DropMask
from policy.rewrites.exp_to_exp2 import ExpToExp2
from policy.rewrites.fuse_elementwise import FuseElementwise
from policy.rewrites.grouped_order import GroupedOrder
from policy.rewrites.hoist_invariants import HoistInvariants
from policy.rewrites.input_precision import InputPrecision
from policy.rewrites.loop_range_options import LoopRangeOptions
from policy.rewrites.online_reduction import OnlineReduction
from policy.rewrites.pointer_increment import PointerIncrement
from policy.rewrites.program_loops import PersistentGrid, RowsPerProgram
from policy.rewrites.reciprocal_multiply import ReciprocalMultiply
from policy.rewrites.row_loop import RowLoop
from policy.rewrites.split_reduction import SplitReduction
from policy.rewrites.use_rsqrt import UseRsqrt
from policy.rewrites.whole_row import WholeRow
from policy.types import RewriteStep

REWRITES: dict[str, Rewrite[Any]] = {
    "accumulate_blockwise": AccumulateBlockwise(),
    "alignment_hints": AlignmentHints(),
    "cache_hints": CacheHints(),
    "dot_accumulate": DotAccumulate(),
    "drop_mask": DropMask(),
    "exp_to_exp2": ExpToExp2(),
    "fuse_elementwise": FuseElementwise(),
    "grouped_order": GroupedOrder(),
    "hoist_invariants": HoistInvariants(),
    "input_precision": InputPrecision(),
    "loop_range_options": LoopRangeOptions(),
    "online_reduction": OnlineReduction(),
    "persistent_grid": PersistentGrid(),
    "pointer_increment": PointerIncrement(),
    "reciprocal_multiply": ReciprocalMultiply(),
    "row_loop": RowLoop(),
    "rows_per_program": RowsPerProgram(),
    "split_reduction": SplitReduction(),
    "use_rsqrt": UseRsqrt(),
    "whole_row": WholeRow(),
}


def catalogue() -> dict[str, Rewrite[Any]]:
    """Every rewrite by name, in a stable order."""
    return dict(REWRITES)


def rewrite_named(name: str) -> Rewrite[Any]:
    """One rewrite; raises RewriteError with the nearest name when there is none."""
    if name in REWRITES:
        return REWRITES[name]
    near = difflib.get_close_matches(name, REWRITES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the catalogue has {', '.join(REWRITES)}"
    raise RewriteError(f"there is no rewrite named {name!r}: {hint}")


def apply_steps(source: str, steps: Iterable[RewriteStep], context: RewriteContext) -> str:
    """`source` after all steps in order. Raises RewriteError naming the step that does not apply."""
    for number, step in enumerate(steps, start=1):
        rewrite = rewrite_named(step.name)
        try:
            source = rewrite.apply(source, rewrite.parse_args(step.args), context)
        except RewriteError as error:
            raise RewriteError(f"step {number} ({step.name}): {error}") from None
    return source


def json_schema(names: Sequence[str] | None = None, max_steps: int = 4) -> dict[str, Any]:
    """JSON schema of a structured answer: `{"steps": [{"name": …, "args": {…}}, …]}`.

    `names` limits it to some rewrites, e.g. to those that apply to the parent at hand.
    """
    chosen = [rewrite_named(name) for name in (names if names is not None else REWRITES)]
    return {
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "minItems": 1,
                "maxItems": max_steps,
                "items": {"oneOf": [_step_schema(rewrite) for rewrite in chosen]},
            }
        },
        "required": ["steps"],
        "additionalProperties": False,
    }


def one_step_schema(applicable: Mapping[str, Sequence[RewriteArgs]]) -> dict[str, Any]:
    """JSON schema of a structured answer with one step that applies: each is written out, so a server that holds to it
    cannot give another."""
    pairs = [(name, args) for name, found in applicable.items() for args in found]
    steps = [{"name": name, "args": args.model_dump(mode="json")} for name, args in pairs]
    return {
        "type": "object",
        "properties": {"steps": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"enum": steps}}},
        "required": ["steps"],
        "additionalProperties": False,
    }


def _step_schema(rewrite: Rewrite[Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": (type(rewrite).__doc__ or "").strip().split("\n")[0],
        "properties": {"name": {"const": rewrite.name}, "args": rewrite.Args.model_json_schema()},
        "required": ["name", "args"],
        "additionalProperties": False,
    }
