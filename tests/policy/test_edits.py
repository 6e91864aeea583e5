"""Reading answers: what is mended, what is refused, and that no text does harm."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluator.source_hash import ast_hash
from evaluator.task import load_task
from policy.answers.loose_json import LooseError, read_json
from policy.edits import AnswerError, Edit, read_answer
from policy.rewrites import RewriteContext, apply_steps
from policy.rewrites.catalogue import catalogue
from policy.rule_policy import structured_answer
from policy.types import RewriteStep

TASK = load_task("softmax")
SEED = TASK.seed_source
CONTEXT = RewriteContext.of_task(TASK)
KEPT = SEED.replace("    row_sum = 0.0\n", "    # kernevo: keep begin\n    row_sum = 0.0\n    # kernevo: keep end\n")
LAUNCH = "softmax_kernel[grid](x, out, n_cols, x.stride(0), out.stride(0), BLOCK_SIZE=BLOCK_SIZE, num_warps=4)"


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def fenced(source: str) -> str:
    return f"```python\n{source}```\n"


def read(answer: str, parent: str = SEED, **options) -> Edit:
    return read_answer(answer, parent, CONTEXT, **options)


def refused(answer: str, parent: str = SEED, **options) -> AnswerError:
    with pytest.raises(AnswerError) as caught:
        read(answer, parent, **options)
    return caught.value


def outcome(answer: str, parent: str = SEED, **options) -> Edit | AnswerError:
    try:
        return read(answer, parent, **options)
    except AnswerError as error:
        return error


def test_a_whole_file_becomes_the_child_to_the_letter():
    child = SEED.replace("num_warps=4", "num_warps=8").replace("row_sum = 0.0", "row_sum = 0.0  # nothing yet")
    assert read(fenced(child)).source == child


def test_an_edit_changes_its_lines_and_no_others():
    edit = read(block("BLOCK_SIZE = 256", "BLOCK_SIZE = 512"))
    assert edit.source == SEED.replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 512")
    assert edit.tolerated == ()


def test_new_lines_take_the_indentation_of_the_place_where_they_go():
    edit = read(block("y = tl.exp(x - row_max) / row_sum", "if True:\n  y = tl.exp(x - row_max)\n  y = y / row_sum"))
    assert "        if True:\n          y = tl.exp(x - row_max)\n          y = y / row_sum\n" in edit.source
    assert edit.tolerated == ("another indentation",)


def test_a_search_of_two_levels_moves_both_levels():
    search = "for start in range(0, n_cols, BLOCK_SIZE):\n\tcols = start + tl.arange(0, BLOCK_SIZE)\n"
    search += "\tmask = cols < n_cols\n"
    search += '\tx = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=-float("inf"))\n'
    edit = read(
        block(f"{search}\ty = tl.exp(x - row_max) / row_sum", f"{search}\tz = x - row_max\n\ty = tl.exp(z) / row_sum")
    )
    assert edit.source == SEED.replace(
        "        y = tl.exp(x - row_max) / row_sum", "        z = x - row_max\n        y = tl.exp(z) / row_sum"
    )


def test_an_ambiguous_search_names_the_lines_where_it_fits():
    numbers = [str(n) for n, line in enumerate(SEED.splitlines(), start=1) if line.strip() == "mask = cols < n_cols"]
    error = refused(block("        mask = cols < n_cols", "        mask = None"))
    assert error.kind == "ambiguous_search"
    assert ", ".join(numbers) in error.message


def test_a_search_that_is_not_found_shows_the_nearest_line():
    error = refused(block("    row_sum = 1.0", "    row_sum = 2.0"))
    assert error.kind == "search_not_found"
    assert "`row_sum = 0.0`" in error.message


def test_missing_imports_go_below_the_docstring_and_the_future():
    source = '"""Doc."""\nfrom __future__ import annotations\n\nimport torch\n\n\n'
    source += "@triton.jit\ndef k(n: tl.constexpr):\n    pass\n"
    edit = read(fenced(source + "\n\nclass ModelNew(torch.nn.Module):\n    pass\n"))
    assert edit.source.split("\n")[1:4] == [
        "from __future__ import annotations", "import triton", "import triton.language as tl"
    ]  # fmt: skip


def test_a_name_that_the_file_binds_itself_is_not_imported():
    source = (
        "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, tl):\n        return x + tl\n"
    )
    edit = read(fenced(source))
    assert edit.source == source


def test_no_form_is_read_that_is_not_allowed():
    steps = structured_answer([RewriteStep(name="online_reduction", args={"kernel": "softmax_kernel"})])
    edits = block("BLOCK_SIZE = 256", "BLOCK_SIZE = 512")
    for answer, form in ((steps, "structured"), (edits, "diff"), (fenced(SEED.replace("256", "512")), "full")):
        assert read(answer, forms=(form,)).form == form
        others = tuple(other for other in ("structured", "diff", "full") if other != form)
        assert refused(answer, forms=others).kind in ("no_code", "no_entry_point", "bad_json")


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_what_the_rule_policy_answers_is_read_without_mending(name):
    rewrite = catalogue()[name]
    for args in rewrite.candidates(SEED, CONTEXT)[:2]:
        step = RewriteStep(name=name, args=args.model_dump(mode="json"))
        edit = read(structured_answer([step]), forms=("structured",))
        assert edit.rewrites == (step,)
        assert edit.source == apply_steps(SEED, [step], CONTEXT)
        assert edit.tolerated == ()


def test_a_step_that_does_not_apply_is_answered_with_settings_that_do():
    wrong = '{"steps":[{"name":"exp_to_exp2","args":{"kernel":"softmax_kernel","site":7}}]}'
    error = refused(wrong)
    assert error.kind == "does_not_apply"
    shown = json.loads(error.fix.split(": ", 1)[1].split("  ")[0])
    right = json.dumps({"steps": [{"name": "exp_to_exp2", "args": shown}]})
    assert read(right).rewrites[0].args == shown


def test_more_steps_than_anybody_needs_are_refused():
    step = {"name": "online_reduction", "args": {"kernel": "softmax_kernel"}}
    assert refused(json.dumps({"steps": [step] * 50})).kind == "bad_json"


def test_edits_outside_of_a_kept_region_are_read():
    assert "num_warps=8" in read(block("num_warps=4", "num_warps=8"), KEPT).source


@pytest.mark.parametrize(
    "answer",
    [
        block("    row_sum = 0.0", "    row_sum = 1.0"),
        block("    row_sum = 0.0", "    row_sum = 0.0  "),
        block("    # kernevo: keep end", ""),
        block("    # kernevo: keep begin\n    row_sum = 0.0\n    # kernevo: keep end", "    row_sum = 1.0"),
        fenced(SEED.replace("num_warps=4", "num_warps=8")),
        fenced(KEPT.replace("    # kernevo: keep begin", '    """\n    # kernevo: keep begin').replace(
            "keep end\n", 'keep end\n    """\n    row_sum = 1.0\n')),
        fenced(KEPT.replace("BLOCK_SIZE = 256", "# kernevo: keep begin\nBLOCK_SIZE = 512\n# kernevo: keep end")),
        '{"steps":[{"name":"accumulate_blockwise","args":{"kernel":"softmax_kernel","accumulator":"row_sum"}}]}',
    ],
    ids=["changed", "spaces", "mark", "block", "gone", "made-text", "another", "rewrite"],
)  # fmt: skip
def test_a_kept_region_stays_as_it_is(answer):
    error = refused(answer, KEPT)
    assert error.kind == "outside_region", error
    assert "kept region" in error.message


def test_a_parent_with_windows_line_ends_keeps_them():
    child = read(block("BLOCK_SIZE = 256", "BLOCK_SIZE = 512"), KEPT.replace("\n", "\r\n")).source
    assert child == KEPT.replace("256", "512").replace("\n", "\r\n")


def test_comments_docstrings_and_formatting_make_no_new_program():
    assert refused(fenced(SEED.replace("a pass for the result", "fast").replace("    ", "  "))).kind == "unchanged"


def test_a_new_name_alone_is_a_new_program():
    assert read(fenced(SEED.replace("row_max", "peak"))).form == "full"


@pytest.mark.parametrize(
    "change",
    [
        ("BLOCK_SIZE = 256", "BLOCK_SIZE = (\n    256\n)"),
        ("import torch\nimport triton\n", "import torch; import triton\n"),
        ("    row_sum = 0.0\n", "    row_sum = (  # so far\n        0.0)\n"),
        ("@triton.jit\n", "@triton.jit  # compiled\n"),
        ('-float("inf")', "-float('inf')"),
        ("    def forward", '    """The entry."""\n\n    def forward'),
    ],
)
def test_a_program_that_is_only_written_otherwise_is_unchanged(change):
    assert ast_hash(SEED.replace(*change)) == ast_hash(SEED)
    assert refused(fenced(SEED.replace(*change))).kind == "unchanged"


@pytest.mark.parametrize(
    "change",
    [
        ("BLOCK_SIZE = 256", "BLOCK_SIZE = 257"),
        ("import torch\nimport triton\n", "import triton; import torch\n"),
        ("@triton.jit\n", "@triton.jit()\n"),
        ("    row_sum = 0.0\n", "    row_sum = 0\n"),
        ('-float("inf")', 'float("-inf")'),
        ("mask = cols < n_cols", "mask = n_cols > cols"),
        ("class ModelNew", "SPARE = 1\n\n\nclass ModelNew"),
    ],
)
def test_the_smallest_change_of_a_program_counts(change):
    assert read(fenced(SEED.replace(*change))).source == SEED.replace(*change)


def test_a_moved_statement_is_a_new_program():
    moved = SEED.replace("    row = tl.program_id(0)\n", "").replace("    row_sum = 0.0\n", "    row_sum = 0.0\n", 1)
    moved = moved.replace('    row_max = -float("inf")\n', '    row_max = -float("inf")\n    row = tl.program_id(0)\n')
    assert ast_hash(read(fenced(moved)).source) != ast_hash(SEED)


def test_the_explanation_is_what_stands_around_the_code_and_is_bounded():
    said = "More warps hide latency.\n\n"
    child = SEED.replace("num_warps=4", "num_warps=8")
    assert read(said + fenced(child)).explanation == said.strip()
    assert read(said + child).explanation == said.strip()
    assert read(f"<think>secret</think>{said}" + block(LAUNCH, LAUNCH.replace("4", "8"))).explanation == said.strip()
    assert len(read("words " * 10_000 + "\n" + fenced(child)).explanation) <= 600


def test_an_error_tells_what_where_and_what_to_do():
    broken = SEED.replace("row_sum = 0.0", "row_sum = = 0.0")
    error = refused(fenced(broken))
    line = next(n for n, text in enumerate(broken.splitlines(), start=1) if "= =" in text)
    assert f"line {line} " in error.message
    assert "row_sum = = 0.0" in error.message
    assert str(error) == f"{error.message}\n{error.fix}"


def test_nothing_of_an_answer_is_run(tmp_path):
    trace = tmp_path / "ran"
    harm = f"open({str(trace)!r}, 'w')\n"
    read(fenced(SEED.replace("BLOCK_SIZE = 256\n", f"BLOCK_SIZE = 512\n{harm}")))
    assert not trace.exists()


MEGABYTE = 1 << 20
HOSTILE = {
    "backticks": "`",
    "fences": "```\n",
    "python fences": "```python\nclass ModelNew: (\n",
    "tildes and backticks": "~~~\n```\n",
    "thoughts": "<think>",
    "ends of thoughts": "</think>",
    "searches": "<<<<<<< SEARCH\n",
    "blocks": "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n",
    "hunks": "@@\n-a\n+b\n",
    "brackets": "[",
    "braces": "{",
    "steps": '{"steps":[',
    "names": '{"name":"x"}\n',
    "open texts": '{"name":"',
    "comments": '{"name": /*',
    "spaces": " ",
    "starts of code": "import x\n",
    "minus signs": "class ModelNew: x = " + "-" * 1000,
    "escapes": "&lt;",
    "carriage returns": "\r",
    "entities in fences": "```json\n{'name': 1\n",
    "nulls": "\0",
    "surrogates": "\ud800",
    "digits": '{"name": 9',
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_megabyte_of_anything_is_refused(piece, finish):
    assert refused(piece * (MEGABYTE // len(piece)), finish_reason=finish).kind


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_a_file_behind_a_page_of_anything_is_read_or_refused(piece):
    found = outcome(piece * (4096 // len(piece)) + "\n" + fenced(SEED.replace("256", "512")))
    assert isinstance(found, AnswerError) or "BLOCK_SIZE = 512" in found.source or "class ModelNew" in piece


def test_expressions_too_deep_to_judge_are_refused():
    for depth in (500, 1000, 2000, 5000, 50_000):
        source = SEED + f"\n\nx = {'-' * depth}1\n"
        found = outcome(fenced(source))
        assert found.kind == "syntax" if isinstance(found, AnswerError) else found.source == source


PIECES = [
    "```python\n", "```\n", "~~~\n", "```json\n", "```diff\n", "<think>", "</think>", "<<<<<<< SEARCH\n", "=======\n",
    ">>>>>>> REPLACE\n", "@@\n", "--- a\n+++ b\n", "-BLOCK_SIZE = 256\n", "+BLOCK_SIZE = 512\n", "BLOCK_SIZE = 256\n",
    "BLOCK_SIZE = 512\n", '{"steps": [', '{"name": "online_reduction", "args": {"kernel": "softmax_kernel"}}', "]}",
    "'", '"', "\\", "{", "}", "class ModelNew:\n    pass\n", "import torch\n", SEED, SEED.replace("256", "512"),
    "\t", "\n", ",", "&lt;", "\r\n", "\ufeff", "# kernevo: keep begin\n", "# kernevo: keep end\n",
    "...\n", "\u201c", "//", "/*", "*/",
]  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(st.text(max_size=400), st.lists(st.sampled_from(PIECES), max_size=14).map("".join)),
    st.sampled_from([SEED, KEPT, "", "x = 1\n", "no python"]),
    st.sampled_from(["stop", "length"]),
)
def test_any_text_gives_an_edit_or_an_answer_error(answer, parent, finish):
    found = outcome(answer, parent, finish_reason=finish)
    if isinstance(found, AnswerError):
        assert found.message and found.fix  # noqa: PT018
        return
    assert "ModelNew" in found.source
    assert ast_hash(found.source) != ast_hash(parent)
    assert found.source.count("# kernevo: keep begin") == parent.count("# kernevo: keep begin")


SEED_LINES = SEED.splitlines()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_block_copied_from_the_file_is_found_and_put_back_where_it_was(data):
    first = data.draw(st.integers(6, len(SEED_LINES) - 2))
    last = data.draw(st.integers(first + 1, len(SEED_LINES)))
    shift = data.draw(st.integers(0, 4))
    copied = SEED_LINES[first:last]
    if not any(line.strip() for line in copied):
        return
    text = "\n".join(" " * shift + line if line.strip() else line for line in copied)
    marked = text.replace("cols", "columns").replace("out", "result").replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 64")
    wanted = "\n".join(copied).replace("cols", "columns").replace("out", "result").replace("= 256", "= 64")
    found = outcome(block(text, marked))
    if isinstance(found, AnswerError):
        assert found.kind in ("ambiguous_search", "unchanged")
        return
    assert ast_hash(found.source) == ast_hash("\n".join([*SEED_LINES[:first], wanted, *SEED_LINES[last:]]) + "\n")


def values(characters: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    words = st.text(characters, max_size=6)
    leaves = st.none() | st.booleans() | st.integers(-(10**15), 10**15) | words
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
        max_leaves=8,
    ).filter(lambda value: isinstance(value, dict | list))


@given(values(st.characters()))
def test_json_with_comments_and_commas_too_many_is_read_as_what_it_means(value):
    text = re.sub(r"\n( *[\]}])", r", // so\n\1", json.dumps(value, indent=1))
    assert read_json(text, 0, [])[0] == value


@given(values(st.characters(min_codepoint=32, max_codepoint=126)))
def test_python_literals_are_read_as_what_they_mean(value):
    assert read_json(repr(value), 0, [])[0] == value


@pytest.mark.parametrize("text", ["{", "[1,", "{'a':", "[[1], 2"])
def test_json_that_ends_too_early_is_known_as_such(text):
    try:
        complete = read_json(text, 0, [])[2]
    except LooseError as error:
        complete = not error.ended
    assert not complete
