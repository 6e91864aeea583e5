"""Times every kernel of this folder beside the reference on a GPU: `python DIR/benchmark.py [--repeats MS]`."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
cases = importlib.import_module(f"{HERE.name}.cases")


def milliseconds(call: Any, repeats: int) -> float:
    """Median of repeated calls with a cold L2 cache."""
    from triton.testing import do_bench

    return float(do_bench(call, warmup=25, rep=repeats, return_mode="median"))


def main() -> int:
    """Print a table; 4 where there is no GPU to measure on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200, metavar="MS", help="milliseconds of calls for each number")
    repeats = parser.parse_args().repeats
    if not torch.cuda.is_available():
        print("error: no CUDA GPU here, so there is nothing to measure", file=sys.stderr)
        return 4
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'workload':24} {'kernel':44} {'ms':>10} {'against eager':>14}")
    for shape in cases.WORKLOADS:
        model, init, inputs = cases.case(shape["params"], "cuda")
        with torch.no_grad():
            eager = milliseconds(lambda: model(*inputs), repeats)  # noqa: B023
            print(f"{shape['name']:24} {'eager PyTorch':44} {eager:10.4f} {'1.000x':>14}")
            for file in cases.KERNELS:
                made = cases.build(file, model, init, "cuda")
                if problem := cases.difference(made(*inputs), model(*inputs)):
                    print(f"{shape['name']:24} {file:44} wrong: {problem}")
                    continue
                took = milliseconds(lambda: made(*inputs), repeats)  # noqa: B023
                print(f"{shape['name']:24} {file:44} {took:10.4f} {eager / took:13.3f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
