"""Signs that a training goes wrong, from the metrics of its steps. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ZERO_VARIANCE = 0.6
"""Share of groups whose answers all earn the same: they teach nothing."""
UNIQUE = 0.3
"""Distinct programs / readable answers."""
ENTROPY = 0.5
"""Of the first step's."""
WINDOW = 5
"""Steps that the first and the last mean of a trend are taken over."""
RISE = 0.05
"""Change of a share that counts as a rise."""

Metrics = Mapping[str, float]


class Alarms:
    """Hears the metrics of each step and says what is wrong, each alarm when it begins."""

    def __init__(self) -> None:
        self._history: list[Metrics] = []
        self._ringing: set[str] = set()

    def hear(self, metrics: Metrics) -> dict[str, str]:
        """Alarms that begin with this step: name -> one line."""
        self._history.append(dict(metrics))
        found = {**_now(metrics), **_entropy(self._history), **_trends(self._history)}
        new = {name: words for name, words in found.items() if name not in self._ringing}
        self._ringing = set(found)
        return new

    @property
    def ringing(self) -> list[str]:
        """Names of the alarms that hold now."""
        return sorted(self._ringing)


def _now(metrics: Metrics) -> dict[str, str]:
    found = {}
    zero, unique = metrics.get("zero_variance"), metrics.get("unique_ast")
    if zero is not None and zero > ZERO_VARIANCE:
        found["zero_variance"] = f"{zero:.0%} of the groups earn one reward: harder prompts, or a higher temperature"
    if unique is not None and unique < UNIQUE:
        found["unique_ast"] = f"only {unique:.0%} of the answers are different programs: the policy collapses"
    return found


def _entropy(history: Sequence[Metrics]) -> dict[str, str]:
    known = [metrics["entropy"] for metrics in history if "entropy" in metrics]
    if len(known) < 2 or known[-1] >= ENTROPY * known[0]:
        return {}
    return {"entropy": f"entropy fell from {known[0]:.3g} to {known[-1]:.3g}: a lower learning rate explores longer"}


def _trends(history: Sequence[Metrics]) -> dict[str, str]:
    hack = _trend(history, "hack_rate")
    fast, faster = _trend(history, "fast@1"), _trend(history, "fast@1.2")
    found = {}
    if hack is not None and hack > RISE:
        found["hack_rate"] = f"the share of hacks rose by {hack:.0%}: look at them before going on"
    if fast is not None and faster is not None and fast > RISE and faster <= 0:
        found["small_gains"] = f"fast@1 rose by {fast:.0%} and fast@1.2 did not: the policy learns safe, tiny gains"
    return found


def _trend(history: Sequence[Metrics], name: str) -> float | None:
    """Last mean minus first mean over windows that do not overlap; None while there are too few steps."""
    known = [metrics[name] for metrics in history if name in metrics]
    if len(known) < 2 * WINDOW:
        return None
    return sum(known[-WINDOW:]) / WINDOW - sum(known[:WINDOW]) / WINDOW
