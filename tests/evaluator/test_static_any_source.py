"""Whatever the source, the static stage gives a verdict, quickly and without loading torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluator.static_checks import MAX_SOURCE_BYTES, check
from evaluator.types import EvalStatus
from tests.evaluator.static_cases import HONEST, STRICT

NASTY = {
    "nothing": "",
    "a null byte": "x = '\x00'\n",
    "a lone surrogate": "x = '\ud800'\n" + HONEST,
    "a lone surrogate in a comment": HONEST + "# \udfff\n",
    "a byte order mark": "\ufeff" + HONEST,
    "deep parentheses": HONEST + "x = " + "(" * 5000 + ")" * 5000,
    "deep lists": "[" * 150 + "]" * 150,
    "deep sums": HONEST + "x = " + "+".join(["1"] * 20000),
    "deep attributes": HONEST + "x = torch" + ".a" * 5000,
    "deep calls": HONEST + "x = f" + "()" * 3000,
    "deep subscripts": HONEST + "x = f" + "[0]" * 3000,
    "deep negation": HONEST + "x = " + "not " * 5000 + "1",
    "deep functions": HONEST
    + "\n".join(" " * depth + f"def f{depth}():" for depth in range(90))
    + "\n"
    + " " * 90
    + "0",
    "a long line": HONEST + "x = '" + "a" * 200_000 + "'\n",
    "many lines": HONEST + "x = 1\n" * 20_000,
    "many functions": HONEST + "".join(f"def f{index}(x):\n    return x.shape\n" for index in range(1500)),
    "a megabyte": HONEST + "#" * (1 << 20),
    "a base class of itself": HONEST.replace("(torch.nn.Module)", "(ModelNew)").replace("def forward", "def backward"),
    "names that chase each other": HONEST
    + "".join(f"a{index} = a{index + 1}\n" for index in range(500))
    + "a500 = a0\n",
    "a bad escape": HONEST + "x = '\\N{no such name}'\n",
    "an unfinished line": HONEST + "x = (",
    "a huge number": HONEST + "x = " + "9" * 100_000,
}


@pytest.mark.parametrize("name", NASTY)
def test_nothing_makes_it_raise(name):
    found = check(NASTY[name], STRICT)
    assert found.status is None or (found.reason and found.explain)
    found.model_dump_json()  # what is recorded must be writable


@pytest.mark.parametrize("name", ["nothing", "a null byte", "a lone surrogate", "a megabyte", "deep parentheses"])
def test_what_python_cannot_read_is_refused(name):
    assert check(NASTY[name], STRICT).status is not None


def test_the_size_limit_is_named():
    found = check("#" * (MAX_SOURCE_BYTES + 1024), STRICT)
    assert found.status is EvalStatus.REJECTED_STATIC
    assert "513 KiB long, more than 512 KiB" in found.reason


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_arbitrary_text_never_raises(text):
    assert check(text, STRICT).status is not None


PIECES = [
    *(
        "torch",
        "x",
        "out",
        "self",
        ".",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ":",
        ",",
        "=",
        "*",
        "@",
        ":=",
        "\n",
        "    ",
        "\n\n",
    ),
    *(
        "if ",
        "for ",
        " in ",
        "while ",
        "def ",
        "class ",
        "lambda ",
        "return ",
        "del ",
        "match ",
        "case ",
        "async ",
        "type",
    ),
    *(
        "with ",
        " as ",
        "import ",
        "from ",
        "0",
        "False",
        "'meta'",
        "softmax_kernel",
        "forward",
        "F",
        "nn",
        "_",
        "getattr",
    ),
]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.integers(0, len(HONEST)))
def test_a_kernel_with_pieces_pasted_in_never_raises(text, place):
    found = check(HONEST[:place] + text + HONEST[place:], STRICT)
    assert found.status is None or found.reason


@given(st.integers(0, len(HONEST)), st.integers(0, len(HONEST)))
def test_a_kernel_with_a_part_missing_never_raises(first, last):
    found = check(HONEST[: min(first, last)] + HONEST[max(first, last) :], STRICT)
    assert found.status is None or found.reason


def test_checking_loads_no_torch():
    script = (
        "import sys\nfrom evaluator.static_checks import check\nfrom evaluator.task import load_task\n"
        "task = load_task('softmax')\nassert check(task.seed_source, task).status is None\n"
        "print('torch' in sys.modules, 'triton' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
