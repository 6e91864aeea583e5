"""What is the same, or nearly, costs no time of the judge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.types import KernelSource
from evo.campaign import Campaign
from evo.config_search import NoveltyConfig, SearchConfig
from evo.novelty import NoveltyGate, shingles, similarity
from tests.evo import fakes
from tests.evo.driver import config

WORDS = st.lists(st.sampled_from("abcdefgh"), max_size=40).map(" + ".join)


def alike(one, other, width=5):
    return similarity(shingles(one, width), shingles(other, width))


def gate(limit):
    return NoveltyGate(NoveltyConfig(similarity=limit))


def test_comments_docstrings_and_layout_make_nothing_new():
    changed = fakes.SEED.replace('"""A candidate for tests."""', '"""Another text."""').replace(
        "    mask = offsets < n", "\n    # where there is data\n    mask = (offsets  <  n)"
    )
    assert changed != fakes.SEED
    assert alike(fakes.SEED, changed) == 1.0


def test_one_changed_word_of_a_file_is_most_of_it_in_common():
    changed = fakes.SEED.replace("mask=mask)\n", "mask=mask, other=0.0)\n", 1)
    assert 0.8 < alike(fakes.SEED, changed) < 1.0


def test_another_kernel_has_little_in_common():
    assert alike(fakes.SEED, "def other(a, b):\n    return [a * i for i in range(b)]\n") < 0.1


@given(WORDS, WORDS, st.integers(1, 7))
def test_similarity_is_symmetric_between_zero_and_one_and_one_for_the_same(one, other, width):
    assert 0 <= alike(one, other, width) <= 1
    assert alike(one, other, width) == alike(other, one, width)
    assert alike(one, one, width) == 1


def test_what_cannot_be_parsed_is_compared_by_its_words():
    assert alike("def broken(:\n  x  y", "def broken(:\n x y") == 1.0


def test_the_limit_decides_and_null_lets_everything_pass():
    changed = fakes.SEED.replace("mask=mask)\n", "mask=mask, other=0.0)\n", 1)
    assert gate(0.8).too_similar(changed, ["x = 1", fakes.SEED])
    assert not gate(0.999).too_similar(changed, [fakes.SEED])
    assert not gate(None).too_similar(fakes.SEED, [fakes.SEED])
    assert not gate(0.8).too_similar(changed, [])


class Writer(fakes.FakePolicy):
    """Writes whole files: its children name no step of the catalogue."""

    name = "writer"

    def _child(self, request):
        return super()._child(request).model_copy(update={"rewrites": ()})


def judged(path, policy, novelty):
    search = SearchConfig.model_validate({"population": 6, "offspring": 6, "novelty": novelty})
    evaluator = fakes.FakeEvaluator()
    running = Campaign(config(30).model_copy(update={"search": search}), path, evaluator=evaluator, policy=policy)
    running.task = fakes.task()
    run = running.run().run
    rewritten = [item for item in run.records() if item.candidate.operator == "rewrite"]
    return rewritten, evaluator.judged


@pytest.mark.parametrize(
    ("policy", "limit", "passes"),
    [(Writer, 0.5, False), (Writer, 1.0, True), (Writer, None, True), (fakes.FakePolicy, 0.5, True)],
)
def test_files_too_much_like_a_survivor_never_reach_the_judge_and_steps_of_the_catalogue_do(
    tmp_path, policy, limit, passes
):
    rewritten, _ = judged(tmp_path / "run", policy(), {"similarity": limit})
    assert bool(rewritten) is passes


def test_two_files_of_one_batch_are_compared_with_each_other(tmp_path):
    class Twins(Writer):
        """Files unlike the seed and nearly alike among themselves."""

        def _child(self, request):
            found = super()._child(request)
            number = int(request.request_id[-3:])
            text = f"{found.source.text}\n\ndef note():\n    return {list(range(600))}, {number}\n"
            return found.model_copy(update={"source": KernelSource(text=text)})

    rewritten, programs = judged(tmp_path / "run", Twins(), {"similarity": 0.9})
    assert len([item for item in rewritten if item.candidate.generation == 1]) == 1
    assert len(programs) == len(set(programs))
