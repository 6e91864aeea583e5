"""Holds modelled speedups against a GPU: times seeds and elites of CPU campaigns with CUDA events.

On the machine of the campaigns:  python -m benchmarks.modelled_vs_measured collect RUN… --out FOLDER
On a machine with a GPU:          python -m benchmarks.modelled_vs_measured measure FOLDER --out RESULT.json

`collect` copies each run's seed and best kernel with their modelled latencies. `measure` checks both against the
reference on the GPU, then times them in turn with cold L2: 10 warm-up calls, then interleaved samples, medians. This is
not the gpu evaluator: inputs are not secret and clocks are not cross-checked; the kernels are our own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.common import provenance
from evaluator.task import load_task, reference_module_source

SAMPLES = 50
FLUSH_BYTES = 256 << 20


def collect(runs: list[str], out: Path) -> None:
    """Copy seed and elite of every run, with a manifest of what the model says of them."""
    from evo.run import Run

    out.mkdir(parents=True, exist_ok=True)
    manifest = []
    for folder in runs:
        run = Run.load(folder)
        seed, best = run.records()[0], run.elites(1)[0]
        task = run.started.task
        for label, record in (("seed", seed), ("elite", best)):
            (out / f"{task}_{label}.py").write_text(run.source(record.candidate.source_sha).text)
        manifest.append(
            {
                "task": task,
                "seed_ms": {name: timing.median_ms for name, timing in seed.evaluation.timings.items()},
                "elite_ms": {name: timing.median_ms for name, timing in best.evaluation.timings.items()},
                "rewrites": [step.name for step in best.candidate.rewrites],
            }
        )
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2))


def load(path: Path) -> ModuleType:
    """A kernel file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(folder: Path) -> list[dict[str, Any]]:
    """One row for each task and workload."""
    rows = []
    for entry in json.loads((folder / "manifest.json").read_text()):
        task = load_task(entry["task"])
        modules = {label: load(folder / f"{entry['task']}_{label}.py") for label in ("seed", "elite")}
        for workload in task.workloads:
            row = _row(task, workload, modules)
            seed_model, elite_model = entry["seed_ms"][workload.name], entry["elite_ms"][workload.name]
            rows.append(
                {
                    "task": entry["task"],
                    "workload": workload.name,
                    "modelled_speedup": seed_model / elite_model,
                    "seed_ms_modelled": seed_model,
                    "elite_ms_modelled": elite_model,
                    "rewrites": entry["rewrites"],
                    **row,
                }
            )
            print(rows[-1]["task"], workload.name, {k: v for k, v in rows[-1].items() if k != "rewrites"}, flush=True)
    return rows


def _row(task: Any, workload: Any, modules: dict[str, ModuleType]) -> dict[str, Any]:
    import torch

    names: dict[str, Any] = {}
    exec(compile(reference_module_source(task, workload), task.origin, "exec"), names)
    torch.manual_seed(0)
    with torch.device("cuda"):
        init = names["get_init_inputs"]()
        reference = names["Model"](*init)
        inputs = names["get_inputs"]()
        models = {label: module.ModelNew(*init) for label, module in modules.items()}
    with torch.no_grad():
        for model in models.values():
            model.load_state_dict(reference.state_dict(), strict=False)
        expected = reference(*inputs)
        errors = {
            label: float((model(*inputs).double() - expected.double()).abs().max()) for label, model in models.items()
        }
        bound = task.tolerance.atol + task.tolerance.rtol * float(expected.abs().max())
        medians = _interleaved({**models, "eager": reference}, inputs)
    return {
        "measured_speedup": medians["seed"] / medians["elite"],
        "seed_ms_measured": medians["seed"],
        "elite_ms_measured": medians["elite"],
        "eager_ms_measured": medians["eager"],
        "max_error": errors,
        "correct": all(error <= bound for error in errors.values()),
    }


def _interleaved(models: dict[str, Any], inputs: list[Any]) -> dict[str, float]:
    import torch

    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    samples: dict[str, list[float]] = {label: [] for label in models}
    for number in range(10 + SAMPLES):
        for label, model in models.items():
            flush.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            model(*inputs)
            end.record()
            end.synchronize()
            if number >= 10:
                samples[label].append(begin.elapsed_time(end))
    return {label: statistics.median(values) for label, values in samples.items()}


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["collect", "measure"])
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.mode == "collect":
        collect(options.paths, options.out)
        return 0
    import torch

    rows = measure(Path(options.paths[0]))
    result = {
        "kind": "measured beside modelled",
        "gpu": torch.cuda.get_device_name(),
        "samples": SAMPLES,
        "rows": rows,
        **provenance("benchmarks/modelled_vs_measured.py"),
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if all(row["correct"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
