"""`kernevo doctor`."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from evaluator.errors import KernevoError
from evo.cli import output
from evo.cli.apps import new_app
from evo.cli.check import Check
from evo.cli.doctor_gpu import gpu_checks
from evo.cli.doctor_policy import policy_checks
from evo.cli.runs import RUNS

app = new_app()

_PROBE_TASK = "softmax"


@app.command()
def doctor(
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="CONFIG", help="Check the model servers that a config names instead."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what this machine can and cannot do.

    Looks at versions, compiler, sandbox, folders and what can be measured on the GPUs, then judges a shipped kernel
    from end to end. With --policy CONFIG the servers of the config's policies are asked one small question each
    instead. Leaves with exit code 4 when no campaign can run here.
    """
    checks = _everything() if policy is None else policy_checks(policy)
    failed = [check for check in checks if check.state == "fail"]
    if as_json:
        output.print_json({"usable": not failed, "checks": [check._asdict() for check in checks]})
    else:
        output.print_table(("", "check", "finding"), [(c.state, c.name, _finding(c)) for c in checks])
    if failed:
        output.note(f"unusable: {failed[0].name}: {failed[0].detail}")
        raise typer.Exit(4)


def _everything() -> list[Check]:
    checks = [*machine_checks(), *_sandbox(), *gpu_checks(), _ray(), _targets()]
    if all(check.state != "fail" for check in checks):
        checks.append(_judging())
    return checks


def _finding(check: Check) -> str:
    return f"{check.detail}\nfix: {check.fix}" if check.fix and check.state in ("warn", "fail") else check.detail


def machine_checks() -> list[Check]:
    """Checks that import nothing heavy and judge nothing: what `run --dry-run` looks at too."""
    from evaluator.cache import default_folder

    packages = [_package(name, least) for name, least in (("torch", (2, 11)), ("triton", (3, 6)))]
    return [_python(), *packages, _ptxas(), _cores(), _folder(RUNS), _folder(default_folder())]


def _python() -> Check:
    system = platform.system()
    detail = f"Python {platform.python_version()} on {platform.platform()}"
    if system != "Linux":
        return Check("platform", "fail", detail, "use Linux: Triton and the sandbox need it")
    return Check("platform", "ok", detail)


def _package(name: str, least: tuple[int, int]) -> Check:
    wanted = ".".join(str(part) for part in least)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, "fail", "not installed", f"pip install '{name}>={wanted}'")
    found = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if found < least:
        return Check(name, "fail", f"{version} is older than {wanted}", f"pip install '{name}>={wanted}'")
    return Check(name, "ok", version)


def _ptxas() -> Check:
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return Check("ptxas", "fail", "comes with triton, which is not installed", "install triton")
    path = Path(found.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
    try:
        done = subprocess.run([str(path), "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check("ptxas", "fail", f"{path} does not run: {error}", "reinstall triton from its wheel")
    return Check("ptxas", "ok", done.stdout.strip().splitlines()[-1])


def _cores() -> Check:
    cores = len(os.sched_getaffinity(0))
    return Check("cores", "ok", f"{cores} usable; the CPU evaluator judges that many candidates at once")


def _folder(path: Path) -> Check:
    reason = unwritable(path)
    if reason is None:
        return Check(str(path), "ok", "writable")
    return Check(str(path), "fail", reason, "change its permissions, or set runs_dir and evaluator.cache_dir")


def unwritable(path: Path) -> str | None:
    """Why a file could not be made in `path` (or, while it does not exist, above it); None when it could."""
    nearest = path.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"{nearest} is not writable"
    return None


def _sandbox() -> list[Check]:
    from evaluator.sandbox import capabilities

    return [
        Check(f"sandbox: {wall}", "ok", "on")
        if state == "on"
        else Check(f"sandbox: {wall}", "warn", state, "candidates run with one wall less; use kernels you trust")
        for wall, state in capabilities().items()
    ]


def _targets() -> Check:
    from evaluator import hardware

    return Check("targets", "info", f"latencies can be modelled for: {', '.join(hardware.names())}")


def _ray() -> Check:
    try:
        return Check("ray", "ok", f"{metadata.version('ray')}; backend.type: ray can be used")
    except metadata.PackageNotFoundError:
        return Check("ray", "info", "not installed; backend.type: ray needs pip install 'kernevo[ray]'")


def _judging() -> Check:
    """Judge a shipped seed kernel from end to end: interpreter, compiler, sandbox and cost model at once."""
    from evo.cli.evaluate import judge

    try:
        evaluation = judge(_PROBE_TASK, None, target=None)
    except KernevoError as error:
        return Check("judging", "fail", error.message, error.hint)
    latency = f"{evaluation.latency_ms:.4g} ms {evaluation.kind} ({evaluation.target})"
    return Check("judging", "ok", f"the {_PROBE_TASK} seed passed in {evaluation.seconds:.1f} s, {latency}")
