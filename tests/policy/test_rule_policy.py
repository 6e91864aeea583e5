import json
import subprocess
import sys
from collections import Counter

import pytest

from evaluator.errors import UsageError
from evaluator.source_hash import ast_hash
from evaluator.task import list_tasks, load_task
from evaluator.types import EvalStatus, Evaluation, KernelSource, Profile, Timing
from policy.rewrites import catalogue
from policy.rule_policy import BY_BOTTLENECK, WEIGHTS, RulePolicy
from policy.testing import PolicyTestCase
from policy.types import ParentView, RewriteStep


class TestRulePolicy(PolicyTestCase):
    task_names = ("softmax", "matmul", "attention", "swiglu")

    def make_policy(self):
        return RulePolicy(max_steps=3)


CASE = TestRulePolicy()


def judged(text, bottleneck, rewrites=()):
    """A passed parent that is bound by one thing."""
    source = KernelSource(text=text)
    evaluation = Evaluation(
        source_sha=source.sha,
        task="t",
        evaluator="cpu",
        status=EvalStatus.PASSED,
        timings={"w": Timing(kind="modelled", median_ms=1.0, baseline_ms=2.0)},
        profile=Profile(kind="modelled", target="h200", bottleneck=bottleneck),
        target="h200",
        explain="registers: 40",
    )
    return ParentView(candidate_id="c000000", source=source, evaluation=evaluation, rewrites=rewrites)


def first_rewrites(parent, task, count=30):
    policy = RulePolicy(max_steps=1)
    requests = [CASE.request(task, seed=seed, count=1, parents=(parent,)) for seed in range(count)]
    return Counter(p.rewrites[0].name for given in policy.propose(requests) for p in given)


@pytest.mark.parametrize("task", list_tasks())
def test_every_shipped_seed_has_children(task):
    given = RulePolicy(max_steps=2).propose([CASE.request(task, count=6)])[0]
    assert len(given) == 6
    assert all(1 <= len(p.rewrites) <= 2 for p in given)


def test_the_bottleneck_shifts_what_is_tried():
    text = load_task("softmax").seed_source
    for bottleneck, favoured in (("latency", "loop_range_options"), ("dram", "cache_hints")):
        free, bound = (first_rewrites(judged(text, kind), "softmax") for kind in ("", bottleneck))
        assert bound[favoured] > free[favoured]


def test_a_rewrite_that_was_used_is_tried_less():
    text = load_task("softmax").seed_source
    used = tuple(RewriteStep(name="cache_hints") for _ in range(6))
    fresh, tired = (first_rewrites(judged(text, "", r), "softmax") for r in ((), used))
    assert tired["cache_hints"] < fresh["cache_hints"]


def test_the_weights_name_rewrites_of_the_catalogue():
    named = set(WEIGHTS) | {name for favoured in BY_BOTTLENECK.values() for name in favoured}
    assert named <= set(catalogue())


def test_a_catalogue_can_be_limited():
    policy = RulePolicy(rewrites=("cache_hints",), max_steps=2)
    given = policy.propose([CASE.request(count=4)])[0]
    assert {step.name for p in given for step in p.rewrites} == {"cache_hints"}


def test_a_neighbourhood_that_is_exhausted_gives_no_children():
    policy = RulePolicy(rewrites=("drop_mask",), max_steps=1)
    (only,) = policy.propose([CASE.request(count=3)])[0]
    taken = frozenset({ast_hash(only.source.text)})
    assert policy.propose([CASE.request(count=3, taken=taken)]) == [[]]


def test_a_source_without_anything_to_rewrite_gives_no_children():
    plain = ParentView(candidate_id="c0", source=KernelSource(text="class ModelNew:\n    pass\n"))
    assert RulePolicy().propose([CASE.request(parents=(plain,))]) == [[]]


def test_an_unknown_rewrite_is_a_usage_error_that_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'cache_hints'"):
        RulePolicy(rewrites=("cache_hint",))


def test_zero_steps_are_a_usage_error():
    with pytest.raises(UsageError, match="max_steps"):
        RulePolicy(max_steps=0)


def test_the_prompt_shows_task_kernel_verdict_and_rewrites():
    parent = judged(load_task("softmax").seed_source, "dram")
    (child,) = RulePolicy().propose([CASE.request(parents=(parent,), count=1)])[0]
    prompt = child.messages[1].content
    for part in (
        "softmax",
        "def softmax_kernel",
        "2.000x",
        "modelled",
        "h200",
        "dram",
        "registers: 40",
        "- drop_mask:",
    ):
        assert part in prompt
    assert child.answer == json.dumps(json.loads(child.answer), separators=(",", ":"))
    assert len(child.answer) < 600


def test_proposals_are_the_same_in_another_process():
    code = (
        "from tests.policy.test_rule_policy import CASE, RulePolicy\n"
        "print([p.source.sha for p in RulePolicy().propose([CASE.request(seed=3, count=4)])[0]])"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    ]
    here = [p.source.sha for p in RulePolicy().propose([CASE.request(seed=3, count=4)])[0]]
    assert outputs == [f"{here}\n"] * 2


def test_the_policy_loads_neither_torch_nor_triton():
    code = (
        "import sys, policy.rule_policy\n"
        "from policy.rewrites import catalogue\n"
        "assert catalogue() and not {'torch', 'triton', 'optuna'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
