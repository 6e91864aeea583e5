"""The interpreter runs kernels as they are, and notices every access outside of the buffers they were given."""

from __future__ import annotations

import pytest

from tests.evaluator.interpreter_driver import HEADER, run_cases


def copying(body, extra="", launch="copy[(2,)](x, out, x.numel(), BLOCK=8)", before="out = torch.empty_like(x)"):
    return HEADER + (
        "@triton.jit\n"
        f"def copy(x_ptr, out_ptr, n{extra}, BLOCK: tl.constexpr):\n"
        "    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        f"{body}\n\n"
        "class ModelNew(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        f"        {before}\n"
        f"        {launch}\n"
        "        return out\n"
    )


MASKED = "    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)"
BFLOAT = (
    HEADER
    + """
@triton.jit
def compute(a_ptr, b_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(a_ptr + i[:, None] * N + i[None, :])
    b = tl.load(b_ptr + i[:, None] * N + i[None, :])
    {body}
    tl.store(out_ptr + i[:, None] * N + i[None, :], y.to(tl.{dtype}))

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(a, dtype=torch.{dtype})
        compute[(1,)](a, b, out, N=16)
        return out
"""
)
PAIR = ["torch.randn(16, 16).bfloat16()", "torch.randn(16, 16).bfloat16()"]


def bfloat(body, dtype="bfloat16"):
    return BFLOAT.format(body=body, dtype=dtype)


CASES = {
    "plain": {"source": copying(MASKED), "inputs": ["torch.randn(13)"], "expected": "inputs[0]"},
    "float scalar": {
        "source": copying(
            "    x = tl.load(x_ptr + offs, mask=offs < n)\n"
            "    tl.store(out_ptr + offs, x * scale.to(tl.float32), mask=offs < n)",
            extra=", scale",
            launch="copy[(2,)](x, out, x.numel(), 0.1, BLOCK=8)",
        ),
        "inputs": ["torch.randn(13)"],
        "expected": "inputs[0] * torch.tensor(0.1, dtype=torch.float32)",
    },
    "read past the end": {
        "source": copying("    tl.store(out_ptr + offs, tl.load(x_ptr + offs), mask=offs < n)"),
        "inputs": ["torch.randn(13)"],
    },
    "write before the start": {
        "source": copying("    tl.store(out_ptr + offs - 3, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)"),
        "inputs": ["torch.randn(16)"],
    },
    "far away": {
        "source": copying("    tl.store(out_ptr + offs, tl.load(x_ptr + offs + 1000000000), mask=offs < n)"),
        "inputs": ["torch.randn(16)"],
    },
    "past a strided view": {
        "source": copying("    tl.store(out_ptr + offs, tl.load(x_ptr + offs * 2 + 1), mask=offs < n)"),
        "inputs": ["torch.randn(32)[::2]"],
    },
    "inside a strided view": {
        "source": copying("    tl.store(out_ptr + offs, tl.load(x_ptr + offs * 2))", before="out = torch.empty(16)"),
        "inputs": ["torch.randn(32)[::2]"],
        "expected": "inputs[0].contiguous()",
    },
    "through a neighbour": {
        "source": copying("    tl.store(out_ptr + offs, tl.load(x_ptr + offs + 4), mask=offs < n)"),
        "inputs": ["torch.arange(16.0)"],
    },
    "atomic": {
        "source": copying(
            "    tl.atomic_add(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n))", before="out = torch.zeros(13)"
        ),
        "inputs": ["torch.randn(13)"],
    },
    "atomic inside": {
        "source": copying("    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + offs)))", before="out = torch.zeros(1)"),
        "inputs": ["torch.ones(16)"],
        "expected": "torch.full((1,), 16.0)",
    },
    "nothing launched": {"source": copying(MASKED, launch="out.zero_()"), "inputs": ["torch.randn(4)"]},
    "poisoned": {
        "source": copying("    tl.store(out_ptr + offs, tl.load(x_ptr + offs), mask=offs < n - 2)"),
        "inputs": ["torch.zeros(16)"],
        "poison": 1e30,
    },
    "poisoned new_empty": {
        "source": copying("    tl.store(out_ptr + offs, 0.0, mask=offs < 1)", before="out = x.new_empty(16)"),
        "inputs": ["torch.zeros(16)"],
        "poison": 1e30,
    },
    "raises": {"source": copying(MASKED, before="out = x.nothing()"), "inputs": ["torch.zeros(16)"]},
    "assembly": {
        "source": copying(
            '    y = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x_ptr + offs)], dtype=tl.float32,'
            " is_pure=True, pack=1)\n    tl.store(out_ptr + offs, y)"
        ),
        "inputs": ["torch.zeros(16)"],
    },
    "device library": {
        "source": copying(
            "    x = tl.load(x_ptr + offs, mask=offs < n)\n"
            "    tl.store(out_ptr + offs, tl.extra.libdevice.rsqrt(x), mask=offs < n)",
        ),
        "inputs": ["torch.ones(16)"],
    },
    "bfloat16 sum": {"source": bfloat("y = a + b"), "inputs": PAIR, "expected": "inputs[0] + inputs[1]"},
    "bfloat16 product": {"source": bfloat("y = a * b"), "inputs": PAIR, "expected": "inputs[0] * inputs[1]"},
    "bfloat16 comparison": {
        "source": bfloat("y = tl.where(a < b, a, b)"),
        "inputs": PAIR,
        "expected": "torch.minimum(*inputs)",
    },
    "bfloat16 dot": {
        "source": bfloat("y = tl.dot(a, b)", dtype="float32"),
        "inputs": PAIR,
        "expected": "inputs[0].float() @ inputs[1].float()",
    },
}


@pytest.fixture(scope="module")
def answers():
    return run_cases({name: {"kind": "small", **case} for name, case in CASES.items()})


def finding(answers, name):
    found = answers[name]["findings"]
    assert found, answers[name]
    return found[0]


@pytest.mark.parametrize("name", ["plain", "float scalar", "inside a strided view", "atomic inside"])
def test_an_honest_kernel_gives_its_plain_result_and_no_finding(answers, name):
    assert answers[name]["equal"]
    assert answers[name]["findings"] == []
    assert answers[name]["kernels"] == ["copy"]


def test_a_read_past_the_end_names_kernel_argument_distance_program_and_line(answers):
    found = finding(answers, "read past the end")
    assert (found["kernel"], found["kind"], found["argument"]) == ("copy", "read", "x_ptr")
    assert (found["elements"], found["lanes"], found["program"], found["line"]) == (1, 3, [1, 0, 0], 8)
    assert "copy reads 1 elements behind the end of x_ptr in program (1, 0, 0)" in found["text"]


def test_a_write_before_the_start_is_found_and_does_not_happen(answers):
    found = finding(answers, "write before the start")
    assert (found["kind"], found["argument"], found["elements"]) == ("write", "out_ptr", -3)


def test_a_wild_pointer_is_found_and_does_not_crash_the_process(answers):
    assert finding(answers, "far away")["lanes"] == 8


def test_a_read_behind_the_last_element_of_a_strided_view_is_out_of_bounds(answers):
    assert finding(answers, "past a strided view")["argument"] == "x_ptr"


def test_a_read_that_runs_into_the_next_buffer_is_found(answers):
    found = finding(answers, "through a neighbour")
    assert (found["argument"], found["lanes"]) == ("x_ptr", 4)


def test_an_atomic_outside_is_found(answers):
    found = finding(answers, "atomic")
    assert (found["kind"], found["argument"], found["lanes"]) == ("atomic", "out_ptr", 3)


def test_a_forward_without_a_launch_shows_no_kernel(answers):
    assert answers["nothing launched"]["kernels"] == []


@pytest.mark.parametrize("name", ["poisoned", "poisoned new_empty"])
def test_what_a_kernel_leaves_unwritten_keeps_the_poison(answers, name):
    (values,) = answers[name]["outputs"]
    assert values[0] == 0.0
    assert values[-1] == pytest.approx(1e30)


def test_an_exception_keeps_the_candidates_own_line(answers):
    assert answers["raises"]["raised"] == "AttributeError"
    assert answers["raises"]["lines"] == [12]


@pytest.mark.parametrize(("name", "lacking"), [("assembly", "inline assembly"), ("device library", "libdevice")])
def test_what_the_interpreter_lacks_is_said_to_be_unsupported(answers, name, lacking):
    assert answers[name]["raised"] == "UnsupportedError"
    assert lacking in answers[name]["text"]


@pytest.mark.parametrize("name", ["bfloat16 sum", "bfloat16 product", "bfloat16 comparison"])
def test_bfloat16_is_computed_in_float32_and_rounded(answers, name):
    assert answers[name]["equal"], answers[name]


def test_a_bfloat16_dot_multiplies_values_not_bit_patterns(answers):
    assert answers["bfloat16 dot"]["error"] < 1e-5
