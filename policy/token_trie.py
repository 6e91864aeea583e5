"""Answers as paths of tokens: after each token it is known which may follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class Node:
    """A beginning that some answers share."""

    following: dict[int, Node] = field(default_factory=dict)
    """Tokens that may come next, each with what may come after it."""
    text: str | None = None
    """The answer that ends here."""


def trie(answers: Iterable[tuple[str, Sequence[int]]], end: int) -> Node:
    """The root over `answers`, each a text with its tokens; `end` is the token that closes each of them.

    Answers with the same tokens are one, the first.
    """
    root = Node()
    for text, tokens in answers:
        node = root
        for token in (*tokens, end):
            node = node.following.setdefault(token, Node())
        node.text = node.text or text
    return root
