"""`build_prompt`: from a request to a conversation that fits its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policy.prompting.types import Phase, Prompt, PromptTooLongError, Repair
from policy.prompts import structured_prompt
from policy.reward import RewardSettings
from policy.rewrites.base import RewriteArgs
from policy.tokens import TokenCounter
from policy.types import Form, ProposalRequest

MESSAGE_TOKENS = 8


def build_prompt(
    request: ProposalRequest,
    *,
    phase: Phase,
    form: Form,
    budget: int,
    tokens: TokenCounter,
    applicable: Mapping[str, Sequence[RewriteArgs]] | None = None,
    analysis: str = "",
    notes: Sequence[str] = (),
    strategy: str = "",
    repair: Repair | None = None,
    reward: RewardSettings | None = None,
) -> Prompt:
    """The conversation that asks for one `phase` about the first parent of `request`, of at most `budget` tokens."""
    messages = structured_prompt(request, applicable or {})
    used = sum(tokens.count(message.content) + MESSAGE_TOKENS for message in messages)
    if used > budget:
        raise PromptTooLongError(used, budget)
    return Prompt(messages=messages, tokens=used)
