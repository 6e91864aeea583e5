"""The novelty gate: nothing is judged twice, and a difference in tunables alone is the tuner's business."""

from __future__ import annotations

from evaluator.source_hash import ast_hash, structure_hash
from evo.candidate import Candidate


class NoveltyGate:
    """Remembers every program and structure that was ever in a batch."""

    def __init__(self) -> None:
        self._programs: set[str] = set()
        self._structures: set[str] = set()

    @property
    def programs(self) -> frozenset[str]:
        """Normalised AST hashes of all batches so far."""
        return frozenset(self._programs)

    def new_program(self, source: str) -> str | None:
        """The normalised AST hash of a program nobody has judged; None for a known one."""
        digest = ast_hash(source)
        return None if digest in self._programs else digest

    def new_structure(self, source: str) -> str | None:
        """The structure hash of a source whose structure nobody has judged; None for a known one."""
        digest = structure_hash(source)
        return None if digest in self._structures else digest

    def remember(self, candidate: Candidate) -> None:
        """A candidate entered a batch."""
        self._programs.add(candidate.ast_hash)
        self._structures.add(candidate.structure)
