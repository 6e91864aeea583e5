"""What the benchmark reads from a trace and from answers, and when it fails."""

from __future__ import annotations

import json

import pytest

from benchmarks.policy import RESULT, common, length, merged, problems, questions, read_answers, read_trace
from policy.chat import Answer
from policy.types import Proposal
from tests.policy.asking import request


def row(generation, asked, judged, waited=0.0):
    return {
        "generation": generation,
        "batch": 4,
        "policy_asked": 4,
        "policy_answered": 3,
        "policy_seconds": waited,
        "policy_spans": asked,
        "judge_span": judged,
    }


def test_time_that_is_asked_twice_counts_once():
    assert merged([(3, 5), (0, 2), (1, 2.5), (5, 6)]) == [(0, 2.5), (3, 6)]
    assert common([(0, 2.5), (3, 6)], [(2, 4), (5, 9)]) == [(2, 2.5), (3, 4), (5, 6)]
    assert length([(0, 2.5), (3, 6)]) == 5.5


def test_the_first_generation_is_left_out_and_its_judging_overlaps_with_the_second_ones_asking():
    found = read_trace([row(0, [], (0, 1)), row(1, [(1, 4)], (4, 10), 3.0), row(2, [(4, 8)], (10, 20), 0.0)])
    assert found["generations"] == 1
    assert found["overlapped_share"] == 1.0
    assert found["idle_seconds"] == 0.0
    assert found["judging_seconds"] == 10


def test_asking_while_nothing_is_judged_shows():
    found = read_trace([row(1, [(1, 4)], (4, 10), 3.0), row(2, [(4, 12), (12, 14)], (14, 24), 4.0)])
    assert found["overlapped_share"] == 0.6
    assert found["idle_share"] == 0.4
    missed = problems({"overlap": {"most_in_flight": 64, **found}})
    assert missed == [
        "60.0% of asking is overlapped, less than 99%",
        "the evaluator waits 40.0% of its time, more than 1%",
    ]


def answer(logprobs):
    return Answer("{}", "stop", "m", 10, 2, answer_token_ids=(1, 2), logprobs=logprobs)


def test_answers_without_log_probabilities_or_use_are_missed():
    proposal = Proposal(source=request().parents[0].source, operator="rewrite", sampling={"answer_token_ids": [1, 2]})
    told = {"asked": 200, "answered": 200, "unusable": {"bad_json": 3}, "duplicates": 0}
    told |= {"prompt_tokens": 1, "completion_tokens": 1}
    good, short = answer((-0.1, -0.2)), answer((-0.1,))
    found = read_answers([good] * 198 + [short, answer(None)], [proposal], told)
    assert (found["with_logprobs"], found["stored_with_logprobs"], found["valid_share"]) == (198, 0, 0.985)
    assert problems({"answers": found}) == [
        "98.5% of the answers are valid, less than 99%",
        "198 of 200 answers answered with log-probabilities",
        "0 of 1 answers stored with log-probabilities",
    ]


@pytest.mark.parametrize("wanted", [1, 100, 128])
def test_enough_answers_are_asked_for(wanted):
    assert sum(one.count for one in questions(wanted)) >= wanted


def test_the_recorded_result_meets_its_limits():
    assert problems(json.loads(RESULT.read_text())) == []
