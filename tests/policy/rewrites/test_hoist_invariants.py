import pytest

from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.hoist_invariants import HoistInvariants, HoistInvariantsArgs
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import check_rewrite, setup_of

REWRITE = HoistInvariants()
CONTEXT = RewriteContext()

SCALE_ROWS = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, w_ptr, out_ptr, rows, n, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        cols = tl.arange(0, BLOCK)
        mask = cols < n
        w = tl.load(w_ptr + cols, mask=mask, other=0.0)  # the same for every row
        x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
        tl.store(out_ptr + row * n + cols, x * w, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x, w):
        rows, n = x.shape
        out = torch.empty_like(x)
        scale_kernel[(2,)](x, w, out, rows, n, BLOCK=triton.next_power_of_2(n), num_warps=1)
        return out
"""
SETUPS = [setup_of(f"torch.randn({rows}, {n})", f"torch.randn({n})") for rows, n in ((1, 1), (5, 13), (4, 16))]
ARGS = HoistInvariantsArgs(kernel="scale_kernel", loop=0)


def test_the_weight_is_loaded_once_with_all_it_needs(interpreter):
    (text,) = check_rewrite(interpreter, REWRITE, SCALE_ROWS, SETUPS)
    before, inside = text.split("    for row in")
    assert "w = tl.load(w_ptr + cols, mask=mask, other=0.0)  # the same for every row" in before
    assert "mask = cols < n" in before
    assert "x = tl.load" in inside


def test_a_second_application_is_an_error():
    once = REWRITE.apply(SCALE_ROWS, ARGS, CONTEXT)
    with pytest.raises(RewriteError, match="depends on the iteration"):
        REWRITE.apply(once, ARGS, CONTEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # the kernel writes what it would load early
        ("tl.store(out_ptr + row * n + cols, x * w, mask=mask)", "tl.store(w_ptr + cols, x * w, mask=mask)"),
        # without a mask the load is only safe when the loop runs
        ("tl.load(w_ptr + cols, mask=mask, other=0.0)", "tl.load(w_ptr + cols)"),
        # the name carries a value from one iteration to the next
        ("x * w, mask=mask)", "x * w, mask=mask)\n        w = w + 1.0"),
        ("tl.load(w_ptr + cols, mask", "tl.load(w_ptr + cols * row, mask"),
    ],
)
def test_loads_that_may_differ_stay_in_the_loop(old, new):
    source = SCALE_ROWS.replace(old, new)
    assert source != SCALE_ROWS
    assert REWRITE.candidates(source, CONTEXT) == []


def test_a_store_through_a_carried_pointer_is_followed_to_its_parameter():
    source = SCALE_ROWS.replace("    for row", "    ptrs = w_ptr + tl.arange(0, BLOCK)\n    for row").replace(
        "tl.store(out_ptr + row * n + cols, x * w, mask=mask)", "tl.store(ptrs, x * w, mask=mask)\n        ptrs += 0"
    )
    assert REWRITE.candidates(source, CONTEXT) == []


def test_the_shipped_seeds_load_nothing_twice():
    assert all(REWRITE.candidates(source, CONTEXT) == [] for source, _ in kernels.SEEDS.values())
