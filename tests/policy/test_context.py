import json

import pytest

from evaluator.errors import KernevoError, UsageError
from evaluator.types import EvalStatus
from policy.context import WIDTH, AttemptStore, TornAttemptWarning, with_context
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


def top(attempts, **more):
    """What most prompts show: the first seed that draws neither of the stand-ins."""
    for seed in range(20):
        found = with_context(asked(attempts, seed), **more)
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
    shown = [names(with_context(asked(attempts, seed))) for seed in range(1000)]
    nothing = sum(not found for found in shown)
    broken = [found[0] for found in shown if len(found) == 1]
    assert 70 <= nothing <= 130
    assert 70 <= len(broken) <= 130
    assert set(broken) == {"c000007", "c000008"}, "either is shown; a kernel that cheats is no example"
    assert all(len(found) == WIDTH for found in shown if len(found) > 1)


def test_where_nothing_is_broken_the_best_are_shown_instead():
    shown = [names(with_context(asked(SPEEDS, seed))) for seed in range(200)]
    assert {len(found) for found in shown} == {0, WIDTH}


def test_the_context_depends_on_the_seed_alone():
    for seed in range(50):
        assert with_context(asked(SPEEDS, seed)) == with_context(asked(SPEEDS, seed))


def test_no_attempt_is_shown_at_width_zero():
    shown = [with_context(asked([*SPEEDS, attempt(8)], seed), width=0).attempts for seed in range(50)]
    assert set(shown) == {()}
    with pytest.raises(UsageError, match="width is -1"):
        with_context(asked(SPEEDS), width=-1)


def test_turns_that_are_stored_outside_are_shown_by_rank():
    store = AttemptStore()
    for given in SPEEDS:
        store.add(ASKED.task, given)
    assert top([attempt(20, 1.7)], store=store) == ["c000005", "c000020", "c000003", "c000004"]


def test_tasks_do_not_share_attempts():
    store = AttemptStore()
    store.add(request("matmul").task, attempt(1, 1.5))
    assert store.attempts(ASKED.task) == ()


def test_a_store_outlives_its_process(tmp_path):
    path = tmp_path / "deep" / "attempts.jsonl"
    first = AttemptStore(path)
    for given in (*SPEEDS, attempt(9, status=EvalStatus.COMPILE_ERROR)):
        first.add(ASKED.task, given)
    again = AttemptStore(path)
    assert again.attempts(ASKED.task) == first.attempts(ASKED.task)
    again.add(ASKED.task, attempt(10, 1.0))
    assert len(AttemptStore(path).attempts(ASKED.task)) == len(SPEEDS) + 2


def test_a_torn_last_line_is_cut_off_and_the_store_goes_on(tmp_path):
    path = tmp_path / "attempts.jsonl"
    store = AttemptStore(path)
    store.add(ASKED.task, SPEEDS[0])
    store.add(ASKED.task, SPEEDS[1])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(TornAttemptWarning, match=r"attempts.jsonl:2"):
        torn = AttemptStore(path)
    torn.add(ASKED.task, SPEEDS[2])
    assert AttemptStore(path).attempts(ASKED.task) == (SPEEDS[0], SPEEDS[2])


@pytest.mark.parametrize("line", ["no json", "[]", "{}", json.dumps({"task": "t", "attempt": {"source": 1}})])
def test_a_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "attempts.jsonl"
    AttemptStore(path).add(ASKED.task, SPEEDS[0])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(KernevoError, match=r"attempts.jsonl:2: damaged line"):
        AttemptStore(path)


def test_a_store_that_is_no_file_is_a_clear_error(tmp_path):
    with pytest.raises(KernevoError, match="cannot be read"):
        AttemptStore(tmp_path)
