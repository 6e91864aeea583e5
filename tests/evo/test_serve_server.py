"""`kernevo serve` as a process of its own: kernels judged by the real evaluator, signals, killed workers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from evaluator.testing import REFERENCE, SEED, WRONG

TOKEN = "a-token-for-tests-only"
SHAPES = [{"name": "small", "params": {"M": 3, "N": 40}}]
TASK = {
    "reference_code": REFERENCE,
    "seed_code": SEED,
    "dtype": "float32",
    "workloads": SHAPES,
    "check_shapes": SHAPES,
}
STUCK = {**TASK, "reference_code": "import time\ntime.sleep(1000)\n" + REFERENCE, "kernel_code": SEED}
DEADLINE_S = 120.0


class Server:
    """One running server; `kill_all` ends it whatever happened."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.temporary = folder
        environment = {**os.environ, "TMPDIR": str(folder), "KERNEVO_SERVE_TOKEN": TOKEN}
        command = [sys.executable, "-m", "evo.cli.main", "serve", "--port", "0", "--set", "evaluator.workers=2"]
        self.errors = folder / "stderr.txt"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen([*command, *options], env=environment, stderr=errors)
        self.url = until(lambda: re.search(r"serving on (\S+)", self.said())).group(1)

    def said(self) -> str:
        assert self.process.poll() is None, self.errors.read_text()
        return self.errors.read_text()

    def ask(self, path: str, body: object = None, *, raw: bytes | None = None, token: str = TOKEN) -> tuple[int, dict]:
        data = raw if raw is not None or body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def start(self, body: dict) -> tuple[threading.Thread, list]:
        """Ask in a thread; the answer is put into the list."""
        answers: list = []

        def asking() -> None:
            with suppress(OSError):  # the server was killed
                answers.append(self.ask("/evaluate", body))

        thread = threading.Thread(target=asking, daemon=True)
        thread.start()
        return thread, answers

    def judge(self) -> int:
        """The pid of the one judge: a child of the server's only child."""
        (nursery,) = children(self.process.pid)
        found = children(nursery)
        return found[0] if found else 0

    def kill_all(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def until(found, seconds=DEADLINE_S):
    """The first true value of `found()`."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)
    return value


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = Server(tmp_path_factory.mktemp("server"), "--max-source-kb", "50", "--job-timeout", "100")
    yield made
    made.kill_all()


@pytest.fixture
def own_server(tmp_path):
    made = []

    def start(*options: str) -> Server:
        made.append(Server(tmp_path, *options))
        return made[-1]

    yield start
    for one in made:
        one.kill_all()


def test_a_good_kernel_a_wrong_one_and_an_exploit_get_their_own_answers(server):
    status, good = server.ask("/evaluate", {**TASK, "kernel_code": SEED})
    assert status == 200
    assert (good["verdict"], good["correct"], good["timing_kind"]) == ("passed", True, "modelled")
    assert good["speedup"] == pytest.approx(1.0)
    assert good["reward"] == pytest.approx(0.3)
    _, wrong = server.ask("/evaluate", {**TASK, "kernel_code": WRONG["a wrong value"][0].text})
    assert (wrong["verdict"], wrong["reward"], wrong["speedup"]) == ("wrong_value", -0.1, None)
    assert "expected" in wrong["explain"]
    _, exploit = server.ask("/evaluate", {**TASK, "kernel_code": WRONG["no kernel launched"][0].text})
    assert (exploit["verdict"], exploit["decoy_kernel"], exploit["reward"]) == ("fallback", True, -0.5)


def test_a_bad_token_a_huge_body_and_broken_json_are_refused_by_the_real_server(server):
    assert server.ask("/evaluate", {**TASK, "kernel_code": SEED}, token="wrong")[0] == 401
    assert server.ask("/evaluate", raw=b"{")[0] == 400
    assert server.ask("/evaluate", {**TASK, "kernel_code": "#" * 60_000})[0] == 413
    assert server.ask("/health", token="")[0] == 200
    assert TOKEN not in server.said()


def test_a_killed_judge_is_replaced_and_the_second_loss_is_the_jobs_end(server):
    thread, answers = server.start({**STUCK, "task_id": "stuck"})
    until(lambda: server.ask("/status/stuck")[1].get("status") == "processing")
    _, before = server.ask("/metrics")
    first = until(lambda: [pid for pid in children(children(server.process.pid)[0]) if stuck(pid)])
    os.kill(first[0], signal.SIGKILL)
    second = until(lambda: [pid for pid in children(children(server.process.pid)[0]) if stuck(pid) and pid != first[0]])
    os.kill(second[0], signal.SIGKILL)
    thread.join(DEADLINE_S)
    ((status, answer),) = answers
    assert (status, answer["status"], answer["error_code"]) == (200, "failed", "SYSTEM_ERROR")
    assert "SIGKILL" in answer["error_message"]
    assert answer["reward"] is None
    assert server.ask("/metrics")[1]["judges_started"] == before["judges_started"] + 1
    assert server.ask("/evaluate", {**TASK, "kernel_code": SEED})[1]["verdict"] == "passed"


def stuck(pid: int) -> bool:
    """Whether a judge sleeps in its reference."""
    try:
        return "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return False


def test_sigterm_answers_what_runs_and_leaves_nothing_behind(own_server):
    server = own_server("--grace", "0")
    thread, answers = server.start(STUCK)
    judge = until(server.judge)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(DEADLINE_S) == 0
    thread.join(DEADLINE_S)
    ((_, answer),) = answers
    assert (answer["status"], answer["verdict"]) == ("cancelled", None)
    assert not Path(f"/proc/{judge}").exists()
    assert [path.name for path in server.temporary.iterdir()] == ["stderr.txt"]


def test_a_second_ctrl_c_does_not_wait_for_running_jobs(own_server):
    server = own_server("--grace", "1000")
    thread, answers = server.start(STUCK)
    until(server.judge)
    server.process.send_signal(signal.SIGINT)
    until(lambda: "stopping" in server.said())
    assert server.ask("/evaluate", {**TASK, "kernel_code": SEED})[0] == 503
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(DEADLINE_S) == 130
    thread.join(DEADLINE_S)
    assert answers[0][1]["status"] == "cancelled"


def test_a_killed_server_takes_its_judges_with_it(own_server):
    server = own_server()
    server.start(STUCK)
    judge = until(server.judge)
    server.process.kill()
    until(lambda: not Path(f"/proc/{judge}").exists())
