"""Traces count what whole grids do at benchmark size, from a sample of programs and iterations."""

from __future__ import annotations

import pytest

from evaluator.task import load_task
from policy.rewrites.base import RewriteContext
from policy.rewrites.catalogue import catalogue
from tests.evaluator.interpreter_driver import HEADER, run_cases

COPY = (
    HEADER
    + """
@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        copy[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
)
M, N = 8192, 4096
ROWS = [f"torch.empty({M}, {N}, device='meta')"]


def rewritten(task, *names):
    source = load_task(task).seed_source
    context = RewriteContext(shape_params=({"M": M, "N": N},))
    for name in names:
        rewrite = catalogue()[name]
        source = rewrite.apply(source, rewrite.candidates(source, context)[0], context)
    return source


def seed(task):
    return load_task(task).seed_source


MATMUL = [f"torch.empty({side}, device='meta', dtype=torch.float16)" for side in ("4096, 4096", "4096, 4096")]
BIG_TILES = seed("matmul").replace("BLOCK_M = 32", "BLOCK_M = 128").replace("BLOCK_N = 32", "BLOCK_N = 128")
GROUPED = catalogue()["grouped_order"].apply(
    BIG_TILES, catalogue()["grouped_order"].parse_args({"kernel": "matmul_kernel", "group": 8}), RewriteContext()
)
B, H, T, D = 2, 4, 1024, 64
HEADS = [f"torch.empty({B}, {H}, {T}, {D}, device='meta', dtype=torch.bfloat16)"] * 3
CASES = {
    "copy": {"source": COPY, "inputs": ["torch.empty(1 << 20, device='meta')"]},
    "ragged copy": {"source": COPY, "inputs": ["torch.empty((1 << 20) - 1000, device='meta')"]},
    "small copy": {"source": COPY, "inputs": ["torch.empty(3000, device='meta')"]},
    "softmax": {"source": seed("softmax"), "inputs": ROWS},
    "softmax, more iterations": {"source": seed("softmax"), "inputs": ROWS, "max_iterations": 64},
    "softmax, whole row": {"source": rewritten("softmax", "whole_row"), "inputs": ROWS},
    "softmax, several rows": {"source": rewritten("softmax", "rows_per_program"), "inputs": ROWS},
    "softmax, persistent": {"source": rewritten("softmax", "persistent_grid"), "inputs": ROWS},
    "layer_norm": {
        "source": seed("layer_norm"),
        "init": [N, 1e-5],
        "inputs": [f"torch.empty({M}, {N}, device='meta', dtype=torch.bfloat16)"],
    },
    "sum": {"source": seed("sum_reduction"), "inputs": ROWS},
    "sum, split": {"source": rewritten("sum_reduction", "split_reduction"), "inputs": ROWS},
    "matmul": {"source": BIG_TILES, "inputs": MATMUL},
    "matmul, grouped": {"source": GROUPED, "inputs": MATMUL},
    "attention": {"source": seed("attention"), "inputs": HEADS, "programs": 16},
    "cross_entropy": {
        "source": seed("cross_entropy"),
        "inputs": ["torch.empty(2048, 32000, device='meta', dtype=torch.bfloat16)", "torch.randint(0, 32000, (2048,))"],
    },
}


@pytest.fixture(scope="module")
def traces():
    found = run_cases({name: {"kind": "trace", **case} for name, case in CASES.items()})
    for name, answer in found.items():
        assert isinstance(answer, list), (name, answer)
    return found


def buffers(traces, name, launch=0):
    return {buffer["name"]: buffer for buffer in traces[name][launch]["buffers"]}


def test_a_copy_reads_and_writes_every_byte_once(traces):
    found = buffers(traces, "copy")
    assert found["x_ptr"]["read_bytes"] == found["out_ptr"]["write_bytes"] == 4 << 20
    assert found["x_ptr"]["write_bytes"] == found["out_ptr"]["read_bytes"] == 0
    assert found["x_ptr"]["sharing"] == 1.0


def test_masked_lanes_move_nothing(traces):
    found = buffers(traces, "small copy")
    assert found["x_ptr"]["read_bytes"] == 3000 * 4
    (launch,) = traces["small copy"]
    assert (launch["programs"], launch["sampled"]) == (3, 3)


def test_a_ragged_end_costs_at_most_one_program_of_error(traces):
    moved = buffers(traces, "ragged copy")["x_ptr"]["read_bytes"]
    assert moved == pytest.approx(((1 << 20) - 1000) * 4, rel=0.002)


def test_three_passes_read_the_row_three_times_and_one_block_once(traces):
    whole = M * N * 4
    assert buffers(traces, "softmax")["x_ptr"]["read_bytes"] == 3 * whole
    assert buffers(traces, "softmax, whole row")["x_ptr"]["read_bytes"] == whole
    for name in ("softmax", "softmax, whole row"):
        assert buffers(traces, name)["out_ptr"]["write_bytes"] == whole
        assert buffers(traces, name)["x_ptr"]["unique_read_bytes"] == N * 4


def test_sampled_iterations_stand_for_all_of_them(traces):
    (few,), (many,) = traces["softmax"], traces["softmax, more iterations"]
    assert few["rounds_per_program"] == many["rounds_per_program"] == 3 * N / 256
    assert few["reductions_per_program"] == many["reductions_per_program"] == 2 * N / 256
    for name, count in many["ops"].items():
        assert few["ops"][name] == pytest.approx(count, rel=0.01), name


@pytest.mark.parametrize("name", ["softmax, several rows", "softmax, persistent"])
def test_looping_over_rows_moves_the_same_bytes_in_fewer_programs(traces, name):
    looped, plain = traces[name][0], traces["softmax"][0]
    assert looped["programs"] < plain["programs"]
    for kind in ("read_bytes", "write_bytes"):
        total = sum(buffer[kind] for buffer in looped["buffers"])
        assert total == pytest.approx(sum(buffer[kind] for buffer in plain["buffers"]), rel=0.05)


def test_a_wave_shares_the_weights_and_nothing_else(traces):
    found = buffers(traces, "layer_norm")
    assert found["x_ptr"]["sharing"] == 1.0
    for name, buffer in found.items():
        if name in ("weight_ptr", "bias_ptr"):
            assert buffer["sharing"] == pytest.approx(1 / 132)


def test_a_split_reduction_reads_the_same_and_adds_a_small_second_launch(traces):
    first, second = traces["sum, split"]
    plain = sum(buffer["read_bytes"] for buffer in traces["sum"][0]["buffers"])
    assert sum(buffer["read_bytes"] for buffer in first["buffers"]) == pytest.approx(plain, rel=0.02)
    assert sum(buffer["read_bytes"] for buffer in second["buffers"]) < plain / 100
    assert first["grid"][:2] == [M, 4]


def test_grouped_order_shares_operands_within_a_wave(traces):
    def distinct(name):
        return sum(buffer["sharing"] for buffer in traces[name][0]["buffers"] if buffer["name"] in ("a_ptr", "b_ptr"))

    assert distinct("matmul, grouped") < 0.7 * distinct("matmul")
    for name in ("matmul", "matmul, grouped"):
        assert sum(traces[name][0]["dot_flops"].values()) == 2 * 4096**3
        assert traces[name][0]["dot_tile"] == [128, 128, 32]


def test_causal_attention_does_half_the_products_of_full_attention(traces):
    flops = sum(traces["attention"][0]["dot_flops"].values())
    assert flops == pytest.approx(2 * B * H * T * T * D, rel=0.06)


def test_integer_inputs_are_real_addresses(traces):
    found = buffers(traces, "cross_entropy")
    assert found["target_ptr"]["read_bytes"] == 2048 * 32
    assert found["logits_ptr"]["read_bytes"] == pytest.approx(2 * 2048 * 32000 * 2, rel=0.02)
