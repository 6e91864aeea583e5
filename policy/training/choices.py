"""Answers written out: every structured answer that applies to a parent, as a tree of tokens. Needs no torch.

A model that samples along the tree answers validly by construction, and its probabilities are those over the answers
there are; training must then use the same probabilities, or its gradient is another policy's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from evaluator.types import Task
from policy.applicable import Applicable
from policy.rewrites.base import RewriteContext
from policy.rule_policy import structured_answer
from policy.token_trie import Node, trie
from policy.training.data import Prompt
from policy.types import RewriteStep


def answers_of(prompt: Prompt, task: Task, applicable: Applicable) -> list[str]:
    """Every answer of one step that applies to the prompt's parent; none for forms that are free text."""
    if prompt.form != "structured":
        return []
    found = applicable.all(prompt.parent, RewriteContext.of_task(task))
    return [
        structured_answer([RewriteStep(name=name, args=args.model_dump(mode="json"))])
        for name, settings in found.items()
        for args in settings
    ]


class Choices:
    """The tree of each prompt, made once; None for prompts that are answered freely."""

    def __init__(
        self,
        tasks: dict[str, Task],
        encode: Callable[[str], Sequence[int]],
        end: int,
        rewrites: Sequence[str] | None = None,
    ) -> None:
        """`encode` gives a text's tokens without special ones around it; `end` is the token that ends an answer;
        `rewrites` are those that answers may use, the whole catalogue when left out. Raises UsageError for others.
        """
        self._tasks, self._encode, self._end = tasks, encode, end
        self._applicable = Applicable(rewrites)
        self.tree = lru_cache(maxsize=1024)(self._tree)

    def _tree(self, prompt: Prompt) -> Node | None:
        answers = answers_of(prompt, self._tasks[prompt.task], self._applicable)
        return trie(((answer, self._encode(answer)) for answer in answers), self._end) if answers else None
