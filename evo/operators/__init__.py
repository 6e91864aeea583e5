"""Variation operators: each turns what the search knows into drafts of new candidates."""

from evo.operators.base import Draft, SearchView, shown
from evo.operators.rewrite import RewriteOperator
from evo.operators.tune import TuneOperator

__all__ = ["Draft", "RewriteOperator", "SearchView", "TuneOperator", "shown"]
