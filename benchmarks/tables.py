"""Writes the tables of README, docs/proof.md and docs/ablation.md, and their curves, from benchmarks/results/*.json:
`python -m benchmarks.tables`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import ablation_shown
from benchmarks.learning import shown

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
FIGURES = "figures"
"""Folder of docs/ for curves."""
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"


def _throughput(result: Mapping[str, Any]) -> str:
    return (
        f"**CPU evaluator**: {result['candidates_per_minute']} softmax candidates a minute through the whole cascade "
        f"on {result['workers']} workers, {result['hardware']['cores']} cores (limit {result['limit_per_minute']:g}); "
        f"load average before it {result['load_average_before']}. {_source(result)}"
    )


def _campaigns(result: Mapping[str, Any]) -> str:
    rows = [
        f"| {row['task']} | {row['best_speedup_modelled']:.2f}x | {row['correct']} of {row['evaluations']} "
        f"| {row['cells']} | {', '.join(row['rewrites']) or 'none'} |"
        for row in result["tasks"]
    ]
    head = (
        f"**Campaigns on the CPU**: best *modelled* ({result['target']}) speedup over the shipped seed, rule policy "
        f"and Optuna, seed {result['seed']}, in the {'' if result.get('calibrated') else 'un'}calibrated model: how "
        f"far the search climbs in it. "
        f"{_source(result)}"
    )
    table = "| task | speedup, modelled | correct | archive cells | rewrites of the best |\n|---|---|---|---|---|\n"
    return f"{head}\n\n{table}" + "\n".join(rows)


def _measured(result: Mapping[str, Any]) -> str:
    rows = [
        f"| {row['task']} | {row['workload']} | {row['modelled_speedup']:.2f}x | {row['measured_speedup']:.2f}x | "
        f"{row['seed_ms_modelled']:.4f} | {row['seed_ms_measured']:.4f} |"
        for row in result["rows"]
    ]
    head = (
        f"**Modelled against measured** ({result['gpu']}): elites of CPU campaigns and their seeds, timed with CUDA "
        f"events, cold L2, median of {result['samples']}. {_source(result)}"
    )
    table = (
        "| task | workload | speedup, modelled | speedup, measured | seed ms, modelled | seed ms, measured |\n"
        "|---|---|---|---|---|---|\n"
    )
    return f"{head}\n\n{table}" + "\n".join(rows)


def _source(result: Mapping[str, Any]) -> str:
    return f"Commit {result['commit'][:10]}, `{result['command'].strip()}`."


def _calibration(result: Mapping[str, Any]) -> str:
    def row(name: str, scores: Mapping[str, Mapping[str, float]]) -> str:
        before, after = scores["before"], scores["after"]
        values = [f"{before[key]:.2f} → {after[key]:.2f}" for key in ("config_tau", "structural_tau")]
        values += [f"{before[key]:.0%} → {after[key]:.0%}" for key in ("regret_top10", "median_abs_log_error")]
        return f"| {name} | {after['points']} | {' | '.join(values)} |"

    head = (
        f"**Cost model against an H200**: {result['after']['points']} measured points, each scored by a model fitted "
        f"without its task (before → after the fit). {_source(result)}"
    )
    table = (
        "| task left out | points | τ of configs | τ of structures | regret of the best tenth | median error |\n"
        "|---|---|---|---|---|---|\n"
    )
    rows = [row("all", result), *(row(task, scores) for task, scores in result["tasks"].items())]
    return f"{head}\n\n{table}" + "\n".join(rows)


def _gpu(result: Mapping[str, Any]) -> str:
    lines = []
    if "throughput" in result:
        part = result["throughput"]
        judged = sum(row["candidates"] for row in part["tasks"].values())
        passed = sum(row["passed"] for row in part["tasks"].values())
        lines.append(
            f"- {part['candidates_per_minute']:g} softmax and layer_norm candidates a minute through the whole cascade "
            f"({passed} of {judged} correct kernels passed{', the others were false alarms' * (passed < judged)}); "
            f"{part['screens_per_minute']:g} screens of three workloads a minute. {_source(part)}"
        )
    if "repeat" in result:
        part = result["repeat"]
        lines.append(
            f"- confirm tier {part['repeats']} times over: relative standard deviation {part['median_rel_std']:.2%} of "
            f"the median, {part['ratio_rel_std']:.2%} of the ratio to the baseline. {_source(part)}"
        )
    if "kernelbench" in result:
        part = result["kernelbench"]
        lines.append(
            f"- a 6 GB softmax kernel judged with five seeds and {max(part['ours_samples'].values())} timed calls: "
            f"{part['ours_seconds']:g} s, {part['times_faster']:g} times faster than KernelBench's own judge "
            f"({part['theirs_seconds']:g} s) on the same GPU. {_source(part)}"
        )
    gpu = next(iter(result.values()))["gpu"]
    return f"**GPU evaluator** ({gpu}):\n\n" + "\n".join(lines)


def _exploits(result: Mapping[str, Any]) -> str:
    counts = result["outcomes"]
    rows = [
        f"| Kernevo's {result['evaluator']} evaluator | {counts.get('caught', 0)} | {counts.get('beyond', 0)} "
        f"| {counts.get('missed', 0)} | {counts.get('misnamed', 0)} | {counts.get('rejected', 0)} "
        f"of {result['controls'] - counts.get('skipped', 0)} |"
    ]
    rows += [
        f"| {name} | {peer['caught']} | - | {peer['missed']} | - | {peer['controls_rejected']} "
        f"of {peer['controls_passed'] + peer['controls_rejected']} |"
        for name, peer in result["peers"].items()
    ]
    held_to = (
        "The cpu evaluator is held to what reading and running at small shapes can show; the rest is beyond it. "
        if result["evaluator"] == "cpu"
        else ""
    )
    head = (
        f"**Exploits**, {result['evaluator']} evaluator: {result['exploits']} cheating kernels and "
        f"{result['controls']} honest ones. {held_to}The peers read sources only. {_source(result)}"
    )
    table = (
        "| judge | caught | beyond it | missed | refused by another name | honest kernels rejected |\n"
        "|---|---|---|---|---|---|\n"
    )
    return f"{head}\n\n{table}" + "\n".join(rows)


def _campaign(result: Mapping[str, Any]) -> str:
    """A campaign with measured fitness."""
    first, again, moved = result["recorded"], result["measured_again"], result["moved"]
    baselines = ", ".join(sorted({row["baseline"] for row in first["workloads"].values()}))
    return (
        f"**Campaign on the GPU** ({result['target']}): {result['task']}, {result['evaluations']} evaluations in "
        f"{result['seconds']:.0f} s; the best kernel takes {first['latency_ms']:.4g} ms, {first['speedup']:.3f}x over "
        f"{baselines}, *measured*. Measured again in a new process: {again['latency_ms']:.4g} ms, "
        f"{again['speedup']:.3f}x (latency {moved['latency']:+.1%}, ratio {moved['ratio']:+.1%}). {_source(result)}"
    )


def _one_gpu(result: Mapping[str, Any]) -> str:
    """A language model and the evaluator on one GPU."""
    rate = result["completion_tokens"] / result["writing_s"]
    return (
        f"**Language model beside the evaluator** ({result['gpu']}): {result['policy']} with {result['model']} on the "
        f"GPU that times, {result['generations']} generations of {result['task']}, {result['candidates']} candidates "
        f"in {result['seconds']:.0f} s. {result['valid_share']:.1%} of {result['answered']} structured answers valid, "
        f"{result['turns_with_logprobs']} of {result['turns']} judged ones with log-probabilities, {rate:.0f} "
        f"tokens/s. Best kernel {result['best_speedup']:.3f}x over the baseline, *measured*. The model used the GPU "
        f"for {result['policy_s']:.1f} s in {len(result['policy_intervals'])} intervals, the evaluator alone "
        f"for {result['alone_s']:.1f} s in {len(result['alone_intervals'])}: {result['overlaps']} overlap. "
        f"{_source(result)}"
    )


def _abuse(result: Mapping[str, Any]) -> str:
    good, bad = result["good"].values(), result["bad"].values()
    kept = sum(count for row in good for verdict, count in row["mixed"].items() if verdict in row["alone"])
    named = sum(count for row in bad for verdict, count in row["verdicts"].items() if verdict in row["allowed"])
    shift, memory = result["latency_shift"], result["gpu_memory_bytes"]
    harmful = result["candidates"] - result["good_candidates"]
    rows = [
        f"| good kernels with the verdict they get alone | {kept} of {result['good_candidates']} |",
        f"| bad kernels with a verdict that names their harm | {named} of {harmful} |",
        f"| processes, folders left after closing | {len(result['processes_left'])}, {len(result['folders_left'])} |",
    ]
    if shift is not None and result["platform"] == "cuda":
        rows.append(
            f"| good kernels' latency against alone: median, worst | {shift['median']:.1%}, {shift['worst']:.1%} |"
        )
    if memory["before"] is not None:
        rows.append(f"| GPU memory after, against before | {(memory['after'] - memory['before']) / 2**20:+.0f} MiB |")
    head = (
        f"**Abuse** ({result.get('gpu', 'no GPU: ' + result['platform'])}): {result['candidates']} candidates, "
        f"{harmful} of which harm their worker in {len(bad)} ways, "
        f"{result['candidates_per_minute']:g} a minute. {_source(result)}"
    )
    return f"{head}\n\n| | |\n|---|---|\n" + "\n".join(rows)


def _policy(result: Mapping[str, Any]) -> str:
    lines = []
    if (part := result.get("overlap")) is not None:
        lines.append(
            f"- {part['most_in_flight']} questions at once, a median of {part['median_latency_s']:g} s each, while "
            f"{part['candidates']} candidates of {part['generations']} generations were judged: "
            f"{part['overlapped_share']:.2%} of asking overlaps with judging, and the evaluator waited "
            f"{part['idle_seconds']:.1f} s of {part['judging_seconds']:.0f} s for answers. {_source(part)}"
        )
    if (part := result.get("answers")) is not None:
        lines.append(
            f"- {part['answered']} structured answers of {part['model']} served by vLLM on the CPU: "
            f"{part['valid_share']:.1%} can be used as they are, {part['with_logprobs']} came with the "
            f"log-probability of every token. {_source(part)}"
        )
    return "**Language models as the policy**:\n\n" + "\n".join(lines)


def _controller(result: Mapping[str, Any]) -> str:
    """What the search costs beside judging and proposing."""
    return (
        f"**Controller**: {result['controller_ms']:.1f} ms a candidate over {result['candidates']} candidates "
        f"({result['processor_ms']:.1f} ms of the processor; limit {result['limit_ms']:g} ms), "
        f"{result['memory_mb_per_1000']:.1f} MB for each 1000; a journal of {result['journal_lines']} lines is "
        f"replayed in {result['resume_seconds']:.1f} s (limit {result['resume_limit_s']:g} s) with "
        f"{max(0.0, result['resume_memory_mb']):.0f} MB more. Load average before it {result['load_average_before']}. "
        f"{_source(result)}"
    )


def _packing(result: Mapping[str, Any]) -> str:
    def needed(row: Mapping[str, Any]) -> str:
        return ", ".join("not reached" if one is None else str(one) for one in row["evaluations_to_target"])

    rows = [f"| {name} | {needed(row)} | {max(row['best']):.5f} |" for name, row in result["arms"].items()]
    seeds = len(result["seeds"])
    return (
        f"**The search on a problem without kernels**: {result['circles']} circles in the unit square, sum of radii at "
        f"least {result['target']}, {seeds} seeds, {result['limit']} evaluations at most; no kernel and no time is "
        f"involved. {_source(result)}\n\n"
        "| | evaluations to the target, by seed | largest sum |\n|---|---|---|\n" + "\n".join(rows)
    )


def _closed_loop(result: Mapping[str, Any]) -> str:
    def row(seed: int, arms: Mapping[str, Mapping[str, Any]], ratio: float) -> str:
        learning, frozen = arms["learning"], arms["frozen"]
        kept = sum(one["kept"] for one in learning["trainings"])
        return f"| {seed} | {learning['best']:.3f}x | {frozen['best']:.3f}x | {ratio:.3f} | {kept} |"

    settings = result["learning"]
    head = (
        f"**Learning in the campaign**: {result['task']}, {result['evaluations']} evaluations in each campaign, "
        f"*{result['timing_kind']}*; {result['model']} is trained on its own steps (`{settings['method']}`) between "
        f"generations, or stays as it was. Over the whole curve of best against evaluations learning earns "
        f"{result['median_curve_ratio']:.3f} times the frozen policy's speedup (median of "
        f"{len(result['seeds'])} seeds). {_source(result)}"
    )
    rows = [row(*one) for one in zip(result["seeds"], result["campaigns"], result["best_ratio"], strict=True)]
    table = "| seed | best, learning | best, frozen | ratio | adapters used |\n|---|---|---|---|---|\n"
    return f"{head}\n\n{table}" + "\n".join(rows)


SECTIONS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "evaluator_throughput": _throughput,
    "controller": _controller,
    "exploits_cpu": _exploits,
    "exploits_gpu": _exploits,
    "gpu_evaluator": _gpu,
    "gpu_campaign": _campaign,
    "gpu_policy": _one_gpu,
    "abuse": _abuse,
    "policy": _policy,
    "closed_loop": _closed_loop,
    "cpu_campaigns": _campaigns,
    "circle_packing": _packing,
    "calibration": _calibration,
    "modelled_vs_measured": _measured,
}


def render() -> str:
    """The generated part of README."""
    parts = [
        section(json.loads((RESULTS / f"{name}.json").read_text()))
        for name, section in SECTIONS.items()
        if (RESULTS / f"{name}.json").is_file()
    ]
    return "\n\n".join([*parts, shown.sections(RESULTS, f"docs/{FIGURES}")])


def written(page: str, generated: str) -> str:
    """A page with its generated part brought up to date."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{generated}\n{END}{after}"


def pages() -> dict[Path, str]:
    """Every page with a generated part, as it should be."""
    proof = shown.sections(RESULTS, FIGURES).replace(" ([docs/proof.md](docs/proof.md))", "")
    ablation = ablation_shown.sections(RESULTS, FIGURES)
    docs = ROOT / "docs"
    generated = {ROOT / "README.md": render(), docs / "proof.md": proof, docs / "ablation.md": ablation}
    return {path: written(path.read_text(encoding="utf-8"), part) for path, part in generated.items()}


if __name__ == "__main__":
    shown.write_curves(RESULTS, ROOT / "docs" / FIGURES)
    ablation_shown.write_figures(RESULTS, ROOT / "docs" / FIGURES)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
