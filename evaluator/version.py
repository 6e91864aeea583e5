"""The version of the whole distribution, kept where every layer may import it."""

__version__ = "0.1.0"
