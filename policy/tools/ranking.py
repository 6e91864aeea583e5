"""Ranking of texts by the words of a query: Okapi BM25 over identifiers and their parts.

Robertson, Zaragoza: The Probabilistic Relevance Framework: BM25 and Beyond, 2009; with the idf that is never negative.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

SATURATION = 1.5
"""k1: how soon a repeated word stops counting."""
LENGTH = 0.75
"""b: how much a long text has to repeat itself to count as much as a short one."""

_WORD = re.compile(r"[^\W\d]\w*|\d+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")


def words(text: str) -> list[str]:
    """The words of `text` in lower case; an identifier counts as a whole and by its parts.

    `tl.atomic_add(outPtr)` is tl, atomic_add, atomic, add, outptr, out, ptr.
    """
    found: list[str] = []
    for word in _WORD.findall(text):
        found.append(word.lower())
        parts = _PART.findall(word)
        if len(parts) > 1:
            found += [part.lower() for part in parts]
    return found


class Bm25:
    """An index over texts that are given as words. Immutable."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self._counts = [Counter(text) for text in texts]
        self._lengths = [len(text) for text in texts]
        self._mean = sum(self._lengths) / len(texts) if texts else 0.0
        self._containing = Counter(word for counts in self._counts for word in counts)

    def scores(self, query: Sequence[str]) -> list[float]:
        """One score for each text, >= 0; 0 when no word of the query is in it."""
        asked = sorted(set(query))
        return [sum(self._score(word, index) for word in asked) for index in range(len(self._counts))]

    def best(self, query: Sequence[str], count: int) -> list[int]:
        """Indices of the `count` best texts with a score above 0, best first; ties in the order of the texts."""
        scores = self.scores(query)
        ranked = sorted((index for index, score in enumerate(scores) if score > 0), key=lambda index: -scores[index])
        return ranked[:count]

    def _score(self, word: str, index: int) -> float:
        often = self._counts[index][word]
        if not often:
            return 0.0
        having = self._containing[word]
        rarity = math.log(1 + (len(self._counts) - having + 0.5) / (having + 0.5))
        length = 1 - LENGTH + LENGTH * self._lengths[index] / self._mean
        return rarity * often * (SATURATION + 1) / (often + SATURATION * length)
