"""The CPU evaluator's stages: static -> compile -> smoke -> model. Each returns a verdict, or None to go on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from evaluator import static_checks
from evaluator.cascade import Facts, Stage, Verdict
from evaluator.judge import Case, Judge, mutated, unstable
from evaluator.occupancy import occupancy
from evaluator.sandbox import Limits
from evaluator.types import EvalStatus, KernelResources, LaunchProfile, Profile, Task, Timing, Workload
from evaluator.worker_host import JobOutcome, WorkerHost

if TYPE_CHECKING:
    from evaluator.autotune import ConfigAlone
    from evaluator.calibration import Spread
    from evaluator.compile import CompiledLaunch
    from evaluator.hardware import Hardware
    from evaluator.trace import LaunchTrace

REDZONE_BYTES = 4096
MAX_PROGRAMS = 4
MAX_CONFIGS = 16
"""Configs of a source that the interpreter runs, each through all checks."""
# Modelled latencies below this share of the speed of light cannot be true, whatever the model's errors.
IMPOSSIBLE_SHARE = 0.5
DOUBTFUL_SHARE = 0.95


class CpuStages:
    """What the stages share: the judge, the two workers, the target and the limits."""

    def __init__(
        self, judge: Judge, compiler: WorkerHost, interpreter: WorkerHost, hardware: Hardware, limits: Limits
    ) -> None:
        self.judge = judge
        self.task = judge.task
        self.compiler = compiler
        self.interpreter = interpreter
        self.hardware = hardware
        self.limits = limits

    def stages(self, baseline: Mapping[str, float]) -> list[tuple[str, Stage]]:
        """The cascade in order; `baseline` are the seed's latencies in ms by workload (empty: none)."""
        model: Stage = lambda facts: self.model(facts, baseline)  # noqa: E731
        return [("static", static_stage(self.task)), ("compile", self.compile), ("smoke", self.smoke), ("model", model)]

    def forecast(self) -> list[tuple[str, Stage]]:
        """Only what a modelled latency needs, for sources whose structure passed the checks before."""

        def trusted(facts: Facts) -> Verdict | None:
            verdict = self.compile(facts)
            facts.checked_kernels |= {launch.kernel for found in facts.compiled.values() for launch in found}
            return verdict

        stages = dict(self.stages({}))
        return [("static", stages["static"]), ("compile", trusted), ("model", stages["model"])]

    def compile(self, facts: Facts) -> Verdict | None:
        """Every launch of every benchmark workload compiled and assembled for the target."""
        job = self._job("compile", facts, workloads=self._shapes(), target=self.hardware.name)
        outcome = self.compiler.run(job, self.limits)
        if verdict := failure(outcome):
            return verdict
        from evaluator.compile import CompiledLaunch

        try:
            facts.compiled = self._by_workload(outcome, CompiledLaunch.model_validate)
        except (ValidationError, ValueError, TypeError) as error:
            return _forged(error)
        for name, launches in facts.compiled.items():
            if not launches:
                return Verdict(EvalStatus.FALLBACK, f"launches no Triton kernel of its own at {name}")
        return self._assemble(facts)

    def smoke(self, facts: Facts) -> Verdict | None:
        """Every check case in the interpreter, compared with the reference; each config of autotuned kernels alone."""
        cases = self.judge.cases()
        configs = _configs(facts)
        facts.checks_total = len(cases) * len(configs)
        for alone in configs:
            if verdict := self._check(facts, alone.source, cases):
                if alone.total == 1:
                    return verdict
                which = f"config {alone.number} of {alone.total}"
                explain = f"{which} ({alone.settings})\n{verdict.explain or verdict.reason}"
                return Verdict(verdict.status, f"{which}: {verdict.reason}", explain)
        return None

    def _check(self, facts: Facts, source: str, cases: Sequence[Case]) -> Verdict | None:
        job = self._job("check", facts, cases=[case.for_worker() for case in cases], redzone_bytes=REDZONE_BYTES)
        outcome = self.interpreter.run({**job, "source": source}, self.limits)
        if verdict := failure(outcome):
            return verdict
        results = outcome.answer["result"]
        if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
            return _forged("not a list of results")
        for case, result in zip(cases, results, strict=False):
            if verdict := self._judge_case(facts, case, result):
                return verdict
            facts.checks_passed += 1
        return None if len(results) >= len(cases) else _forged("results are missing")

    def model(self, facts: Facts, baseline: Mapping[str, float]) -> Verdict | None:
        """Modelled latency of every workload from its traced launches and compiled resources."""
        job = self._job("trace", facts, workloads=self._shapes(), max_programs=MAX_PROGRAMS)
        outcome = self.interpreter.run(job, self._trace_limits())
        if verdict := failure(outcome):
            return verdict
        from evaluator.trace import LaunchTrace

        try:
            traces = self._by_workload(outcome, LaunchTrace.model_validate)
        except (ValidationError, ValueError, TypeError) as error:
            return _forged(error)
        launches: dict[str, tuple[LaunchProfile, ...]] = {}
        for workload in self.task.workloads:
            if verdict := _unchecked(facts, workload, traces[workload.name]):
                return verdict
            pairs = self._pair(facts, workload, traces[workload.name])
            if isinstance(pairs, Verdict):
                return pairs
            facts.launches[workload.name] = pairs
            launches[workload.name] = self._predict(pairs)
        return self._time(facts, launches, baseline)

    def _judge_case(self, facts: Facts, case: Case, result: Mapping[str, Any]) -> Verdict | None:
        if "error" in result:
            return reported(result["error"], f"{case.label}: ")
        if findings := result.get("out_of_bounds"):
            return Verdict(EvalStatus.OUT_OF_BOUNDS, f"{case.label}: {findings[0]}", "\n".join(map(str, findings)))
        if not result.get("kernels"):
            return Verdict(EvalStatus.FALLBACK, f"launches no Triton kernel of its own at {case.label}")
        facts.checked_kernels.update(map(str, result["kernels"]))
        if changed := mutated(case, result.get("digests")):
            return Verdict(*changed)
        outputs = result.get("outputs")
        if not isinstance(outputs, list):
            return _forged("no outputs")
        if differs := unstable(case, outputs, result):
            return Verdict(*differs)
        found = self.judge.compare(case, outputs)
        if found.max_error is not None:
            facts.max_error = max(facts.max_error or 0.0, found.max_error)
        if found.status is None:
            return None
        return Verdict(found.status, f"{case.label}: {found.reason}", f"{case.label}\n{found.explain}".strip())

    def _assemble(self, facts: Facts) -> Verdict | None:
        from evaluator.assemble import AssembleError, assemble

        for workload, launches in facts.compiled.items():
            for launch in launches:
                key = resource_key(launch)
                if key in facts.resources:
                    continue
                if verdict := self._narrow_dot(launch):
                    return verdict
                if launch.shared_bytes > self.hardware.shared_bytes_per_block:
                    return self._does_not_fit(launch.kernel, workload, f"{launch.shared_bytes} bytes of shared memory")
                try:
                    facts.resources[key] = assemble(launch, self.hardware)
                except AssembleError as error:
                    text = f"ptxas refuses {launch.kernel} at {workload}: {str(error).splitlines()[0]}"
                    return Verdict(EvalStatus.RESOURCE_LIMIT, text, str(error))
                if verdict := self._not_resident(facts.resources[key], workload):
                    return verdict
        return None

    def _narrow_dot(self, launch: CompiledLaunch) -> Verdict | None:
        """TF32 in the code of a task that does not accept it: the interpreter computes in float32 and cannot see it."""
        accepted = any("tf32" in precision for precision in self.task.input_precisions)
        if self.task.allow_tf32 or accepted or not re.search(r"\.tf32\b", launch.ptx):
            return None
        reason = f"{launch.kernel} multiplies float32 tiles in TF32"
        return Verdict(EvalStatus.PRECISION, reason, f"{reason}\npass input_precision='ieee' to tl.dot")

    def _not_resident(self, resources: KernelResources, workload: str) -> Verdict | None:
        fits = occupancy(self.hardware, resources.num_warps, resources.registers, resources.shared_bytes)
        return None if fits.blocks else self._does_not_fit(resources.name, workload, fits.limiter)

    def _does_not_fit(self, kernel: str, workload: str, what: str) -> Verdict:
        reason = f"one program of {kernel} at {workload} needs {what}, more than an SM of {self.hardware.name} has"
        return Verdict(EvalStatus.RESOURCE_LIMIT, reason, f"{reason}\nuse smaller blocks, fewer stages or fewer warps")

    def _pair(
        self, facts: Facts, workload: Workload, traces: Sequence[LaunchTrace]
    ) -> list[tuple[LaunchTrace, KernelResources]] | Verdict:
        """Each traced launch with the resources of the compiled launch at its place."""
        compiled = facts.compiled[workload.name]
        if [launch.kernel for launch in compiled] != [trace.kernel for trace in traces]:
            return _forged(f"the launches at {workload.name} differ between compiling and tracing")
        return [(trace, facts.resources[resource_key(launch)]) for launch, trace in zip(compiled, traces, strict=True)]

    def _predict(self, pairs: list[tuple[LaunchTrace, KernelResources]]) -> tuple[LaunchProfile, ...]:
        from evaluator.calibration import calibrated
        from evaluator.cost_model import predict

        return tuple(predict(pairs, *calibrated(self.hardware)))

    def _time(
        self, facts: Facts, launches: dict[str, tuple[LaunchProfile, ...]], baseline: Mapping[str, float]
    ) -> Verdict | None:
        spread = self._spread()
        for workload in self.task.workloads:
            latency = sum(launch.latency_ms for launch in launches[workload.name])
            light = self.speed_of_light_ms(workload)
            if latency < IMPOSSIBLE_SHARE * light:
                text = f"modelled {latency:.4g} ms at {workload.name}, below half the speed of light {light:.4g} ms"
                return Verdict(EvalStatus.SUSPICIOUS, text, f"{text}\nthe kernel cannot be doing all the work")
            if latency < DOUBTFUL_SHARE * light:
                facts.notes.append(f"{workload.name}: modelled below the speed of light of {light:.4g} ms")
            facts.timings[workload.name] = Timing(
                kind="modelled",
                median_ms=latency,
                baseline_ms=baseline.get(workload.name),
                baseline="seed" if workload.name in baseline else "",
                speed_of_light_ms=light,
                spread_low=spread.low if spread else None,
                spread_high=spread.high if spread else None,
            )
        facts.profile = Profile(
            kind="modelled",
            target=self.hardware.name,
            resources=tuple(facts.resources.values()),
            launches=launches,
            bottleneck=_bottleneck(launches),
        )
        facts.notes.append(_summary(facts, launches))
        return None

    def _spread(self) -> Spread | None:
        """How far the model errs on kernels of this task's family; None where it is not calibrated."""
        from evaluator.calibration import calibration

        known = calibration(self.hardware.name)
        return known.spread_of(self.task.family) if known else None

    def speed_of_light_ms(self, workload: Workload) -> float:
        """max(bytes / bandwidth, flops / peak) with the target's ceilings: no kernel can be faster."""
        moved = workload.bytes_moved or self.judge.shapes(workload).bytes_moved
        seconds = moved / self.hardware.dram_bytes_per_s
        if workload.flops:
            tensor_cores = self.task.dtype == "float32" and self.task.input_precisions != ("ieee",)
            kind = "tf32" if tensor_cores or self.task.allow_tf32 else self.task.dtype
            seconds = max(seconds, workload.flops / self.hardware.peak_flops(kind))
        return seconds * 1e3

    def _trace_limits(self) -> Limits:
        """Room in the address space for virtual buffers of benchmark size: inputs, outputs and as much again."""
        largest = max(self.judge.shapes(workload).bytes_moved for workload in self.task.workloads)
        return self.limits.model_copy(update={"memory_bytes": self.limits.memory_bytes + 2 * largest})

    def _job(self, kind: str, facts: Facts, **data: Any) -> dict[str, Any]:
        return {"kind": kind, "source": facts.source.text, **data}

    def _shapes(self) -> list[dict[str, Any]]:
        return [self.judge.shapes(workload).for_worker() for workload in self.task.workloads]

    def _by_workload(self, outcome: JobOutcome, parse: Callable[[Any], Any]) -> dict[str, list[Any]]:
        results = outcome.answer["result"]
        names = [workload.name for workload in self.task.workloads]
        return {name: [parse(launch) for launch in launches] for name, launches in zip(names, results, strict=True)}


def _configs(facts: Facts) -> list[ConfigAlone]:
    """What the interpreter is to run: the source, or one for each config that it lists for its autotuned kernels."""
    from evaluator.autotune import ConfigAlone, configs_alone

    text = facts.source.text
    configs = configs_alone(text, MAX_CONFIGS, keep_lines=True) if "autotune" in text else []
    if not configs or configs[0].total == 1:
        return [ConfigAlone(1, 1, "", text)]
    if len(configs) < configs[0].total:
        facts.notes.append(f"{len(configs)} of {configs[0].total} autotune configs were run in the interpreter")
    return configs


def _unchecked(facts: Facts, workload: Workload, traces: Sequence[LaunchTrace]) -> Verdict | None:
    """A kernel that only benchmark shapes reach: its outputs were compared with nothing."""
    unknown = sorted({trace.kernel for trace in traces} - facts.checked_kernels)
    if not unknown:
        return None
    reason = f"launches {unknown[0]} at {workload.name}, which no check shape launches"
    return Verdict(
        EvalStatus.SUSPICIOUS, reason, f"{reason}\nuse the same kernels at every shape, so that they are checked"
    )


def static_stage(task: Task) -> Stage:
    """The stage that reads syntax, imports, names and entry point, without running anything."""

    def static(facts: Facts) -> Verdict | None:
        found = static_checks.check(facts.source.text, task)
        return Verdict(found.status, found.reason, found.explain) if found.status else None

    return static


def resource_key(launch: CompiledLaunch) -> str:
    """Launches with equal keys use equal resources."""
    return f"{launch.ptx_sha}/{launch.num_warps}/{launch.num_stages}/{launch.num_ctas}"


def failure(outcome: JobOutcome) -> Verdict | None:
    """The verdict on a job that gave no result; None when it gave one."""
    if outcome.status is not None:
        tail = outcome.output.strip()[-2000:]
        return Verdict(outcome.status, outcome.reason, f"{outcome.reason}\n{tail}".strip())
    if "error" in outcome.answer:
        return reported(outcome.answer["error"])
    return None if "result" in outcome.answer else _forged("no result")


def reported(error: Any, prefix: str = "") -> Verdict:
    """A verdict from the worker's own description of an exception; only known failures are believed."""
    try:
        status = EvalStatus(error["status"])
        reason, explain = str(error["reason"]), str(error["explain"])
    except (KeyError, TypeError, ValueError):
        return _forged("not an error report")
    if status.passed:
        return _forged(f"a worker may not report {status}")
    return Verdict(status, f"{prefix}{reason}", explain)


def _forged(what: object) -> Verdict:
    line = str(what).splitlines()[0] if str(what) else "unreadable"
    return Verdict(EvalStatus.HARNESS_TAMPER, f"the worker's result is not what the harness writes: {line}")


def _bottleneck(launches: Mapping[str, Sequence[LaunchProfile]]) -> str:
    """The bound that most of the modelled time is spent under, over all workloads (each counts the same)."""
    shares: dict[str, float] = {}
    for profiles in launches.values():
        total = sum(profile.latency_ms for profile in profiles)
        for profile in profiles:
            shares[profile.bound] = shares.get(profile.bound, 0.0) + profile.latency_ms / total
    return max(sorted(shares), key=lambda bound: shares[bound], default="")


def _summary(facts: Facts, launches: Mapping[str, Sequence[LaunchProfile]]) -> str:
    lines = []
    for name, profiles in launches.items():
        timing = facts.timings[name]
        lines.append(f"{name}: modelled {timing.median_ms:.4g} ms (speed of light {timing.speed_of_light_ms:.4g} ms)")
        lines += [
            f"  {profile.kernel} grid {profile.grid}: {profile.latency_ms:.4g} ms, bound by {profile.bound}, "
            f"occupancy {profile.occupancy:.0%}, {profile.waves:.1f} waves, "
            + ", ".join(f"{term} {value:.3g} ms" for term, value in sorted(profile.terms.items()))
            for profile in profiles
        ]
    for resources in facts.resources.values():
        lines.append(
            f"  {resources.name}: {resources.registers} registers, {resources.spill_store_bytes} bytes spilled, "
            f"{resources.shared_bytes} bytes shared, {resources.num_warps} warps, {resources.num_stages} stages"
        )
    return "\n".join(lines)
