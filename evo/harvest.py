"""Harvest: a run's best kernels as plain files that carry their own provenance.

Each file is the judged source, byte for byte, under a header of comments, so that the judge gives it the verdict the
source got. `harvest.json` beside the files holds the same facts for programs. `evo.harvest_package` says what else
lies in a folder that is meant for others.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.errors import EnvironmentUnusableError, HarnessError, KernevoError, UsageError
from evaluator.source_hash import ast_hash
from evaluator.types import Evaluation, TimingKind
from evo import harvest_package
from evo.candidate import Record
from evo.config import GpuEvaluatorConfig
from evo.interval import speedup_interval
from evo.run import Run

FACTS = "harvest.json"
SCHEMA_VERSION = 1
WIDTH = 110


class NothingCorrectError(KernevoError):
    """The run holds no correct kernel (exit 3)."""

    exit_code = 3


@dataclass(frozen=True)
class _File:
    """One file to write."""

    path: Path
    text: str

    @property
    def data(self) -> bytes:
        return self.text.encode("utf-8", "surrogatepass")


def harvest(run: Run, top: int, out: Path, force: bool = False, *, package: bool = False) -> list[Path]:
    """Write the best kernel of each of the `top` best structures to `out`; returns their paths, best first.

    A `package` also gets what is in `evo.harvest_package`. With `force`, files of an earlier harvest into the same
    folder are replaced, those that are no longer elites removed; files that changed since are kept. Raises
    NothingCorrectError, UsageError for files that would be overwritten, EnvironmentUnusableError when `out` cannot be
    written, and TaskError for a package whose task is gone.
    """
    elites = run.elites(top)
    if not elites:
        raise NothingCorrectError(
            f"{run.path}: no correct kernel to harvest",
            f"kernevo status {shlex.quote(str(run.path))} shows the verdicts",
        )
    kernels, facts = _kernels(run, elites, out, first=1)
    summary = {"schema_version": SCHEMA_VERSION, "run": run.name, "task": run.started.task, "elites": facts}
    others = _packaged(run, elites[0], out, summary) if package else []
    files = [*kernels, *others, _File(out / FACTS, json.dumps(summary, indent=2) + "\n")]
    if not force:
        _refuse_overwriting(files)
    try:
        out.mkdir(parents=True, exist_ok=True)
        _remove_stale(out, {file.path.name for file in files})
        for file in files:
            file.path.parent.mkdir(exist_ok=True)
            _write(file)
    except OSError as error:
        raise EnvironmentUnusableError(
            f"{out}: cannot be written: {error.strerror or error}", "give another folder with --out"
        ) from error
    return [kernel.path for kernel in kernels]


def _kernels(run: Run, records: Sequence[Record], out: Path, first: int) -> tuple[list[_File], list[dict[str, Any]]]:
    """The kernels' files and facts, ranked from `first` on."""
    facts = [_facts(run, record, rank, out) for rank, record in enumerate(records, start=first)]
    kernels = [_kernel(run, record, fact, out) for record, fact in zip(records, facts, strict=True)]
    for kernel, fact in zip(kernels, facts, strict=True):
        fact["file_sha"] = hashlib.sha256(kernel.data).hexdigest()
    return kernels, facts


def _packaged(run: Run, best: Record, out: Path, summary: dict[str, Any]) -> list[_File]:
    """What a package holds beside its elites; `summary` gets the facts that its files read."""
    task, elites = run.task, summary["elites"]
    special = harvest_package.specialists(run.records(), best)
    taken = {fact["candidate"] for fact in elites}
    more = list({record.id: record for record in special.values() if record.id not in taken}.values())
    kernels, facts = _kernels(run, more, out, first=len(elites) + 1)
    files = {fact["candidate"]: str(fact["file"]) for fact in (*elites, *facts)}
    stem = _file_stem(summary["task"])
    source = run.source(best.candidate.source_sha).text
    summary["specialists"] = facts
    summary["dispatch"] = harvest_package.table(task, best, special, files)
    summary["operator"] = harvest_package.operator_of(task, source, f"{stem}_{best.candidate.source_sha[:8]}")
    summary |= harvest_package.task_facts(task)
    package = re.sub(r"\W", "_", stem, flags=re.ASCII).lower() + "_kernels"
    texts = harvest_package.text_files(task, summary, package, list(files.values()))
    return [*kernels, *(_File(out / name, text) for name, text in texts.items())]


def _facts(run: Run, record: Record, rank: int, out: Path) -> dict[str, Any]:
    """Everything worth knowing about one elite, as JSON-able data."""
    candidate, evaluation = record.candidate, record.evaluation
    line = run.lineage(record.id)
    name = f"{_file_stem(run.started.task)}_{rank}_{candidate.source_sha[:8]}.py"
    return {
        "file": name,
        "rank": rank,
        "task": run.started.task,
        "run": run.name,
        "candidate": candidate.id,
        "seed": run.started.seed,
        "source_sha": candidate.source_sha,
        "verdict": str(evaluation.status),
        "checks_passed": evaluation.checks_passed,
        "checks_total": evaluation.checks_total,
        "max_error": evaluation.max_error,
        "timing_kind": evaluation.kind,
        "target": evaluation.target,
        "speedup": record.speedup,
        "interval": speedup_interval(evaluation),
        "hardware": _hardware(run, evaluation),
        "licence": harvest_package.licence_of(run, run.source(line[0].candidate.source_sha).text),
        "baseline": baseline_of(evaluation.kind),
        "latency_ms": evaluation.latency_ms,
        "workloads": {
            workload: timing.model_dump(include=_TIMING_FIELDS) | {"speedup": timing.speedup}
            for workload, timing in evaluation.timings.items()
        },
        "config": dict(candidate.config),
        "rewrites": [step.model_dump(mode="json") for step in candidate.rewrites],
        "lineage": [ancestor.id for ancestor in line],
        "policies": list(dict.fromkeys(_policy(ancestor) for ancestor in line if ancestor.candidate.answer)),
        "versions": versions_of(run),
        "reproduce": reproduce_command(run, out / name, evaluation.target),
    }


def _hardware(run: Run, evaluation: Evaluation) -> str:
    """What the numbers are of: the GPU that took them, or the machine that modelled them."""
    machine = f"{run.environment.get('processor', 'unknown processor')}, {run.environment.get('cores', '?')} cores"
    return f"{evaluation.target}; {machine}" if evaluation.kind == "measured" else f"{machine}; no GPU"


def _policy(record: Record) -> str:
    return f"{record.candidate.policy} {record.candidate.policy_version}"


_TIMING_FIELDS = {"median_ms", "baseline_ms", "ratio_low", "ratio_high"}


def baseline_of(kind: TimingKind | None) -> str:
    """What a speedup is over. A cost model cannot judge PyTorch, so modelled baselines are the task's seed kernel."""
    return "the task's seed kernel" if kind == "modelled" else "the baseline"


def versions_of(run: Run) -> dict[str, str]:
    """Library versions of the run's first session; only what environment.json still knows."""
    environment = run.environment
    found = {name: environment.get(name) for name in ("kernevo", "python")}
    packages = environment.get("packages")
    if isinstance(packages, Mapping):
        found.update({name: packages.get(name) for name in ("torch", "triton")})
    return {name: str(value) for name, value in found.items() if value}


def reproduce_command(run: Run, kernel: Path, target: str) -> str:
    """What to type to have a kernel judged again; `target` is the GPU of the kernel's evaluation."""
    config = run.config.evaluator
    words = ["kernevo", "evaluate", str(kernel), "--task", run.config.task]
    if not isinstance(config, GpuEvaluatorConfig):
        return shlex.join([*words, "--target", target] if target else words)
    # `target` is the product that measured it; `--target` is what it is compiled for before.
    given = config.model_dump(include={"target", "baseline"}, exclude_defaults=True)
    options = [word for name, value in sorted(given.items()) for word in (f"--{name}", value)]
    return shlex.join([*words, "--evaluator", "gpu", *options])


def _kernel(run: Run, record: Record, facts: Mapping[str, Any], out: Path) -> _File:
    source = run.source(record.candidate.source_sha).text
    text = header(facts) + source
    if ast_hash(text) != record.candidate.ast_hash:
        raise HarnessError(f"{record.id}: the header changed the program", "please report this with the kernel's file")
    return _File(out / str(facts["file"]), text)


def header(facts: Mapping[str, Any]) -> str:
    """The comment block above a harvested source; every line starts with `#` whatever the facts hold."""
    lines = [f"{facts['task']}: {_speed(facts)}", "", *_latencies(facts), ""]
    lines += [
        f"verdict    {facts['verdict']}, {facts['checks_passed']} of {facts['checks_total']} checks passed",
        f"run        {facts['run']}, candidate {facts['candidate']}, seed {facts['seed']}",
        f"config     {_pairs(facts['config']) or 'nothing tunable'}",
        f"hardware   {facts['hardware']}",
        f"versions   {_pairs(facts['versions'], ' ') or 'unknown'}",
        f"licence    {facts['licence']}",
        f"policies   {', '.join(facts['policies']) or 'none'}",
        "rewrites   " + ("none" if not facts["rewrites"] else ""),
        *(f"  {number}. {_step(step)}" for number, step in enumerate(facts["rewrites"], start=1)),
        "",
        f"reproduce: {facts['reproduce']}",
    ]
    return "".join(f"{line}\n" for text in lines for line in _comment(text)) + "\n"


def _speed(facts: Mapping[str, Any]) -> str:
    kind = f"{facts['timing_kind']} ({facts['target'] or 'unknown target'})"
    if facts["speedup"] is None:
        return f"latency {facts['latency_ms']:.4g} ms {kind}"
    interval = facts["interval"]
    sure = f", 95 % interval [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
    return f"{facts['speedup']:.3f}x {kind} over {facts['baseline']}{sure}"


def _latencies(facts: Mapping[str, Any]) -> list[str]:
    kind = facts["timing_kind"]
    lines = [f"latency per workload, {kind}:"]
    for workload, timing in facts["workloads"].items():
        line = f"  {workload}  {timing['median_ms']:.4g} ms"
        if timing["baseline_ms"] is not None:
            line += f"  (baseline {timing['baseline_ms']:.4g} ms, {timing['speedup']:.3f}x)"
        lines.append(line)
    return lines


def _step(step: Mapping[str, Any]) -> str:
    return f"{step['name']}({_pairs(step['args'])})"


def _pairs(values: Mapping[str, Any], sign: str = "=") -> str:
    return ", ".join(f"{name}{sign}{value}" for name, value in values.items())


def _comment(text: str) -> list[str]:
    # Names and arguments may come from a model: a line break in one must not end the comment.
    plain = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    indent = " " * (len(plain) - len(plain.lstrip()))
    if plain.startswith("reproduce:"):
        return [f"# {plain}"]  # a command is copied as a whole
    wrapped = textwrap.wrap(plain, WIDTH, subsequent_indent=indent + "    ", drop_whitespace=True) or [""]
    return [f"# {line}".rstrip() for line in wrapped]


def _file_stem(task: str) -> str:
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in task) or "kernel"


def _refuse_overwriting(files: Sequence[_File]) -> None:
    for file in files:
        if file.path.exists() and (not file.path.is_file() or file.path.read_bytes() != file.data):
            raise UsageError(
                f"{file.path}: already there and different; nothing was overwritten", "give another --out, or --force"
            )


def _remove_stale(out: Path, kept: set[str]) -> None:
    """Remove files that an earlier harvest wrote here, is not about to write again, and nobody has changed since."""
    try:
        earlier = json.loads((out / FACTS).read_text(encoding="utf-8"))
        kernels = [*earlier["elites"], *earlier.get("specialists", ())]
        written = {str(kernel["file"]): str(kernel["file_sha"]) for kernel in kernels}
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name, sha in written.items():
        path = out / name
        if name in kept or path.parent != out or not path.is_file():
            continue
        if hashlib.sha256(path.read_bytes()).hexdigest() == sha:
            path.unlink()


def _write(file: _File) -> None:
    temporary = file.path.with_name(f".{file.path.name}.tmp")
    try:
        temporary.write_bytes(file.data)
        temporary.replace(file.path)
    finally:
        temporary.unlink(missing_ok=True)
