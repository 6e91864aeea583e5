"""A language model and the evaluator on one GPU: ten generations, and proof that they never used it together.

    python -m benchmarks.gpu_policy --model FOLDER [--policy transformers|vllm] [--generations 10] [--set a.b=c …]
    python -m benchmarks.gpu_policy --model FOLDER --gguf FILE [FILE …]     # makes FOLDER of a GGUF file, or its parts
    python -m benchmarks.gpu_policy --model FOLDER --interpreter            # tries all of it without a GPU

The model chooses structured rewrites of softmax in this process, asked for the next generation while the last one is
judged. Every call into the model and every time that the evaluator held the GPU alone is written down, as intervals of
one clock. Writes benchmarks/results/gpu_policy.json and exits 1 when two of them overlap, when an answer was not valid
or has no log-probabilities, or when nothing was judged.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.common import provenance
from evaluator.backends import create
from evaluator.gpu_lock import GpuLock
from evaluator.task import load_task
from evo.build import model_settings
from evo.campaign import Campaign
from evo.config import CampaignConfig
from evo.config_file import load_config
from evo.run import Run
from evo.turns import turns_of_run
from policy.local_chat import gpu_guard, has_gpu
from policy.model_children import Workshop
from policy.model_policy import ModelPolicy
from policy.transformers_engine import TransformersSettings
from policy.transformers_engine import load as load_transformers
from policy.transformers_policy import TransformersPolicy
from policy.vllm_chat import VllmSettings
from policy.vllm_chat import load as load_vllm
from policy.vllm_policy import VllmPolicy

RESULT = Path(__file__).parent / "results" / "gpu_policy.json"
Interval = tuple[str, float, float]
"""What, from, to: seconds of one clock."""
WRITING = ("generate", "chat")
"""Calls of the engines that write answers."""
CALLS = (*WRITING, "wake", "rest", "wake_up", "sleep")
VLLM_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}
"""Without a network vLLM must not look for one."""
SMALL_TASK = """description: Row-wise softmax of a small float32 matrix.
family: reduction
dtype: float32
tolerance: {atol: 1e-4, rtol: 1e-4}
op_policy: strict
workloads: [{name: tall, params: {M: 8, N: 64}}]
check_shapes: [{name: one, params: {M: 1, N: 1}}, {name: prime, params: {M: 7, N: 67}}]
"""


class Recorder:
    """Who used the GPU when."""

    def __init__(self) -> None:
        self.used: list[Interval] = []
        """By the policy."""
        self.alone: list[Interval] = []
        """By the evaluator, its lock held exclusively."""
        self.lock: GpuLock | None = None
        """The evaluator's lock, once it was held."""
        self.known = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, every exclusive lock of this process is written down."""
        real, recorder = GpuLock.exclusive, self

        @contextmanager
        def exclusive(lock: GpuLock) -> Iterator[None]:
            with real(lock):
                recorder.lock = lock
                recorder.known.set()
                with recorder.noting(recorder.alone, "alone"):
                    yield

        with mock.patch.object(GpuLock, "exclusive", exclusive):
            yield

    @contextmanager
    def noting(self, into: list[Interval], name: str) -> Iterator[None]:
        """Inside counts as `name`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            into.append((name, started, time.perf_counter()))

    def call(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call into the model, written down until the GPU has done what it was told."""
        with self.noting(self.used, name):
            try:
                return function(*arguments, **options)
            finally:
                _finish()

    @contextmanager
    def shared_lock(self) -> Iterator[None]:
        """What `gpu_guard` is where there is a GPU, on the interpreter's lock; waits until there is one."""
        self.known.wait()
        assert self.lock is not None
        with self.lock.shared():
            yield


class Watched:
    """An engine whose calls are written down; everything else of it is as it was."""

    def __init__(self, engine: Any, recorder: Recorder) -> None:
        self._engine, self._recorder = engine, recorder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        return partial(self._recorder.call, name, found) if name in CALLS else found


def _finish() -> None:
    if has_gpu():
        import torch

        torch.cuda.synchronize()


def overlapping(first: Sequence[Interval], second: Sequence[Interval]) -> list[tuple[Interval, Interval]]:
    """Pairs of intervals that have a moment in common."""
    return [(a, b) for a in first for b in second if max(a[1], b[1]) < min(a[2], b[2])]


def nearest_ms(first: Sequence[Interval], second: Sequence[Interval]) -> float | None:
    """The shortest time between two that do not overlap, in milliseconds; None without any."""
    gaps = [max(b[1] - a[2], a[1] - b[2]) for a in first for b in second]
    return min((gap * 1e3 for gap in gaps if gap >= 0), default=None)


def make_policy(config: CampaignConfig, recorder: Recorder, guard: Callable[[], AbstractContextManager[None]]) -> Any:
    """The config's policy, its engine watched."""
    (asked,) = config.policies
    settings, workshop = model_settings(asked), Workshop()  # type: ignore[arg-type]

    def watched(load: Callable[[Any], Any], wanted: Any) -> Any:
        return Watched(recorder.call("load", load, wanted), recorder)

    shared = {"model": asked.model, "temperature": asked.temperature, "top_p": asked.top_p}  # type: ignore[union-attr]
    if asked.type == "vllm":
        for name, value in VLLM_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        engine = VllmSettings(**shared, max_model_len=asked.max_model_len, gpu_memory=asked.gpu_memory)
        return VllmPolicy(engine, settings, workshop, alone=guard, load_engine=partial(watched, load_vllm))
    return TransformersPolicy(
        TransformersSettings(**shared), settings, workshop, alone=guard, load_engine=partial(watched, load_transformers)
    )


def write_config(folder: Path, options: argparse.Namespace) -> Path:
    """The campaign's config file; with `--interpreter` its task is a small one."""
    task = "softmax"
    if options.interpreter:
        task = str(folder / "softmax")
        shutil.copytree(Path(sys.modules["evaluator"].__file__ or "").parent / "tasks" / "softmax", task)
        (folder / "softmax" / "task.yaml").write_text(SMALL_TASK, encoding="utf-8")
    trial = {"platform": "interpreter", "baseline": "seed", "timing": "screen", "smoke": False, "workers": 2}
    config = {
        "task": task,
        "runs_dir": str(folder / "runs"),
        "evaluator": {"type": "gpu", "timeout_s": 20.0, **(trial if options.interpreter else {})},
        "policy": {
            "type": options.policy,
            "model": str(options.model),
            "max_tokens": 128,
            # Nothing may hide behind rules or a second try.
            "on_failure": "stop",
            "repair": False,
            **({"max_model_len": 8192, "gpu_memory": 0.1} if options.policy == "vllm" else {}),
        },
        "search": {"population": 8, "offspring": 8, "tuning": {"share": 0.25}},
        "budget": {"generations": options.generations + 1},  # the first is the seed
        "finalists": {"count": 0},  # no policy is asked meanwhile
    }
    path = folder / "gpu_policy.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    return path


def campaign(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run it; what came of it."""
    config = load_config(write_config(folder, options), options.overrides)
    recorder = Recorder()
    guard = recorder.shared_lock if options.interpreter else gpu_guard
    started = time.perf_counter()
    with recorder.watching():
        evaluator = create(config.evaluator.model_dump(), load_task(config.task))
        policy = make_policy(config, recorder, guard)
        try:
            if not options.interpreter:
                # vLLM wants nobody else to take or free memory while it looks how much there is.
                policy.on_loop(policy.chat.context_tokens()).result()
            result = Campaign(config, folder / "runs" / "gpu_policy", evaluator=evaluator, policy=policy).run()
            asked = policy.summary()
        finally:
            policy.close()
            evaluator.close()
    seconds = time.perf_counter() - started
    return {**judged(result.run), **answered(result.run, asked, policy), **shared_time(recorder, started, seconds)}


def judged(run: Run) -> dict[str, Any]:
    """What the evaluator said."""
    records = run.records()
    elites = run.elites(1)
    best = elites[0] if elites else None
    return {
        "task": run.config.task if "/" not in run.config.task else "small softmax",
        "gpu": records[0].evaluation.target,
        "generations": len(run.generations()) - 1,
        "candidates": len(records),
        "verdicts": dict(Counter(str(record.evaluation.status) for record in records)),
        "best_speedup": best.speedup if best else None,
        "best_latency_ms": best.evaluation.latency_ms if best else None,
        "best_rewrites": [step.name for step in best.candidate.rewrites] if best else [],
        "best_is_the_models": bool(best and best.candidate.messages),
    }


def answered(run: Run, asked: dict[str, Any], policy: ModelPolicy) -> dict[str, Any]:
    """What the model said, and whether learning could use it."""
    turns = [turn for turn in turns_of_run(run) if turn.policy == policy.name]
    unusable = sum(asked["unusable"].values())
    with_logprobs = [
        t for t in turns if t.logprobs and t.answer_token_ids and len(t.logprobs) == len(t.answer_token_ids)
    ]
    return {
        "policy": policy.name,
        "model": Path(str(run.config.policies[0].model)).name,  # type: ignore[union-attr]
        "asked": asked["asked"],
        "answered": asked["answered"],
        "valid_share": 1 - unusable / asked["answered"] if asked["answered"] else 0.0,
        "unusable": asked["unusable"],
        "failures": asked["failures"],
        "duplicates": asked["duplicates"],
        "turns": len(turns),
        "turns_with_logprobs": len(with_logprobs),
        "prompt_tokens": asked["prompt_tokens"],
        "completion_tokens": asked["completion_tokens"],
    }


def shared_time(recorder: Recorder, started: float, seconds: float) -> dict[str, Any]:
    """Who had the GPU, in seconds since the start."""

    def told(intervals: Sequence[Interval]) -> list[tuple[str, float, float]]:
        return [(name, round(a - started, 4), round(b - started, 4)) for name, a, b in intervals]

    def total(intervals: Sequence[Interval], *names: str) -> float:
        return round(sum(b - a for name, a, b in intervals if not names or name in names), 3)

    return {
        "seconds": round(seconds, 1),
        "policy_s": total(recorder.used),
        "writing_s": total(recorder.used, *WRITING),
        "alone_s": total(recorder.alone),
        "overlaps": len(overlapping(recorder.used, recorder.alone)),
        "nearest_ms": nearest_ms(recorder.used, recorder.alone),
        "policy_intervals": told(recorder.used),
        "alone_intervals": told(recorder.alone),
    }


def complaints(found: dict[str, Any]) -> list[str]:
    """What is wrong with a result; empty when it proves what it should."""
    writes = any(name in WRITING for name, *_ in found["policy_intervals"])
    wrong = {
        f"{found['overlaps']} times the policy used the GPU while the evaluator timed": found["overlaps"] > 0,
        f"answers that are not valid: {found['unusable']}": found["valid_share"] < 1,
        f"failures: {found['failures']}": bool(found["failures"]),
        "an answer without log-probabilities": found["turns_with_logprobs"] < found["turns"],
        "no answer of the model was judged": found["turns"] == 0,
        "nothing was written or nothing was timed": not (writes and found["alone_intervals"]),
        "no candidate passed": found["best_speedup"] is None,
    }
    return [text for text, is_so in wrong.items() if is_so]


def make_model(folder: Path, parts: Sequence[Path]) -> None:
    """A model folder of a GGUF file, or of the parts that it was cut into."""
    from tests.policy.small_model import main as unpack

    with tempfile.TemporaryDirectory(prefix="kernevo-gguf-") as name:
        whole = Path(name) / "model.gguf"
        with whole.open("wb") as output:
            for part in parts:
                output.write(part.read_bytes())
        unpack(str(folder), str(whole))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("--gguf", type=Path, nargs="+", default=[], help="make the folder of this file or these parts")
    parser.add_argument("--policy", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--generations", type=int, default=10)
    parser.add_argument("--interpreter", action="store_true", help="without a GPU; the latencies mean nothing")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c")
    parser.add_argument("--out", type=Path, default=RESULT)
    return parser.parse_args()


def main() -> int:
    """Measure, print a short account, write the result; 1 when it does not prove what it should."""
    options = parsed()
    context = provenance("-m benchmarks.gpu_policy")
    if options.gguf and not (options.model / "config.json").is_file():
        make_model(options.model, options.gguf)
    with tempfile.TemporaryDirectory(prefix="kernevo-policy-") as name:
        found = campaign(options, Path(name))
    options.out.write_text(json.dumps({**found, **context}, indent=1) + "\n", encoding="utf-8")
    rate = found["completion_tokens"] / found["writing_s"] if found["writing_s"] else 0.0
    print(f"{found['candidates']} candidates in {found['generations']} generations, {found['seconds']} s")
    print(f"verdicts: {found['verdicts']}; best {found['best_speedup'] or 0:.3f}x")
    print(f"{found['answered']} of {found['asked']} answers, {found['valid_share']:.1%} valid, {rate:.0f} tokens/s")
    print(f"{found['turns_with_logprobs']} of {found['turns']} turns with log-probabilities")
    print(f"GPU: policy {found['policy_s']} s, evaluator alone {found['alone_s']} s, {found['overlaps']} overlaps")
    wrong = complaints(found)
    for line in wrong:
        print(f"BAD {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
