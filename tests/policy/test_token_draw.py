from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from policy.token_draw import draw, log_probabilities  # noqa: E402
from policy.token_trie import trie  # noqa: E402

LOGITS = torch.tensor([[math.log(share) for share in (0.1, 0.4, 0.2, 0.3)]])
INF = math.inf


def shares(**changes):
    settings = {"temperature": 1.0, "top_k": None, "top_p": 1.0, **changes}
    return [round(value, 6) for value in log_probabilities(LOGITS, **settings).exp()[0].tolist()]


def test_without_cuts_tokens_are_drawn_as_the_model_says():
    assert shares() == [0.1, 0.4, 0.2, 0.3]


def test_temperature_sharpens():
    total = 0.01 + 0.16 + 0.04 + 0.09
    assert shares(temperature=0.5) == [round(value / total, 6) for value in (0.01, 0.16, 0.04, 0.09)]


def test_temperature_zero_leaves_the_likeliest_alone():
    assert shares(temperature=0.0) == [0.0, 1.0, 0.0, 0.0]


def test_top_k_keeps_the_likeliest_and_shares_the_rest_among_them():
    assert shares(top_k=2) == [0.0, round(4 / 7, 6), 0.0, round(3 / 7, 6)]


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    assert shares(top_p=0.65) == [0.0, round(4 / 7, 6), 0.0, round(3 / 7, 6)]
    assert shares(top_p=0.75) == [0.0, round(4 / 9, 6), round(2 / 9, 6), round(3 / 9, 6)]
    assert shares(top_p=1e-9) == [0.0, 1.0, 0.0, 0.0]


def test_top_p_counts_what_top_k_left():
    assert shares(top_k=2, top_p=0.5) == [0.0, 1.0, 0.0, 0.0]


def test_numbers_spread_evenly_draw_each_token_by_its_share():
    rows = log_probabilities(LOGITS.repeat(1000, 1), 1.0, None, 1.0)
    tokens = draw(rows, (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000)
    assert torch.bincount(tokens).tolist() == [100, 400, 200, 300]


def test_what_has_no_probability_is_never_drawn():
    logprobs = torch.tensor([[-INF, 0.0, -INF]]).repeat(3, 1)
    numbers = torch.tensor([0.0, 0.5, math.nextafter(1.0, 0.0)], dtype=torch.float64)
    assert draw(logprobs, numbers).tolist() == [1, 1, 1]


def test_a_trie_shares_beginnings_and_ends_each_answer():
    root = trie([("ab", [1, 2]), ("ac", [1, 3]), ("again", [1, 2])], end=9)
    (shared,) = root.following.values()
    assert set(shared.following) == {2, 3}
    ends = [shared.following[token].following[9] for token in (2, 3)]
    assert [(end.text, end.following) for end in ends] == [("ab", {}), ("ac", {})]
