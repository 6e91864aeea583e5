"""Training curves of a run's adapters, one behind the other as they were trained."""

from __future__ import annotations

from evo.report.figures import Figure, Spec, axis, label
from evo.report.text import number
from evo.report.training import Training, metric

CURVES = {
    "rewards": ("Training: rewards and shares", ("mean_reward", "valid", "correct", "fast@1")),
    "losses": ("Training: loss", ("loss", "grad_norm", "entropy", "kl")),
}
"""Figure -> its title, and the metrics that it draws where they were logged."""


def curves(trainings: list[Training]) -> list[Figure]:
    """A figure for each of `CURVES` whose metrics somebody logged."""
    drawn = [_figure(name, title, metrics, trainings) for name, (title, metrics) in CURVES.items()]
    return [figure for figure in drawn if figure.data]


def _figure(name: str, title: str, metrics: tuple[str, ...], trainings: list[Training]) -> Figure:
    steps = _steps(trainings)
    logged = [one for one in metrics if any(metric(row, one) is not None for t in trainings for row in t.rows)]
    data: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "marker": {"size": 4},
            "name": label(one),
            "x": [step for step, _, _ in steps],
            "y": [metric(row, one) for _, _, row in steps],
            "text": [label(training.name) for _, training, _ in steps],
            "hovertemplate": "%{text}: %{y:.4g}<extra></extra>",
        }
        for one in logged
    ]
    rows = [(t.name, number(step, ".0f"), *(number(metric(row, one)) for one in logged)) for step, t, row in steps]
    layout = {"xaxis": axis("training step, all adapters", rangemode="tozero"), "yaxis": axis("")}
    return Figure(name, title, data, layout, ("adapter", "step", *logged), rows)


def _steps(trainings: list[Training]) -> list[tuple[float, Training, dict[str, object]]]:
    """Every logged step with its place among the steps of all adapters."""
    found, before = [], 0.0
    for training in trainings:
        last = before
        for row in training.rows:
            last = before + (metric(row, "step") or 0.0)
            found.append((last, training, dict(row)))
        before = max(before, last)
    return found
