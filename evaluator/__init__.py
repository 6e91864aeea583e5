"""What a kernel is, whether it is right, how fast it is. Nothing here knows about search or policies."""

from evaluator.version import __version__

__all__ = ["__version__"]
