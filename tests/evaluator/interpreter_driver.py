"""Runs interpret and trace cases in one process with TRITON_INTERPRET=1: JSON in, JSON out.

Tensors are written as torch expressions, since the interpreter's mode must be set before triton is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n"


def run_cases(cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The result of each case by name, all from one subprocess."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "TRITON_DEFAULT_FP_FUSION": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.evaluator.interpreter_driver"],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def _small(case: dict[str, Any]) -> dict[str, Any]:
    import torch

    from evaluator.interpret import run_small

    torch.manual_seed(0)
    scope: dict[str, Any] = {"torch": torch}
    inputs = [eval(text, scope) for text in case["inputs"]]
    found = run_small(case["source"], case.get("init", []), {}, inputs, poison=case.get("poison"))
    answer = {
        "kernels": list(found.kernels),
        "findings": [
            {**vars(finding), "program": list(finding.program), "text": str(finding)} for finding in found.out_of_bounds
        ],
        "outputs": [out.double().flatten().tolist() for out in found.outputs if isinstance(out, torch.Tensor)],
        "dtypes": [str(out.dtype) for out in found.outputs if isinstance(out, torch.Tensor)],
    }
    if "expected" in case:
        want = eval(case["expected"], {"torch": torch, "inputs": inputs})
        (got,) = found.outputs
        answer["equal"] = bool(torch.equal(got, want))
        answer["error"] = float((got.double() - want.double()).abs().max())
    return answer


def _trace(case: dict[str, Any]) -> list[dict[str, Any]]:
    import torch

    from evaluator import trace

    scope: dict[str, Any] = {"torch": torch}
    inputs = [eval(text, scope) for text in case["inputs"]]
    inputs = [value.to("meta") if torch.is_tensor(value) and value.is_floating_point() else value for value in inputs]
    saved = trace.MAX_ITERATIONS
    trace.MAX_ITERATIONS = case.get("max_iterations", saved)
    try:
        found = trace.trace_workload(
            case["source"], case.get("init", []), inputs, {}, max_programs=case.get("programs", 4)
        )
    finally:
        trace.MAX_ITERATIONS = saved
    return [launch.model_dump(mode="json") for launch in found]


def main() -> None:
    """Answer every case; what one raises is its answer."""
    answers: dict[str, Any] = {}
    for name, case in json.load(sys.stdin).items():
        try:
            answers[name] = {"small": _small, "trace": _trace}[case["kind"]](case)
        except Exception as error:
            root: BaseException = error
            while root.__cause__ is not None:
                root = root.__cause__
            lines = []
            trace = error.__traceback__
            while trace is not None:
                if trace.tb_frame.f_code.co_filename.endswith("candidate.py"):
                    lines.append(trace.tb_lineno)
                trace = trace.tb_next
            answers[name] = {"raised": type(root).__name__, "text": str(root), "lines": lines}
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
