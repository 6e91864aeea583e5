"""The report: one self-contained HTML page about a run."""

from evo.report.render import render

__all__ = ["render"]
