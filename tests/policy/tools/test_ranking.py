import pytest

from policy.tools.ranking import Bm25, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tl.dot(a, b)", ["tl", "dot", "a", "b"]),
        ("atomic_add", ["atomic_add", "atomic", "add"]),
        ("outPtr", ["outptr", "out", "ptr"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("BLOCK_SIZE", ["block_size", "block", "size"]),
        ("exp2", ["exp2", "exp", "2"]),
        ("größe 0.5", ["größe", "0", "5"]),
        ("", []),
    ],
)
def test_identifiers_count_as_a_whole_and_by_their_parts(text, expected):
    assert words(text) == expected


def test_a_rare_word_counts_more_than_a_common_one():
    index = Bm25([["load", "mask"], ["load", "dot"], ["load", "sum"]])
    assert index.best(["load", "dot"], 3) == [1, 0, 2]


def test_of_two_texts_with_the_word_the_shorter_one_is_better():
    index = Bm25([["dot", *["x"] * 50], ["dot", "x"]])
    assert index.best(["dot"], 2) == [1, 0]


def test_scores_are_those_of_the_formula():
    # idf = ln(1 + (2 - 1 + 0.5) / (1 + 0.5)) = ln 2; tf 2 in 3 words of 2.5 on average: 2·2.5 / (2 + 1.5·(0.25 + 0.9))
    assert Bm25([["a", "a", "b"], ["c", "d"]]).scores(["a"])[0] == pytest.approx(0.930399, abs=1e-6)


def test_texts_without_any_of_the_words_are_not_found():
    assert Bm25([["a"], ["b"]]).best(["a"], 5) == [0]
    assert Bm25([["a"]]).best([], 5) == []
    assert Bm25([]).best(["a"], 5) == []
    assert Bm25([[], []]).best(["a"], 5) == []
