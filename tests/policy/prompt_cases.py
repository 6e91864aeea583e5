"""Requests as a campaign in full swing makes them: a judged parent, attempts of every kind, other cells' elites."""

from __future__ import annotations

from evaluator.task import load_task
from evaluator.types import (
    EvalStatus,
    Evaluation,
    KernelResources,
    KernelSource,
    LaunchProfile,
    Profile,
    Timing,
)
from policy.rewrites import RewriteContext, apply_steps, catalogue
from policy.types import ParentView, ProposalRequest, RewriteStep

NOTES = ("Rows that fit into one block are read once.", "More than 128 registers halve the occupancy.")
STRATEGY = "Prefer fewer passes over memory\nto more parallelism."
ANALYSIS = "DRAM bounds it: each row is read three times.\n- whole_row: read once"


def passed(text, speedup, *, bottleneck="dram", kind="modelled"):
    profile = Profile(
        kind=kind,
        target="h200",
        bottleneck=bottleneck,
        coverage=0.875,
        resources=(
            KernelResources(
                name="the_kernel",
                num_warps=4,
                num_stages=3,
                registers=40,
                stack_bytes=0,
                spill_store_bytes=0,
                spill_load_bytes=16,
                shared_bytes=1024,
                ptx_sha="0",
            ),
        ),
        launches={
            "first": (
                LaunchProfile(
                    kernel="the_kernel",
                    grid=(8192, 1, 1),
                    occupancy=0.75,
                    waves=3.9,
                    latency_ms=0.2,
                    dram_bytes=1e6,
                    l2_bytes=1e6,
                    flops=1e6,
                    terms={"dram": 0.15, "issue": 0.04, "launch": 0.01, "l2": 0.0},
                    bound="dram",
                ),
            )
        },
    )
    timing = Timing(kind=kind, median_ms=0.5 / speedup, baseline_ms=0.5, baseline="seed", speed_of_light_ms=0.0625)
    return judged(text, EvalStatus.PASSED, timings={"first": timing}, profile=profile, explain="3 passes over x")


def judged(text, status, reason="", **fields):
    source = KernelSource(text=text)
    return Evaluation(
        source_sha=source.sha,
        task="t",
        evaluator="cpu",
        status=status,
        reason=reason,
        target="h200",
        **fields,
    )


def view(name, text, evaluation, steps=(), cell=None):
    return ParentView(
        candidate_id=name, source=KernelSource(text=text), evaluation=evaluation, rewrites=steps, cell=cell or {}
    )


def variant(text, number):
    """Another program of about the same length."""
    return text.replace("class ModelNew(", f"VARIANT = {number}\n\n\nclass ModelNew(")


def applicable(request):
    context = RewriteContext.of_task(request.task)
    text = request.parents[0].source.text
    found = {name: rewrite.candidates(text, context) for name, rewrite in catalogue().items()}
    return {name: settings for name, settings in found.items() if settings}


def rewritten(task):
    """A child of the task's seed and the steps that made it."""
    context = RewriteContext.of_task(task)
    for name, rewrite in catalogue().items():
        for args in rewrite.candidates(task.seed_source, context):
            step = RewriteStep(name=name, args=args.model_dump(mode="json"))
            return apply_steps(task.seed_source, [step], context), (step,)
    raise AssertionError(f"no rewrite applies to the seed of {task.name}")


def request(task_name="softmax", **changes):
    task = load_task(task_name)
    seed = task.seed_source
    child, steps = rewritten(task)
    parent = view(
        "c000001", child, passed(child, 1.25), steps, cell={"bottleneck": "dram", "programs": "1d", "passes": "multi"}
    )
    best, wrong, hack = (variant(child, number) for number in (1, 2, 3))
    made = ProposalRequest(
        request_id="g00003-001",
        task=task,
        parents=(parent,),
        operator="rewrite",
        seed=7,
        count=2,
        attempts=(
            view("c000002", best, passed(best, 1.5, bottleneck="latency"), steps),
            view(
                "c000003",
                wrong,
                judged(wrong, EvalStatus.WRONG_VALUE, "prime: 3 of 257 values differ", explain="at [0, 256]: 0.5 != 1"),
            ),
            view("c000004", hack, judged(hack, EvalStatus.REJECTED_STATIC, "line 9: torch.softmax computes")),
        ),
        inspirations=(
            view(
                "c000005",
                variant(seed, 4),
                passed(seed, 1.125, bottleneck="issue"),
                cell={"bottleneck": "issue", "programs": "persistent", "passes": "multi"},
            ),
        ),
    )
    return made.model_copy(update=changes)
