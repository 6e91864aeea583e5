"""Compares a candidate's outputs with expected ones (trusted side; plain tensors, no candidate code).

Tolerance: |actual - expected| <= atol·min(1, rms(expected)) + rtol·|expected|, so that zeros do not pass where
outputs are small; `expected` is the same-dtype reference's output, or the float64 reference's where that is
nearer. ±inf equals ±inf, NaN equals NaN, integers and bools must be equal.

Precision: with e = |x - exact| / (|exact| + rms(exact)), exact from a float64 run of the reference, a candidate
must keep max(e) <= 2·max(e of the same-dtype reference) + epsilon. epsilon separates honest rounding from a
cheaper number format. Per dtype:

- float64 1e-11, float32 2e-5: a sum of n honest float32 terms errs by about sqrt(n)·6e-8 (4e-6 at n = 4096) and
  exp by a few 1e-7, while TF32 and float16 operands err by 4e-4 (their unit roundoff is 2^-11 = 4.9e-4) and
  bfloat16 by 4e-3;
- float16 2^-10, bfloat16 2^-7: one unit in the last place, so that a second rounding of an intermediate passes;
- float32 where TF32 is allowed 2e-3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evaluator.types import EvalStatus, Tolerance

if TYPE_CHECKING:
    import torch

PRECISION_EPSILON = {"float64": 1e-11, "float32": 2e-5, "float16": 2.0**-10, "bfloat16": 2.0**-7}
TF32_EPSILON = 2e-3
TENSOR_SUBCLASS = "torch.Tensor subclass "
"""Begins the name that stands for an output whose class could do its work at comparison."""


@dataclass(frozen=True)
class Comparison:
    """The verdict on one set of outputs; `status` is None when they agree."""

    status: EvalStatus | None = None
    reason: str = ""
    explain: str = ""
    max_error: float | None = None
    """Largest finite |actual - expected|."""


@dataclass(frozen=True)
class _Pair:
    """One output and what it should be."""

    label: str
    got: torch.Tensor
    want: torch.Tensor
    exact: torch.Tensor | None


def flatten(value: object) -> list[object]:
    """The leaves of nested tuples, lists and dicts, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in flatten(item)]
    return [value]


def compare(
    actual: Sequence[object],
    expected: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor] | None,
    tolerance: Tolerance,
    *,
    allow_tf32: bool = False,
) -> Comparison:
    """Compare flattened outputs; in `actual` a str stands for an object of that type.

    `exact` are the float64 reference's outputs, or None where it cannot be upcast.
    """
    import torch

    if len(actual) != len(expected):
        return Comparison(EvalStatus.WRONG_SHAPE, f"returned {len(actual)} outputs, expected {len(expected)}")
    epsilons = {"float32": TF32_EPSILON} if allow_tf32 else {}
    worst: float | None = None
    for index, (got, want) in enumerate(zip(actual, expected, strict=True)):
        label = "output" if len(expected) == 1 else f"output {index}"
        found = _check_object(label, got, want)
        if found is None:
            assert isinstance(got, torch.Tensor)
            pair = _Pair(label, got, want, exact[index] if exact else None)
            found = _check_values(pair, tolerance, {**PRECISION_EPSILON, **epsilons})
        if found.max_error is not None:
            worst = max(worst or 0.0, found.max_error)
        if found.status is not None:
            return replace(found, max_error=worst)
    return Comparison(max_error=worst)


def _check_object(label: str, got: object, want: torch.Tensor) -> Comparison | None:
    import torch

    if not isinstance(got, torch.Tensor):
        kind = got if isinstance(got, str) else type(got).__name__
        status = EvalStatus.LAZY if kind.startswith(TENSOR_SUBCLASS) else EvalStatus.WRONG_SHAPE
        return Comparison(status, f"{label} is a {kind}, expected a torch.Tensor of shape {_shape(want)}")
    if got.shape != want.shape:
        text = f"{label} has shape {_shape(got)}, expected {_shape(want)}"
        return Comparison(EvalStatus.WRONG_SHAPE, text)
    if got.dtype != want.dtype:
        return Comparison(EvalStatus.WRONG_DTYPE, f"{label} is {got.dtype}, expected {want.dtype}")
    return None


def _check_values(pair: _Pair, tolerance: Tolerance, epsilons: Mapping[str, float]) -> Comparison:
    if not pair.want.is_floating_point():
        bad = pair.got != pair.want
        return _wrong(pair, bad, None) if bool(bad.any()) else Comparison()
    actual, expected = pair.got.double(), pair.want.double()
    finite = expected.isfinite()
    lost = finite & ~actual.isfinite()
    if bool(lost.any()):
        where, count = _first(lost), int(lost.sum())
        text = f"{pair.label} has {count} NaN or inf values where the reference is finite"
        detail = f"first at {list(where)}: got {actual[where].item()}, expected {expected[where].item():.7g}"
        return Comparison(EvalStatus.NON_FINITE, text, f"{text}\n{detail}")
    same_special = (actual == expected) | (actual.isnan() & expected.isnan())
    error = (actual - expected).abs()
    bound = tolerance.atol * min(1.0, rms(expected[finite])) + tolerance.rtol * expected.abs()
    near = error <= bound
    if pair.exact is not None and pair.exact.shape == expected.shape:
        # In 16 bits torch itself may be a tolerance away from the truth; being nearer to it is no fault.
        near |= (actual - pair.exact).abs() <= bound
    bad = (finite & ~near) | (~finite & ~same_special)
    worst = float(error[finite].max()) if bool(finite.any()) else None
    if bool(bad.any()):
        return _wrong(pair, bad, worst)
    epsilon = epsilons.get(str(pair.want.dtype).removeprefix("torch."))
    if epsilon is None or pair.exact is None:
        return Comparison(max_error=worst)
    return replace(_check_precision(pair, pair.exact, epsilon), max_error=worst)


def _check_precision(pair: _Pair, exact: torch.Tensor, epsilon: float) -> Comparison:
    usable = exact.isfinite() & pair.want.isfinite() if exact.shape == pair.want.shape else None
    if usable is None or not bool(usable.any()):
        return Comparison()
    truth = exact[usable]
    scale = truth.abs() + rms(truth)
    scale[scale == 0] = 1.0
    candidate = float(((pair.got.double()[usable] - truth).abs() / scale).max())
    reference = float(((pair.want.double()[usable] - truth).abs() / scale).max())
    if candidate <= 2 * reference + epsilon:
        return Comparison()
    text = f"{pair.label} is less precise than its dtype: relative error {candidate:.2e}, torch has {reference:.2e}"
    detail = "accumulate in float32 and keep operands in the input dtype (input_precision='ieee' for tl.dot)"
    return Comparison(EvalStatus.PRECISION, text, f"{text}\n{detail}")


def _wrong(pair: _Pair, bad: torch.Tensor, worst: float | None) -> Comparison:
    got, want = pair.got.double(), pair.want.double()
    where, count = _first(bad), int(bad.sum())
    text = f"{pair.label}: {count} of {bad.numel()} values are wrong"
    lines = [text, f"first at {list(where)}: got {got[where].item():.7g}, expected {want[where].item():.7g}"]
    if bad.ndim:
        last = [int(axis[-1]) for axis in bad.nonzero(as_tuple=True)]
        lines.append(f"last at {last}; shape {_shape(want)}")
    if not bool(got.any()):
        lines.append("the whole output is zero")
    elif got.numel() > 1 and bool((got == got.reshape(-1)[0]).all()):
        lines.append("the whole output is one constant")
    if worst is not None:
        lines.append(f"largest absolute error {worst:.3g}")
    return Comparison(EvalStatus.WRONG_VALUE, f"{text}; {lines[1]}", "\n".join(lines), worst)


def _first(mask: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(axis[0]) for axis in mask.nonzero(as_tuple=True)) if mask.ndim else ()


def rms(values: torch.Tensor) -> float:
    """Root mean square; 0 for no values."""
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def _shape(tensor: torch.Tensor) -> str:
    return str(tuple(tensor.shape))
