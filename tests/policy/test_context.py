import pytest

from evaluator.errors import UsageError
from evaluator.types import EvalStatus
from policy.context import WIDTH, Context
from policy.reward import RewardSettings
from tests.policy.prompt_cases import judged, passed, request, variant, view

ASKED = request()
PARENT = ASKED.parents[0].source.text


def attempt(number, speedup=None, status=EvalStatus.WRONG_VALUE, **more):
    text = variant(PARENT, number)
    evaluation = judged(text, status, f"reason {number}") if speedup is None else passed(text, speedup, **more)
    return view(f"c{number:06d}", text, evaluation)


def asked(attempts, seed=0):
    return ASKED.model_copy(update={"attempts": tuple(attempts), "seed": seed})


def names(request):
    return [view.candidate_id for view in request.attempts]


def shown(attempts, seed=0, stored=(), **more):
    return Context(**more).of(asked(attempts, seed), stored)


def top(attempts, stored=(), **more):
    """What most prompts show: the first seed that draws neither of the stand-ins."""
    for seed in range(20):
        found = shown(attempts, seed, stored, **more)
        if len(found.attempts) > 1:
            return names(found)
    raise AssertionError("no seed showed the best attempts")


SPEEDS = [attempt(number, speedup) for number, speedup in enumerate((1.1, 0.9, 1.6, 1.3, 2.0, 1.2), 1)]


def test_the_best_attempts_are_shown_best_first():
    assert top(SPEEDS) == ["c000005", "c000003", "c000004", "c000006"]
    assert len(top(SPEEDS)) == WIDTH
    assert top(SPEEDS, width=2) == ["c000005", "c000003"]


def test_failures_come_after_every_correct_attempt_and_by_how_far_they_got():
    failures = [
        attempt(7, status=EvalStatus.SYNTAX_ERROR),
        attempt(8, status=EvalStatus.WRONG_VALUE),
        attempt(9, status=EvalStatus.COMPILE_ERROR),
    ]
    assert top([*failures, attempt(1, 0.9)]) == ["c000001", "c000008", "c000009", "c000007"]


def test_the_order_is_that_of_the_reward_in_use():
    neat, fast = attempt(1, 1.01), attempt(2, 1.5)
    commented = fast.source.text.replace("VARIANT = 2", "VARIANT = 2\nimport os, re, json\n" + "X = 1  #" + "x" * 200)
    fast = view("c000002", commented, passed(commented, 1.5))
    assert top([neat, fast]) == ["c000002", "c000001"]
    assert top([neat, fast], reward=RewardSettings(type="weighted")) == ["c000001", "c000002"]


def test_a_program_is_shown_once_and_the_parent_not_at_all():
    twin = attempt(1, 1.4)
    same = view("c000009", twin.source.text + "\n# a comment\n", passed(twin.source.text, 1.2))
    itself = view("c000010", PARENT + "\n# again\n", passed(PARENT, 1.9))
    assert top([same, twin, itself, attempt(2, 1.1)]) == ["c000001", "c000002"]


def test_what_says_nothing_of_its_kernel_is_not_shown():
    silent = [
        attempt(3, status=EvalStatus.HARNESS_ERROR),
        attempt(4, status=EvalStatus.WORKER_LOST),
        attempt(5, status=EvalStatus.DUPLICATE),
        view("c000006", variant(PARENT, 6), None),
        attempt(7, 3.0, kind="measured"),
    ]
    assert top([*silent, attempt(1, 1.4), attempt(2, 1.1)]) == ["c000001", "c000002"]


def test_a_tenth_of_the_prompts_shows_nothing_and_a_tenth_a_broken_kernel():
    attempts = [
        *SPEEDS,
        attempt(7, status=EvalStatus.COMPILE_ERROR),
        attempt(8),
        attempt(9, status=EvalStatus.FALLBACK),
    ]
    prompts = [names(shown(attempts, seed)) for seed in range(1000)]
    nothing = sum(not found for found in prompts)
    broken = [found[0] for found in prompts if len(found) == 1]
    assert 70 <= nothing <= 130
    assert 70 <= len(broken) <= 130
    assert set(broken) == {"c000007", "c000008"}, "either is shown; a kernel that cheats is no example"
    assert all(len(found) == WIDTH for found in prompts if len(found) > 1)


def test_where_nothing_is_broken_the_best_are_shown_instead():
    prompts = [names(shown(SPEEDS, seed)) for seed in range(200)]
    assert {len(found) for found in prompts} == {0, WIDTH}


def test_the_context_depends_on_the_seed_alone():
    context = Context()
    for seed in range(50):
        assert context.of(asked(SPEEDS, seed), SPEEDS) == shown(SPEEDS, seed)


def test_no_attempt_is_shown_at_width_zero():
    prompts = [shown([*SPEEDS, attempt(8)], seed, width=0).attempts for seed in range(50)]
    assert set(prompts) == {()}
    with pytest.raises(UsageError, match="width is -1"):
        Context(width=-1)


def test_turns_that_are_stored_outside_are_shown_by_rank():
    assert top([attempt(20, 1.7)], stored=SPEEDS) == ["c000005", "c000020", "c000003", "c000004"]


def test_an_attempt_that_is_stored_as_well_is_shown_once():
    assert top(SPEEDS, stored=SPEEDS) == top(SPEEDS)


def test_stored_latencies_of_another_gpu_are_not_shown_and_failures_are():
    other = attempt(7, 3.0)
    elsewhere = other.model_copy(update={"evaluation": other.evaluation.model_copy(update={"target": "a100"})})
    broken = attempt(8, status=EvalStatus.COMPILE_ERROR)
    assert top([attempt(1, 1.1)], stored=[elsewhere, broken]) == ["c000001", "c000008"]
