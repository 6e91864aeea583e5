"""What each part of the search is worth: evaluations until 95 % of the best known, with the part and without it.

    python -m benchmarks.ablation [--evaluator cpu|gpu] [--tasks sum_reduction …] [--seeds 0 1 2] [--evaluations 80]

Arms: the whole engine; the same without the archive, without islands, without the bandit; random search (as many random
rewrites and configs of the seed); Optuna on the seed alone. All arms of a task share one judge, which judges a program
once: whoever thinks of it later gets the same verdict. The best known of a task is the best of all its arms and seeds.

With `--evaluator cpu` every latency is *modelled*. Writes benchmarks/results/ablation.json (ablation_gpu.json for gpu)
after every run of an arm; `python -m benchmarks.tables` makes docs/ablation.md of it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import provenance
from evaluator.protocol import Evaluator
from evaluator.source_hash import ast_hash
from evaluator.task import load_task
from evaluator.tunables import apply, extract
from evaluator.types import Evaluation, EvaluationJob, KernelSource, Task
from evo.build import make_evaluator
from evo.campaign import Campaign
from evo.config import CampaignConfig
from evo.run import Run
from policy.policy import Policy
from policy.rewrites import RewriteContext, RewriteError, catalogue
from policy.types import Proposal, ProposalRequest

RESULTS = Path(__file__).parent / "results"
SHARE = 0.95
STEPS = 5
"""Most rewrites of one random program."""
TRIES = 1000
"""Random programs in a row that were judged before, after which random search gives up."""
FULL: dict[str, Any] = {
    "population": 16,
    "offspring": 8,
    "islands": {"count": 4, "migrate_every": 3, "stagnation": 6},
    "operators": {"kind": "bandit", "crossover": 0.1, "repair": 0.1},
}
"""The engine with everything switched on; islands are as quick as runs are short."""
ARMS: dict[str, dict[str, Any]] = {
    "full": {},
    "without archive": {"archive": {"enabled": False}},
    "without islands": {"islands": {"count": 1}},
    "without bandit": {"operators": {**FULL["operators"], "kind": "fixed"}},
}
RANDOM, OPTUNA = "random search", "Optuna on the seed alone"


class Once:
    """A judge that judges a program once. Verdicts stay in memory; the judge is its owner's to close."""

    def __init__(self, judge: Evaluator) -> None:
        self._judge = judge
        self.task = judge.task
        self._known: dict[str, Evaluation] = {}

    def evaluate(self, jobs: Iterable[EvaluationJob]) -> Iterator[tuple[EvaluationJob, Evaluation]]:
        """In the order of the jobs, as every judge."""
        asked = list(jobs)
        new = self._judge.evaluate([job for job in asked if job.source.sha not in self._known])
        for job, evaluation in [(job, self._known.get(job.source.sha)) for job in asked]:
            if evaluation is None:
                _, evaluation = next(new)
                if not evaluation.status.blames_harness:
                    self._known[job.source.sha] = evaluation
            yield job, evaluation

    def close(self) -> None:
        """Nothing of its own."""

    def __enter__(self) -> Once:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


class SilentPolicy:
    """Proposes nothing: all that is left is the tuner."""

    name = "silent"
    deterministic = True

    def propose(self, requests: Sequence[ProposalRequest]) -> list[list[Proposal]]:
        """No child for anybody."""
        return [[] for _ in requests]

    def close(self) -> None:
        """Nothing is held."""


def speedups(run: Run) -> list[float | None]:
    """Of every candidate in the order of birth; None where it failed."""
    return [record.speedup for record in run.records()]


def searched(config: CampaignConfig, judge: Evaluator, policy: Policy | None = None) -> list[float | None]:
    """Speedups of one campaign."""
    with tempfile.TemporaryDirectory(prefix="kernevo-ablation-") as folder:
        Campaign(config, Path(folder) / "run", evaluator=judge, policy=policy).run()
        return speedups(Run.load(Path(folder) / "run"))


def config_of(task: str, evaluator: Mapping[str, Any], seed: int, evaluations: int, search: object) -> CampaignConfig:
    """A campaign that only searches."""
    return CampaignConfig.model_validate(
        {
            "task": task,
            "seed": seed,
            "evaluator": dict(evaluator),
            "search": search,
            "budget": {"evaluations": evaluations},
            "finalists": {"count": 0},
            "monitors": (),
        }
    )


def random_programs(task: Task, seed: int) -> Iterator[KernelSource]:
    """The task's seed, then random rewrites of it with random configs, none twice."""
    assert task.seed_source is not None
    generator, context, known, misses = np.random.default_rng(seed), RewriteContext.of_task(task), set[str](), 0
    text = task.seed_source
    while misses < TRIES:
        program = ast_hash(text)
        misses = misses + 1 if program in known else 0
        if not misses:
            known.add(program)
            yield KernelSource(text=text)
        text = configured(rewritten(task.seed_source, context, generator), generator)


def rewritten(source: str, context: RewriteContext, generator: np.random.Generator) -> str:
    """A source after none to `STEPS` rewrites, each drawn evenly from those that apply."""
    for _ in range(int(generator.integers(STEPS + 1))):
        found = {name: one.candidates(source, context) for name, one in catalogue().items()}
        names = [name for name, settings in found.items() if settings]
        if not names:
            break
        name = names[int(generator.integers(len(names)))]
        settings = found[name][int(generator.integers(len(found[name])))]
        try:
            source = catalogue()[name].apply(source, settings, context)
        except RewriteError:
            continue
    return source


def configured(source: str, generator: np.random.Generator) -> str:
    """A source with each tunable drawn evenly from its choices."""
    space = extract(source).tunables
    return apply(source, {one.name: one.choices[int(generator.integers(len(one.choices)))] for one in space})


def random_search(task: Task, judge: Evaluator, seed: int, evaluations: int, batch: int) -> list[float | None]:
    """Speedups of random programs, judged a batch at a time."""
    found: list[float | None] = []
    programs = islice(random_programs(task, seed), evaluations)
    while sources := list(islice(programs, batch)):
        jobs = [EvaluationJob(job_id=str(number), source=source) for number, source in enumerate(sources)]
        verdicts = {job.job_id: evaluation.speedup for job, evaluation in judge.evaluate(jobs)}
        found += [verdicts[job.job_id] for job in jobs]
    return found


def one_run(arm: str, config: CampaignConfig, task: Task, judge: Evaluator) -> list[float | None]:
    """Speedups of one arm with one seed, in the order in which it thought of candidates."""
    evaluations = config.budget.evaluations or 0
    if arm == RANDOM:
        return random_search(task, judge, config.seed, evaluations, config.search.offspring)
    if arm == OPTUNA:
        tuning = {"share": 1.0, "trials": evaluations}
        search = config.search.model_validate({"offspring": config.search.offspring, "tuning": tuning})
        return searched(config.model_copy(update={"search": search}), judge, SilentPolicy())
    return searched(config, judge)


def best_so_far(found: Sequence[float | None]) -> list[float]:
    """The best speedup after each evaluation; 0 before the first correct candidate."""
    best, curve = 0.0, []
    for speedup in found:
        best = max(best, speedup or 0.0)
        curve.append(round(best, 4))
    return curve


def summary(curves: Sequence[Sequence[float]], best: float) -> dict[str, Any]:
    """Evaluations to `SHARE` of the best known by seed (None: not reached), their median and quartiles, and curves."""
    reached = [next((n for n, value in enumerate(one, start=1) if value >= SHARE * best), None) for one in curves]
    counts = sorted(math.inf if one is None else float(one) for one in reached)
    spread = (counts[0], statistics.median(counts), counts[-1])
    low, median, high = (None if math.isinf(one) else one for one in spread)
    return {
        "reached": reached,
        "least": low,
        "median": median,
        "most": high,
        "best": [max(one) for one in curves],
        "curves": [list(one) for one in curves],
    }


def measured_task(name: str, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is known of a task after each run: best known and a summary by arm."""
    evaluator = {"type": asked.evaluator, **asked.settings}
    task, curves = load_task(name), dict[str, list[list[float]]]()
    with make_evaluator(config_of(name, evaluator, 0, 1, FULL), task) as judge:
        once = Once(judge)
        for seed in asked.seeds:
            for arm in (*ARMS, RANDOM, OPTUNA):
                search = {**FULL, **ARMS.get(arm, {})}
                config = config_of(name, evaluator, seed, asked.evaluations, search)
                curves.setdefault(arm, []).append(best_so_far(one_run(arm, config, task, once)))
                print(f"{name}, seed {seed}, {arm}: {curves[arm][-1][-1]:.3f}x", file=sys.stderr, flush=True)
            best = max(one[-1] for found in curves.values() for one in found)
            yield {"best_known": best, "arms": {arm: summary(found, best) for arm, found in curves.items()}}


def main(words: Sequence[str] | None = None) -> int:
    """Run every arm, write the result, print a short table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluator", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--settings", type=json.loads, default={}, metavar="JSON", help="more of `evaluator`")
    parser.add_argument("--tasks", nargs="+", default=["sum_reduction"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--evaluations", type=int, default=80)
    parser.add_argument("--out", type=Path, help="where the result goes")
    asked = parser.parse_args(words)
    out = asked.out or RESULTS / ("ablation.json" if asked.evaluator == "cpu" else f"ablation_{asked.evaluator}.json")
    kind = "modelled" if asked.evaluator == "cpu" else "measured"
    result: dict[str, Any] = {"kind": kind, "share": SHARE, "evaluations": asked.evaluations, "search": FULL}
    result |= {"seeds": asked.seeds, "tasks": {}, **provenance("-m benchmarks.ablation")}
    for name in asked.tasks:
        for number, found in enumerate(measured_task(name, asked), start=1):
            result["tasks"][name] = {"seeds": asked.seeds[:number], **found}
            out.write_text(json.dumps(result) + "\n", encoding="utf-8")
    for name, found in result["tasks"].items():
        print(f"{name}: best known {found['best_known']:.3f}x ({kind})")
        for arm, row in found["arms"].items():
            print(f"  {arm:>26}: {row['reached']} evaluations to {SHARE:.0%} of it, median {row['median']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
