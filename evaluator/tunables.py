"""The tunables of a candidate: literals in its source that configure it without changing what it computes.

`extract` finds block sizes bound to `tl.constexpr` parameters (wherever the literal sits: module constant, launch
keyword, dict, local variable, default argument), launch options and `triton.Config` entries. `apply` writes other
values into the text and changes nothing else: literals are spliced at their exact positions, so comments, quotes and
line breaks survive byte for byte, and `apply(source, extract(source).defaults) == source`.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from evaluator.errors import UsageError
from evaluator.launches import LAUNCH_OPTIONS, Launch, find_kernels, find_launches
from evaluator.nearest import nearest
from evaluator.syntax import parse
from evaluator.types import Frozen

TunableKind = Literal["block", "count", "programs", "num_warps", "num_stages", "num_ctas", "maxnreg"]

DEFAULTS: dict[str, int] = {"num_warps": 4, "num_stages": 3}
"""What Triton uses when a launch says nothing (triton/backends/nvidia/compiler.py, CUDAOptions)."""

CHOICES: dict[TunableKind, tuple[int, ...]] = {
    "block": (64, 128, 256, 512, 1024, 2048, 4096, 8192),
    "count": (1, 2, 4, 8, 16),
    "programs": (66, 132, 264, 528, 1056, 2112),
    "num_warps": (1, 2, 4, 8, 16),
    "num_stages": (1, 2, 3, 4, 5),
    "num_ctas": (1, 2),
    "maxnreg": (32, 64, 96, 128, 168, 255),
}
TILE_CHOICES = (16, 32, 64, 128, 256)
"""Sides of tiles: `tl.dot` needs at least 16, and larger ones exceed what an SM holds."""

_COUNT = re.compile(r"GROUP|ROWS|SPLIT|ITEMS|UNROLL|_PER_|STAGES|COARSEN")
_PROGRAMS = re.compile(r"NUM_SMS|PROGRAMS|NUM_CTAS|PERSISTENT")
_BLOCK = re.compile(r"BLOCK|TILE|CHUNK|^B[MNK]$|XBLOCK|RBLOCK")


class Tunable(Frozen):
    """One literal (or several that must stay equal) and the values worth trying."""

    name: str
    """`kernel.PARAMETER`, e.g. `softmax_kernel.BLOCK_SIZE` or `softmax_kernel.num_warps`."""
    kind: TunableKind
    default: int
    choices: tuple[int, ...]
    line: int
    """Line of the literal; of the launch for an option that the launch leaves to Triton's default."""


class TunableSpace(Frozen):
    """Everything `extract` found, in the order of the source."""

    tunables: tuple[Tunable, ...] = ()
    skipped: Mapping[str, str] = {}
    """Name -> why a constexpr that looks tunable is left alone."""

    @property
    def defaults(self) -> dict[str, int]:
        """The config the source has now."""
        return {tunable.name: tunable.default for tunable in self.tunables}

    @property
    def names(self) -> tuple[str, ...]:
        """Names in the order of the source."""
        return tuple(tunable.name for tunable in self.tunables)


@dataclass(frozen=True)
class _Site:
    """Where a tunable's values are written: literals to replace, launches that need a keyword."""

    tunable: Tunable
    literals: tuple[ast.Constant, ...]
    launches: tuple[ast.Call, ...] = ()


def extract(source: str) -> TunableSpace:
    """The typed space of a source. Raises UsageError for a source that does not parse."""
    return _analyse(source)[0]


def apply(source: str, config: Mapping[str, int]) -> str:
    """The source with `config`'s values in place of its literals; tunables it does not name keep theirs.

    Raises UsageError for an unknown name, a value that is no positive integer, or a block that is no power of two.
    """
    _, sites = _analyse(source)
    by_name = {site.tunable.name: site for site in sites}
    edits: list[tuple[int, int, str]] = []
    offsets = _line_offsets(source)
    for name, value in config.items():
        if name not in by_name:
            raise UsageError(f"unknown tunable {name!r}", nearest(name, by_name))
        site = by_name[name]
        _validate(site.tunable, value)
        if value == site.tunable.default:
            continue
        edits += [(*_span(literal, offsets), str(value)) for literal in site.literals]
        option = name.rsplit(".", 1)[1]
        edits += [_insertion(source, call, f"{option}={value}", offsets) for call in site.launches]
    return _splice(source, edits)


def _validate(tunable: Tunable, value: object) -> None:
    if type(value) is not int or value < 1:
        raise UsageError(f"{tunable.name}: {value!r} is no positive integer", f"one of {list(tunable.choices)}")
    if tunable.kind in ("block", "num_warps", "num_ctas") and value & (value - 1):
        raise UsageError(f"{tunable.name}: {value} is no power of two", f"one of {list(tunable.choices)}")


@lru_cache(maxsize=512)
def _analyse(source: str) -> tuple[TunableSpace, tuple[_Site, ...]]:
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"the source does not parse: {error}", "mend its syntax first") from None
    sites: dict[str, _Site] = {}
    skipped: dict[str, str] = {}
    by_kernel: dict[str, list[Launch]] = {}
    for launch in find_launches(tree):
        by_kernel.setdefault(launch.kernel.name, []).append(launch)
    taken: set[tuple[int, int]] = set()
    for launches in by_kernel.values():
        _parameter_sites(launches, sites, skipped, taken)
        _option_sites(launches, sites, skipped, taken)
    _config_sites(tree, sites)
    ordered = tuple(sites.values())
    return TunableSpace(tunables=tuple(site.tunable for site in ordered), skipped=skipped), ordered


def _parameter_sites(
    launches: list[Launch], sites: dict[str, _Site], skipped: dict[str, str], taken: set[tuple[int, int]]
) -> None:
    kernel = launches[0].kernel
    for parameter in kernel.constexprs:
        kind = _kind(parameter)
        name = f"{kernel.name}.{parameter}"
        literals = [launch.literal(launch.binding(parameter)) for launch in launches]
        if kind is None or not any(literals):
            continue
        reason = _why_not(launches, parameter, literals)
        if reason:
            skipped[name] = reason
            continue
        places = {(node.lineno, node.col_offset): node for node in literals if node is not None}
        if taken.isdisjoint(places):
            taken.update(places)
            first = next(iter(places.values()))
            value = first.value
            assert isinstance(value, int)
            choices = _choices(kind, value, tile=kernel.uses_dot)
            tunable = Tunable(name=name, kind=kind, default=value, choices=choices, line=first.lineno)
            sites[name] = _Site(tunable, tuple(places.values()))


def _why_not(launches: list[Launch], parameter: str, literals: list[ast.Constant | None]) -> str:
    if any(literal is None for literal in literals):
        return "another launch computes it"
    values = {literal.value for literal in literals if literal is not None}
    if len(values) > 1:
        return "launches use different values"
    (value,) = values
    if not isinstance(value, int) or value < 1:
        return "it is not a positive integer"
    if _kind(parameter) == "block" and value & (value - 1):
        return "it is no power of two"
    for launch in launches:
        if _repeats(launch, value):
            return f"line {launch.call.lineno}: the grid repeats the number {value} instead of the name"
    return ""


def _repeats(launch: Launch, value: int) -> bool:
    grid = launch.resolve(launch.grid) or launch.grid
    return value > 1 and any(
        isinstance(node, ast.Constant) and type(node.value) is int and node.value == value for node in ast.walk(grid)
    )


def _option_sites(
    launches: list[Launch], sites: dict[str, _Site], skipped: dict[str, str], taken: set[tuple[int, int]]
) -> None:
    kernel = launches[0].kernel
    tuned_by_config = any("autotune" in ast.unparse(mark) for mark in kernel.node.decorator_list)
    for option in LAUNCH_OPTIONS:
        if option in [arg.arg for arg in kernel.parameters]:
            continue
        name = f"{kernel.name}.{option}"
        bound = [launch.binding(option) for launch in launches]
        if all(node is None for node in bound):
            useless = option == "num_stages" and not kernel.has_loop
            hidden = tuned_by_config or any(_opaque(launch) for launch in launches)
            if option in DEFAULTS and not useless and not hidden:
                sites[name] = _implicit(name, option, launches)
            continue
        literals = [launch.literal(node) for launch, node in zip(launches, bound, strict=True)]
        values = {literal.value if literal is not None else None for literal in literals}
        if len(values) != 1 or None in values:
            skipped[name] = "launches use different or computed values"
            continue
        places = {(node.lineno, node.col_offset): node for node in literals if node is not None}
        if taken.isdisjoint(places):
            taken.update(places)
            first = next(iter(places.values()))
            value = first.value
            assert isinstance(value, int)
            kind = _option_kind(option)
            tunable = Tunable(
                name=name, kind=kind, default=value, choices=_choices(kind, value, tile=False), line=first.lineno
            )
            sites[name] = _Site(tunable, tuple(places.values()))


def _opaque(launch: Launch) -> bool:
    # `**options` that cannot be read may already hold the keyword.
    return any(keyword.arg is None and not launch.dictionary(keyword.value) for keyword in launch.call.keywords)


def _implicit(name: str, option: str, launches: list[Launch]) -> _Site:
    kind = _option_kind(option)
    default = DEFAULTS[option]
    tunable = Tunable(name=name, kind=kind, default=default, choices=CHOICES[kind], line=launches[0].call.lineno)
    return _Site(tunable, (), tuple(launch.call for launch in launches))


def _config_sites(tree: ast.Module, sites: dict[str, _Site]) -> None:
    """Entries of every `triton.Config` in an autotune decorator, as `kernel.config0.NAME`."""
    for kernel in find_kernels(tree).values():
        configs = [
            node
            for mark in kernel.node.decorator_list
            for node in ast.walk(mark)
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Config"
        ]
        for index, config in enumerate(configs):
            for entry, literal in _config_entries(config):
                kind = _option_kind(entry) if entry in LAUNCH_OPTIONS else _kind(entry)
                value = literal.value
                if kind is None or not isinstance(value, int) or value < 1:
                    continue
                name = f"{kernel.name}.config{index}.{entry}"
                choices = _choices(kind, value, tile=kernel.uses_dot)
                tunable = Tunable(name=name, kind=kind, default=value, choices=choices, line=literal.lineno)
                sites[name] = _Site(tunable, (literal,))


def _config_entries(config: ast.Call) -> list[tuple[str, ast.Constant]]:
    entries: list[tuple[str, ast.Constant]] = []
    for node in config.args:
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and type(value.value) is int:
                    entries.append((str(key.value), value))
    for keyword in config.keywords:
        if keyword.arg and isinstance(keyword.value, ast.Constant) and type(keyword.value.value) is int:
            entries.append((keyword.arg, keyword.value))
    return entries


def _kind(parameter: str) -> TunableKind | None:
    name = parameter.upper()
    if _PROGRAMS.search(name):
        return "programs"
    if _COUNT.search(name):
        return "count"
    return "block" if _BLOCK.search(name) else None


def _option_kind(option: str) -> TunableKind:
    kinds: dict[str, TunableKind] = {
        "num_warps": "num_warps",
        "num_stages": "num_stages",
        "num_ctas": "num_ctas",
        "maxnreg": "maxnreg",
    }
    return kinds[option]


def _choices(kind: TunableKind, default: int, *, tile: bool) -> tuple[int, ...]:
    values = TILE_CHOICES if kind == "block" and tile else CHOICES[kind]
    return tuple(sorted({*values, default}))


def _line_offsets(source: str) -> list[int]:
    offsets = [0]
    for line in source.encode("utf-8", "surrogatepass").splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    return offsets


def _span(node: ast.expr, offsets: list[int]) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return offsets[node.lineno - 1] + node.col_offset, offsets[node.end_lineno - 1] + node.end_col_offset


def _insertion(source: str, call: ast.Call, text: str, offsets: list[int]) -> tuple[int, int, str]:
    start, end = _span(call, offsets)
    segment = source.encode("utf-8", "surrogatepass")[start:end].decode("utf-8", "surrogatepass")
    tokens = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(segment).readline)
        if token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.ENDMARKER)
    ]
    # Behind a trailing comma each insertion brings the comma after itself, so that several fit in one place.
    written = f"{text}, " if tokens[-2] in (",", "(") else f", {text}"
    return end - 1, end - 1, written


def _splice(source: str, edits: list[tuple[int, int, str]]) -> str:
    raw = source.encode("utf-8", "surrogatepass")
    for start, end, text in sorted(edits, reverse=True):
        raw = raw[:start] + text.encode() + raw[end:]
    return raw.decode("utf-8", "surrogatepass")


def tunable_literals(source: str) -> frozenset[tuple[int, int]]:
    """(line, column) of every literal that holds a tunable's value."""
    _, sites = _analyse(source)
    return frozenset((literal.lineno, literal.col_offset) for site in sites for literal in site.literals)
