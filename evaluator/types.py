"""What is exchanged between search, policy and evaluator: tasks, sources and judged results.

All are frozen. Times are milliseconds, sizes bytes, rates per second unless a name says otherwise. A `Timing` exists
only on a passed `Evaluation`: illegal states do not validate.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Scalar = int | float | bool | str
TimingKind = Literal["measured", "modelled"]
OpPolicy = Literal["strict", "mixed", "free"]
Split = Literal["train", "held_out"]


class Frozen(BaseModel):
    """Base of every exchanged record: immutable, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class EvalStatus(StrEnum):
    """The verdicts, in the order of the cascade. `rank` says how far a candidate got (0 = nowhere)."""

    SYNTAX_ERROR = "syntax_error"
    MISSING_ENTRY_POINT = "missing_entry_point"
    REJECTED_STATIC = "rejected_static"
    COMPILE_ERROR = "compile_error"
    RESOURCE_LIMIT = "resource_limit"
    DUPLICATE = "duplicate"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    OUTPUT_LIMIT = "output_limit"
    PROCESS_LIMIT = "process_limit"
    CRASHED = "crashed"
    EXITED = "exited"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    OUT_OF_BOUNDS = "out_of_bounds"
    INPUT_MUTATED = "input_mutated"
    UNINITIALISED = "uninitialised"
    NON_FINITE = "non_finite"
    WRONG_VALUE = "wrong_value"
    PRECISION = "precision"
    NONDETERMINISTIC = "nondeterministic"
    RACE = "race"
    FALLBACK = "fallback"
    DECOY = "decoy"
    LAZY = "lazy"
    REPLAY = "replay"
    DEFERRED_WORK = "deferred_work"
    TIMING_TAMPER = "timing_tamper"
    HARNESS_TAMPER = "harness_tamper"
    SUSPICIOUS = "suspicious"
    HARNESS_ERROR = "harness_error"
    WORKER_LOST = "worker_lost"
    PASSED = "passed"

    @property
    def passed(self) -> bool:
        """Whether the candidate is correct and timed."""
        return self is EvalStatus.PASSED

    @property
    def rank(self) -> float:
        """How far a failed candidate got, in [0, 1); 1 for a pass. Orders failures in the search."""
        if self.passed:
            return 1.0
        return _RANK[self]

    @property
    def is_hack(self) -> bool:
        """Whether the verdict says the candidate tried to win without doing the work."""
        return self in _HACKS

    @property
    def blames_harness(self) -> bool:
        """Whether our own machinery failed, so that nothing is known about the candidate."""
        return self in (EvalStatus.HARNESS_ERROR, EvalStatus.WORKER_LOST)


_HACKS = frozenset(
    {
        EvalStatus.REJECTED_STATIC,
        EvalStatus.FALLBACK,
        EvalStatus.DECOY,
        EvalStatus.LAZY,
        EvalStatus.REPLAY,
        EvalStatus.DEFERRED_WORK,
        EvalStatus.TIMING_TAMPER,
        EvalStatus.HARNESS_TAMPER,
    }
)
_ORDER: list[EvalStatus] = [status for status in EvalStatus if status is not EvalStatus.PASSED]
_RANK: dict[EvalStatus, float] = {status: index / len(_ORDER) for index, status in enumerate(_ORDER)}
# A hack or a broken harness says nothing good about a candidate, whatever stage found it.
for _status in EvalStatus:
    if _status.is_hack or _status.blames_harness:
        _RANK[_status] = 0.0


class KernelSource(Frozen):
    """One plain Python file holding `ModelNew` and its `@triton.jit` kernels."""

    text: str

    @property
    def sha(self) -> str:
        """SHA-256 of the UTF-8 text, 64 hex digits: the identity of a candidate's file."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


class Workload(Frozen):
    """One setting of a task's shape parameters.

    `params` replace the literals of same-named top-level assignments in the reference module.
    `bytes_moved` and `flops` are the least any kernel must do (each input read once, each output written
    once): the numerator of the speed of light.
    """

    name: str
    params: Mapping[str, Scalar] = Field(default_factory=dict)
    bytes_moved: int | None = None
    flops: int | None = None


class Tolerance(Frozen):
    """|actual - expected| <= atol·min(1, rms(expected)) + rtol·|expected|."""

    atol: float = Field(ge=0)
    rtol: float = Field(ge=0)


class Task(Frozen):
    """A reference to make faster: its source, its workloads, and how answers are compared."""

    name: str
    description: str
    reference_source: str
    seed_source: str | None
    origin: str
    """Where the files came from (a folder or a module path); for messages only."""
    dtype: str
    """Name of the dominating torch dtype, e.g. `float32`."""
    tolerance: Tolerance
    op_policy: OpPolicy = "strict"
    allow_tf32: bool = False
    allow_atomics: bool = False
    input_precisions: tuple[str, ...] = ("ieee",)
    """`tl.dot(input_precision=…)` values that this task accepts."""
    imports: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], ...] = ()
    """Top-level modules that kernels of this task may import beside torch and triton; their Triton kernels count."""
    workloads: tuple[Workload, ...] = Field(min_length=1)
    """Benchmark workloads: what is timed (or modelled)."""
    check_shapes: tuple[Workload, ...] = Field(min_length=1)
    """Small shapes for correctness in the interpreter."""
    family: str = ""
    """e.g. `reduction`, `elementwise`, `matmul`, `attention`: keys priors and the playbook."""
    split: Split = "train"
    """`held_out`: for measuring what a policy learned, never for training; exports refuse its turns."""
    foreign: bool = False
    """Read from somebody else's format: the CPU runs its reference in a process of its own."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 over everything that can change a verdict; part of every cache key."""
        payload = self.model_dump_json(exclude={"origin", "description", "seed_source", "split", "foreign"})
        return hashlib.sha256(payload.encode()).hexdigest()


class Timing(Frozen):
    """Latency of one workload, per call. `modelled` numbers come from a cost model, never from a clock."""

    kind: TimingKind
    median_ms: float = Field(gt=0)
    p20_ms: float | None = None
    p80_ms: float | None = None
    samples: int = 0
    baseline_ms: float | None = Field(default=None, gt=0)
    ratio: float | None = Field(default=None, gt=0)
    """baseline/candidate from samples taken in turn; None where the two medians are all there is."""
    ratio_low: float | None = None
    """Lower end of the 95 % interval of baseline/candidate; None when there is no spread to speak of."""
    ratio_high: float | None = None
    speed_of_light_ms: float | None = None
    wall_ms: float | None = None
    """Milliseconds per call by the judge's own clock, calls back to back: launching included. Measured ones only."""
    energy_mj: float | None = None
    """Millijoules per call from the GPU's energy counter, flushing included; None where it cannot be read."""
    baseline: str = ""
    """What `baseline_ms` is of: seed, eager, torch.compile, max-autotune."""
    baselines: Mapping[str, float] = {}
    """Measured ones only: screened latency in ms of every baseline that was tried."""
    tier: Literal["", "screen", "confirm"] = ""
    """Measured ones only: how thoroughly; what does not screen near the best is not confirmed."""
    screened: float | None = None
    """baseline/candidate of the screen tier, where there was one; nothing else where that was all."""
    spread_low: float | None = Field(default=None, gt=0)
    """Modelled and calibrated ones only: 80 % of unseen kernels took from `spread_low` to `spread_high` times it."""
    spread_high: float | None = Field(default=None, gt=0)

    @property
    def speedup(self) -> float | None:
        """baseline / candidate; > 1 is faster than the baseline."""
        plain = None if self.baseline_ms is None else self.baseline_ms / self.median_ms
        return plain if self.ratio is None else self.ratio


class KernelResources(Frozen):
    """What the compiler says of one compiled kernel for one launch configuration."""

    name: str
    num_warps: int
    num_stages: int
    num_ctas: int = 1
    registers: int
    """Per thread, as `stack_bytes` are."""
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    """Per program (CTA)."""
    ptx_sha: str
    sass_sha: str | None = None
    sass_mix: Mapping[str, int] = Field(default_factory=dict)
    """Static SASS instruction counts by class (see evaluator.sass)."""


class LaunchProfile(Frozen):
    """One kernel launch of one workload, as the model or the profiler saw it."""

    kernel: str
    grid: tuple[int, int, int]
    occupancy: float
    """Resident warps / maximum warps per SM, in [0, 1]."""
    waves: float
    latency_ms: float
    dram_bytes: float
    l2_bytes: float
    flops: float
    terms: Mapping[str, float] = Field(default_factory=dict)
    """Named contributions in milliseconds: dram, l2, tensor, issue, latency, launch …"""
    bound: str
    """The largest term's name."""


class KernelCounters(Frozen):
    """Counters of one kernel's launch; None where the GPU does not count. Percentages of the sustained peak."""

    kernel: str
    grid: str
    """As ncu shows it, e.g. `(4096, 1, 1)`."""
    block: str
    ms: float | None
    """Under the profiler, which is slower than without."""
    dram_pct: float | None
    """Of the time the kernel ran."""
    dram_bytes: float | None
    sm_pct: float | None
    l2_hit_pct: float | None
    """Share of L2's sectors that were found there."""
    occupancy_pct: float | None
    """Achieved: resident warps / maximum warps, on average over active cycles."""
    stalls: Mapping[str, float]
    """The three commonest reasons for which warps do not issue -> share of all warp cycles, in [0, 1]."""

    def line(self) -> str:
        """For people and policies: what the GPU counted."""
        shares = {"DRAM": self.dram_pct, "SM": self.sm_pct, "L2 hits": self.l2_hit_pct, "occupancy": self.occupancy_pct}
        shown = [f"{name} {value:.0f} %" for name, value in shares.items() if value is not None]
        if self.stalls:
            waits = ", ".join(f"{name} {share:.0%}" for name, share in self.stalls.items())
            shown.append(f"warps wait for {waits}")
        return f"{self.kernel}: {', '.join(shown) or 'nothing counted'}"


class Profile(Frozen):
    """Where the time of a passed candidate goes."""

    kind: TimingKind
    target: str
    """GPU the numbers are for, e.g. `h200`."""
    resources: tuple[KernelResources, ...] = ()
    launches: Mapping[str, tuple[LaunchProfile, ...]] = Field(default_factory=dict)
    """By workload name."""
    coverage: float | None = None
    """Candidate's own Triton time / all device time; None when it was not measured."""
    bottleneck: str = ""
    """The term that dominates over all workloads: dram, l2, tensor, issue, latency, launch."""
    counters: tuple[KernelCounters, ...] = ()
    """Of the candidate's kernels at the first workload; empty unless they were asked for and could be read."""
    counters_reason: str = ""
    """Why counters that were asked for are missing."""

    @property
    def registers(self) -> int | None:
        """Of each thread of the kernel that takes most; None where no kernel's are known."""
        return max((kernel.registers for kernel in self.resources), default=None)

    @property
    def shared_bytes(self) -> int | None:
        """Of each program of the kernel that takes most; None where no kernel's are known."""
        return max((kernel.shared_bytes for kernel in self.resources), default=None)


class StageRecord(Frozen):
    """One stage of the cascade: what it said and what it cost."""

    name: str
    status: EvalStatus
    seconds: float
    detail: str = ""


class Evaluation(Frozen):
    """The judge's whole answer about one source on one task."""

    source_sha: str
    task: str
    evaluator: str
    """`cpu` or `gpu`."""
    status: EvalStatus
    reason: str = ""
    """One line for people and logs."""
    explain: str = ""
    """Several lines a policy can learn from: compiler words, mismatch location, profile summary."""
    stages: tuple[StageRecord, ...] = ()
    timings: Mapping[str, Timing] = Field(default_factory=dict)
    """By workload name; empty unless passed."""
    profile: Profile | None = None
    checks_passed: int = 0
    checks_total: int = 0
    max_error: float | None = None
    """Largest |actual - expected| over all checks that produced finite values."""
    evaluator_version: str = ""
    target: str = ""
    cached: bool = False
    seconds: float = 0.0

    @model_validator(mode="after")
    def _timings_only_when_passed(self) -> Self:
        if self.status.passed and not self.timings:
            raise ValueError("a passed evaluation needs at least one timing")
        if not self.status.passed and self.timings:
            raise ValueError(f"status {self.status} cannot carry timings")
        if len({timing.kind for timing in self.timings.values()}) > 1:
            raise ValueError("measured and modelled timings never mix in one evaluation")
        return self

    @property
    def kind(self) -> TimingKind | None:
        """Whether the latencies are measured or modelled; None when there are none."""
        return next((timing.kind for timing in self.timings.values()), None)

    @property
    def latency_ms(self) -> float | None:
        """Geometric mean of the workloads' median latencies."""
        return geometric_mean([timing.median_ms for timing in self.timings.values()])

    @cached_property
    def speedup(self) -> float | None:
        """Geometric mean over workloads of baseline/candidate; None without a baseline."""
        ratios = [timing.speedup or 0.0 for timing in self.timings.values()]
        return geometric_mean(ratios) if all(ratios) else None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy that works its speedup out again: the update may change timings."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("speedup", None)
        return copied


def geometric_mean(values: Sequence[float]) -> float | None:
    """The geometric mean of positive values; None of no values."""
    if not values:
        return None
    return math.exp(sum(map(math.log, values)) / len(values))


class EvaluationJob(Frozen):
    """One unit of work for an evaluator: picklable, without references to the search."""

    job_id: str
    source: KernelSource
