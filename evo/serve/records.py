"""What is asked and answered over HTTP. Field names are KernelGYM's where it has one, so that its clients work."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evaluator.foreign import ForeignTask
from evaluator.source_hash import ast_hash
from evaluator.types import OpPolicy, Scalar, Tolerance, Workload
from evo.config_keys import nearest

TaskId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,100}$")]
Params = Annotated[Mapping[str, Scalar], Field(max_length=32)]
_Workloads = Annotated[tuple[Workload, ...], Field(max_length=16)]

NOT_HONOURED = frozenset(
    {
        *("toolkit", "backend_adapter", "num_correct_trials", "num_perf_trials", "num_warmup", "priority"),
        *("device_preference", "force_refresh", "reference_backend", "uuid", "use_reference_cache", "is_valid"),
        *("verbose_errors", "enable_profiling", "enable_triton_detection", "measure_performance", "run_correctness"),
        *("run_triton_detection", "run_performance", "resources"),
    }
)
"""Fields of KernelGYM's that are taken and change nothing: every check and every timing is always made here."""


class EvaluationRequest(BaseModel):
    """The body of POST /evaluate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kernel_code: Annotated[str, Field(min_length=1)]
    """The candidate: a Python file with `ModelNew` and its `@triton.jit` kernels."""
    reference_code: str = ""
    """What it must equal, in KernelBench form: `Model`, `get_inputs`, perhaps `get_init_inputs`."""
    task: str = ""
    """A shipped task's name, in place of `reference_code`."""
    task_id: TaskId | None = None
    """The job's name; one is made up when left out. The same request under the same name is one job."""
    entry_point: Annotated[str, Field(pattern=r"^[A-Za-z_]\w{0,99}$")] = "Model"
    """The reference's class; the candidate's is this and `New`."""
    seed_code: str | None = None
    """A correct kernel to compare latencies with; the cpu evaluator has no other baseline for a foreign reference."""
    parent_code: str | None = None
    """The kernel that this one was made from; to hand in the same program again earns what a repetition earns."""
    timing: Literal["auto", "screen", "confirm"] | None = None
    """How thoroughly the gpu evaluator times; the server's setting when left out."""
    params: Params = Field(default_factory=dict)
    """Sizes to time at: values for top-level literals of the reference. Short for one entry of `workloads`."""
    workloads: _Workloads = ()
    """What is timed, each `{name, params, bytes_moved, flops}`; the reference's own sizes when left out."""
    check_shapes: _Workloads = ()
    """Small shapes for correctness; derived from the reference when left out."""
    dtype: str | None = None
    """The dominating dtype; that of the first output when left out."""
    tolerance: Tolerance | None = None
    """`{atol, rtol}`; from the dtype when left out."""
    op_policy: OpPolicy | None = None
    """Which torch operations kernels may use; `mixed` for references when left out."""
    allow_tf32: bool | None = None
    """Accept TF32 products in a float32 task."""
    allow_atomics: bool | None = None
    """Accept results that depend on the order of atomics."""
    input_precisions: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """Values of `tl.dot(input_precision=…)` that kernels may choose."""
    imports: Annotated[tuple[str, ...], Field(max_length=16)] = ()
    """Top-level modules that kernels may import beside torch and triton."""
    timeout: Annotated[float, Field(ge=1)] | None = None
    """Seconds that this job may take, never more than the server allows."""
    backend: Literal["triton"] = "triton"
    """Kernels are Triton kernels."""
    workflow: Literal["kernelbench"] = "kernelbench"
    """References are in KernelBench form."""
    ignored: tuple[str, ...] = ()
    """Filled in by the server: fields of the request that change nothing here."""

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        fields = {name: value for name, value in given.items() if name not in NOT_HONOURED}
        for name in fields:
            if name not in cls.model_fields or name == "ignored":
                near = nearest(str(name), [*cls.model_fields])
                raise ValueError(f"unknown field {name!r}" + (f"; did you mean {near!r}?" if near else ""))
        return {**fields, "ignored": tuple(sorted(set(given) & NOT_HONOURED))}

    @model_validator(mode="after")
    def _one_task(self) -> Self:
        if bool(self.task) == bool(self.reference_code.strip()):
            raise ValueError("give reference_code, or a shipped task's name in task, and not both")
        if self.params and self.workloads:
            raise ValueError("give params or workloads, not both")
        return self

    @property
    def kernel(self) -> str:
        """The candidate, its class called `ModelNew`."""
        return renamed(self.kernel_code, f"{self.entry_point}New", "ModelNew")

    @property
    def foreign_task(self) -> ForeignTask:
        """The task as the judge wants it, the reference's class called `Model`."""
        given = (Workload(name="given", params=self.params),) if self.params else self.workloads
        seed = self.seed_code and renamed(self.seed_code, f"{self.entry_point}New", "ModelNew")
        return ForeignTask(
            task=self.task,
            reference_code=renamed(self.reference_code, self.entry_point, "Model"),
            seed_code=seed,
            workloads=given,
            **{
                name: getattr(self, name)
                for name in ForeignTask.model_fields
                if name not in ("task", "reference_code", "seed_code", "workloads")
            },
        )

    @property
    def source_bytes(self) -> int:
        """UTF-8 bytes of the longest source."""
        sources = (self.kernel_code, self.reference_code, self.seed_code, self.parent_code)
        return max(len(text.encode()) for text in sources if text)

    @property
    def repeats_parent(self) -> bool:
        """Whether kernel and parent are the same program."""
        return self.parent_code is not None and ast_hash(self.parent_code) == ast_hash(self.kernel_code)


JobState = Literal["pending", "processing", "completed", "failed", "timeout", "cancelled"]
DONE: frozenset[JobState] = frozenset({"completed", "failed", "timeout", "cancelled"})


class Answer(BaseModel):
    """What GET /results and POST /evaluate answer. Null means: not known, or there is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_id: str
    status: JobState
    """`completed`: there is a verdict on the kernel. `failed`: nothing is known about it, error_message says why."""
    verdict: str | None = None
    """The evaluator's verdict, e.g. `passed`, `wrong_value`, `fallback`."""
    correct: bool | None = None
    speedup: float | None = None
    """Baseline / kernel."""
    timing_kind: Literal["measured", "modelled"] | None = None
    """Whether a clock or a cost model said how fast."""
    reward: float | None = None
    """By the server's `reward` settings."""
    reward_components: Mapping[str, float] = Field(default_factory=dict)
    """What the reward is the sum of."""
    explain: str = ""
    """Several lines that a policy can learn from."""
    compiled: bool | None = None
    correctness: bool | None = None
    """The same as `correct`."""
    decoy_kernel: bool | None = None
    """The verdict calls it a hack."""
    reference_runtime: float | None = None
    """Milliseconds of the baseline, the geometric mean over the workloads."""
    kernel_runtime: float | None = None
    """Milliseconds of the kernel, the geometric mean over the workloads."""
    metadata: Mapping[str, Any] = Field(default_factory=dict)
    """Evaluator, target, checks, timings of each workload, coverage."""
    error_message: str | None = None
    error_code: str | None = None
    submitted_at: str | None = None
    completed_at: str | None = None
    processing_time: float | None = None
    """Seconds from the start of judging to the answer."""
    ignored: tuple[str, ...] = ()
    """Fields of the request that change nothing here."""


class Status(BaseModel):
    """What GET /status answers."""

    task_id: str
    status: JobState
    queue_position: int | None = None
    """Jobs before it; null once it is being judged."""
    error_message: str | None = None


def renamed(source: str, old: str, new: str) -> str:
    """Python source with the name `old` called `new`; text that is no Python stays as it is."""
    if old == new or old not in source:
        return source
    lines = source.splitlines(keepends=True)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return source
    for token in reversed(tokens):
        if token.type == tokenize.NAME and token.string == old:
            row, begin = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:begin] + new + line[begin + len(old) :]
    return "".join(lines)
