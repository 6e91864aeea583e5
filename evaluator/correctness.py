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

import math
from collections.abc import Iterator, Mapping, Sequence
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
class Yardstick:
    """What can be said of one expected output before there is an answer. All zero where it is not a float one."""

    expected: float = 0.0
    """Root mean square of the finite values."""
    exact: float = 0.0
    """The same of the float64 reference's output, where both are finite."""
    reference: float = 0.0
    """Largest relative error of the same-dtype reference."""
    plain: bool = False
    """There are values, and all of them are finite."""


@dataclass(frozen=True)
class _Pair:
    """One output and what it should be."""

    label: str
    got: torch.Tensor
    want: torch.Tensor
    exact: torch.Tensor | None
    yard: Yardstick


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
    yardsticks: Sequence[Yardstick] | None = None,
) -> Comparison:
    """Compare flattened outputs; in `actual` a str stands for an object of that type.

    `exact` are the float64 reference's outputs, or None where it cannot be upcast. `yardsticks` are what `measure`
    says of `expected` and `exact`: worth keeping when many answers are held against the same.
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
            yard = yardsticks[index] if yardsticks else _measure(want, exact[index] if exact else None)
            pair = _Pair(label, got, want, exact[index] if exact else None, yard)
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
        seen = _Seen()
        for offset, got, want, _ in _pieces(pair):
            seen.note_bad(offset, got != want)
        return _wrong(pair, seen, None) if seen.bad else Comparison()
    pair = pair if pair.exact is None or pair.exact.shape == pair.want.shape else replace(pair, exact=None)
    epsilon = epsilons.get(str(pair.want.dtype).removeprefix("torch."))
    if (worst := _quickly(pair, tolerance, epsilon)) is not None:
        return Comparison(max_error=worst)
    seen = _Seen()
    for offset, got, want, exact in _pieces(pair):
        _compare_piece(seen, offset, (got.double(), want.double(), exact), pair.yard, tolerance)
    if seen.lost:
        text = f"{pair.label} has {seen.lost} NaN or inf values where the reference is finite"
        where = _index(seen.first_lost, pair.want)
        detail = f"first at {list(where)}: got {pair.got[where].item()}, expected {pair.want[where].item():.7g}"
        return Comparison(EvalStatus.NON_FINITE, text, f"{text}\n{detail}")
    if seen.bad:
        return _wrong(pair, seen, seen.worst)
    if epsilon is None or pair.exact is None or seen.candidate <= 2 * seen.reference + epsilon:
        return Comparison(max_error=seen.worst)
    text = (
        f"{pair.label} is less precise than its dtype: relative error {seen.candidate:.2e}, torch has "
        f"{seen.reference:.2e}"
    )
    detail = "accumulate in float32 and keep operands in the input dtype (input_precision='ieee' for tl.dot)"
    return Comparison(EvalStatus.PRECISION, text, f"{text}\n{detail}", max_error=seen.worst)


def _quickly(pair: _Pair, tolerance: Tolerance, epsilon: float | None) -> float | None:
    """Largest |actual - expected| when a few passes show that all is well, else None: then look again, closely.

    Errors are taken in float32, or float64 for float64 outputs; relative ones always in float64. One wait for the
    device in all, or a first one where the largest error alone may settle it in a third of the passes.
    """
    import torch

    if not pair.yard.plain:
        return None
    wide = torch.float64 if pair.want.dtype == torch.float64 else torch.float32
    atol = tolerance.atol * min(1.0, pair.yard.expected)
    relative_too = epsilon is not None and pair.exact is not None
    if not relative_too and pair.want.numel() > PIECE:
        differences = (got.to(wide) - want.to(wide) for _, got, want, _ in _pieces(pair))
        norms = [torch.linalg.vector_norm(part, math.inf) for part in differences]
        if (largest := float(torch.stack(norms).max())) <= atol:
            return largest
    worst, excess, relative = [], [], []
    for _, got, want, exact in _pieces(pair):
        expected = want.to(wide)
        error = (got.to(wide) - expected).abs_()
        worst.append(error.max())
        excess.append(error.sub_(expected.abs().mul_(tolerance.rtol)).max())
        if relative_too and exact is not None:
            relative.append(((got.to(wide) - exact).abs_() / exact.abs().add_(pair.yard.exact)).max())
    found = [torch.stack(part).max().double() for part in (worst, excess, relative) if part]
    error_max, excess_max, *rest = torch.stack(found).tolist()
    # NaN fails every one of these.
    right = error_max < math.inf and excess_max <= atol
    precise = all(value <= 2 * pair.yard.reference + (epsilon or 0.0) for value in rest)
    return error_max if right and precise else None


PIECE = 1 << 26
"""Elements compared at once: a comparison needs a dozen float64 copies, which for 6 GB of output is more than a GPU."""


@dataclass
class _Seen:
    """What the pieces of one output gave; indices are flat."""

    bad: int = 0
    first: int = -1
    last: int = -1
    lost: int = 0
    first_lost: int = -1
    worst: float | None = None
    candidate: float = 0.0
    """Largest relative error against the float64 reference."""
    reference: float = 0.0
    """The same of the same-dtype reference."""

    def note_bad(self, offset: int, bad: torch.Tensor) -> None:
        """Count wrong values of a piece that begins at `offset`."""
        count = int(bad.sum())
        if count:
            places = bad.nonzero()
            self.first = offset + int(places[0]) if self.first < 0 else self.first
            self.last = offset + int(places[-1])
            self.bad += count

    def note_lost(self, offset: int, lost: torch.Tensor) -> None:
        """Count values that should be finite."""
        count = int(lost.sum())
        if count:
            self.first_lost = offset + int(lost.nonzero()[0]) if self.first_lost < 0 else self.first_lost
            self.lost += count


def measure(expected: Sequence[torch.Tensor], exact: Sequence[torch.Tensor] | None) -> list[Yardstick]:
    """A yardstick for each expected output."""
    return [_measure(want, exact[index] if exact else None) for index, want in enumerate(expected)]


def _measure(want: torch.Tensor, exact: torch.Tensor | None) -> Yardstick:
    import torch

    if not want.is_floating_point():
        return Yardstick()
    exact = exact if exact is not None and exact.shape == want.shape else None
    sums, plain = [0.0, 0, 0.0, 0], want.numel() > 0
    for _, _, piece, truth in _pieces(_Pair("", want, want, exact, Yardstick())):
        values = piece.float() if piece.dtype.itemsize == 1 else piece  # float8 has no isfinite
        norms = [_norm(values), 0.0 if truth is None else _norm(truth)]
        if math.isfinite(sum(norms)):  # as it is nearly always, and much quicker to find out
            for at, value in enumerate((norms[0] ** 2, values.numel(), norms[1] ** 2, values.numel())):
                sums[at] += value
            continue
        plain, finite = False, values.isfinite()
        usable = finite if truth is None else finite & truth.isfinite()
        sums[0] += _norm(torch.where(finite, values, 0)) ** 2
        sums[1] += int(finite.sum())
        if truth is not None:
            sums[2] += _norm(torch.where(usable, truth, 0)) ** 2
            sums[3] += int(usable.sum())
    scale = _root(sums[2], sums[3])
    reference = 0.0
    if plain and exact is not None and scale > 0:
        for _, values, _, truth in _pieces(_Pair("", want, want, exact, Yardstick())):
            assert truth is not None
            reference = max(reference, float(((values.double() - truth).abs_() / truth.abs().add_(scale)).max()))
    return Yardstick(_root(sums[0], sums[1]), scale, reference, plain and (exact is None or scale > 0))


def _norm(values: torch.Tensor) -> float:
    """Euclidean, summed in float64; not finite where a value is not."""
    import torch

    return float(torch.linalg.vector_norm(values, dtype=torch.float64))


def _root(total: float, count: float) -> float:
    return math.sqrt(total / count) if count else 0.0


def _pieces(pair: _Pair) -> Iterator[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor | None]]:
    """(flat offset, got, want, exact) of every `PIECE` elements."""
    got, want = pair.got.reshape(-1), pair.want.reshape(-1)
    exact = None if pair.exact is None else pair.exact.reshape(-1)
    for begin in range(0, max(want.numel(), 1), PIECE):
        end = begin + PIECE
        yield begin, got[begin:end], want[begin:end], None if exact is None else exact[begin:end]


def _compare_piece(
    seen: _Seen,
    offset: int,
    values: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None],
    scales: Yardstick,
    tolerance: Tolerance,
) -> None:
    actual, expected, exact = values
    finite = expected.isfinite()
    seen.note_lost(offset, finite & ~actual.isfinite())
    same_special = (actual == expected) | (actual.isnan() & expected.isnan())
    error = (actual - expected).abs()
    bound = tolerance.atol * min(1.0, scales.expected) + tolerance.rtol * expected.abs()
    near = error <= bound
    if exact is not None:
        # In 16 bits torch itself may be a tolerance away from the truth; being nearer to it is no fault.
        near |= (actual - exact).abs() <= bound
    seen.note_bad(offset, (finite & ~near) | (~finite & ~same_special))
    settled = finite & actual.isfinite()
    if bool(settled.any()):
        seen.worst = max(seen.worst or 0.0, float(error[settled].max()))
    usable = None if exact is None else settled & exact.isfinite()
    if exact is not None and usable is not None and bool(usable.any()):
        truth = exact[usable]
        scale = truth.abs() + scales.exact
        scale[scale == 0] = 1.0
        seen.candidate = max(seen.candidate, float(((actual[usable] - truth).abs() / scale).max()))
        seen.reference = max(seen.reference, float(((expected[usable] - truth).abs() / scale).max()))


def _wrong(pair: _Pair, seen: _Seen, worst: float | None) -> Comparison:
    first, last = _index(seen.first, pair.want), _index(seen.last, pair.want)
    got, want = pair.got[first].double().item(), pair.want[first].double().item()
    text = f"{pair.label}: {seen.bad} of {pair.want.numel()} values are wrong"
    lines = [text, f"first at {list(first)}: got {got:.7g}, expected {want:.7g}"]
    if pair.want.ndim:
        lines.append(f"last at {list(last)}; shape {_shape(pair.want)}")
    if not bool(pair.got.any()):
        lines.append("the whole output is zero")
    elif pair.got.numel() > 1 and bool((pair.got == pair.got.reshape(-1)[0]).all()):
        lines.append("the whole output is one constant")
    if worst is not None:
        lines.append(f"largest absolute error {worst:.3g}")
    return Comparison(EvalStatus.WRONG_VALUE, f"{text}; {lines[1]}", "\n".join(lines), worst)


def _index(flat: int, tensor: torch.Tensor) -> tuple[int, ...]:
    """The index of a flat position."""
    places = []
    for size in reversed(tensor.shape):
        flat, place = divmod(flat, size)
        places.append(place)
    return tuple(reversed(places))


def rms(values: torch.Tensor) -> float:
    """Root mean square; 0 for no values."""
    return float(values.square().mean().sqrt()) if values.numel() else 0.0


def _shape(tensor: torch.Tensor) -> str:
    return str(tuple(tensor.shape))
