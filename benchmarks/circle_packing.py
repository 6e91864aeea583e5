"""A check of the search alone: 26 circles in the unit square, the sum of their radii to be as large as can be.

    python -m benchmarks.circle_packing [--seeds 0 1 2 3 4] [--evaluations 1000] [--search JSON] [--out FILE]

The campaign's own engine (population, archive, parents, journal) searches, with numbers for kernels: a candidate is a
file whose `CENTERS` are 26 points, and its children are shaken, or have a few points put elsewhere. Every child is
then polished before it is judged: a sequence of linear programs moves its points as long as the sum grows (distances
are convex, so that a linearised one is never too long and every step stays feasible). One polished child is one
evaluation; published searches report 2.635 (AlphaEvolve, 2025), where one evaluation is a whole program that optimises.
The archive keeps the best packing for every number of circles at a wall. Two more arms: the same with one cell for
all, and as many polished random starts.

No time is measured or modelled here: what the engine takes for a latency is 1 / sum. Writes
benchmarks/results/circle_packing.json and exits 1 when the median over the seeds does not reach 2.635 in time.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog  # type: ignore[import-untyped]
from scipy.sparse import coo_matrix  # type: ignore[import-untyped]

from benchmarks.common import provenance
from benchmarks.controller import task_folder
from evaluator.task import load_task
from evaluator.types import EvalStatus, Evaluation, EvaluationJob, KernelSource, Profile, Task, Timing
from evo.campaign import Campaign
from evo.config import CampaignConfig
from policy.types import Proposal, ProposalRequest, RewriteStep
from tests.evo.fakes import FakePolicy

RESULT = Path(__file__).parent / "results" / "circle_packing.json"
COUNT = 26
TARGET = 2.635
LIMIT = 1000
"""Evaluations in which the target must be reached."""
STEPS, RADIUS = 60, 0.1
"""Linear programs of one polish, and how far the first of them may move a point."""
NEAR = 0.6
"""Circles whose centres are farther apart than this never touch: no two radii of a good packing add up to it."""
FIRST, SECOND = np.triu_indices(COUNT, 1)
TOUCHING = 1e-5
SEARCH: dict[str, Any] = {"tuning": {"share": 0.0}}
Points = npt.NDArray[np.float64]


def constraints(points: Points) -> tuple[Any, Points]:
    """(matrix, bounds) of what radii and moves must keep to around `points`: columns are dx, dy, r of each circle."""
    apart = points[FIRST] - points[SECOND]
    distance = np.maximum(np.linalg.norm(apart, axis=1), 1e-9)
    near = distance < NEAR
    one, two, distance = FIRST[near], SECOND[near], distance[near]
    towards, pairs, ones = apart[near] / distance[:, None], np.arange(len(one)), np.ones(len(one))
    entries = [(pairs, 2 * COUNT + one, ones), (pairs, 2 * COUNT + two, ones)]
    for axis in (0, 1):
        entries += [(pairs, axis * COUNT + one, -towards[:, axis]), (pairs, axis * COUNT + two, towards[:, axis])]
    bounds, circles, row = [distance], np.arange(COUNT), len(one)
    for axis in (0, 1):
        for sign, room in ((-1.0, points[:, axis]), (1.0, 1.0 - points[:, axis])):
            entries += [(row + circles, 2 * COUNT + circles, np.ones(COUNT))]
            entries += [(row + circles, axis * COUNT + circles, np.full(COUNT, sign))]
            bounds.append(room)
            row += COUNT
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    return coo_matrix((values, (rows, columns)), shape=(row, 3 * COUNT)).tocsr(), np.concatenate(bounds)


def step(points: Points, radius: float) -> tuple[float, Points]:
    """The best sum of radii when every point may move by `radius` along each axis, and the points then."""
    matrix, bounds = constraints(points)
    aim = np.concatenate([np.zeros(2 * COUNT), -np.ones(COUNT)])
    room = [(-radius, radius)] * (2 * COUNT) + [(0.0, 0.5)] * COUNT
    found = linprog(aim, A_ub=matrix, b_ub=bounds, bounds=room, method="highs")
    moves = found.x[: 2 * COUNT].reshape(2, COUNT).T
    return -float(found.fun), np.clip(points + moves, 0.0, 1.0)


def polished(points: Points) -> Points:
    """The points moved until the sum of radii stops growing."""
    radius, best = RADIUS, 0.0
    for _ in range(STEPS):
        total, points = step(points, radius)
        if total - best < 1e-7:
            radius /= 2
        if radius < 1e-4:
            break
        best = max(best, total)
    return points


def radii(points: Points) -> Points:
    """Radii of the largest sum with the centres where they are, of shape (26,)."""
    matrix, bounds = constraints(points)
    widths = matrix[:, 2 * COUNT :]
    found = linprog(-np.ones(COUNT), A_ub=widths, b_ub=bounds, bounds=[(0.0, 0.5)] * COUNT, method="highs")
    sizes: Points = found.x
    return sizes


def at_a_wall(points: Points, sizes: Points) -> int:
    """How many circles touch the square's border."""
    room = np.minimum(points, 1.0 - points).min(axis=1)
    return int(np.sum(room - sizes < TOUCHING))


def varied(points: Points, generator: np.random.Generator) -> tuple[str, Points]:
    """A numeric operator's name, and what it makes of the points."""
    if generator.random() < 0.5:
        return "shake", points + generator.normal(0.0, 10 ** generator.uniform(-2.3, -1.0), points.shape)
    moved, chosen = points.copy(), generator.choice(COUNT, generator.integers(1, 4), replace=False)
    moved[chosen] = generator.random((len(chosen), 2))
    return "place elsewhere", moved


def centers_of(source: str) -> Points:
    """What a candidate's file says."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CENTERS":
            return np.array(ast.literal_eval(node.value))
    raise ValueError("no CENTERS")


def with_centers(source: str, points: Points) -> KernelSource:
    """The file with other centres."""
    line = f"CENTERS = {tuple(map(tuple, points.tolist()))!r}"
    kept = [text for text in source.splitlines() if not text.startswith(("CENTERS = ", "VARIANT = "))]
    at = next(number for number, text in enumerate(kept) if text.startswith("BLOCK_SIZE"))
    return KernelSource(text="\n".join([*kept[:at], line, *kept[at:]]) + "\n")


class PackingPolicy(FakePolicy):
    """Numeric operators in the place of rewrites."""

    def _child(self, request: ProposalRequest) -> Proposal:
        parent = request.parents[0].source.text
        generator = np.random.default_rng(request.seed)
        name, points = varied(centers_of(parent), generator)
        source = with_centers(parent, polished(np.clip(points, 0.0, 1.0)))
        steps = (RewriteStep(name=name, args={"seed": request.seed % 2**31}),)
        return Proposal(source=source, operator=request.operator, rewrites=steps, policy=self.name)

    def propose(self, requests: Sequence[ProposalRequest]) -> list[list[Proposal]]:
        """One child a request."""
        return [[self._child(request)] for request in requests]


class PackingEvaluator:
    """Judges by the sum of radii; 1 / sum stands where a latency would."""

    def __init__(self, task: Task, cells: bool = True) -> None:
        self.task = task
        self._cells = cells
        self.sums: list[float] = []

    def evaluate(self, jobs: Iterable[EvaluationJob]) -> Iterator[tuple[EvaluationJob, Evaluation]]:
        """In order."""
        for job in jobs:
            points = centers_of(job.source.text)
            sizes = radii(points)
            total = float(sizes.sum())
            self.sums.append(total)
            kind = f"{at_a_wall(points, sizes)} at a wall" if self._cells else ""
            timing = Timing(kind="modelled", median_ms=1.0 / total, baseline_ms=1.0)
            yield (
                job,
                Evaluation(
                    source_sha=job.source.sha,
                    task=self.task.name,
                    evaluator="circle_packing",
                    status=EvalStatus.PASSED,
                    reason="",
                    timings={"sum of radii": timing},
                    profile=Profile(kind="modelled", target="", bottleneck=kind),
                ),
            )

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> PackingEvaluator:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def engine(seed: int, evaluations: int, search: Mapping[str, Any], cells: bool = True) -> list[float]:
    """Sums in the order of judging, of one campaign that stops at the target; `cells` false: one cell for all."""
    with tempfile.TemporaryDirectory(prefix="kernevo-packing-") as name:
        folder = task_folder(Path(name))
        start = polished(np.random.default_rng(seed).random((COUNT, 2)))
        text = (folder / "seed.py").read_text()
        (folder / "seed.py").write_text(with_centers(text, start).text)
        config = CampaignConfig.model_validate(
            {
                "task": str(folder),
                "seed": seed,
                "evaluator": {"type": "cpu"},
                "search": dict(search),
                "budget": {"evaluations": evaluations, "target_speedup": TARGET},
            }
        )
        with PackingEvaluator(load_task(str(folder)), cells) as judge:
            Campaign(config, Path(name) / "run", evaluator=judge, policy=PackingPolicy()).run()
            return judge.sums


def random_search(seed: int, evaluations: int, search: Mapping[str, Any]) -> list[float]:
    """Sums of polished random starts, until the target."""
    generator, sums = np.random.default_rng(seed), list[float]()
    while len(sums) < evaluations and max(sums, default=0.0) < TARGET:
        sums.append(float(radii(polished(generator.random((COUNT, 2)))).sum()))
    return sums


def summary(runs: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Evaluations to the target by run (None where it was not reached), and the best sums."""
    needed = [next((n for n, total in enumerate(sums, start=1) if total >= TARGET), None) for sums in runs]
    median = statistics.median(math.inf if one is None else one for one in needed)
    return {
        "evaluations_to_target": needed,
        "median": None if math.isinf(median) else median,
        "best": [max(sums) for sums in runs],
        "evaluations": [len(sums) for sums in runs],
    }


def main(words: Sequence[str] | None = None) -> int:
    """Search, print a short table, write the result; 1 when the target is not reached in time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--evaluations", type=int, default=LIMIT)
    parser.add_argument("--search", type=json.loads, default=SEARCH, metavar="JSON", help="`search` of the campaign")
    parser.add_argument("--out", type=Path, default=RESULT)
    asked = parser.parse_args(words)
    context = provenance("-m benchmarks.circle_packing")
    arms: dict[str, Callable[[int, int, Mapping[str, Any]], list[float]]] = {
        "engine": engine,
        "one cell": partial(engine, cells=False),
        "random search": random_search,
    }
    found = {
        name: summary([arm(seed, asked.evaluations, asked.search) for seed in asked.seeds])
        for name, arm in arms.items()
    }
    result = {"circles": COUNT, "target": TARGET, "limit": LIMIT, "seeds": asked.seeds, "search": asked.search}
    result |= {"arms": found, **context}
    asked.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for name, row in found.items():
        print(f"{name:>14}: {row['evaluations_to_target']} evaluations to {TARGET}, best {max(row['best']):.6f}")
    median = found["engine"]["median"]
    return 0 if median is not None and median <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
