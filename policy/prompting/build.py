"""`build_prompt`: from a request to a conversation that fits its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from policy.prompting.facts import shape_of
from policy.prompting.fit import Choice, fit, missing
from policy.prompting.sections import Asked, answer_text, check, pieces_of, values_of
from policy.prompting.text import fenced, inline, quoted
from policy.prompting.types import Phase, Prompt, PromptTooLongError, Repair
from policy.reward import RewardSettings
from policy.rewrites.base import RewriteArgs
from policy.tokens import TokenCounter
from policy.types import Form, Message, ProposalRequest

MESSAGE_TOKENS = 8
"""What a chat template puts around a message, at most: role, separators, the generation prompt."""


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
    """The conversation that asks for one `phase` about the first parent of `request`, of at most `budget` tokens.

    It shows `request.attempts` as they are (see `policy.context.Context`) and does not depend on the request's
    id, seed or count, so that children of one parent with the same context share it. The phase `tune` is always
    answered with JSON, whatever the form. `applicable` lists the settings of every rewrite that applies to the parent.

    Raises PromptTooLongError when rules, task, parent and the answer's form alone exceed the budget, and UsageError
    when no answer exists: a structured one without applicable rewrites, a tuning of a source without tunables.
    """
    asked = Asked(
        request=request,
        phase=phase,
        form=form,
        applicable=applicable or {},
        analysis=analysis,
        notes=tuple(note for note in notes if note.strip()),
        strategy=strategy,
        repair=repair,
        reward=(reward or RewardSettings()).type,
    )
    check(asked)
    needed = _cost(_messages(asked, {}), tokens)
    if needed > budget:
        raise PromptTooLongError(needed, budget)
    pieces = pieces_of(asked)
    choice = fit(pieces, lambda tried: _cost(_messages(asked, tried), tokens) <= budget)
    messages = _messages(asked, choice)
    return Prompt(messages=messages, tokens=_cost(messages, tokens), dropped=missing(pieces, choice))


def _messages(asked: Asked, choice: Choice) -> tuple[Message, ...]:
    values = values_of(asked, choice)
    system, question = (_render(name, values) for name in ("system.md.j2", "user.md.j2"))
    start = Message(role="system", content=system)
    if asked.repair is None:
        return (start, Message(role="user", content=question))
    repair = _render("repair.md.j2", values)
    if "earlier answer" not in choice:
        # Two messages of the user in a row are refused by some chat templates.
        return (start, Message(role="user", content=f"{question}\n\n{repair}"))
    return (
        start,
        Message(role="user", content=question),
        Message(role="assistant", content=answer_text(asked.repair)),
        Message(role="user", content=repair),
    )


def _render(name: str, values: Mapping[str, object]) -> str:
    return _environment().get_template(name).render(values).strip()


def _cost(messages: Sequence[Message], tokens: TokenCounter) -> int:
    return sum(tokens.count(message.content) + MESSAGE_TOKENS for message in messages)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("policy.prompting"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(fenced=fenced, inline=inline, quoted=quoted, shape=shape_of)
    return environment
