"""Whether a language model ever keeps the evaluator waiting, and how many of a real one's answers can be used.

    python -m benchmarks.policy [--generations 4] [--answers 128] [--only overlap|answers]

Overlap: a campaign on the CPU asks 64 questions at once of a server in this process that takes as long for each as a
model does (lognormal, median 3 s), and judges as many candidates a generation. What it asked and judged when is read
from the run's metrics.jsonl. Nothing can be asked ahead before the first generation is judged, so its wait is left
out: the others are the benchmark.

Answers: vLLM with SmolLM2-135M, started here where KERNEVO_VLLM_PYTHON names a Python that has both (`make
vllm-venv`), is asked for structured rewrites of the shipped seeds. An answer counts as valid when its first version can
be used: it is JSON of rewrites that apply.

Writes benchmarks/results/policy.json, a part that did not run keeping its earlier numbers, and exits 1 when a limit is
missed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common import provenance
from evaluator.task import list_tasks, load_task
from evaluator.types import KernelSource
from evo.asking import Span
from evo.campaign import Campaign
from evo.config import CampaignConfig
from policy.chat import Answer, Question
from policy.model_children import Workshop
from policy.model_policy import ModelPolicy, ModelSettings
from policy.openai_client import OpenAIClient, OpenAISettings
from policy.openai_tokens import server_tokens
from policy.types import ParentView, Proposal, ProposalRequest
from tests.policy.fake_server import MODEL, FakeServer, normal
from tests.policy.vllm_server import NAME, PYTHON, small_model, vllm_server

RESULT = Path(__file__).parent / "results" / "policy.json"
REQUESTS = 64
"""Candidates a generation, all of them asked for at once."""
MEDIAN_S = 3.0
SPREAD = 0.5
"""Standard deviation of the latency's logarithm: the slowest of 64 takes about three times the median."""
OVERLAP_LIMIT = 0.99
"""Least share of asking after the first generation that happens while kernels are judged."""
IDLE_LIMIT = 0.01
"""Most time that the evaluator waits for the policy after the first generation, as a share of its judging."""
VALID_LIMIT = 0.99
PER_QUESTION = 8
"""Answers to one prompt."""


def slow(server: Any, body: dict[str, Any], handler: Any) -> Any:
    """The server's answer after as long as a model would take."""
    draw = random.Random(f"{body.get('seed')} latency").gauss(0.0, SPREAD)
    server.closing.wait(MEDIAN_S * math.exp(draw))
    return normal(server, body, handler)


def chosen(body: dict[str, Any], index: int) -> str:
    """One of the steps that the answer's schema lists, drawn with the request's seed."""
    steps = body["response_format"]["json_schema"]["schema"]["properties"]["steps"]["items"]["enum"]
    return json.dumps({"steps": [random.Random(f"{body.get('seed')} {index}").choice(steps)]})


def overlap(generations: int) -> dict[str, Any]:
    """One campaign and its trace."""
    with tempfile.TemporaryDirectory() as folder, FakeServer([slow] * 10_000, answer=chosen) as server:
        config = CampaignConfig.model_validate(
            {
                "task": "softmax",
                "seed": 1,
                "evaluator": {"type": "cpu", "cache": False},
                "policy": {"type": "openai", "model": MODEL, "base_url": server.url},
                "search": {"population": REQUESTS, "offspring": REQUESTS, "tuning": {"share": 0.0}},
                "budget": {"generations": generations + 2},
                "monitors": ("jsonl",),
            }
        )
        run = Campaign(config, Path(folder) / "run").run().run
        rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        most = server.most_in_flight
    told = rows.pop()["policy"]
    return {
        "median_latency_s": MEDIAN_S,
        "most_in_flight": most,
        "fallbacks": sum(told["fallbacks"].values()),
        **read_trace(rows),
    }


def read_trace(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the lines of metrics.jsonl say of asking and judging; the seed and the first generation are left out."""
    judged = merged(row["judge_span"] for row in rows)
    later = [row for row in rows if row["generation"] >= 2]
    asked = merged(span for row in later for span in row["policy_spans"])
    asking, judging = length(asked), length(row["judge_span"] for row in later)
    idle = sum(row["policy_seconds"] for row in later)
    return {
        "generations": len(later),
        "candidates": sum(row["batch"] for row in later),
        "requests": sum(row["policy_asked"] for row in later),
        "answered": sum(row["policy_answered"] for row in later),
        "asking_seconds": round(asking, 2),
        "judging_seconds": round(judging, 2),
        "overlapped_share": round(length(common(asked, judged)) / asking, 4) if asking else 0.0,
        "idle_seconds": round(idle, 3),
        "idle_share": round(idle / judging, 5) if judging else 1.0,
    }


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same time without overlaps, in order."""
    found: list[Span] = []
    for start, end in sorted((start, end) for start, end in spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def common(left: Sequence[Span], right: Sequence[Span]) -> list[Span]:
    """Time that lies in both of two merged lists."""
    both = ((max(a[0], b[0]), min(a[1], b[1])) for a in left for b in right)
    return [(start, end) for start, end in both if start < end]


def length(spans: Iterable[Span]) -> float:
    """Seconds in all."""
    return math.fsum(end - start for start, end in spans)


def answers(wanted: int) -> dict[str, Any]:
    """At least `wanted` answers of a real server, and what was stored of them."""
    with tempfile.TemporaryDirectory() as folder:
        model = small_model(Path(folder) / "model")
        with vllm_server(model, Path(folder) / "log.txt") as url:
            settings = OpenAISettings(model=NAME, base_url=url, send_seed=False, timeout_s=600.0, concurrency=4)
            workshop = Workshop(tokens=server_tokens(settings))
            client = Listening(settings)
            asks = ModelSettings(max_tokens=128, repair=False, on_failure="stop")
            policy = ModelPolicy("openai", client, workshop, asks)
            try:
                given = policy.propose(questions(wanted))
                summary = policy.summary()
            finally:
                policy.close()
    return read_answers(client.heard, [proposal for proposals in given for proposal in proposals], summary)


class Listening(OpenAIClient):
    """Keeps every answer, also those that repeat another and are never proposed."""

    def __init__(self, settings: OpenAISettings) -> None:
        super().__init__(settings)
        self.heard: list[Answer] = []

    async def ask(self, question: Question) -> list[Answer]:
        """The answers to one question. Raises AskError."""
        found = await super().ask(question)
        self.heard += found
        return found


def questions(wanted: int) -> list[ProposalRequest]:
    """Requests for rewrites of the shipped seeds, the tasks in turn."""
    tasks = [load_task(name) for name in list_tasks()]
    found = []
    for number in range(math.ceil(wanted / PER_QUESTION)):
        task = tasks[number % len(tasks)]
        assert task.seed_source is not None
        parent = ParentView(candidate_id="c000000", source=KernelSource(text=task.seed_source))
        found.append(
            ProposalRequest(
                request_id=f"q{number}",
                task=task,
                parents=(parent,),
                operator="rewrite",
                seed=number,
                count=PER_QUESTION,
            )
        )
    return found


def read_answers(heard: Sequence[Answer], proposals: Sequence[Proposal], summary: Mapping[str, Any]) -> dict[str, Any]:
    """Counts of what was answered, and of what came with it for learning: a log-probability for every token."""
    unusable = dict(summary["unusable"])
    given = sum(bool(one.logprobs) and len(one.logprobs or ()) == len(one.answer_token_ids or ()) for one in heard)
    stored = sum(
        len(one.sampling.get("logprobs", ())) == len(one.sampling.get("answer_token_ids", "-")) for one in proposals
    )
    return {
        "model": "SmolLM2-135M-Instruct",
        "asked": summary["asked"],
        "answered": summary["answered"],
        "unusable": unusable,
        "valid_share": round(1 - sum(unusable.values()) / summary["answered"], 4),
        "with_logprobs": given,
        "duplicates": summary["duplicates"],
        "stored": len(proposals),
        "stored_with_logprobs": stored,
        "prompt_tokens": summary["prompt_tokens"],
        "completion_tokens": summary["completion_tokens"],
    }


def problems(result: Mapping[str, Any]) -> list[str]:
    """Every limit that is missed, in words."""
    found = []
    if (part := result.get("overlap")) is not None:
        if part["most_in_flight"] < REQUESTS:
            found.append(f"{part['most_in_flight']} requests in flight, fewer than {REQUESTS}")
        if part["overlapped_share"] < OVERLAP_LIMIT:
            found.append(f"{part['overlapped_share']:.1%} of asking is overlapped, less than {OVERLAP_LIMIT:.0%}")
        if part["idle_share"] > IDLE_LIMIT:
            found.append(f"the evaluator waits {part['idle_share']:.1%} of its time, more than {IDLE_LIMIT:.0%}")
    if (part := result.get("answers")) is not None:
        if part["answered"] < 100:
            found.append(f"{part['answered']} answers, fewer than 100")
        if part["valid_share"] < VALID_LIMIT:
            found.append(f"{part['valid_share']:.1%} of the answers are valid, less than {VALID_LIMIT:.0%}")
        for all_of, some in (("answered", "with_logprobs"), ("stored", "stored_with_logprobs")):
            if part[some] < part[all_of] or not part[all_of]:
                found.append(f"{part[some]} of {part[all_of]} answers {all_of} with log-probabilities")
    return found


def shown(result: Mapping[str, Any]) -> Table:
    """The numbers of both parts."""
    table = Table("part", "number", "value")
    for part in ("overlap", "answers"):
        for name, value in result.get(part, {}).items():
            if name not in ("commit", "uncommitted_changes", "versions", "hardware", "command", "date", "limits"):
                table.add_row(part, name, str(value))
    return table


def main() -> int:
    """Measure, print, write the result; 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=4, help="of the campaign, behind the seed and the first one")
    parser.add_argument("--answers", type=int, default=128, help="asked of the real model")
    parser.add_argument("--only", choices=["overlap", "answers"], help="one part alone")
    options = parser.parse_args()
    result: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    known = provenance("-m benchmarks.policy")
    if options.only != "answers":
        limits = {"overlapped_share": OVERLAP_LIMIT, "idle_share": IDLE_LIMIT}
        result["overlap"] = {**overlap(options.generations), "limits": limits, **known}
    if options.only != "overlap":
        if PYTHON:
            result["answers"] = {**answers(options.answers), "limits": {"valid_share": VALID_LIMIT}, **known}
        else:
            print("answers: KERNEVO_VLLM_PYTHON is not set; the numbers there were are kept", file=sys.stderr)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    Console(width=None if sys.stdout.isatty() else 140).print(shown(result))
    missed = problems(result)
    for problem in missed:
        print(f"MISSED: {problem}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
