"""What an export refuses before it writes anything. Every refusal is one line with the way out."""

from __future__ import annotations

from pathlib import Path

from evaluator.errors import EnvironmentUnusableError, KernevoError, UsageError
from policy.exports.base import Format, Options
from policy.exports.tally import Tally


def check_allowed(found: Tally, *, allow_modelled: bool, allow_held_out: bool) -> None:
    """Refuse held-out tasks and modelled timings that nobody asked for."""
    if found.held_out and not allow_held_out:
        raise UsageError(
            f"held-out task {min(found.held_out)} is not for training",
            "leave its run out; --allow-held-out exports it for evaluation",
        )
    if found.modelled and not allow_modelled:
        raise UsageError(
            f"{found.modelled} of {found.turns} turns have modelled timings, which are no measured reward",
            "--allow-modelled exports them with timing_kind=modelled in every row; a run on a GPU measures",
        )


def check_fits(chosen: Format, found: Tally, options: Options) -> None:
    """Refuse turns that lack what the format is about."""
    if chosen.compares_rewards and len(found.reward_types) > 1:
        (one, run), (other, another) = list(found.reward_types.items())[:2]
        raise UsageError(
            f"{chosen.name}: runs {run} and {another} are rewarded differently ({one}, {other}), which do not compare",
            "export runs with one `reward` section",
        )
    if chosen.needs_logprobs:
        _check_logprobs(chosen, found)
    if chosen.needs_task and (missing := found.facts["runs"].keys() - options.tasks.keys()):
        raise KernevoError(f"{chosen.name}: the task of run {min(missing)} is not known", "give export() its task")
    if chosen.needs_parquet:
        _check_parquet(chosen)


def _check_logprobs(chosen: Format, found: Tally) -> None:
    for run, gaps in found.importance_gaps.items():
        if "" not in gaps:
            why = gaps.most_common(1)[0][0]
            raise UsageError(
                f"{chosen.name}: turns of run {run} have {why}: no importance correction can be made for them",
                "ask a vLLM server with policy.logprobs=true; trl-sft, trl-dpo and trl-kto need none",
            )


def _check_parquet(chosen: Format) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise EnvironmentUnusableError(
            f"{chosen.name}: its trainer reads Parquet, which needs the package pyarrow", "pip install 'kernevo[train]'"
        ) from None


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a folder that is in use."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: a file, not a folder", "give a folder with --out")
    if force or not folder.is_dir():
        return
    if any(folder.iterdir()):
        raise UsageError(f"{folder}: not empty; nothing was overwritten", "give another folder, or --force")
