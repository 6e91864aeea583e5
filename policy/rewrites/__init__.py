"""The catalogue of kernel rewrites: typed, composable transformations of a candidate's source."""

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.catalogue import apply_steps, catalogue, json_schema, rewrite_named

__all__ = [
    "Rewrite",
    "RewriteArgs",
    "RewriteContext",
    "RewriteError",
    "apply_steps",
    "catalogue",
    "json_schema",
    "rewrite_named",
]
