"""Prompts for language models: what is asked, what is shown, and how it is cut to a budget."""

from policy.prompting.build import build_prompt
from policy.prompting.types import Phase, Prompt, PromptTooLongError, Repair

__all__ = ["Phase", "Prompt", "PromptTooLongError", "Repair", "build_prompt"]
