"""Prompts: what a policy is shown before it answers with rewrites of the catalogue."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from policy.rewrites.base import RewriteArgs
from policy.types import Message, ParentView, ProposalRequest

EXAMPLES_PER_REWRITE = 4
EXPLAIN_LINES = 12

SYSTEM = """\
You make Triton GPU kernels faster without changing what they compute.
Answer with one JSON object and nothing else: {"steps": [{"name": <rewrite>, "args": {...}}]}.
Steps are applied in order. Use only the rewrites listed, with arguments of the kinds shown."""


def structured_prompt(request: ProposalRequest, applicable: Mapping[str, Sequence[RewriteArgs]]) -> tuple[Message, ...]:
    """The conversation that asks for a structured answer about the first parent of `request`.

    It depends on the task, the parent and its verdict alone, so that all children of one parent share it.
    `applicable` lists the argument settings of every rewrite that applies to the parent.
    """
    parent = request.parents[0]
    task = request.task
    parts = [
        f"Task: {task.name} ({task.family or 'kernel'}, {task.dtype})\n{task.description.strip()}",
        f"Benchmark shapes: {_shapes(request)}",
        _verdict(parent),
        f"Kernel:\n```python\n{parent.source.text.rstrip()}\n```",
        "Rewrites that apply:\n" + "\n".join(rewrite_line(name, args) for name, args in applicable.items()),
    ]
    return (
        Message(role="system", content=SYSTEM),
        Message(role="user", content="\n\n".join(part for part in parts if part)),
    )


def _shapes(request: ProposalRequest) -> str:
    return "; ".join(
        ", ".join(f"{key}={value}" for key, value in workload.params.items()) or workload.name
        for workload in request.task.workloads
    )


def _verdict(parent: ParentView) -> str:
    evaluation = parent.evaluation
    if evaluation is None:
        return "Verdict: not judged yet"
    lines = [f"Hardware: {evaluation.target or 'unknown'}"]
    if evaluation.status.passed and evaluation.speedup is not None:
        lines.append(f"Verdict: correct, {evaluation.speedup:.3f}x the baseline ({evaluation.kind} timing)")
    else:
        lines.append(f"Verdict: {evaluation.status} {evaluation.reason}".rstrip())
    if evaluation.profile is not None and evaluation.profile.bottleneck:
        lines.append(f"Bottleneck: {evaluation.profile.bottleneck}")
    lines += evaluation.explain.strip().splitlines()[:EXPLAIN_LINES]
    return "\n".join(lines)


def rewrite_line(name: str, settings: Sequence[RewriteArgs]) -> str:
    """One line for a rewrite and its first argument settings, as JSON."""
    shown = "  ".join(_compact(args) for args in settings[:EXAMPLES_PER_REWRITE])
    rest = len(settings) - EXAMPLES_PER_REWRITE
    return f"- {name}: {shown}" + (f"  (and {rest} more)" if rest > 0 else "")


def _compact(args: RewriteArgs) -> str:
    return json.dumps(args.model_dump(mode="json"), separators=(",", ":"))
