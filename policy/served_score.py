"""A reward function for trainers that asks a `kernevo serve`: `compute_score` has the signature of verl's.

Many reward workers share one server, so that one process at a time decides who times on a GPU. Reads what `kernevo
export --format verl` writes as a row's ground truth. Imports no trainer, needs no HTTP library.
"""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import cache
from typing import Any

from evaluator.errors import EnvironmentUnusableError, UsageError
from evaluator.types import EvalStatus
from policy.answers.errors import AnswerError
from policy.edits import READ_FORMS, read_answer
from policy.reward import RewardInput, RewardSettings, reward_of
from policy.rewrites.base import RewriteContext
from policy.scoring import GroundTruth, Score, truth_of

TASK_FIELDS = (
    *("dtype", "tolerance", "op_policy", "allow_tf32", "allow_atomics", "input_precisions", "imports"),
    *("workloads", "check_shapes"),
)
"""Fields of a task that the server is told under the same name."""
_BUSY = (429, 503)
_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    url: str = "http://127.0.0.1:8000",
    token_env: str = "KERNEVO_SERVE_TOKEN",
    timeout_s: float = 900.0,
    timing: str | None = None,
    **_: Any,
) -> Score:
    """The reward as `score`, with `status`, `correct`, `hack` and `speedup` (0 where there is none).

    Always the same keys. `score` is 0 where nothing is known of the answer (`status` failed, timeout or cancelled).
    A server that is busy or away is asked again for `timeout_s` seconds. Raises EnvironmentUnusableError after that,
    and UsageError for what asking again does not mend: a wrong token, a ground truth that no export wrote.
    """
    server = _server(url.rstrip("/"), os.environ.get(token_env, "").strip(), timeout_s)
    truth = truth_of(ground_truth)
    forms = READ_FORMS[truth.form] if truth.form else tuple(READ_FORMS)
    context = RewriteContext.of_task(truth.task)
    try:
        source = read_answer(solution_str, truth.parent_source, context, forms).source
    except AnswerError as error:
        if error.kind == "unchanged":
            return _unread(RewardInput(status=EvalStatus.DUPLICATE, unchanged=True), server)
        return _unread(RewardInput(status=EvalStatus.SYNTAX_ERROR, parsed=False), server)
    answer = server.ask("/evaluate", {**_request(truth), "kernel_code": source, "timing": timing})
    if answer is None:  # longer than the server takes
        return _unread(RewardInput(status=EvalStatus.SYNTAX_ERROR, parsed=False), server)
    return {
        "score": float(answer["reward"] or 0.0),
        "status": str(answer["verdict"] or answer["status"]),
        "correct": float(answer["correct"] or False),
        "hack": float(answer["decoy_kernel"] or False),
        "speedup": float(answer["speedup"] or 0.0),
    }


class Server:
    """One server as its clients see it. Thread-safe."""

    def __init__(self, url: str, token: str, timeout_s: float) -> None:
        self._url, self._token, self._timeout_s = url, token, timeout_s
        self._lock = threading.Lock()
        self._rewards: RewardSettings | None = None

    @property
    def rewards(self) -> RewardSettings:
        """How it rewards, so that what needs no judge is rewarded alike."""
        with self._lock:
            if self._rewards is None:
                said = self.ask("/metrics") or {}
                self._rewards = RewardSettings.model_validate(said["reward"])
            return self._rewards

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The answer; None where the body is larger than the server takes. Asks again while it is busy or away."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            left = deadline - time.monotonic()
            try:
                return self._once(path, body, max(left, 1.0))
            except urllib.error.HTTPError as error:
                said = _said(error)
                if error.code == 413:
                    return None
                if error.code not in _BUSY:
                    raise UsageError(f"{self._url}{path}: {said.get('message', error)}", said.get("fix", "")) from None
                reason, pause = str(said.get("message", error)), float(error.headers.get("Retry-After") or _PAUSE_S)
            except OSError as error:
                reason, pause = str(error), _PAUSE_S
            pause = min(pause, _LONGEST_PAUSE_S)
            if left <= pause:
                raise EnvironmentUnusableError(
                    f"{self._url}{path}: no answer in {self._timeout_s:g} s: {reason}",
                    "start `kernevo serve` there, or give the reward function another url or a longer timeout_s",
                )
            time.sleep(pause)

    def _once(self, path: str, body: Mapping[str, Any] | None, seconds: float) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=seconds) as response:
            return dict(json.load(response))


def _request(truth: GroundTruth) -> dict[str, Any]:
    task = truth.task
    return {
        "reference_code": task.reference_source,
        "seed_code": task.seed_source,
        "parent_code": truth.parent_source,
        **task.model_dump(mode="json", include=set(TASK_FIELDS)),
    }


def _unread(given: RewardInput, server: Server) -> Score:
    """What an answer without a kernel earns."""
    status = "unchanged" if given.unchanged else "unparsable"
    return {
        "score": reward_of(given, server.rewards).total,
        "status": status,
        "correct": 0.0,
        "hack": 0.0,
        "speedup": 0.0,
    }


def _said(error: urllib.error.HTTPError) -> dict[str, str]:
    try:
        found = json.load(error)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@cache
def _server(url: str, token: str, timeout_s: float) -> Server:
    if not url.startswith(("http://", "https://")):
        raise UsageError("url: begins with http:// or https://", "give what `kernevo serve` printed")
    return Server(url, token, timeout_s)
