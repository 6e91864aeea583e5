"""What `kernevo serve` answers to every kind of request, with judges that are told what to say."""

from __future__ import annotations

import json
import threading

import pytest
from starlette.testclient import TestClient

from evaluator.errors import TaskError
from evaluator.foreign_host import JudgeLostError
from evaluator.types import EvalStatus
from evo.serve.records import NOT_HONOURED, EvaluationRequest, renamed
from policy.reward import RewardSettings
from tests.evo.serving import GOOD, HACK, REFERENCE, WRONG, FakeJudges, make_app, make_queue, verdict

TOKEN = "0123456789abcdef-secret"
BASE = "http://127.0.0.1"


@pytest.fixture
def judges():
    return FakeJudges()


@pytest.fixture
def client(judges):
    with serving(judges) as client:
        yield client


class serving:  # noqa: N801  (reads as a verb)
    """A client of a server with these judges; everything is ended behind it."""

    def __init__(self, judges, *, token=None, rewards=None, headers=None, base_url=BASE, **limits):
        self.judges, self.queue = judges, make_queue(judges, **limits)
        app = make_app(self.queue, token, rewards=rewards)
        self.client = TestClient(app, base_url=base_url, headers=headers)

    def __enter__(self):
        self.client.queue = self.queue
        return self.client

    def __exit__(self, *error):
        self.judges.gate.set()
        self.queue.close()


def body(kernel=GOOD, **more):
    return {"reference_code": REFERENCE, "kernel_code": kernel, **more}


def submit(client, kernel=GOOD, **more):
    return client.post("/evaluate?wait=false", json=body(kernel, **more))


def test_a_good_kernel_is_answered_with_verdict_speed_kind_and_reward(client):
    answer = client.post("/evaluate", json=body()).json()
    assert (answer["status"], answer["verdict"], answer["correct"]) == ("completed", "passed", True)
    assert (answer["speedup"], answer["timing_kind"]) == (2.0, "measured")
    # 0.3 + 0.5·log2(1.9) + 0.5·0.75: the lower bound of the interval counts
    assert answer["reward"] == pytest.approx(0.3 + 0.5 * 0.92600 + 0.375, abs=1e-4)
    assert sum(answer["reward_components"].values()) == pytest.approx(answer["reward"])
    assert answer["explain"] == "explained"
    assert answer["error_message"] is None


def test_the_answer_has_what_kernelgyms_client_reads(client):
    good = client.post("/evaluate", json=body(task_id="rl_1")).json()
    assert good["task_id"] == "rl_1"
    assert (good["compiled"], good["correctness"], good["decoy_kernel"]) == (True, True, False)
    assert (good["reference_runtime"], good["kernel_runtime"]) == (1.0, 0.5)
    metadata = good["metadata"]
    shares = metadata["custom_kernel_cuda_time_in_profiling_us"] / metadata["total_kernel_run_time_in_profiling_us"]
    assert shares == pytest.approx(0.75)
    wrong = client.post("/evaluate", json=body(WRONG)).json()
    assert (wrong["status"], wrong["correctness"], wrong["error_code"]) == ("completed", False, "CORRECTNESS_ERROR")
    assert (wrong["speedup"], wrong["timing_kind"], wrong["reward"]) == (None, None, -0.1)
    hack = client.post("/evaluate", json=body(HACK)).json()
    assert (hack["decoy_kernel"], hack["correctness"], hack["reward"]) == (True, False, -0.5)


def test_fields_of_kernelgyms_that_change_nothing_are_taken_and_named(client):
    given = dict.fromkeys(NOT_HONOURED) | {"backend": "triton", "workflow": "kernelbench", "timeout": 300}
    answer = client.post("/evaluate", json=body(**given)).json()
    assert answer["ignored"] == sorted(NOT_HONOURED)
    assert answer["status"] == "completed"


def test_the_reward_is_the_servers(judges):
    with serving(judges, rewards=RewardSettings(type="profile", scale=0.5)) as client:
        assert client.post("/evaluate", json=body()).json()["reward"] == pytest.approx(0.5 * (1 + 1.9 + 0.75))
        assert client.get("/metrics").json()["reward"] == {"type": "profile", "scale": 0.5}


def test_the_parent_handed_in_again_is_a_repetition(client):
    parent = f"{GOOD}\nx = 1\n"
    again = client.post("/evaluate", json=body(f"{GOOD}\nx  =  1  # as before\n", parent_code=parent)).json()
    assert (again["verdict"], again["reward_components"]) == ("passed", {"repeated": -0.3})
    changed = client.post("/evaluate", json=body(f"{GOOD}\nx = 2\n", parent_code=parent)).json()
    assert changed["reward"] > 0


def test_a_job_can_be_polled(client, judges):
    judges.gate.clear()
    made = submit(client, task_id="mine")
    assert (made.status_code, made.json()["status"]) == (202, "pending") or made.json()["status"] == "processing"
    judges.waiting.wait()
    assert client.get("/status/mine").json() == {
        "task_id": "mine", "status": "processing", "queue_position": None, "error_message": None,
    }  # fmt: skip
    assert client.get("/results/mine").status_code == 202
    second = submit(client, WRONG).json()["task_id"]
    assert client.get(f"/status/{second}").json()["queue_position"] == 0
    judges.gate.set()
    client.queue.find(second).done.result()
    answer = client.get(f"/results/{second}")
    assert (answer.status_code, answer.json()["verdict"]) == (200, "wrong_value")
    assert client.get("/results/mine").json()["verdict"] == "passed"


def test_the_same_request_under_the_same_name_is_one_job(client, judges):
    first = client.post("/evaluate", json=body(task_id="same")).json()
    assert client.post("/evaluate", json=body(task_id="same")).json() == first
    assert judges.batches == [[GOOD]]
    other = client.post("/evaluate", json=body(WRONG, task_id="same"))
    assert (other.status_code, other.json()["error"]) == (409, "task_id_taken")


def test_a_full_queue_says_when_to_come_back(judges):
    judges.gate.clear()
    with serving(judges, bound=2, batch=1) as client:
        submit(client)
        judges.waiting.wait()
        assert [submit(client).status_code for _ in range(2)] == [202, 202]
        refused = submit(client)
        assert (refused.status_code, refused.json()["error"]) == (429, "queue_full")
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
        assert client.get("/metrics").json()["refused"] == {"queue_full": 1}


def test_a_waiting_job_can_be_taken_back_and_a_running_one_cannot(client, judges):
    judges.gate.clear()
    running = submit(client).json()["task_id"]
    judges.waiting.wait()
    waiting = submit(client, WRONG).json()["task_id"]
    assert client.delete(f"/tasks/{waiting}").json()["status"] == "cancelled"
    assert client.get(f"/results/{waiting}").json()["status"] == "cancelled"
    assert client.delete(f"/tasks/{running}").status_code == 409
    judges.gate.set()
    client.queue.find(running).done.result()
    assert judges.batches == [[GOOD]]


def test_jobs_of_one_task_are_judged_together_and_its_judge_is_kept(client, judges):
    judges.gate.clear()
    submit(client)
    judges.waiting.wait()
    names = [submit(client, kernel).json()["task_id"] for kernel in (GOOD, WRONG, HACK)]
    judges.gate.set()
    for name in names:
        client.queue.find(name).done.result()
    assert judges.batches == [[GOOD], [GOOD, WRONG, HACK]]
    assert len(judges.started) == 1


def test_the_judge_used_longest_ago_makes_room(client, judges):
    for reference in ("class Model: a", "class Model: b", "class Model: a", "class Model: c"):
        client.post("/evaluate", json=body() | {"reference_code": reference})
    assert [task.reference_code for task, _ in judges.started] == ["class Model: a", "class Model: b", "class Model: c"]
    assert [task.reference_code for task in judges.closed] == ["class Model: b"]


def test_another_timing_tier_or_size_is_another_judges(client, judges):
    for more in ({"timing": "screen"}, {"timing": "confirm", "params": {"M": 4}}):
        client.post("/evaluate", json=body(**more))
    assert [changes for _, changes in judges.started] == [{"timing": "screen"}, {"timing": "confirm"}]
    assert judges.started[1][0].workloads[0].params == {"M": 4}


def test_judges_on_a_gpu_share_its_memory_and_are_no_strangers_to_each_other(judges):
    with serving(judges, on_gpu=True) as client:
        for reference in ("class Model: a", "class Model: b"):
            client.post("/evaluate", json=body() | {"reference_code": reference})
    assert [changes for _, changes in judges.started] == [
        {"memory_share": 0.5, "allow_busy": False},
        {"memory_share": 1.0, "allow_busy": True},
    ]


def test_a_task_at_fault_is_no_kernels_fault(client, judges):
    def at_fault(source):
        raise TaskError("reference_code.py:3: no", "mend it")

    judges.behave = at_fault
    answer = client.post("/evaluate", json=body()).json()
    assert (answer["status"], answer["verdict"], answer["reward"]) == ("failed", None, None)
    assert (answer["error_code"], answer["error_message"]) == (
        "VALIDATION_ERROR",
        "reference_code.py:3: no; fix: mend it",
    )
    judges.behave = verdict
    assert client.post("/evaluate", json=body()).json()["verdict"] == "passed"


def test_a_lost_judge_is_replaced_once_and_then_the_job_has_failed(client, judges):
    lost = iter([True, False, True, True])

    def behave(source):
        if next(lost):
            raise JudgeLostError("the judge's process was lost: killed")
        return verdict(source)

    judges.behave = behave
    assert client.post("/evaluate", json=body()).json()["verdict"] == "passed"
    answer = client.post("/evaluate", json=body(WRONG)).json()
    assert (answer["status"], answer["error_code"], answer["reward"]) == ("failed", "SYSTEM_ERROR", None)
    assert "was lost" in answer["error_message"]


def test_only_the_job_that_takes_too_long_is_given_up(judges):
    def behave(source):
        if source.text == WRONG:
            raise JudgeLostError("not done after 3 s", timeout=True)
        return verdict(source)

    judges.gate.clear()
    judges.behave = behave
    with serving(judges) as client:
        submit(client, HACK)
        judges.waiting.wait()
        slow, quick = (submit(client, kernel).json()["task_id"] for kernel in (WRONG, GOOD))
        judges.gate.set()
        for name in (slow, quick):
            client.queue.find(name).done.result()
        assert client.get(f"/results/{slow}").json()["status"] == "timeout"
        assert client.get(f"/results/{quick}").json()["verdict"] == "passed"


def test_a_broken_harness_earns_nothing_and_blames_nobody(client, judges):
    judges.behave = lambda source: verdict(source).model_copy(
        update={"status": EvalStatus.HARNESS_ERROR, "timings": {}, "reason": "the time stage failed"}
    )
    answer = client.post("/evaluate", json=body()).json()
    assert (answer["status"], answer["verdict"]) == ("failed", "harness_error")
    assert (answer["correct"], answer["reward"], answer["compiled"]) == (None, None, None)


def test_a_fault_of_the_servers_own_ends_the_job_and_not_the_server(client, judges):
    def behave(source):
        raise KeyError("oops")

    judges.behave = behave
    answer = client.post("/evaluate", json=body()).json()
    assert (answer["status"], answer["error_code"]) == ("failed", "SYSTEM_ERROR")
    judges.behave = verdict
    assert client.post("/evaluate", json=body()).json()["verdict"] == "passed"


@pytest.mark.parametrize(
    ("content", "status", "error", "said"),
    [
        (b"{", 400, "invalid_json", "no JSON"),
        (b"[]", 422, "invalid_request", "dictionary"),
        (b"{}", 422, "invalid_request", "kernel_code"),
        (body(kernel_cod="x"), 422, "invalid_request", "unknown field 'kernel_cod'; did you mean 'kernel_code'?"),
        (body(backend="cuda"), 422, "invalid_request", "backend: Input should be 'triton'"),
        (body(task="softmax"), 422, "invalid_request", "and not both"),
        ({"kernel_code": GOOD}, 422, "invalid_request", "give reference_code"),
        (body(task_id="a/b"), 422, "invalid_request", "task_id"),
        (body(ignored=["x"]), 422, "invalid_request", "unknown field 'ignored'"),
        (body(entry_point="a b"), 422, "invalid_request", "entry_point"),
        (body(timing="quick"), 422, "invalid_request", "timing"),
        (body(params={"M": [1]}), 422, "invalid_request", "params"),
        (body(workloads=[{"name": str(index)} for index in range(17)]), 422, "invalid_request", "workloads"),
        (body("#" * 2001), 413, "too_large", "larger than 2000 bytes"),
        (body("ü" * 1001), 413, "too_large", "larger than 2000 bytes"),
        (b'{"kernel_code": "\\ud800", "reference_code": "x"}', 422, "invalid_request", "unicode"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_the_fix(client, judges, content, status, error, said):
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    answer = client.post("/evaluate", content=raw, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert said in answer.json()["message"]
    assert answer.json()["fix"]
    assert judges.batches == []
    assert client.get("/metrics").json()["refused"] == {error: 1}


@pytest.mark.parametrize("declared", [True, False])
def test_a_huge_body_is_refused_before_it_is_read(client, judges, declared):
    chunk, read = b"x" * 65536, []

    def endless():
        for _ in range(1000):
            read.append(len(chunk))
            yield chunk

    content = chunk * 1000 if declared else endless()
    answer = client.post("/evaluate", content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
    assert judges.batches == []


def test_nobody_comes_in_without_the_token(judges, caplog):
    with serving(judges, token=TOKEN) as client:
        for header in (None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xff"):
            headers = {} if header is None else {"Authorization": header.encode("latin-1")}
            for path in ("/evaluate", "/metrics", "/openapi.json", "/nowhere", "/status/x"):
                answer = client.post(path, content=b"{", headers=headers)
                assert answer.status_code == 401, (header, path)
                assert TOKEN not in answer.text
        assert client.get("/health").json() == {"status": "healthy"}
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert client.post("/evaluate", json=body(), headers=right).json()["verdict"] == "passed"
        assert client.get("/metrics", headers=right).json()["refused"] == {"unauthorized": 35}
        assert TOKEN not in client.get("/metrics", headers=right).text
    assert TOKEN not in caplog.text


def test_without_a_token_a_web_page_cannot_reach_the_server_by_another_name(judges):
    with serving(judges, base_url="http://attacker.example") as client:
        assert client.post("/evaluate", json=body()).status_code == 400
    assert judges.batches == []


@pytest.mark.parametrize("path", ["/status/nobody", "/results/nobody", "/nowhere"])
def test_unknown_names_and_paths_are_404_with_the_fix(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.json()["fix"]


def test_a_stopping_server_finishes_what_runs_and_takes_nothing_more(client, judges):
    judges.gate.clear()
    running = submit(client).json()["task_id"]
    judges.waiting.wait()
    waiting = submit(client, WRONG).json()["task_id"]
    draining = threading.Thread(target=client.queue.drain, args=(600.0,))
    draining.start()
    client.queue.find(waiting).done.result()
    assert client.get(f"/results/{waiting}").json()["status"] == "cancelled"
    assert submit(client).status_code == 503
    assert client.get("/health").status_code == 503
    assert draining.is_alive()
    judges.gate.set()
    draining.join()
    assert client.get(f"/results/{running}").json()["verdict"] == "passed"


def test_running_jobs_are_killed_when_the_grace_is_over(client, judges):
    judges.gate.clear()
    running = submit(client).json()["task_id"]
    judges.waiting.wait()
    client.queue.drain(0.0)
    assert client.get(f"/results/{running}").json()["status"] == "cancelled"


def test_old_answers_are_forgotten_and_waiting_jobs_never(client, judges, monkeypatch):
    monkeypatch.setattr("evo.serve.jobs.KEPT_ANSWERS", 2)
    for number in range(4):
        client.post("/evaluate", json=body(task_id=f"job{number}"))
    submit(client, task_id="last")
    client.queue.find("last").done.result()
    assert client.get("/results/job0").status_code == 404
    assert client.get("/results/job3").status_code == 200


def test_the_entry_points_classes_are_called_model_and_model_new_for_the_judge():
    request = EvaluationRequest(
        reference_code="class Net:  # Net\n    x = 'Net'\n    def f(self):\n        super(Net, self)\n",
        kernel_code="class NetNew: pass\nNetNewer = NetNew",
        entry_point="Net",
    )
    assert request.foreign_task.reference_code == (
        "class Model:  # Net\n    x = 'Net'\n    def f(self):\n        super(Model, self)\n"
    )
    assert request.kernel == "class ModelNew: pass\nNetNewer = ModelNew"
    assert renamed("class Net(:\n '''", "Net", "Model") == "class Net(:\n '''"
