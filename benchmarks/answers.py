"""Milliseconds to read one answer of a model, by form, and per megabyte of hostile text.

    python -m benchmarks.answers [--repeats 40]

Answers are of about 8 KB: the whole file of a program of that size, edits of it, and steps for a shipped seed with as
much prose around. Each time is the median over answers that all differ, as caches would hide the work otherwise.
Writes benchmarks/results/answers.json and exits 1 when a form takes longer than the limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common import provenance
from evaluator.task import load_task
from policy.edits import AnswerError, read_answer
from policy.rewrites import RewriteContext

LIMIT_MS = 5.0
"""Milliseconds for an answer of SIZE bytes."""
SIZE = 8 << 10
RESULT = Path(__file__).parent / "results" / "answers.json"
PROSE = "The kernel is bound by memory, so what counts is how often each row is read.\n"
HOSTILE = ("`", "```\n", "<think>", "<<<<<<< SEARCH\n", "@@\n-a\n+b\n", "[", '{"steps":[', '{"name":"x"}\n', " ")


def program(seed: str) -> str:
    """A program of nearly SIZE bytes: the seed with more kernels like its own."""
    kernel = seed[seed.index("@triton.jit") : seed.index("class ModelNew")]
    name = kernel.split("def ")[1].split("(")[0]
    parts, number = "", 0
    while len(seed) + len(parts) + len(kernel) < SIZE:
        parts += kernel.replace(name, f"{name}_{number}")
        number += 1
    return seed.replace("class ModelNew", f"{parts}class ModelNew")


def answers(parent: str) -> dict[str, Callable[[int], str]]:
    """Answer number n of each form."""

    def full(number: int) -> str:
        return f"```python\n{parent.replace('row_sum = 0.0', f'row_sum = 0.{number}')}```\n"

    def diff(number: int) -> str:
        launch = next(line for line in parent.split("\n") if "num_warps=4" in line)
        changed = launch.replace("num_warps=4", f"num_warps={number}")
        return padded(f"<<<<<<< SEARCH\n{launch}\n=======\n{changed}\n>>>>>>> REPLACE\n")

    def structured(number: int) -> str:
        step = {"name": "exp_to_exp2", "args": {"kernel": "softmax_kernel", "site": number % 2, "fold": False}}
        return padded(json.dumps({"steps": [step]}))

    return {"structured": structured, "diff": diff, "full": full}


def padded(code: str) -> str:
    """The answer with prose above, SIZE bytes in all."""
    return (PROSE * (SIZE // len(PROSE) + 1))[: SIZE - len(code) - 1] + "\n" + code


def milliseconds(answer: str, parent: str, context: RewriteContext) -> float:
    """Time to read one answer, usable or not."""
    started = time.perf_counter()
    with suppress(AnswerError):
        read_answer(answer, parent, context)
    return 1e3 * (time.perf_counter() - started)


def measure(repeats: int) -> dict[str, Any]:
    """The whole benchmark, without its provenance."""
    task = load_task("softmax")
    assert task.seed_source is not None
    context = RewriteContext.of_task(task)
    parent = program(task.seed_source)
    forms = {}
    for form, make in answers(parent).items():
        # Steps are applied to a seed: what a rewrite itself takes grows with the program, not with the answer.
        old = task.seed_source if form == "structured" else parent
        assert read_answer(make(1), old, context).form == form
        times = [milliseconds(make(1000 + number), old, context) for number in range(repeats)]
        forms[form] = {
            "bytes": len(make(1000)),
            "median_ms": round(statistics.median(times), 3),
            "worst_ms": round(max(times), 3),
        }
    hostile = {
        piece: {
            f"{megabytes:g} MB": round(
                milliseconds(piece * int(megabytes * (1 << 20) / len(piece)), parent, context), 1
            )
            for megabytes in (0.25, 0.5, 1.0)
        }
        for piece in HOSTILE
    }
    return {"forms": forms, "hostile_ms": hostile, "repeats": repeats, "limit_ms": LIMIT_MS}


def main() -> int:
    """Measure, print, write the result; 1 when the limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=40, help="answers of each form")
    options = parser.parse_args()
    known = provenance("-m benchmarks.answers")
    result = measure(options.repeats)
    RESULT.write_text(json.dumps({**result, **known}, indent=2) + "\n")
    table = Table("form", "bytes", "ms an answer", "worst", f"limit {LIMIT_MS:g} ms")
    slow = [form for form, row in result["forms"].items() if row["median_ms"] > LIMIT_MS]
    for form, row in result["forms"].items():
        verdict = "TOO SLOW" if form in slow else "ok"
        table.add_row(form, str(row["bytes"]), f"{row['median_ms']:.2f}", f"{row['worst_ms']:.2f}", verdict)
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    for piece, times in result["hostile_ms"].items():
        print(f"{piece!r} repeated: " + ", ".join(f"{ms:g} ms for {size}" for size, ms in times.items()))
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
