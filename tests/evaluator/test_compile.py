"""Offline compilation sees the launches a GPU would see, as Triton would specialise them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from evaluator import hardware
from evaluator.assemble import AssembleError, assemble, assemble_ptx, gpu_name
from evaluator.compile import LaunchError, compile_workload
from evaluator.task import load_task
from tests.evaluator.interpreter_driver import HEADER

H200 = hardware.get("h200")


def copying(grid="(triton.cdiv(x.numel(), 1024),)", options="", marks="@triton.jit", repeat=1):
    return HEADER + (
        f"{marks}\n"
        "def copy(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):\n"
        "    offs = tl.program_id(0) * stride + tl.arange(0, BLOCK)\n"
        "    tl.store(out_ptr + offs, tl.load(x_ptr + offs))\n\n"
        "class ModelNew(torch.nn.Module):\n"
        "    def forward(self, x, stride):\n"
        "        out = torch.empty_like(x)\n"
        f"        for _ in range({repeat}):\n"
        f"            copy[{grid}](x, out, x.numel(), stride, BLOCK=1024{options})\n"
        "        return out\n"
    )


def compiled(source, *inputs):
    return compile_workload(source, [], list(inputs), {}, "h200")


X = torch.empty(1 << 20, device="meta")


def test_aligned_contiguous_loads_are_vectorised_and_odd_strides_are_not():
    (even,) = compiled(copying(), X, 1024)
    (odd,) = compiled(copying(), X, 1023)
    wide, narrow = (assemble(launch, H200).sass_mix for launch in (even, odd))
    assert wide.get("ldg128", 0) > 0
    assert narrow.get("ldg128", 0) == 0
    assert narrow["ldg32"] > wide.get("ldg32", 0)


def test_equal_code_has_equal_hashes_and_other_warps_have_others():
    (one,), (two,), (eight,) = (compiled(copying(options=o), X, 1024) for o in ("", ", num_warps=4", ", num_warps=8"))
    assert one.ptx_sha == two.ptx_sha
    assert eight.ptx_sha != one.ptx_sha
    assert (one.num_warps, eight.num_warps) == (4, 8)


def test_grids_may_be_called_and_have_three_axes():
    (called,) = compiled(copying(grid='lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)'), X, 1024)
    (three,) = compiled(copying(grid="(2, 3, 4)"), X, 1024)
    assert called.grid == (1024, 1, 1)
    assert three.grid == (2, 3, 4)


def test_every_launch_is_listed_in_order_and_an_empty_grid_launches_nothing():
    assert len(compiled(copying(repeat=3), X, 1024)) == 3
    assert compiled(copying(grid="(0,)"), X, 1024) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [(copying(grid="(1, 70000)"), "exceeds CUDA's limits"), (copying(repeat=300), "launches more than 256")],
)
def test_launches_no_gpu_would_take_are_refused(source, message):
    with pytest.raises(LaunchError, match=message):
        compiled(source, X, 1024)


def test_heuristics_and_the_first_autotuned_config_are_followed():
    source = copying().replace(
        "@triton.jit",
        '@triton.autotune([triton.Config({}, num_warps=2), triton.Config({}, num_warps=8)], key=["n"])\n@triton.jit',
    )
    (launch,) = compiled(source, X, 1024)
    assert launch.num_warps == 2
    source = (
        copying(options="")
        .replace("BLOCK=1024", "")
        .replace("@triton.jit", '@triton.heuristics({"BLOCK": lambda args: 512})\n@triton.jit')
    )
    (launch,) = compiled(source, X, 1024)
    assert launch.constants["BLOCK"] == 512


def test_a_compile_error_names_the_candidates_line():
    source = copying().replace("tl.load(x_ptr + offs)", "tl.load(x_ptr + missing)")
    with pytest.raises(Exception, match="missing is not defined") as caught:
        compiled(source, X, 1024)
    assert type(caught.value).__name__ == "CompilationError"
    assert "at 3:" in str(caught.value)


def test_all_seeds_compile_for_every_target_with_their_resources():
    softmax = load_task("softmax").seed_source
    x = torch.empty(64, 4096, device="meta")
    for name in hardware.names():
        (launch,) = compile_workload(softmax, [], [x], {}, name)
        resources = assemble(launch, hardware.get(name))
        assert 8 <= resources.registers <= 255
        assert resources.spill_store_bytes == 0
        assert resources.sass_sha


def test_too_few_registers_spill():
    body = "    y = tl.sum(tl.load(x_ptr + offs)[:, None] * tl.load(out_ptr + offs)[None, :], axis=1)\n"
    source = (
        copying(options=", maxnreg=24")
        .replace("BLOCK=1024", "BLOCK=256")
        .replace("    tl.store(out_ptr + offs, tl.load(x_ptr + offs))\n", body + "    tl.store(out_ptr + offs, y)\n")
    )
    (launch,) = compiled(source, X, 1024)
    resources = assemble(launch, H200)
    assert launch.maxnreg == 24
    assert resources.registers <= 24
    assert resources.spill_store_bytes > 0
    assert resources.sass_mix.get("stl", 0) > 0


def test_ptx_that_ptxas_refuses_is_the_kernels_fault_with_ptxas_words():
    (launch,) = compiled(copying(), X, 1024)
    with pytest.raises(AssembleError, match="line"):
        assemble_ptx(launch.ptx.replace("ret;", "nonsense;"), 90)


def test_ptx_for_another_gpu_or_none_is_refused():
    (launch,) = compiled(copying(), X, 1024)
    assert gpu_name(launch.ptx, 90) == "sm_90a"
    with pytest.raises(AssembleError, match="not for sm_80"):
        assemble_ptx(launch.ptx, 80)
    with pytest.raises(AssembleError, match="not for sm_90"):
        gpu_name("", 90)


def test_a_killed_assembler_is_the_harness_failing_and_not_the_kernel(monkeypatch):
    from evaluator import assemble as module
    from evaluator.errors import HarnessError

    monkeypatch.setattr(module, "tools", lambda arch: {"ptxas": "/bin/sh", "nvdisasm": "/bin/sh"})
    with pytest.raises(HarnessError, match="killed by signal 9"):
        module._run(["/bin/sh", "-c", "kill -9 $$"], "/")
