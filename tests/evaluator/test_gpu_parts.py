"""Shared memory, guards, profiles and worker processes of the gpu evaluator, without a GPU."""

from __future__ import annotations

import os
import select
import socket
import textwrap
from contextlib import nullcontext, suppress
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator import wire
from evaluator.errors import HarnessError
from evaluator.gpu_baseline import MAX_LEAD_S, Lead
from evaluator.gpu_cases import DeviceCases
from evaluator.gpu_correct import Bench
from evaluator.gpu_guard import Guard, poisoned
from evaluator.gpu_host import Nursery, WorkerError, WorkerPool
from evaluator.gpu_memory import ALIGNMENT, REDZONE, HostArena, Layout, view
from evaluator.gpu_platform import ARENAS, DeviceWork
from evaluator.gpu_profile import busy_ms, copy_ms
from evaluator.gpu_worker import serve
from evaluator.samples import Block
from evaluator.testing import TASK
from evaluator.types import EvalStatus

SHAPES = st.lists(st.lists(st.integers(0, 40), max_size=3), max_size=6)


@given(SHAPES, st.sampled_from(["float32", "float16", "int64", "bool"]), st.integers(0, 5))
def test_places_and_zones_cover_an_arena_without_overlap(shapes, dtype, shift):
    layout = Layout()
    for shape in shapes:
        layout.add(shape, torch.empty(shape).stride(), dtype)
    layout = layout.moved(shift * ALIGNMENT)
    ranges = sorted([*layout.zones(), *((place.offset, place.offset + place.nbytes) for place in layout.places)])
    filled = [(begin, end) for begin, end in ranges if end > begin]
    assert filled[0][0] == shift * ALIGNMENT
    assert filled[-1][1] == layout.nbytes
    assert all(end == begin for (_, end), (begin, _) in pairwise(filled))
    assert all(place.offset % ALIGNMENT == 0 for place in layout.places)
    edges = [place.offset for place in layout.places] + [layout.nbytes]
    assert all(
        after - place.offset - place.nbytes >= REDZONE for place, after in zip(layout.places, edges[1:], strict=True)
    )


def test_what_one_side_writes_into_an_arena_the_other_side_reads(tmp_path):
    layout = Layout()
    place = layout.add((3, 5), (5, 1), "float32")
    ours = HostArena.create(tmp_path, layout.nbytes)
    token = ours.token()
    theirs = HostArena(tmp_path / token["path"], token["nbytes"], create=False)
    values = torch.arange(15.0).reshape(3, 5)
    view(ours, place).copy_(values)
    assert torch.equal(view(theirs, place), values)
    ours.close()
    assert list(tmp_path.iterdir()) == []


def test_a_place_outside_of_its_arena_is_refused(tmp_path):
    layout = Layout()
    layout.add((4,), (1,), "float32")
    arena = HostArena.create(tmp_path, layout.nbytes)
    with pytest.raises(HarnessError, match="outside of the arena"):
        view(arena, layout.places[0].moved(layout.nbytes))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
def test_guarded_allocations_look_like_plain_ones(dtype):
    guard = Guard()
    like = torch.empty(6, 4, dtype=dtype).t()
    with poisoned(guard, float("nan")):
        made = [
            torch.empty(7, 3, dtype=dtype),
            torch.empty_like(like),
            torch.empty_strided((2, 2), (5, 1), dtype=dtype),
        ]
        made.append(torch.zeros(3, dtype=dtype))
    assert [tuple(tensor.shape) for tensor in made] == [(7, 3), (4, 6), (2, 2), (3,)]
    assert made[1].stride() == like.stride()
    assert {tensor.dtype for tensor in made} == {dtype}
    for tensor in made:
        tensor.fill_(1)
    assert guard.damaged() == []


@pytest.mark.parametrize("offset", [-1, 12])
def test_a_write_beside_a_guarded_allocation_is_seen(offset):
    guard = Guard()
    with poisoned(guard, 1e30):
        made = torch.empty(3, 4)
    assert bool((made == 1e30).all())
    whole = torch.empty(0).set_(made.untyped_storage())
    whole[made.storage_offset() + offset] = 0.0
    assert len(guard.damaged()) == 1
    assert "(3, 4)" in guard.damaged()[0]


INTERVALS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12)


@given(INTERVALS)
def test_busy_time_is_the_length_of_the_union(intervals):
    work = [DeviceWork("k", float(begin), float(length)) for begin, length in intervals]
    covered = {tick for begin, length in intervals for tick in range(begin, begin + length)}
    assert busy_ms(work) == pytest.approx(len(covered))


def test_the_lead_follows_the_slowest_host_up_to_a_bound():
    lead = Lead()

    def learn(call_s: float) -> float:
        lead.learn(Block(ms=(1.0,), flush_ms=0.1, host_s=0.1, call_s=call_s))
        return lead.seconds

    assert learn(1e-4) == pytest.approx(1.5e-4)
    assert learn(5e-5) == pytest.approx(1.5e-4)
    assert learn(1.0) == MAX_LEAD_S


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pool")
    folder.chmod(0o711)
    for parent in folder.parents:
        if parent.owner() == folder.owner() and str(parent) != "/tmp":
            parent.chmod(parent.stat().st_mode | 0o011)
    arenas = folder / "arenas"
    arenas.mkdir()
    nursery = Nursery(folder, "interpreter", {ARENAS: str(arenas)})
    pool = WorkerPool(folder, nursery, warm=2, gate=nullcontext)
    pool.open()
    yield pool
    pool.close()
    nursery.close()


def load(pool, source: str, seconds: float = 20.0):
    worker = pool.take()
    try:
        return worker.request("load", seconds, source=textwrap.dedent(source))
    finally:
        pool.give_up(worker)


@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        ("import os\nos._exit(0)", EvalStatus.EXITED, "exit code 0"),
        ("raise SystemExit(3)", EvalStatus.EXITED, "SystemExit"),
        ("import ctypes\nctypes.string_at(0)", EvalStatus.CRASHED, "SIGSEGV"),
        ("import os\nos.abort()", EvalStatus.CRASHED, "SIGABRT"),
        ("raise ValueError('no')", EvalStatus.RUNTIME_ERROR, "ValueError: no"),
        ("def f(:\n    pass", EvalStatus.SYNTAX_ERROR, "SyntaxError"),
        ("while True:\n    print('x' * 65536)", EvalStatus.OUTPUT_LIMIT, "printed more than"),
        (
            "import os\nfor fd in range(3, 60):\n    try:\n        os.write(fd, b'nonsense' * 9)\n    except OSError:\n"
            "        pass\nwhile True:\n    pass",
            EvalStatus.HARNESS_TAMPER,
            "in place of an answer",
        ),
    ],
)
def test_whatever_a_candidate_does_to_its_process_has_a_verdict(pool, source, status, words):
    with pytest.raises(WorkerError) as failure:
        load(pool, source)
    assert failure.value.status is status, failure.value.reason
    assert words in failure.value.reason


def test_a_hang_is_a_timeout_and_leaves_no_process(pool):
    worker = pool.take()
    pid_file = worker.home / "pid"
    source = f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\nwhile True:\n    pass\n"
    with pytest.raises(WorkerError) as failure:
        worker.request("load", 3.0, source=source)
    assert failure.value.status is EvalStatus.TIMEOUT
    pid = int(pid_file.read_text())
    pool.give_up(worker)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not worker.home.exists()


def test_what_hangs_is_gone_before_whoever_asked_can_let_go_of_the_gpu(pool):
    """A kernel that still runs is in the times of the next candidate."""
    worker = pool.take()
    bench = Bench(worker, arena=None, seconds=2.0, keep_bytes=0)
    with pytest.raises(WorkerError, match="still running"):
        bench.request("load", source="while True:\n    pass\n")
    assert not worker.home.exists()
    pool.give_up(worker)


def test_a_worker_whose_candidate_only_raised_goes_on(pool):
    worker = pool.take()
    bench = Bench(worker, arena=None, seconds=20.0, keep_bytes=0)
    with pytest.raises(WorkerError, match="no, thank you"):
        bench.request("load", source="raise ValueError('no, thank you')")
    assert bench.request("load", source="VALUE = 1") is None
    pool.give_up(worker)


class Asynchronous:
    """A session that leaves work on its device."""

    def __init__(self, fails_with: str = "") -> None:
        self.left, self.fails_with = 0, fails_with

    def launch(self) -> int:
        self.left = 1
        return 7

    def fail(self) -> None:
        self.left = 1
        raise ValueError("on the host")

    def settle(self) -> None:
        self.left = 0
        if self.fails_with:
            raise RuntimeError(self.fails_with)


def asked(session: Asynchronous, command: str):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(wire.dump({"nonce": "n", "command": command}))
        ours.sendall(wire.dump({}))  # no command, which ends the loop
        with suppress(KeyError):
            serve(theirs, session, session.settle)
        return wire.load(ours.recv(1 << 16))


@pytest.mark.parametrize("command", ["launch", "fail"])
def test_no_answer_leaves_before_the_device_is_done(command):
    session = Asynchronous()
    answer = asked(session, command)
    assert session.left == 0
    assert answer.get("result") == (7 if command == "launch" else None)


def test_what_the_device_says_afterwards_is_the_answer():
    answer = asked(Asynchronous("CUDA error: an illegal memory access was encountered"), "launch")
    assert "illegal memory access" in str(answer["error"])


def test_a_candidate_has_no_secrets_no_network_and_one_folder(pool, tmp_path, monkeypatch):
    target = tmp_path / "elsewhere"
    source = f"""
        import os, socket
        found = []
        try:
            open({str(target)!r}, "w").write("x")
            found.append("writes anywhere")
        except OSError:
            pass
        try:
            socket.create_connection(("127.0.0.1", 22), timeout=1)
            found.append("has a network")
        except OSError as error:
            found += [] if not isinstance(error, ConnectionRefusedError) else ["has a loopback"]
        if any("SECRET" in name or "TOKEN" in name for name in os.environ):
            found.append("sees the environment")
        if found:
            raise RuntimeError(", ".join(found))
    """
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    load(pool, source)


def test_pools_can_fork_from_one_process(pool):
    other = WorkerPool(pool._folder, pool._nursery, warm=1, gate=nullcontext)
    other.open()
    assert load(other, "VALUE = 1") is None
    other.close()
    assert load(pool, "VALUE = 2") is None


def test_a_worker_is_as_good_as_new_after_the_ones_before_it(pool):
    assert load(pool, "VALUE = 1") is None


def test_what_a_candidate_leaves_running_in_a_session_of_its_own_ends_with_its_worker(pool):
    worker = pool.take()
    pid_file = worker.home / "pid"
    source = f"""
        import os, signal
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            os.write(writes, b"away")
            while True:
                signal.pause()
        os.read(reads, 4)
        open({str(pid_file)!r}, "w").write(str(child))
    """
    try:
        worker.request("load", 20.0, source=textwrap.dedent(source))
        handle = os.pidfd_open(int(pid_file.read_text()))
    finally:
        pool.give_up(worker)
    ended = select.poll()
    ended.register(handle, select.POLLIN)
    assert ended.poll(20_000), "it is still running"
    os.close(handle)


def test_host_memory_beyond_the_limit_is_refused(pool):
    source = "import torch\nKEPT = [torch.empty(1 << 28) for _ in range(8)]"
    with pytest.raises(WorkerError) as failure:
        load(pool, source)
    assert failure.value.status is EvalStatus.OUT_OF_MEMORY, failure.value.reason


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<"
            "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const>(int)",
            True,
        ),
        ("Memcpy DtoD (Device -> Device)", True),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::exp_kernel_cuda(at::TensorIteratorBase&)>(int)",
            False,
        ),
        ("direct_copy_kernel_cuda", False),
        ("softmax_of_at::native::direct_copy_kernel_cuda(", False),
    ],
)
def test_only_torchs_own_copies_count_as_copies(name, copies):
    assert copy_ms([DeviceWork(name, 0.0, 2.0)]) == (2.0 if copies else 0.0)


def test_an_answer_that_is_wrong_at_a_glance_is_no_match_and_one_wrong_value_anywhere_is_found(monkeypatch):
    monkeypatch.setattr("evaluator.gpu_cases.LARGE_BYTES", 0)
    cases = DeviceCases(TASK, 0, "cpu", 1 << 30)
    case = cases.plain(TASK.workloads[0], 0)
    right = [out.clone() for out in case.expected]
    assert cases.matches(case, right)
    right[0].view(-1)[-1] += 1.0
    assert not cases.matches(case, right)
    assert not cases.matches(case, [out * float("nan") for out in case.expected])
    assert not cases.matches(case, ["NoneType"])
