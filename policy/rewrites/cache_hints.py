"""cache_hints: tell the caches which data comes back and which does not."""

from __future__ import annotations

from typing import Literal

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext, RewriteError
from policy.rewrites.cst_tools import emit, keyword, parse, replace, with_keyword, without_keyword
from policy.rewrites.triton_tools import CallSite, call_site, call_sites

Hint = Literal["evict_first", "evict_last", ".ca", ".cg", ".cs", ".wt"]

_LOAD_HINTS: tuple[Hint, ...] = ("evict_first", "evict_last", ".cg", ".ca")
_STORE_HINTS: tuple[Hint, ...] = ("evict_first", ".cs", ".cg", ".wt")
_WHY = {
    "evict_first": "the data is read or written once and should leave the cache first",
    "evict_last": "the data is read again and should stay in the cache",
    ".ca": "the data is cached at all levels",
    ".cg": "the data skips L1 and is cached in L2 only",
    ".cs": "the data streams through and is not kept",
    ".wt": "the store writes through the cache",
}


class CacheHintArgs(RewriteArgs):
    """Which access gets which hint."""

    kernel: str
    site: int
    """Index among the kernel's `tl.load` and `tl.store` calls, in the order of the source."""
    hint: Hint


class CacheHints(Rewrite[CacheHintArgs]):
    """`tl.load(p)` -> `tl.load(p, eviction_policy="evict_first")`, and the like for cache modifiers.

    PTX takes either a cache operator or an eviction priority on one access, so setting one removes the other.
    """

    name = "cache_hints"
    Args = CacheHintArgs

    def candidates(self, source: str, context: RewriteContext) -> list[CacheHintArgs]:
        """Every hint that is legal on every access, without the ones already there."""
        return [
            CacheHintArgs(kernel=site.kernel, site=site.index, hint=hint)
            for site in call_sites(parse(source), ("load", "store"))
            for hint in _legal(site)
            if hint != _current(site)
        ]

    def apply(self, source: str, args: CacheHintArgs, context: RewriteContext) -> str:
        """The source with the hint set on one access."""
        module = parse(source)
        site = call_site(module, ("load", "store"), args.kernel, args.site)
        if args.hint not in _legal(site):
            raise RewriteError(f"{args.hint!r} is not legal on tl.{site.op}")
        key, other = ("cache_modifier", "eviction_policy")
        if not args.hint.startswith("."):
            key, other = other, key
        call = with_keyword(without_keyword(site.call, other), key, f'"{args.hint}"')
        return emit(replace(module, {site.call: call}), source)

    def explain(self, args: CacheHintArgs) -> str:
        """What the hint says of the access."""
        return f"{args.hint} on access {args.site} of {args.kernel}: {_WHY[args.hint]}"


def _legal(site: CallSite) -> tuple[Hint, ...]:
    return _LOAD_HINTS if site.op == "load" else _STORE_HINTS


def _current(site: CallSite) -> str | None:
    for key in ("eviction_policy", "cache_modifier"):
        arg = keyword(site.call, key)
        text = None if arg is None else getattr(arg.value, "raw_value", None)
        if text:
            return str(text)
    return None
