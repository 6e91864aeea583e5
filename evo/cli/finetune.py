"""`kernevo finetune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.cli import complete, output
from evo.cli.apps import new_app
from evo.cli.runs import find_run

if TYPE_CHECKING:
    from policy.training.manifest import Manifest

app = new_app()


@app.command()
def finetune(
    runs: complete.RunArguments,
    method: Annotated[str, typer.Option(help="sft, dpo, grpo or trloo.")],
    base: Annotated[str, typer.Option(help="Folder of the model: config.json, weights, tokenizer.")],
    out: Annotated[Path, typer.Option(help="Folder to write the adapter to.")],
    adapter: Annotated[str | None, typer.Option(help="Folder of an adapter to go on from.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training that was stopped.")] = False,
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 50,
    learning_rate: Annotated[float, typer.Option(help="Of the adapter's weights.")] = 1e-5,
    rank: Annotated[int, typer.Option(min=1, help="Rank of the LoRA matrices.")] = 16,
    group: Annotated[int, typer.Option(min=2, help="Answers to one prompt.")] = 8,
    prompts: Annotated[int, typer.Option(min=1, help="Prompts of one step.")] = 4,
    micro_batch: Annotated[int, typer.Option(min=1, help="Sequences at once; halved when memory runs out.")] = 8,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a sampled answer at most.")] = 256,
    context_tokens: Annotated[int, typer.Option(min=16, help="Tokens of prompt and answer at most.")] = 4096,
    temperature: Annotated[float, typer.Option(help="Of sampled answers.")] = 1.0,
    answers: Annotated[str, typer.Option(help="sampled (anew, judged) or recorded (the runs' own).")] = "sampled",
    gamma: Annotated[float, typer.Option(min=0, max=1, help="Discount of later turns' rewards (trloo).")] = 1.0,
    shuffled: Annotated[bool, typer.Option("--shuffled", help="Control: shuffle rewards within groups.")] = False,
    probe: Annotated[int, typer.Option(min=0, help="Prompts answered and judged before and after.")] = 0,
    min_gain: Annotated[float, typer.Option(min=0, help="SFT takes steps that gain at least this share.")] = 0.05,
    per_lineage: Annotated[int, typer.Option(min=1, help="SFT takes at most so many steps of one lineage.")] = 8,
    save_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 10,
    seed: Annotated[int, typer.Option(help="Of weights, order and sampling.")] = 0,
    allow_modelled: Annotated[bool, typer.Option("--allow-modelled", help="Train on modelled timings.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as one JSON document.")] = False,
) -> None:
    """Train a LoRA adapter on runs, for the model that proposes.

    The folder given with --out is the adapter: `kernevo run CONFIG --set policy.adapter=DIR` uses it.
    """
    given = {name: value for name, value in locals().items() if name not in ("runs", "out", "resume", "as_json")}
    from evo.training import settings_of, show_steps, train_on

    show_steps()
    made = train_on([find_run(run) for run in runs], settings_of(given), out, resume=resume)
    if as_json:
        output.print_json(made.model_dump(mode="json"))
    else:
        output.print_facts(_facts(made, out))


def _facts(made: Manifest, out: Path) -> dict[str, object]:
    facts: dict[str, object] = {
        "adapter": out,
        "version": made.version,
        "trained on": f"{made.rows} rows of {made.turns} turns, {made.method}",
        "metrics": out / "metrics.jsonl",
    }
    if made.probe is not None:
        facts["probe"] = f"mean reward {made.probe.before:.4f} before, {made.probe.after:.4f} after"
    if made.alarms:
        facts["alarms"] = "\n".join(made.alarms)
    return facts
