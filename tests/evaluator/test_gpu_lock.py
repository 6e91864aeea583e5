from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaluator.errors import EnvironmentUnusableError
from evaluator.gpu_lock import GpuLock, default_folder

UUID = "GPU-6e1d4a52-0000-1111-2222-333344445555"


def waiters(folder):
    """How many holders-to-be the kernel keeps waiting for the lock files in `folder`."""
    inodes = {f":{path.stat().st_ino} " for path in folder.iterdir()}
    lines = Path("/proc/locks").read_text().splitlines()
    return sum("->" in line and any(inode in line for inode in inodes) for line in lines)


def until_waiting(folder, count):
    # The kernel knows who waits: asked until it says so, without a guess of how long that takes.
    while waiters(folder) < count:
        os.sched_yield()


@pytest.fixture
def lock(tmp_path):
    return GpuLock(UUID, tmp_path)


def test_many_may_share(lock):
    together = threading.Barrier(4, timeout=30)

    def work(_):
        with lock.shared():
            together.wait()
        return True

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [True] * 4


def test_a_timer_is_alone(lock):
    inside, most, guard = 0, 0, threading.Lock()

    def work(number):
        nonlocal inside, most
        with lock.exclusive():
            with guard:
                inside += 1
                most = max(most, inside)
            os.sched_yield()
            with guard:
                inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(64)))
    assert most == 1


def test_timers_in_line_go_before_checks_that_wait_as_well(lock, tmp_path):
    order = []

    def time(name):
        with lock.exclusive():
            order.append(name)

    def check():
        with lock.shared():
            order.append("checked")

    timers = [threading.Thread(target=time, args=(f"timed {number}",)) for number in range(3)]
    checker = threading.Thread(target=check)
    with lock.exclusive():
        checker.start()
        until_waiting(tmp_path, 1)
        for timer in timers:
            timer.start()
        while lock._waiting < 3:
            os.sched_yield()
    for thread in (*timers, checker):
        thread.join(30)
    assert sorted(order[:3]) == ["timed 0", "timed 1", "timed 2"]
    assert order[3] == "checked"


def test_a_line_of_timers_lets_checks_in_at_last(lock, tmp_path, monkeypatch):
    monkeypatch.setattr("evaluator.gpu_lock.BATCH_SECONDS", 0.0)
    order = []

    def time():
        with lock.exclusive():
            order.append("timed")

    timer = threading.Thread(target=time)
    with lock.exclusive():
        timer.start()
        while lock._waiting < 1:
            os.sched_yield()
    timer.join(30)
    with lock.shared():
        order.append("checked")
    assert order == ["timed", "checked"]


def test_a_timer_that_gives_up_in_line_leaves_the_gpu_to_others(lock):
    class GivesUpError(RuntimeError):
        pass

    def give_up(ready):
        raise GivesUpError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock._line, "wait_for", give_up)
        with pytest.raises(GivesUpError), lock.exclusive():
            pass
    with lock.exclusive():
        pass
    with lock.shared():
        pass


def test_a_timer_waits_for_those_who_share(lock, tmp_path):
    order = []

    def time():
        with lock.exclusive():
            order.append("timed")

    with lock.shared():
        timer = threading.Thread(target=time)
        timer.start()
        until_waiting(tmp_path, 1)
        order.append("checked")
    timer.join(30)
    assert order == ["checked", "timed"]


def test_newcomers_queue_behind_a_waiting_timer(lock, tmp_path):
    order = []

    def time():
        with lock.exclusive():
            order.append("timed")

    def check():
        with lock.shared():
            order.append("checked")

    threads = []
    with lock.shared():
        for index, work in enumerate((time, check)):
            threads.append(threading.Thread(target=work))
            threads[-1].start()
            until_waiting(tmp_path, index + 1)
        order.append("first check")
    for thread in threads:
        thread.join(30)
    assert order == ["first check", "timed", "checked"]


HOLDER = """
import sys
from pathlib import Path
from evaluator.gpu_lock import GpuLock
with getattr(GpuLock(sys.argv[1], Path(sys.argv[2])), sys.argv[3])():
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(tmp_path, kind):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, UUID, str(tmp_path), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_another_process_is_waited_for(lock, tmp_path, kind):
    with holder(tmp_path, kind) as process:
        entered = threading.Event()

        def enter():
            with lock.exclusive():
                entered.set()

        thread = threading.Thread(target=enter)
        thread.start()
        until_waiting(tmp_path, 1)
        assert not entered.is_set()
        process.stdin.close()
        thread.join(30)
        assert entered.is_set()


def test_a_holder_that_is_killed_holds_nothing(lock, tmp_path):
    with holder(tmp_path, "exclusive") as process:
        process.kill()
        process.wait()
        with lock.exclusive():
            pass


def test_gpus_have_locks_of_their_own(tmp_path):
    with GpuLock("GPU-a", tmp_path).exclusive(), GpuLock("GPU-b", tmp_path).exclusive():
        pass


def test_an_exception_inside_lets_go(lock):
    with pytest.raises(RuntimeError), lock.exclusive():
        raise RuntimeError
    with lock.exclusive():
        pass


def test_a_folder_that_is_a_link_of_somebody_elses_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(EnvironmentUnusableError, match="XDG_RUNTIME_DIR"), GpuLock(UUID, tmp_path / "link").shared():
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(EnvironmentUnusableError, match="no folder for GPU locks"),
        GpuLock(UUID, tmp_path / "file" / "locks").exclusive(),
    ):
        pass


def test_the_default_folder_belongs_to_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_folder() == tmp_path / "kernevo"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_folder().name == f"kernevo-{os.getuid()}"
