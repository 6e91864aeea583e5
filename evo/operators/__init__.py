"""Variation operators: each turns what the search knows into drafts of new candidates."""

from evo.operators.base import Draft, Failure, SearchView, Variation, shown
from evo.operators.crossover import CrossoverOperator
from evo.operators.repair import RepairOperator
from evo.operators.rewrite import RewriteOperator
from evo.operators.tune import TuneOperator

__all__ = [
    "CrossoverOperator",
    "Draft",
    "Failure",
    "RepairOperator",
    "RewriteOperator",
    "SearchView",
    "TuneOperator",
    "Variation",
    "shown",
]
