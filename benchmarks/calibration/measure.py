"""Times the calibration's points on a GPU: correct against the reference, cold L2, medians of device time.

    python -m benchmarks.calibration.measure POINTS --out FOLDER/calibration.jsonl --budget-s 300

POINTS is the folder of points_TASK.jsonl.gz. Sources are first compiled by many processes at once, then timed one after
the other in a child process, which is started again should a kernel break it. Each sample: overwrite twice the L2,
hold the stream until the host has queued the call, event, call, event; so times are the device's alone, launches'
gaps included. Lines are written as they come; what the budget leaves unmeasured is left out, and `--done FILE` skips
what an earlier run has. Beside --out, machine.json describes the machine and what launching and copying cost on it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

from benchmarks.calibration.on_gpu import Unit, compile_point, time_units
from benchmarks.calibration.records import Measured, Point, read, read_points
from evaluator.task import load_task

COMPILE_SHARE = 0.4
"""Of the budget, at most, for compiling."""
CHUNK = 12
"""Points of one task timed in a row, on the same inputs."""
START = "spawn"
"""How child processes begin: without this process's threads and libraries."""
HANG_S = 60.0
MAX_BREAKS = 40
POOLS = 4


def ordered(points: Iterable[Point]) -> list[Point]:
    """The points so that any beginning of the list covers all tasks: chunks of each task in turn."""
    by_task: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        by_task[point.task].append(point)
    rounds = max((len(held) for held in by_task.values()), default=0)
    starts = range(0, rounds, CHUNK)
    return [point for start in starts for held in by_task.values() for point in held[start : start + CHUNK]]


def units(points: Iterable[Point], done: set[tuple[str, str]]) -> list[Unit]:
    """What is to be timed, chunk by chunk, each chunk workload by workload."""
    chunks: dict[tuple[str, int], list[Point]] = defaultdict(list)
    seen: dict[str, int] = defaultdict(int)
    for point in points:
        chunks[point.task, seen[point.task] // CHUNK].append(point)
        seen[point.task] += 1
    return [
        Unit(point.id, task, workload.name, point.source)
        for (task, _), held in chunks.items()
        for workload in load_task(task).workloads
        for point in held
        if (point.id, workload.name) not in done
    ]


def compile_all(points: list[Point], processes: int, deadline: float) -> dict[str, dict[str, list[Any]] | str]:
    """By id: resources of every launch by workload, or the compiler's words. Missing: not done by `deadline`."""
    found: dict[str, dict[str, list[Any]] | str] = {}
    todo = {point.id: point for point in points}
    for _ in range(POOLS):
        if not todo or time.monotonic() > deadline:
            break
        pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context(START))
        futures = {pool.submit(compile_point, point.task, point.source): point.id for point in todo.values()}
        broken = _collect(futures, found, deadline)
        pool.shutdown(wait=False, cancel_futures=True)
        _kill_children()
        left = [point for key, point in todo.items() if key not in found]
        if not broken:
            break
        # Whoever broke the pool was in it: these wait until all others are done.
        suspects = processes + 1
        todo = {point.id: point for point in [*left[suspects:], *left[:suspects]]}
    return found


def _collect(futures: dict[Future[Any], str], found: dict[str, dict[str, list[Any]] | str], deadline: float) -> bool:
    """Take results until all are there, the deadline has passed or the pool broke (True)."""
    pending = set(futures)
    while pending and (left := deadline - time.monotonic()) > 0:
        finished, pending = wait(pending, timeout=left, return_when=FIRST_COMPLETED)
        for future in finished:
            try:
                found[futures[future]] = future.result()
            except BrokenProcessPool:
                return True
            except Exception as error:
                found[futures[future]] = f"{type(error).__name__}: {error}"[:300]
    return False


def _kill_children() -> None:
    for child in multiprocessing.active_children():
        child.kill()
        child.join()


def time_all(todo: list[Unit], deadline: float, keep: Callable[[Measured], None]) -> None:
    """Time units in a child; a unit that breaks the child is kept as an error and a new child goes on behind it."""
    breaks = 0
    while todo and time.monotonic() < deadline and breaks <= MAX_BREAKS:
        receiving, sending = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context(START).Process(target=time_units, args=(todo, deadline, sending))
        child.start()
        sending.close()
        done, reason = _received(receiving, keep)
        if reason and done < len(todo):
            breaks += 1
            keep(Measured(id=todo[done].id, workload=todo[done].workload, error=reason))
            done += 1
        todo = todo[done:] if reason else []
        child.kill()
        child.join()


def _received(receiving: Connection, keep: Callable[[Measured], None]) -> tuple[int, str]:
    """(units that came back, why the child broke or "" when it ended by itself)."""
    done = 0
    while True:
        try:
            if not receiving.poll(HANG_S):
                return done, f"still running after {HANG_S:.0f} s"
            message = receiving.recv()
        except (EOFError, OSError):
            return done, "the process died"
        if message is None:
            return done, ""
        if isinstance(message, str):  # the context is lost; the child can do nothing more
            return done, message
        keep(message)
        done += 1


def describe_machine(path: Path) -> None:
    """Run `machine` in a child; a failure there is told and costs only the description."""
    child = multiprocessing.get_context("spawn").Process(target=_machine, args=(str(path),))
    child.start()
    child.join(60)
    if child.is_alive() or child.exitcode:
        child.kill()
        print(f"the machine could not be described: exit code {child.exitcode}", file=sys.stderr, flush=True)


def _machine(path: str) -> None:
    from benchmarks.calibration.micro import machine

    machine(path)


def run(
    points: list[Point], done: set[tuple[str, str]], file: TextIO, budget_s: float, processes: int
) -> dict[str, int]:
    """Compile and time `points`, writing a line for each unit; counts of what happened."""
    started = time.monotonic()
    compiled = compile_all(points, processes, started + COMPILE_SHARE * budget_s)
    print(f"{len(compiled)} of {len(points)} sources compiled in {time.monotonic() - started:.0f} s", flush=True)
    counts = {"timed": 0, "failed": 0}

    def keep(row: Measured) -> None:
        resources = compiled.get(row.id)
        if isinstance(resources, Mapping):
            row = Measured.model_validate({**row.model_dump(), "resources": resources[row.workload]})
        counts["failed" if row.error else "timed"] += 1
        file.write(json.dumps(row.model_dump(mode="json")) + "\n")
        file.flush()
        if row.error:
            print(f"{row.id} {row.workload}: {row.error}", flush=True)

    for point in points:
        if isinstance(text := compiled.get(point.id), str):
            keep(Measured(id=point.id, workload="", error=f"does not compile: {text}"))
    ready = [point for point in points if isinstance(compiled.get(point.id), Mapping)]
    todo = units(ready, done)
    time_all(todo, started + budget_s, keep)
    return {**counts, "units": len(todo), "seconds": int(time.monotonic() - started)}


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget-s", type=float, default=300.0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--done", type=Path, nargs="*", default=[])
    parser.add_argument("--limit", type=int, help="only the first so many points")
    options = parser.parse_args()
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp(prefix="triton-cache-"))
    done = {(row.id, row.workload) for path in options.done for row in read(path, Measured)}
    points = ordered(point for point in read_points(options.points) if point.status.passed)[: options.limit]
    todo = {unit.id for unit in units(points, done)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    describe_machine(options.out.with_name("machine.json"))
    with options.out.open("a") as file:
        counts = run([p for p in points if p.id in todo], done, file, options.budget_s, options.processes)
    print(json.dumps(counts), flush=True)
    return 0 if counts["timed"] else 1


if __name__ == "__main__":
    sys.exit(main())
