"""What untrusted code can and cannot do in a worker; the static checks are left out on purpose."""

from __future__ import annotations

import os

import pytest
import torch

from evaluator.sandbox import Limits
from evaluator.types import EvalStatus
from evaluator.worker_host import WorkerHost
from tests.evaluator.worker_cases import QUICK, check, model

BAD = {
    "raises": ("raise KeyError('lost')", EvalStatus.RUNTIME_ERROR, "KeyError: 'lost' (candidate.py:8)"),
    "recursion": ("return self.forward(x)", EvalStatus.RUNTIME_ERROR, "recursion"),
    "endless loop": ("while True:\n    pass", EvalStatus.TIMEOUT, "still running after"),
    "endless output": ("while True:\n    print('x' * 100000)", EvalStatus.OUTPUT_LIMIT, "printed more than"),
    "ten GB at once": ("print('x' * (10 << 30))", EvalStatus.OUT_OF_MEMORY, "memory"),
    "a file that grows": (
        "with open('a', 'wb') as file:\n    while True:\n        file.write(bytes(1 << 20))",
        EvalStatus.OUTPUT_LIMIT,
        "file",
    ),
    "a fork": ("import os\nos.fork()\nreturn x", EvalStatus.PROCESS_LIMIT, "process"),
    "a subprocess": ("import subprocess\nsubprocess.run(['true'])\nreturn x", EvalStatus.PROCESS_LIMIT, "process"),
    "a thread": (
        "import threading\nthreading.Thread(target=print).start()\nreturn x",
        EvalStatus.PROCESS_LIMIT,
        "thread",
    ),
    "os._exit": ("import os\nos._exit(0)", EvalStatus.EXITED, "exit code 0"),
    "sys.exit": ("import sys\nsys.exit(0)", EvalStatus.EXITED, "SystemExit"),
    "a segfault": ("import ctypes\nctypes.string_at(0)", EvalStatus.CRASHED, "SIGSEGV"),
    "abort": ("import os\nos.abort()", EvalStatus.CRASHED, "SIGABRT"),
    "huge tensor": ("return torch.zeros(20 << 30)", EvalStatus.OUT_OF_MEMORY, "memory"),
    "huge list": ("return [0] * (4 << 30)", EvalStatus.OUT_OF_MEMORY, "memory"),
    "network": ("import socket\nsocket.socket()", EvalStatus.RUNTIME_ERROR, "not permitted"),
    "kills its parent": ("import os\nos.kill(os.getppid(), 9)\nreturn x", EvalStatus.RUNTIME_ERROR, "not permitted"),
    "writes to every descriptor": (
        "import os\nfor number in range(3, 64):\n    try:\n        os.write(number, b'forged' * 9)\n"
        "    except OSError:\n        pass\nreturn x",
        EvalStatus.HARNESS_TAMPER,
        "in place of the result",
    ),
    "writes a whole forged frame": (
        "import os\nfrom evaluator import wire\nframe = wire.dump({'nonce': '0' * 32, 'result': []})\n"
        "for number in range(3, 64):\n    try:\n        os.write(number, frame)\n        os._exit(0)\n"
        "    except OSError:\n        pass",
        EvalStatus.HARNESS_TAMPER,
        "secret",
    ),
}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    # Workers run as another user, who must reach their own folders below pytest's private ones.
    for place in (folder, *folder.parents[:2]):
        place.chmod(0o711)
    os.environ["KERNEVO_TEST_SECRET"] = "hunter2"
    host = WorkerHost(folder, interpret=True)
    yield host
    host.close()
    del os.environ["KERNEVO_TEST_SECRET"]


@pytest.mark.parametrize("name", BAD)
def test_bad_code_gets_its_own_verdict_and_a_reason(host, name):
    body, status, reason = BAD[name]
    verdict, outcome = check(host, model(body))
    assert verdict is not None
    assert verdict.status is status, verdict
    assert reason in verdict.reason
    assert outcome.seconds < QUICK.wall_seconds + 3


def test_a_good_kernel_after_a_bad_one_is_not_disturbed(host):
    for body in ("import os\nos._exit(1)", "import ctypes\nctypes.string_at(0)"):
        check(host, model(body))
        verdict, outcome = check(host, model("return x + 1"))
        assert verdict is None
        assert torch.equal(outcome.answer["result"][0]["outputs"][0], torch.arange(4.0) + 1)


def test_what_one_candidate_changes_the_next_does_not_see(host):
    check(host, model("torch.Tensor.__add__ = None\nopen('left.txt', 'w').write('x')\nreturn x"))
    verdict, outcome = check(host, model("import os\nassert 'left.txt' not in os.listdir('.')\nreturn x + 1"))
    assert verdict is None, verdict
    assert torch.equal(outcome.answer["result"][0]["outputs"][0], torch.arange(4.0) + 1)


def test_a_syntax_error_is_named(host):
    verdict, _ = check(host, "def broken(:\n")
    assert verdict.status is EvalStatus.SYNTAX_ERROR


def test_a_missing_entry_point_is_named(host):
    verdict, _ = check(host, "x = 1\n")
    assert verdict.status is EvalStatus.MISSING_ENTRY_POINT


def test_a_wrong_number_of_arguments_is_the_candidates_fault(host):
    verdict, _ = check(host, model("return x").replace("(self, x)", "(self, x, y)"))
    assert verdict.status is EvalStatus.RUNTIME_ERROR
    assert "forward" in verdict.reason


def test_an_output_that_is_no_tensor_travels_as_its_type(host):
    _, outcome = check(host, model("return x, None, 3.5, torch.nn.Parameter(x)"))
    outputs = outcome.answer["result"][0]["outputs"]
    assert outputs[1:] == ["NoneType", "float", "torch.Tensor subclass Parameter"]


def test_a_changed_input_changes_its_digest(host):
    _, untouched = check(host, model("return x + 1"))
    _, changed = check(host, model("x[0] = 5\nreturn x + 1"))
    before, after = (outcome.answer["result"][0]["digests"] for outcome in (untouched, changed))
    assert before.keys() == after.keys() == {"input 0"}
    assert before != after


def test_unwritten_memory_and_chance_are_told_apart(host):
    _, unwritten = check(host, model("return torch.empty_like(x)"), repeat=True)
    _, random = check(host, model("import time\nreturn x + time.perf_counter_ns() % 10_000_019"), repeat=True)
    first = unwritten.answer["result"][0]
    assert first["other_filling"] != first["same_filling"]
    assert (
        first["same_filling"] == check(host, model("return x * float('nan')"))[1].answer["result"][0]["other_filling"]
    )
    second = random.answer["result"][0]
    assert second["other_filling"] != second["same_filling"]


def test_secrets_of_the_parent_are_not_visible(host):
    body = """
        import os
        seen = [str(dict(os.environ))]
        for process in os.listdir('/proc'):
            for name in ('environ', 'cmdline'):
                try:
                    seen.append(open(f'/proc/{process}/{name}', errors='replace').read())
                except OSError:
                    pass
        print('hunter2' in ''.join(seen))
        return x
    """
    verdict, outcome = check(host, model(body))
    assert "hunter2" in os.environ["KERNEVO_TEST_SECRET"]
    assert outcome.output.strip().startswith("False") or "not permitted" in verdict.reason or "denied" in verdict.reason


def test_expected_values_are_nowhere_in_the_worker(host):
    """A walk over every object finds the input, so it works, but nothing equal to the expected output."""
    body = """
        import gc
        found = {'input': 0, 'expected': 0}
        for item in gc.get_objects():
            if isinstance(item, torch.Tensor) and item.shape == x.shape and item.device.type == 'cpu':
                found['input'] += torch.equal(item, torch.arange(4.0) * 3)
                found['expected'] += torch.allclose(item, torch.softmax(torch.arange(4.0) * 3, 0))
        raise ValueError(str(found))
    """
    verdict, _ = check(host, model(body), inputs=[torch.arange(4.0) * 3])
    assert "'expected': 0" in verdict.reason
    assert "'input': 0" not in verdict.reason


def test_output_is_kept_in_part_for_the_explanation(host):
    verdict, _ = check(host, model("print('last words', flush=True)\nimport os\nos._exit(3)"))
    assert verdict.status is EvalStatus.EXITED
    assert "exit code 3" in verdict.reason
    assert "last words" in verdict.explain


def test_results_that_are_too_large_are_stopped(host):
    verdict, _ = check(host, model("return torch.zeros(8 << 20)"), Limits(wall_seconds=10, answer_bytes=1 << 20))
    assert verdict.status is EvalStatus.OUTPUT_LIMIT


def test_a_lost_zygote_is_replaced(host):
    check(host, model("return x"))
    host._process.kill()
    host._process.wait()
    verdict, outcome = check(host, model("return x + 1"))
    assert verdict is None, verdict
    assert outcome.answer["result"][0]["kernels"] == []


def test_nothing_is_left_behind(tmp_path_factory):
    folder = tmp_path_factory.mktemp("leftovers")
    for place in (folder, *folder.parents[:2]):
        place.chmod(0o711)
    host = WorkerHost(folder, interpret=True)
    for body in ("import os\nos._exit(0)", "open('file', 'w').write('x')\nreturn x", "raise ValueError"):
        check(host, model(body))
    zygote = host._process.pid
    host.close()
    assert not os.path.exists(f"/proc/{zygote}")
    assert [path.name for path in folder.iterdir()] == ["interpreter"]
