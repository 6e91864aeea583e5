"""A judge and a policy that need no Triton: fast, deterministic, and with a landscape to climb.

The source is a real candidate file; its latency follows from its block size, its warps and the length of its
`VARIANT` tuple, which the policy extends. `BLOCK_SIZE = 4096` fails to compile and variant 13 is wrong, so failures
occur as well.
"""

from __future__ import annotations

import ast
import json
import math
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evaluator.syntax import parse
from evaluator.task import load_task
from evaluator.tunables import extract
from evaluator.types import (
    EvalStatus,
    Evaluation,
    KernelResources,
    KernelSource,
    LaunchProfile,
    Profile,
    StageRecord,
    Timing,
)
from policy.rule_policy import RulePolicy
from policy.types import Message, Proposal, RewriteStep

SEED = '''"""A candidate for tests."""
import torch
import triton
import triton.language as tl

VARIANT = (0,)
BLOCK_SIZE = 256


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), BLOCK_SIZE),)
        copy_kernel[grid](x, out, x.numel(), BLOCK_SIZE=BLOCK_SIZE, num_warps=4)
        return out
'''


def task():
    """A shipped task with the test seed in place of its own."""
    return load_task("softmax").model_copy(update={"seed_source": SEED})


def variant(source: str) -> tuple[int, ...]:
    """The structure of a test candidate."""
    for node in parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "VARIANT":
            return ast.literal_eval(node.value)
    raise AssertionError("no VARIANT")


def latency(source: str) -> float:
    """Milliseconds: best at BLOCK_SIZE 1024, 8 warps and a variant whose sum is 20."""
    config = {name.rsplit(".")[-1]: value for name, value in extract(source).defaults.items()}
    block = abs(math.log2(config["BLOCK_SIZE"] / 1024))
    warps = abs(math.log2(config["num_warps"] / 8))
    return 0.1 * (1 + 0.3 * block + 0.2 * warps + 0.05 * abs(20 - sum(variant(source))))


def passed(source: KernelSource, milliseconds: float, baseline: float) -> Evaluation:
    """A passed evaluation with a modelled timing and a small profile."""
    launch = LaunchProfile(
        kernel="copy_kernel",
        grid=(8, 1, 1),
        occupancy=min(1.0, milliseconds),
        waves=1.0,
        latency_ms=milliseconds,
        dram_bytes=1e6,
        l2_bytes=1e6,
        flops=0.0,
        terms={"dram": milliseconds},
        bound="dram",
    )
    resources = KernelResources(
        name="copy_kernel",
        num_warps=4,
        num_stages=3,
        registers=32,
        stack_bytes=0,
        spill_store_bytes=0,
        spill_load_bytes=0,
        shared_bytes=0,
        ptx_sha="0" * 64,
    )
    return Evaluation(
        source_sha=source.sha,
        task="softmax",
        evaluator="cpu",
        status=EvalStatus.PASSED,
        reason="correct",
        stages=(StageRecord(name="model", status=EvalStatus.PASSED, seconds=0.0),),
        timings={"w": Timing(kind="modelled", median_ms=milliseconds, baseline_ms=baseline)},
        profile=Profile(
            kind="modelled",
            target="h200",
            resources=(resources,),
            launches={"w": (launch,)},
            bottleneck="dram" if len(variant(source.text)) % 2 else "latency",
        ),
        checks_passed=3,
        checks_total=3,
        target="h200",
    )


def failed(source: KernelSource, status: EvalStatus, reason: str) -> Evaluation:
    """A failed evaluation."""
    return Evaluation(source_sha=source.sha, task="softmax", evaluator="cpu", status=status, reason=reason)


class FakeEvaluator:
    """Judges in submission order, in process; `pause` seconds per candidate give kill tests something to hit.

    `marker` is a file that is made when the first pause begins.
    """

    def __init__(self, pause: float = 0.0, marker: Path | None = None) -> None:
        self._marker = marker
        self.task = task()
        self.judged: list[str] = []
        self._pause = pause

    def evaluate(self, jobs):
        for job in jobs:
            if self._marker is not None:
                self._marker.touch()
            time.sleep(self._pause)
            self.judged.append(job.source.sha)
            yield job, self._judge(job.source)

    def _judge(self, source: KernelSource) -> Evaluation:
        if sum(variant(source.text)) == 13:
            return failed(source, EvalStatus.WRONG_VALUE, "3 of 8 values differ")
        if any(value == 4096 for value in extract(source.text).defaults.values()):
            return failed(source, EvalStatus.COMPILE_ERROR, "out of shared memory")
        return passed(source, latency(source.text), latency(SEED))

    def close(self) -> None:
        pass

    def __enter__(self):
        return self

    def __exit__(self, *details) -> None:
        self.close()


class FakePolicy:
    """Appends a number to the parent's VARIANT, so that every child is another structure."""

    name = "fake"
    deterministic = True

    def propose(self, requests):
        return [[self._child(request)] for request in requests]

    def _child(self, request):
        parent = request.parents[0].source.text
        step = random.Random(request.seed).randint(1, 9)
        grown = (*variant(parent), step)
        source = parent.replace(f"VARIANT = {variant(parent)!r}", f"VARIANT = {grown!r}")
        return Proposal(
            source=KernelSource(text=source),
            operator=request.operator,
            rewrites=(RewriteStep(name="grow", args={"step": step}),),
            explanation=f"grow by {step}",
            policy=self.name,
            messages=(Message(role="user", content=parent),),
            answer=f'{{"name": "grow", "args": {{"step": {step}}}}}',
        )

    def close(self) -> None:
        pass


class AsyncFakePolicy(FakePolicy):
    """Answers on another thread. A child depends on everything its request says but the task."""

    name = "async"

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self.asked = []
        self.futures = []
        self.closed = False

    def submit(self, requests):
        self.asked.append(requests)
        self.futures.append(self._thread.submit(self.propose, requests))
        return self.futures[-1]

    def propose(self, requests):
        return [[self._child(request.model_copy(update={"seed": self._seed(request)}))] for request in requests]

    def _seed(self, request):
        said = request.model_dump(mode="json", exclude={"task", "taken"})
        return json.dumps([said, sorted(request.taken)])

    def close(self):
        self.closed = True
        self._thread.shutdown(cancel_futures=True)


class AsyncRulePolicy(RulePolicy):
    """The rule policy, answering on another thread."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = ThreadPoolExecutor(1)

    def submit(self, requests):
        return self._thread.submit(self.propose, requests)

    def close(self):
        self._thread.shutdown(cancel_futures=True)
        super().close()
