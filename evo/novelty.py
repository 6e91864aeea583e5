"""The novelty gate: nothing is judged twice, and a difference in tunables alone is the tuner's business.

Cheapest first, all of it before any time of the judge: the hash of the syntax tree, then the similarity of shingles.
"""

from __future__ import annotations

import ast
import io
import tokenize
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import islice

from evaluator.source_hash import ast_hash, structure_hash
from evaluator.syntax import parse
from evo.candidate import Candidate
from evo.config_search import NoveltyConfig


class Programs(Set[str]):
    """What was known at one time, without a copy: what is learned later has a later place and does not count."""

    def __init__(self, places: Mapping[str, int], order: Sequence[str], more: frozenset[str]) -> None:
        self._places, self._order, self._count = places, order, len(order)
        self._more = frozenset(one for one in more if one not in places)

    def __contains__(self, program: object) -> bool:
        return program in self._more or self._places.get(program, self._count) < self._count  # type: ignore[call-overload]

    def __iter__(self) -> Iterator[str]:
        yield from islice(self._order, self._count)
        yield from self._more

    def __len__(self) -> int:
        return self._count + len(self._more)


class NoveltyGate:
    """Remembers every program and structure that was ever in a batch."""

    def __init__(self, config: NoveltyConfig) -> None:
        self._config = config
        self._programs: dict[str, int] = {}
        self._order: list[str] = []
        self._structures: set[str] = set()

    def programs(self, pending: Iterable[str] = ()) -> Programs:
        """Normalised AST hashes of all batches so far and of `pending`; batches to come do not change it."""
        return Programs(self._programs, self._order, frozenset(pending))

    def new_program(self, source: str) -> str | None:
        """The normalised AST hash of a program nobody has judged; None for a known one."""
        digest = ast_hash(source)
        return None if digest in self._programs else digest

    def new_structure(self, source: str) -> str | None:
        """The structure hash of a source whose structure nobody has judged; None for a known one."""
        digest = structure_hash(source)
        return None if digest in self._structures else digest

    def too_similar(self, source: str, others: Iterable[str]) -> bool:
        """Whether a source has more in common with one of `others` than the config allows."""
        limit, width = self._config.similarity, self._config.shingle
        if limit is None:
            return False
        own = shingles(source, width)
        return any(similarity(own, shingles(other, width)) > limit for other in others)

    def remember(self, candidate: Candidate) -> None:
        """A candidate entered a batch."""
        if candidate.ast_hash not in self._programs:
            self._programs[candidate.ast_hash] = len(self._order)
            self._order.append(candidate.ast_hash)
        self._structures.add(candidate.structure)


def similarity(one: frozenset[int], other: frozenset[int]) -> float:
    """Jaccard similarity: the share of shingles that both have."""
    either = len(one | other)
    return len(one & other) / either if either else 1.0


@lru_cache(maxsize=1024)
def shingles(source: str, width: int) -> frozenset[int]:
    """Checksums of every `width` tokens in a row. Comments, docstrings and formatting do not count."""
    words = _words(source)
    return frozenset(
        zlib.crc32("\0".join(words[start : start + width]).encode("utf-8", "surrogatepass"))
        for start in range(max(1, len(words) - width + 1))
    )


_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def _words(source: str) -> list[str]:
    try:
        tree = parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False):
                node.body = node.body[1:] or [ast.Pass()]
        tokens = tokenize.generate_tokens(io.StringIO(ast.unparse(tree)).readline)
        return [token.string for token in tokens if token.type not in _LAYOUT]
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        # The judge will say what is wrong with it.
        return source.split()
