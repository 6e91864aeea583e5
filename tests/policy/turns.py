"""Judged children and turns for the tests of learning data."""

from __future__ import annotations

from evaluator.source_hash import ast_hash
from evaluator.types import EvalStatus, Evaluation, KernelSource, Profile, Timing
from policy.trajectory import JudgedChild
from policy.types import Message, Turn


def evaluation(
    source: str,
    status: EvalStatus = EvalStatus.PASSED,
    speedup: float = 1.0,
    kind: str = "modelled",
    coverage: float | None = None,
    interval: tuple[float, float] | None = None,
) -> Evaluation:
    """A judge's answer with one workload whose baseline takes 1 ms."""
    low, high = interval or (None, None)
    timing = Timing(kind=kind, median_ms=1 / speedup, baseline_ms=1.0, ratio_low=low, ratio_high=high)
    passed = status.passed
    return Evaluation(
        source_sha=KernelSource(text=source).sha,
        task="softmax",
        evaluator="cpu",
        status=status,
        timings={"w": timing} if passed else {},
        profile=Profile(kind=kind, target="h200", coverage=coverage) if passed else None,
        target="h200",
    )


def child(number: int, judged: Evaluation | None = None, **changes) -> JudgedChild:
    """Child `number` of the seed with a source, prompt and answer of its own."""
    source = changes.pop("source", f"x = {number}\n")
    given = {
        "candidate_id": f"c{number:06d}",
        "parent_ids": ("c000000",),
        "generation": 1,
        "operator": "rewrite",
        "source": source,
        "parent_source": "x = 0\n",
        "messages": (Message(role="system", content="rules"), Message(role="user", content="make it fast")),
        "answer": f'{{"steps": [{number}]}}',
        "evaluation": judged or evaluation(source, speedup=1.2),
        "parent_speedup": 1.0,
    }
    return JudgedChild(**{**given, **changes})


def turn(number: int = 1, **changes) -> Turn:
    """A correct, measured turn that is 20 % faster than its parent."""
    source = changes.get("source", f"x = {number}\n")
    given = {
        "run": "r",
        "task": "softmax",
        "group": "c000000-abcdef01",
        "candidate_id": f"c{number:06d}",
        "parent_ids": ("c000000",),
        "lineage": f"c{number:06d}",
        "operator": "rewrite",
        "generation": 1,
        "messages": (Message(role="system", content="rules"), Message(role="user", content="make it fast")),
        "answer": f'{{"steps": [{number}]}}',
        "policy": "rule",
        "policy_version": "1",
        "source": source,
        "source_sha": KernelSource(text=source).sha,
        "ast_hash": ast_hash(source),
        "parent_source": "x = 0\n",
        "status": "passed",
        "is_hack": False,
        "timing_kind": "measured",
        "speedup": 1.2,
        "parent_speedup": 1.0,
        "reward": 0.43,
        "reward_components": {"correct": 0.3, "speed": 0.13},
        "target": "h200",
        "versions": {"triton": "3.9.0"},
    }
    return Turn(**{**given, **changes})


def sampled_turn(number: int = 1, **changes) -> Turn:
    """A turn of a model whose server told token ids and logprobs."""
    given = {
        "policy": "openai",
        "policy_version": "adapter-1",
        "prompt_token_ids": (1, 2, 3),
        "answer_token_ids": (4, 5),
        "logprobs": (-0.5, -0.25),
        "sampling": {"temperature": 0.8, "top_p": 0.95, "top_k": 40, "form": "structured"},
    }
    return turn(number, **{**given, **changes})


def failed_turn(number: int, status: str = "wrong_value", reward: float = -0.1, **changes) -> Turn:
    """A turn whose child did not pass."""
    changes = {"reward_components": {"wrong": reward}, **changes}
    return turn(number, status=status, reward=reward, speedup=None, timing_kind=None, **changes)
