"""The gpu evaluator's stages after the offline ones: correct -> time -> profile -> cross-check.

One `GpuStages` walks one candidate. Checks of several candidates share the GPU; timing and profiling hold it alone.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from evaluator.cascade import Facts, Stage, Verdict
from evaluator.clocks import Clocks, clocks_of, disagreement, loop_length
from evaluator.gpu_baseline import Lead, fill_sets
from evaluator.gpu_cases import LARGE_BYTES, Carved, DeviceCase, share
from evaluator.gpu_correct import (
    Bench,
    Checker,
    Findings,
    check_workload,
    in_order,
    planned_checks,
    poison_sinks,
    sendable,
    taken,
)
from evaluator.gpu_host import WorkerError
from evaluator.gpu_memory import Place, is_tensor, settle, view
from evaluator.gpu_profile import busy_ms, copy_ms, read_work
from evaluator.gpu_recall import check_recall
from evaluator.gpu_refusal import RefusedError, refused, reports, verdict
from evaluator.gpu_setting import Measured, Setting
from evaluator.samples import Block, Loop, Samples, UntrustedSamplesError, read_block, read_loop
from evaluator.summary import summarise
from evaluator.timing import SCREEN, Tier, interleave
from evaluator.types import EvalStatus, Profile, Timing, Workload

IMPOSSIBLE_SHARE = 0.5
DOUBTFUL_SHARE = 0.95
INCREDIBLE_SPEEDUP = 10.0
COVERAGE = {"strict": 0.5, "mixed": 0.1, "free": 0.0}
"""Least share of the device's time that the candidate's own Triton kernels take, by a task's op policy."""
PROFILED_CALLS = 4
CHECK_ONE_IN = 10
"""One timed output in so many is compared, chosen after it was made."""
LOOPS = 2
"""Loops of which the quicker one counts: a busy host makes them longer, nothing makes them shorter."""
DOUBTFUL_LOOPS = 6
"""The same where clocks disagree otherwise."""
MAX_REFILLED_BYTES = LARGE_BYTES
"""Inputs of this size and more change their contents in one timed block of a few, and outputs are checked in part:
copying and comparing them takes longer than the calls."""
LARGE_REFILL_ONE_IN = 4
LARGE_SHARE = 1 / 8
MAX_GIVEN = 8
"""Tensors of torch's that are held against the answer."""
LONG_MS = 2.0
"""Milliseconds per call beyond which one loop says enough: what disturbs the host hardly counts."""
ENERGY_MS = 300.0


@dataclass
class GpuStages:
    """One candidate on one bench."""

    setting: Setting
    bench: Callable[[], Bench]
    """Takes a worker at the first call."""
    _measured: dict[str, Measured] = field(default_factory=dict)
    _coverage: dict[str, float] = field(default_factory=dict)
    _screened: dict[str, float | None] = field(default_factory=dict)
    _confirmed: bool = False

    def stages(self) -> list[tuple[str, Stage]]:
        """In order."""
        plain = [("correct", self.correct), ("time", self.time), ("profile", self.profile)]
        return [(name, _judged(stage)) for name, stage in [*plain, ("cross-check", self.cross_check)]]

    def correct(self, facts: Facts) -> None:
        """Every check of every shape. Raises what `_judged` turns into verdicts, as all stages here."""
        bench, cases = self.bench(), self.setting.cases
        findings = Findings()
        facts.checks_total = planned_checks(cases.task)
        try:
            with self.setting.locks.shared():
                bench.request("load", source=facts.source.text)
            for workload, benchmark in in_order(cases.task):
                with self.setting.locks.shared():
                    checker = Checker(cases, bench, cases.stand(workload), findings)
                    check_workload(checker, benchmark)
                    bench.request("drop", name=workload.name)
            facts.checks_total = findings.passed
        finally:
            facts.checks_passed, facts.max_error = findings.passed, findings.max_error
            facts.checked_kernels |= findings.kernels

    def time(self, facts: Facts) -> None:
        """Screen every workload; confirm where the setting wants it."""
        workloads = self.setting.cases.task.workloads
        with self.setting.locks.exclusive():
            tier = self.setting.tier(None) if self.setting.straight_to_confirm else SCREEN
            if tier is SCREEN:
                for workload in workloads:
                    self._measured[workload.name] = self._time(workload, SCREEN)
                tier = self.setting.tier(self._speedup())
                self._screened = {name: measured.summary.ratio for name, measured in self._measured.items()}
            self._confirmed = tier is not SCREEN
            if tier is not SCREEN:
                for workload in workloads:
                    self._measured[workload.name] = self._time(workload, tier)
        for workload in workloads:
            facts.timings[workload.name] = self._timing(workload)

    def profile(self, facts: Facts) -> None:
        """Which kernels the device's time goes to, and whether they are the candidate's own."""
        for workload in self.setting.cases.task.workloads:
            measured = self._measured[workload.name]
            self._coverage[workload.name] = self._cover(workload, measured.profile)
            self._agree(workload, busy_ms(read_work(measured.profile)) / measured.profiled)
        facts.profile = Profile(
            kind="measured",
            target=self.setting.target,
            resources=tuple(facts.resources.values()),
            coverage=min(self._coverage.values()),
            bottleneck=self._bottleneck(facts),
        )
        facts.notes.append(self._summary(facts))

    def cross_check(self, facts: Facts) -> None:
        """Without its kernels the output must be wrong; nothing may be faster than light or patched."""
        bench, cases = self.bench(), self.setting.cases
        workload = cases.task.workloads[0]
        with self.setting.locks.shared():
            checker = Checker(cases, bench, cases.stand(workload), Findings())
            checker.start()
            check_recall(checker)  # again, now that calls have become many
            # Not the case whose answer the candidate may just have kept.
            case = self.setting.cases.plain(workload, 1)
            checker.put(case, 1)
            self._ablate(bench, workload, checker.carved, case)
            changed = bench.request("inspect")["changed"]
        if changed:
            raise refused(EvalStatus.HARNESS_TAMPER, f"replaced {', '.join(map(str, changed))}")
        workloads = {workload.name: workload for workload in cases.task.workloads}
        for name, timing in facts.timings.items():
            floor = self.setting.limit(workloads[name]).floor_ms
            if timing.median_ms < IMPOSSIBLE_SHARE * floor:
                text = f"{timing.median_ms:.4g} ms at {name}, below half of the {floor:.4g} ms that no kernel can beat"
                raise refused(EvalStatus.SUSPICIOUS, text, "the kernel cannot be doing all the work")
            if timing.median_ms < DOUBTFUL_SHARE * floor:
                facts.notes.append(f"{name}: quarantined: below the {floor:.4g} ms that no kernel should beat")
            if timing.speedup is not None and timing.speedup > INCREDIBLE_SPEEDUP:
                facts.notes.append(f"{name}: quarantined: {timing.speedup:.1f}x over the best baseline")

    def _ablate(self, bench: Bench, workload: Workload, carved: Carved, case: DeviceCase) -> None:
        poison_sinks(bench.arena, carved)
        settle(bench.arena)
        sink = carved.sinks[0]
        try:
            answer = bench.request("ablate", name=workload.name, number=1, sink=sendable(sink))
        except WorkerError as failure:
            if failure.status is not EvalStatus.RUNTIME_ERROR:
                raise
        else:  # otherwise it cannot do without its kernels
            outputs = taken(bench.arena, reports(answer, "outputs"), sink)
            if self.setting.cases.matches(case, outputs):
                text = f"{workload.name}: the output is right without any of its Triton kernels"
                raise refused(EvalStatus.DECOY, text, "the kernels must do the work")
        self._check_given(bench, workload, sink, case)

    def _check_given(self, bench: Bench, workload: Workload, sink: list[Place], case: DeviceCase) -> None:
        """A tensor that torch made must not hold an answer already when the first kernel gets it."""
        given = bench.request("given")
        sizes = given[:MAX_GIVEN] if isinstance(given, list) else []
        for number, place in enumerate(sink):
            alone = case.output(number)
            for index in [index for index, size in enumerate(sizes) if size == math.prod(place.shape)]:
                bench.request("show_given", index=index, place=sendable(place))
                held: list[object] = [view(bench.arena, place).clone()]
                if self.setting.cases.matches(alone, held):
                    text = f"{workload.name}: torch has computed the output before a Triton kernel is launched"
                    raise refused(EvalStatus.DECOY, text, "the kernels must do the work, not copy it")

    def _time(self, workload: Workload, tier: Tier) -> Measured:
        bench, setting = self.bench(), self.setting
        carved = self._build(workload, setting.ring)
        checked, shift = 0, 0
        lead = Lead()
        refill_one_in = 1 if carved.input_bytes < MAX_REFILLED_BYTES else LARGE_REFILL_ONE_IN

        def candidate(count: int, first: int) -> Block:
            nonlocal checked, shift
            # Known addresses with other contents in each block: nothing kept from earlier blocks is of use.
            if not secrets.randbelow(refill_one_in):
                shift = secrets.randbelow(setting.ring)
                calls = range(first, first + count) if refill_one_in == 1 else ()
                fill_sets(setting.cases, bench.arena, workload, carved, shift, calls)
            began = time.perf_counter()
            answer = bench.request("block", name=workload.name, count=count, first=first, lead_s=lead.seconds)
            block = lead.learn(read_block(answer, count, time.perf_counter() - began))
            if secrets.randbelow(CHECK_ONE_IN) < count:
                self._check_sample(workload, carved, count, first + shift)
                checked += 1
            return block

        baseline = setting.baseline
        beside = None if baseline is None else (lambda count, first: baseline.block(workload, count, first, lead))
        fitted = self._fitted(tier, carved)
        samples = interleave(fitted, candidate, beside, time.perf_counter)
        first = secrets.randbelow(64)
        candidate(1, first)  # whoever does less once calls are many is not left to chance
        self._check_sample(workload, carved, 1, first + shift)
        checked += 1
        summary = summarise(samples)
        # Like any other block to the candidate, so that it cannot behave for the profiler.
        profiled = min(PROFILED_CALLS, fitted.block)
        profile = bench.request(
            "profile", name=workload.name, count=profiled, first=secrets.randbelow(64), lead_s=lead.seconds
        )
        slowest_ms = max(summary.median_ms, lead.call_ms)
        clocks = self._clocks(workload, slowest_ms, samples, 1 if tier is SCREEN or slowest_ms > LONG_MS else LOOPS)
        energy_mj = None if tier is SCREEN else setting.energy_mj(lambda: self._busy(workload, clocks.outside_ms))
        return Measured(summary, clocks, checked, energy_mj, profile, profiled)

    def _busy(self, workload: Workload, call_ms: float) -> int:
        """Calls back to back for long enough to read an energy counter."""
        count = max(1, math.ceil(ENERGY_MS / max(call_ms, 1e-3)))
        self.bench().request("loop", name=workload.name, count=count)
        return count

    def _fitted(self, tier: Tier, carved: Carved) -> Tier:
        """Blocks no longer than what may be kept of outputs."""
        size = max(1, sum(place.nbytes for place in carved.sinks[0]))
        return tier.model_copy(update={"block": max(2, min(tier.block, self.bench().keep_bytes // size))})

    def _check_sample(self, workload: Workload, carved: Carved, count: int, first: int) -> None:
        """One output of the block just timed, chosen after it was made."""
        bench = self.bench()
        index = secrets.randbelow(count)
        answer, outputs = bench.kept(index, carved)
        if answer["seen_before"]:
            raise refused(
                EvalStatus.REPLAY,
                f"{workload.name}: two timed calls returned the same memory",
                "allocate an output per call",
            )
        case = self.setting.cases.plain(workload, (first + index) % self.setting.ring)
        if case.nbytes > MAX_REFILLED_BYTES:  # of an output of gigabytes, a random part
            begin = secrets.randbelow(1 << 20) / (1 << 20) * (1 - LARGE_SHARE)
            case = case.part(begin, begin + LARGE_SHARE)
            outputs = [share(out, begin, begin + LARGE_SHARE) if is_tensor(out) else out for out in outputs]  # type: ignore[arg-type]
        found = self.setting.cases.compare(case, outputs)
        if found.status is not None:
            text = f"{workload.name}: wrong output of a timed call: {found.reason}"
            raise refused(EvalStatus.REPLAY, text, "outputs must be computed at every call, timed or not")

    def _clocks(self, workload: Workload, call_ms: float, samples: Samples, loop_count: int) -> Clocks:
        """What the judge's own clock says of calls back to back, beside the events of timed ones."""
        bench, count = self.bench(), loop_length(call_ms)
        loops: list[tuple[Loop, float]] = []
        began = time.perf_counter()
        bench.request("ping")
        round_trip_s = time.perf_counter() - began
        while True:
            began = time.perf_counter()
            answer = bench.request("loop", name=workload.name, count=count)
            elapsed_s = time.perf_counter() - began
            loops.append((read_loop(answer, count, elapsed_s), elapsed_s))
            clocks = clocks_of(samples, loops, round_trip_s)
            # Work that is hidden from events is in every loop, what disturbs an honest kernel is not.
            doubtful = self.setting.has_clocks and disagreement(clocks) is not None
            if len(loops) >= (DOUBTFUL_LOOPS if doubtful else loop_count):
                return clocks

    def _agree(self, workload: Workload, profiled_ms: float) -> None:
        clocks = self._measured[workload.name].clocks.model_copy(update={"profiler_ms": profiled_ms})
        found = disagreement(clocks) if self.setting.has_clocks else None
        if found is not None:
            raise refused(found.status, f"{workload.name}: {found.reason}", "all work belongs on the current stream")

    def _cover(self, workload: Workload, answer: Any) -> float:
        """Share of the device's time that goes to the candidate's own kernels."""
        if isinstance(answer, dict) and answer.get("stopped"):
            raise refused(EvalStatus.HARNESS_TAMPER, f"{workload.name}: stops the profiler that looks at it")
        work = read_work(answer)
        launches = [str(symbol) for _, symbol in reports(answer, "launches")]
        own = set(launches)
        total, covered = sum(part.ms for part in work), sum(part.ms for part in work if part.name in own)
        seen = sum(part.name in own for part in work)
        if not launches:
            raise refused(EvalStatus.FALLBACK, f"{workload.name}: launches no Triton kernel of its own")
        if seen != len(launches):
            text = f"{workload.name}: the profiler saw {seen} runs of kernels that were launched {len(launches)} times"
            raise refused(EvalStatus.SUSPICIOUS, text)
        share = covered / total if total else 0.0
        # Layout copies compute nothing, and that they are no answer is what `_ablate` and `_check_given` find out.
        counted = total - copy_ms([part for part in work if part.name not in own])
        least = COVERAGE[self.setting.cases.task.op_policy]
        if not counted or covered / counted < least:
            text = (
                f"{workload.name}: its own kernels take {share:.0%} of the device's time, the task asks for {least:.0%}"
                " of what is no copy"
            )
            others = sorted(((part.ms, part.name) for part in work if part.name not in own), reverse=True)[:3]
            raise refused(EvalStatus.DECOY, text, "\n".join(f"{ms:.4g} ms in {name}" for ms, name in others))
        return share

    def _build(self, workload: Workload, ring: int) -> Carved:
        """The candidate's model with `ring` sets of inputs in the arena."""
        bench, cases = self.bench(), self.setting.cases
        stand = cases.stand(workload)
        carved = stand.carve(ring, 1)
        bench.lay_out(stand, carved)
        fill_sets(cases, bench.arena, workload, carved)
        bench.build(stand, carved)
        return carved

    def _speedup(self) -> float | None:
        ratios = [measured.summary.ratio for measured in self._measured.values()]
        if any(ratio is None for ratio in ratios):
            return None
        product = 1.0
        for ratio in ratios:
            product *= ratio or 1.0
        return float(product ** (1 / len(ratios)))

    def _timing(self, workload: Workload) -> Timing:
        measured = self._measured[workload.name]
        summary = measured.summary
        return Timing(
            kind="measured",
            median_ms=summary.median_ms,
            p20_ms=summary.p20_ms,
            p80_ms=summary.p80_ms,
            samples=summary.samples,
            baseline_ms=summary.baseline_ms,
            ratio=summary.ratio,
            ratio_low=summary.ratio_low,
            ratio_high=summary.ratio_high,
            speed_of_light_ms=self.setting.limit(workload).light_ms or None,
            wall_ms=measured.clocks.outside_ms,
            energy_mj=measured.energy_mj,
            baseline="" if self.setting.baseline is None else self.setting.baseline.label(workload),
            baselines={} if self.setting.baseline is None else self.setting.baseline.medians[workload.name],
            tier="confirm" if self._confirmed else "screen",
            screened=self._screened.get(workload.name),
        )

    def _bottleneck(self, facts: Facts) -> str:
        """dram where the speed of light is near, launch where the host takes longer than the device, else latency."""
        names = []
        for workload in self.setting.cases.task.workloads:
            timing, clocks = facts.timings[workload.name], self._measured[workload.name].clocks
            near = (timing.speed_of_light_ms or 0.0) / timing.median_ms
            names.append("dram" if near > 0.7 else "launch" if clocks.issue_ms > timing.median_ms else "latency")
        return max(sorted(set(names)), key=names.count)

    def _summary(self, facts: Facts) -> str:
        lines = []
        for name, timing in facts.timings.items():
            measured = self._measured[name]
            lines.append(
                f"{name}: measured {timing.median_ms:.4g} ms ({timing.samples} samples, wall {timing.wall_ms:.4g} ms), "
                f"speed of light {timing.speed_of_light_ms or 0.0:.4g} ms, {self._coverage[name]:.0%} of the device's "
                f"time in own kernels, {measured.checked} timed outputs checked"
            )
            if timing.speedup is not None:
                lines.append(f"  {timing.speedup:.3f}x over {timing.baseline}'s {timing.baseline_ms:.4g} ms")
        for resources in facts.resources.values():
            lines.append(
                f"  {resources.name}: {resources.registers} registers, {resources.spill_store_bytes} bytes spilled, "
                f"{resources.shared_bytes} bytes shared, {resources.num_warps} warps, {resources.num_stages} stages"
            )
        return "\n".join(lines)


def _judged(stage: Callable[[Facts], None]) -> Stage:
    """A stage whose exceptions about the candidate become its verdict; others stay the harness's fault."""

    def run(facts: Facts) -> Verdict | None:
        try:
            stage(facts)
        except RefusedError as found:
            return found.verdict
        except WorkerError as failure:
            return verdict(failure.status, failure.reason, failure.explain)
        except UntrustedSamplesError as error:
            return verdict(EvalStatus.TIMING_TAMPER, f"impossible samples: {error}")
        return None

    return run
