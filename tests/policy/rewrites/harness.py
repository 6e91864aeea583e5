"""Holds rewrites to their promise: the rewritten source computes the same function as the original.

One interpreter process serves a whole test session, since importing torch takes seconds. A `setup` is a text
that defines `get_init_inputs()` and `get_inputs()`, as a task's reference does.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from policy.rewrites.base import Rewrite, RewriteArgs, RewriteContext


class KernelFailedError(AssertionError):
    """A source raised in the interpreter; the text is its traceback."""


class Interpreter:
    """A process with `TRITON_INTERPRET=1` that runs sources; results are cached by source and setup."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache: dict[str, list[np.ndarray]] = {}
        environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        self.log = (folder / "stderr.txt").open("w")
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("interpreter_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=environment,
        )

    def run(self, source: str, setup: str) -> list[np.ndarray]:
        """The outputs of `ModelNew(*init_inputs)(*inputs)`; raises KernelFailedError."""
        key = hashlib.sha256(f"{source}\0{setup}".encode()).hexdigest()
        if key not in self.cache:
            self.cache[key] = self._ask(key, source, setup)
        return self.cache[key]

    def _ask(self, key: str, source: str, setup: str) -> list[np.ndarray]:
        paths = {name: self.folder / f"{key}_{name}.py" for name in ("source", "setup")}
        paths["source"].write_text(source)
        paths["setup"].write_text(setup)
        result = self.folder / f"{key}.npz"
        request = {**{name: str(path) for name, path in paths.items()}, "result": str(result)}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise KernelFailedError(f"the interpreter process died:\n{self.log_text()}\n{source}")
        answer = json.loads(line)
        if answer["error"]:
            raise KernelFailedError(f"{answer['error']}\n--- source\n{source}\n--- setup\n{setup}")
        with np.load(result) as arrays:
            return [arrays[f"arr_{index}"] for index in range(answer["count"])]

    def log_text(self) -> str:
        return (self.folder / "stderr.txt").read_text()[-4000:]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.log.close()


def setup_of(*tensors: str, init: Sequence[object] = ()) -> str:
    """A setup whose inputs are the given torch expressions, e.g. `"torch.randn(3, 7)"`."""
    return (
        f"import torch\n\ndef get_init_inputs():\n    return {list(init)!r}\n\n"
        f"def get_inputs():\n    return [{', '.join(tensors)}]\n"
    )


def assert_well_formed(source: str) -> None:
    """The source is Python, still defines ModelNew, and still holds a kernel."""
    tree = ast.parse(source)
    assert any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body)
    assert ".jit" in source or "jit" in source


def assert_same_meaning(
    interpreter: Interpreter,
    original: str,
    rewritten: str,
    setups: Iterable[str],
    *,
    exact: bool,
    rtol: float = 2e-5,
    atol: float = 2e-6,
) -> None:
    """Both sources give equal outputs on every setup: bitwise when `exact`, else within the tolerance."""
    assert_well_formed(rewritten)
    for setup in setups:
        expected, actual = interpreter.run(original, setup), interpreter.run(rewritten, setup)
        assert len(expected) == len(actual)
        for want, got in zip(expected, actual, strict=True):
            assert want.shape == got.shape, (want.shape, got.shape, rewritten, setup)
            assert want.dtype == got.dtype
            if exact:
                same = np.array_equal(want, got, equal_nan=True)
            else:
                same = np.allclose(want, got, rtol=rtol, atol=atol, equal_nan=True)
            assert same, f"outputs differ\n--- rewritten\n{rewritten}\n--- setup\n{setup}\n{want}\n{got}"


def check_rewrite(
    interpreter: Interpreter,
    rewrite: Rewrite,
    source: str,
    setups: Sequence[str],
    context: RewriteContext | None = None,
    *,
    limit: int | None = None,
    rtol: float = 2e-5,
    atol: float = 2e-6,
) -> list[str]:
    """Applies every candidate (or an even spread of `limit`) and checks each; returns the new sources.

    Also checks what every rewrite promises: typed arguments that survive JSON, one line of explanation, a
    stable order of candidates, a source that differs.
    """
    context = context or RewriteContext()
    candidates = rewrite.candidates(source, context)
    assert candidates == rewrite.candidates(source, context)
    chosen: Sequence[RewriteArgs] = candidates
    if limit is not None and len(candidates) > limit:
        chosen = [candidates[round(i * (len(candidates) - 1) / max(limit - 1, 1))] for i in range(limit)]
    results = []
    for args in chosen:
        assert rewrite.parse_args(json.loads(args.model_dump_json())) == args
        line = rewrite.explain(args)
        assert line
        assert "\n" not in line
        rewritten = rewrite.apply(source, args, context)
        assert rewritten != source
        assert_same_meaning(interpreter, source, rewritten, setups, exact=rewrite.exact, rtol=rtol, atol=atol)
        results.append(rewritten)
    return results
