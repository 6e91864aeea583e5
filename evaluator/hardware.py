"""What is known of the GPUs that kernels are compiled and modelled for.

Every rate says where it comes from: `measured` ones were timed on such a GPU (copy and dense-matmul ceilings), all
others are the vendor's published peaks, which no kernel reaches. Clocks are boost clocks.
"""

from __future__ import annotations

from collections.abc import Mapping

from evaluator.errors import UsageError
from evaluator.nearest import nearest
from evaluator.types import Frozen


class Hardware(Frozen):
    """One GPU model. Rates are per second, sizes in bytes."""

    name: str
    arch: int
    """Compute capability times ten: 90 for sm_90."""
    sms: int
    clock_hz: float
    dram_bytes_per_s: float
    l2_bytes: int
    l2_bytes_per_s: float
    """Aggregate L2 to SM bandwidth; a published microbenchmark or an estimate, labelled in `provenance`."""
    flops: Mapping[str, float]
    """Dense peak by dtype: tensor cores for 16- and 8-bit floats and tf32, CUDA cores for float32 and float64."""
    max_warps_per_sm: int = 64
    max_blocks_per_sm: int = 32
    registers_per_sm: int = 65536
    max_registers_per_thread: int = 255
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    dram_latency_s: float
    """Load-to-use latency of a miss in L2, unloaded."""
    l2_latency_s: float
    launch_s: float = 2.0e-6
    """Device-side cost of starting and draining one kernel."""
    provenance: Mapping[str, str]
    """Rate -> `measured` or where the figure was published."""

    def peak_flops(self, dtype: str) -> float:
        """Dense peak for a torch dtype's name; float32's for a dtype without an entry."""
        return self.flops.get(dtype, self.flops["float32"])


def _tensor(dense16: float, fp32: float, fp64: float, tf32: float, fp8: float | None) -> dict[str, float]:
    rates = {"float16": dense16, "bfloat16": dense16, "float32": fp32, "float64": fp64, "tf32": tf32}
    eights = dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "int8"), fp8) if fp8 is not None else {}
    return {**rates, **{name: rate for name, rate in eights.items() if rate is not None}}


_DATASHEET = "vendor's datasheet"

TARGETS: dict[str, Hardware] = {
    "h200": Hardware(
        name="h200",
        arch=90,
        sms=132,
        clock_hz=1.98e9,
        dram_bytes_per_s=4.272e12,
        l2_bytes=60 << 20,
        l2_bytes_per_s=9.0e12,
        flops=_tensor(790e12, 51e12, 33.5e12, 395e12, 1580e12),
        shared_bytes_per_sm=228 << 10,
        shared_bytes_per_block=227 << 10,
        dram_latency_s=0.55e-6,
        l2_latency_s=0.14e-6,
        provenance={
            "dram_bytes_per_s": "measured: large device copy, bytes read plus written",
            "flops": "measured: bfloat16 matmul 790 TFLOP/s and float32 51 TFLOP/s; other dtypes scaled from it",
            "l2_bytes_per_s": "estimate: half of 2 x 32 bytes per SM and clock, as microbenchmarks reach",
            "dram_latency_s": "estimate from published H100 microbenchmarks",
        },
    ),
    "h100": Hardware(
        name="h100",
        arch=90,
        sms=132,
        clock_hz=1.98e9,
        dram_bytes_per_s=3.35e12,
        l2_bytes=50 << 20,
        l2_bytes_per_s=9.0e12,
        flops=_tensor(989e12, 67e12, 34e12, 495e12, 1979e12),
        shared_bytes_per_sm=228 << 10,
        shared_bytes_per_block=227 << 10,
        dram_latency_s=0.55e-6,
        l2_latency_s=0.14e-6,
        provenance={"dram_bytes_per_s": _DATASHEET, "flops": _DATASHEET, "l2_bytes_per_s": "estimate"},
    ),
    "a100": Hardware(
        name="a100",
        arch=80,
        sms=108,
        clock_hz=1.41e9,
        dram_bytes_per_s=2.039e12,
        l2_bytes=40 << 20,
        l2_bytes_per_s=5.0e12,
        flops=_tensor(312e12, 19.5e12, 9.7e12, 156e12, None),
        shared_bytes_per_sm=164 << 10,
        shared_bytes_per_block=163 << 10,
        dram_latency_s=0.4e-6,
        l2_latency_s=0.14e-6,
        provenance={"dram_bytes_per_s": _DATASHEET, "flops": _DATASHEET, "l2_bytes_per_s": "estimate"},
    ),
    "l40s": Hardware(
        name="l40s",
        arch=89,
        sms=142,
        clock_hz=2.52e9,
        dram_bytes_per_s=0.864e12,
        l2_bytes=96 << 20,
        l2_bytes_per_s=5.0e12,
        flops=_tensor(362e12, 91.6e12, 1.4e12, 183e12, 733e12),
        max_warps_per_sm=48,
        max_blocks_per_sm=24,
        shared_bytes_per_sm=100 << 10,
        shared_bytes_per_block=99 << 10,
        dram_latency_s=0.5e-6,
        l2_latency_s=0.17e-6,
        provenance={"dram_bytes_per_s": _DATASHEET, "flops": _DATASHEET, "l2_bytes_per_s": "estimate"},
    ),
}


def get(name: str) -> Hardware:
    """A target by name. Raises UsageError with the nearest known one."""
    try:
        return TARGETS[name]
    except KeyError:
        raise UsageError(f"unknown target {name!r}", nearest(name, TARGETS)) from None


def names() -> list[str]:
    """Known targets, sorted."""
    return sorted(TARGETS)
