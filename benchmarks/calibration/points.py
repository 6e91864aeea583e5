"""Makes the points of the calibration: structures of the shipped tasks under several configs, judged and traced.

    nice python -m benchmarks.calibration.points [--tasks softmax …] [--structures 10] [--configs 6] [--workers 2]

A structure is the seed, or what a random chain of one to four rewrites makes of it; a config sets all its tunables.
Every point goes through the whole CPU cascade; launches of those that pass are kept with their traces and resources.
Chains and configs follow from `--seed`. Writes data/points_TASK.jsonl.gz after every structure and goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.calibration.records import DATA, Launch, Point, read, write
from evaluator import hardware, tunables
from evaluator.cascade import Facts, walk
from evaluator.judge import Judge
from evaluator.sandbox import Limits
from evaluator.source_hash import ast_hash
from evaluator.stages import CpuStages
from evaluator.task import list_tasks, load_task
from evaluator.tunables import TunableSpace
from evaluator.types import EvalStatus, KernelSource, Task
from evaluator.worker_host import WorkerHost
from policy.rewrites.base import RewriteContext, RewriteError
from policy.rewrites.catalogue import catalogue
from policy.rule_policy import STRUCTURAL, WEIGHTS
from policy.types import RewriteStep

TARGET = "h200"
MAX_STEPS = 4
MAX_PER_THREAD = 128
"""Elements of a block, or of a tile's two largest sides, per thread: beyond lies only spilling, minutes to compile."""
ATTEMPTS = 200
LIMITS = Limits(wall_seconds=45.0, memory_bytes=6 << 30)

Structure = tuple[str, tuple[RewriteStep, ...]]


def structures(task: Task, seed: int) -> Iterator[Structure]:
    """(source, steps) of the seed, then of random chains, each structure once; ends when nothing new turns up."""
    assert task.seed_source is not None
    rng = np.random.default_rng([seed, zlib.crc32(task.name.encode())])
    context = RewriteContext.of_task(task)
    seen = {ast_hash(task.seed_source)}
    yield task.seed_source, ()
    misses = 0
    while misses < ATTEMPTS:
        source, steps = chain(task.seed_source, context, rng)
        identity = ast_hash(source)
        misses = misses + 1 if identity in seen else 0
        if identity not in seen:
            seen.add(identity)
            yield source, steps


def chain(source: str, context: RewriteContext, rng: np.random.Generator) -> Structure:
    """`source` after one to four rewrites that apply, drawn with the rule policy's weights."""
    steps: list[RewriteStep] = []
    for _ in range(int(rng.integers(1, MAX_STEPS + 1))):
        drawn = _step(source, context, rng)
        if drawn is None:
            break
        source, step = drawn
        steps.append(step)
    return source, tuple(steps)


def _step(source: str, context: RewriteContext, rng: np.random.Generator) -> tuple[str, RewriteStep] | None:
    rewrites = catalogue()
    names = list(rewrites)
    while names:
        weights = np.array([WEIGHTS.get(name, STRUCTURAL) for name in names])
        name = names.pop(int(rng.choice(len(names), p=weights / weights.sum())))
        settings = rewrites[name].candidates(source, context)
        if not settings:
            continue
        chosen = settings[int(rng.integers(len(settings)))]
        try:
            return rewrites[name].apply(source, chosen, context), RewriteStep(name=name, args=chosen.model_dump())
        except RewriteError:
            continue
    return None


def configs(source: str, count: int, rng: np.random.Generator) -> list[dict[str, int]]:
    """The source's own config and up to `count` - 1 others, drawn evenly from each tunable's choices."""
    space = tunables.extract(source)
    found = [space.defaults]
    for _ in range(ATTEMPTS):
        if len(found) >= count:
            break
        drawn = {tunable.name: int(rng.choice(tunable.choices)) for tunable in space.tunables}
        if drawn not in found and sensible(space, drawn):
            found.append(drawn)
    return found


def sensible(space: TunableSpace, config: dict[str, int]) -> bool:
    """Whether no thread of any kernel holds more of a block than its registers can."""
    for kernel in {name.split(".")[0] for name in config}:
        own = {name: value for name, value in config.items() if name.split(".")[0] == kernel}
        kinds = {tunable.name: tunable.kind for tunable in space.tunables}
        blocks = sorted(value for name, value in own.items() if kinds[name] == "block")
        threads = 32 * next((value for name, value in own.items() if kinds[name] == "num_warps"), 4)
        if float(np.prod(blocks[-2:])) / threads > MAX_PER_THREAD:
            return False
    return True


class Builder:
    """Judges the points of one task and keeps them in its file."""

    def __init__(self, task: Task, stages: CpuStages, path: Path, workers: int) -> None:
        self._task = task
        self._stages = stages
        self._path = path
        self._workers = workers
        self._points = read(path, Point) if path.is_file() else []

    def build(self, structure_count: int, config_count: int, seed: int) -> list[Point]:
        """Points of the first `structure_count` structures whose own config passes."""
        passed = 0
        for number, (source, steps) in enumerate(structures(self._task, seed)):
            if passed == structure_count:
                break
            rng = np.random.default_rng([seed, zlib.crc32(self._task.name.encode()), number])
            passed += self._structure(number, source, steps, configs(source, config_count, rng))
        return self._points

    def _structure(
        self, number: int, source: str, steps: tuple[RewriteStep, ...], settings: list[dict[str, int]]
    ) -> bool:
        known = {point.id: point for point in self._points}
        drafts = [
            Point(
                id=f"{self._task.name}-s{number:02d}-c{place:02d}",
                task=self._task.name,
                structure=number,
                rewrites=steps,
                config=config,
                source=tunables.apply(source, config),
                status=EvalStatus.HARNESS_ERROR,
            )
            for place, config in enumerate(settings)
        ]
        own = known.get(drafts[0].id) or self._judged(drafts[0])
        todo = [draft for draft in drafts[1:] if draft.id not in known] if own.status.passed else []
        with ThreadPoolExecutor(self._workers) as pool:
            made = [*([own] if own.id not in known else []), *pool.map(self._judged, todo)]
        if made:
            self._points += made
            write(self._path, self._points)
            print(f"{own.id}: {sum(point.status.passed for point in made)} of {len(made)} passed", flush=True)
        return own.status.passed

    def _judged(self, draft: Point) -> Point:
        facts = Facts(KernelSource(text=draft.source))
        verdict, _ = walk(self._stages.stages({}), facts)
        launches = {
            name: tuple(Launch(trace=trace, resources=resources) for trace, resources in pairs)
            for name, pairs in facts.launches.items()
        }
        found = {"status": verdict.status, "reason": verdict.reason[:200]}
        return draft.model_copy(update={**found, "launches": launches if verdict.status.passed else {}})


@contextmanager
def workers(folder: Path) -> Iterator[tuple[WorkerHost, WorkerHost]]:
    """A compiling and an interpreting worker."""
    hosts = (WorkerHost(folder, interpret=False), WorkerHost(folder, interpret=True))
    try:
        for host in hosts:
            host.start()
        yield hosts
    finally:
        for host in hosts:
            host.close()


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list_tasks(), default=list_tasks())
    parser.add_argument("--structures", type=int, default=10)
    parser.add_argument("--configs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=DATA)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kernevo-points-") as folder, workers(Path(folder)) as hosts:
        Path(folder).chmod(0o711)  # workers of another user pass through to their own folders
        for name in options.tasks:
            started = time.perf_counter()
            task = load_task(name)
            stages = CpuStages(Judge(task, options.seed), *hosts, hardware.get(TARGET), LIMITS)
            builder = Builder(task, stages, options.out / f"points_{name}.jsonl.gz", options.workers)
            points = builder.build(options.structures, options.configs, options.seed)
            good = sum(point.status.passed for point in points)
            print(f"{name}: {good} of {len(points)} points passed, {time.perf_counter() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
