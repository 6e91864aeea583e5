"""Training lists the answers that a policy in this process is held to, letter for letter."""

from __future__ import annotations

from policy.applicable import Applicable
from policy.chat import Question
from policy.rewrites.base import RewriteContext
from policy.rewrites.catalogue import one_step_schema
from policy.transformers_chat import TransformersChat, TransformersSettings
from tests.policy.training import world


class Letters:
    """A tokenizer whose tokens are letters."""

    eos_token_id = 0

    def __call__(self, texts, **options):
        return {"input_ids": [[ord(letter) for letter in text] for text in texts]}


def texts(node):
    """Every answer under a node of the tree."""
    found = [node.text] if node.text else []
    return found + [text for after in node.following.values() for text in texts(after)]


def test_the_policy_that_runs_the_model_here_gives_the_same_answers():
    schema = one_step_schema(Applicable().all(world.SEED, RewriteContext.of_task(world.TASK)))
    chat = TransformersChat(TransformersSettings(model="none"))
    listed = chat._listed(Question(world.PROMPT.messages, 10, 2000, schema=schema), Letters())
    assert sorted(texts(listed)) == sorted(world.answers())
