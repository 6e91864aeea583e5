"""Every config alone: a `@triton.autotune` source becomes one plain source per config.

Configs of one autotuner share an output buffer, so two half-wrong ones can pass together. Each is judged as a file of
its own: the decorator goes, and the config's entries are written into the launches.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from evaluator.launches import bindings, find_launches, is_jit
from evaluator.syntax import parse
from evaluator.tunables import extract

Config = Mapping[str, str]
"""What a launch is given: source text by keyword."""
_PARAMETERS = ("kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg", "pre_hook", "ir_override")
"""Of `triton.Config`, in order."""


@dataclass(frozen=True)
class ConfigAlone:
    """A source in which every kernel that could be split has one config."""

    number: int
    """Its place among `total`, from 1."""
    total: int
    """Configs there are; those of several autotuned kernels are multiplied."""
    settings: str
    """What its launches are given, such as `BLOCK=128, num_warps=2`."""
    source: str


def split_autotune(source: str) -> list[str]:
    """One source per `triton.Config` of an autotuned kernel; the source itself when there is none to split.

    Several autotuned kernels give every combination. Raises UsageError for a source that does not parse (as `extract`
    does). Configs that are not listed literally are left alone (see `_listed`).
    """
    extract(source)
    return [alone.source for alone in configs_alone(source)]


def configs_alone(source: str, limit: int | None = None, *, keep_lines: bool = False) -> list[ConfigAlone]:
    """As `split_autotune`, but at most `limit` (two or more) of them, evenly chosen, the first always among them.

    With `keep_lines`, empty lines stand for the decorators, so that all other lines keep their numbers. Raises what
    `ast.parse` raises.
    """
    tree = parse(source)
    try:
        found = list(_split(source, _tuned(tree), limit, keep_lines))
    except (cst.ParserSyntaxError, RecursionError):  # Python takes longer expressions than libcst
        found = []
    return found or [ConfigAlone(1, 1, "", source)]


def _split(source: str, tuned: list[_Tuned], limit: int | None, keep_lines: bool) -> Iterator[ConfigAlone]:
    if not tuned:
        return
    module = cst.parse_module(source)
    total = math.prod(len(kernel.configs) for kernel in tuned)
    for index in _chosen(total, limit):
        configs = _combination(tuned, index)
        settings = ", ".join(f"{name}={value}" for config in configs for name, value in config.items())
        yield ConfigAlone(index + 1, total, settings, module.visit(_Unfold(tuned, configs, keep_lines)).code)


def _chosen(total: int, limit: int | None) -> Sequence[int]:
    if limit is None or total <= limit:
        return range(total)
    return [place * (total - 1) // (limit - 1) for place in range(limit)]


@dataclass(frozen=True)
class _Tuned:
    """An autotuned kernel."""

    name: str
    place: int
    """Of the autotuner among the decorators."""
    configs: list[Config]


def _combination(tuned: list[_Tuned], index: int) -> list[Config]:
    """One config of each kernel; the last kernel's vary fastest."""
    picked: list[Config] = []
    for kernel in reversed(tuned):
        index, place = divmod(index, len(kernel.configs))
        picked.append(kernel.configs[place])
    return picked[::-1]


def _tuned(tree: ast.Module) -> list[_Tuned]:
    """Every autotuned kernel that can be split, in the order of the source."""
    module = _Module(tree)
    found = []
    for node in module.functions:
        marks = [(place, mark) for place, mark in enumerate(node.decorator_list) if module.is_call(mark, "autotune")]
        if len(marks) == 1 and module.only_launched(node.name) and (configs := _listed(marks[0][1], module)):
            found.append(_Tuned(node.name, marks[0][0], configs))
    return found


class _Module:
    """What the names of a source stand for."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        self._tree = tree
        self.functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        self._mentions = [_last_name(node) for node in nodes if isinstance(node, ast.Name | ast.Attribute)]
        self._launches = [launch.kernel.name for launch in find_launches(tree)]
        self._aliases = {
            alias.asname: alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
        }
        self._local = set(_local_names(nodes))

    def is_call(self, node: ast.expr, name: str) -> bool:
        """Whether this calls triton's function of that name, whatever it was imported as."""
        called = _last_name(node.func) if isinstance(node, ast.Call) else ""
        return self._aliases.get(called, called) == name

    def only_launched(self, kernel: str) -> bool:
        """Whether every mention of a kernel is a launch, into which a config can be written."""
        return 0 < self._mentions.count(kernel) == self._launches.count(kernel)

    def elements(self, node: ast.expr | None) -> list[ast.expr]:
        """Elements of a list literal, or of one that has a name which nothing else uses."""
        if isinstance(node, ast.Name) and self._mentions.count(node.id) == 2:  # where it is made and where it is used
            (node,) = bindings(self._tree, node.id) or [None]
        return node.elts if isinstance(node, ast.List | ast.Tuple) else []

    def is_global(self, value: ast.expr) -> bool:
        """Whether an expression means the same inside of functions."""
        return not any(isinstance(part, ast.Name) and part.id in self._local for part in ast.walk(value))


def _local_names(nodes: list[ast.AST]) -> Iterator[str]:
    """Names that some function other than a kernel gives a meaning of its own."""
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.Lambda) or (isinstance(node, ast.FunctionDef) and is_jit(node)):
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.arg):
                yield part.arg
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _listed(mark: ast.expr, module: _Module) -> list[Config]:
    """The configs of an autotuner; none where they cannot be written into launches.

    That is so where any of them is computed, has a hook or uses a name that functions give another meaning, and where
    some are pruned by a launch's arguments and need not be right for all.
    """
    assert isinstance(mark, ast.Call)
    words = {word.arg: word.value for word in mark.keywords}
    if None in words or "prune_configs_by" in words:
        return []
    listed = module.elements(mark.args[0] if mark.args else words.get("configs"))
    configs = [_entries(node, module) for node in listed]
    return [config for config in configs if config is not None] if None not in configs else []


def _entries(node: ast.expr, module: _Module) -> Config | None:
    if not isinstance(node, ast.Call) or not module.is_call(node, "Config"):
        return None
    given = [*zip(_PARAMETERS, node.args, strict=False), *((word.arg, word.value) for word in node.keywords)]
    entries: dict[str, str] = {}
    for name, value in given:
        if name == "kwargs" and isinstance(value, ast.Dict):
            pairs = [(_text(key), part) for key, part in zip(value.keys, value.values, strict=True)]
        elif name in (None, "kwargs", "pre_hook") or isinstance(value, ast.Starred):
            return None
        else:
            pairs = [(name, value)]
        if not all(word and module.is_global(part) for word, part in pairs):
            return None
        entries |= {str(word): ast.unparse(part) for word, part in pairs}
    return entries


def _text(key: ast.expr | None) -> str:
    """A keyword; "" where it is computed."""
    held = key.value if isinstance(key, ast.Constant) else None
    return held if isinstance(held, str) and held.isidentifier() else ""


class _Unfold(cst.CSTTransformer):
    """Removes autotuners and writes one config into every launch of each kernel."""

    def __init__(self, tuned: list[_Tuned], configs: list[Config], keep_lines: bool) -> None:
        self._places = {kernel.name: kernel.place for kernel in tuned}
        self._configs = {kernel.name: config for kernel, config in zip(tuned, configs, strict=True)}
        self._keep_lines = keep_lines

    def leave_FunctionDef(  # noqa: N802  libcst's name
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        place = self._places.get(updated_node.name.value)
        if place is None:
            return updated_node
        decorators = list(updated_node.decorators)
        tuner = cst.Module([]).code_for_node(decorators.pop(place))
        empty = [cst.EmptyLine(indent=False)] * (tuner.count("\n") if self._keep_lines else 0)
        return updated_node.with_changes(decorators=decorators, leading_lines=[*updated_node.leading_lines, *empty])

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802  libcst's name
        target = updated_node.func
        config = self._configs.get(_kernel_name(target.value)) if isinstance(target, cst.Subscript) else None
        if not config:
            return updated_node
        args = [arg for arg in updated_node.args if arg.keyword is None or arg.keyword.value not in config]
        added = [
            cst.Arg(
                value=cst.parse_expression(value),
                keyword=cst.Name(name),
                equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
            )
            for name, value in config.items()
        ]
        return updated_node.with_changes(args=[*args, *added])


def _kernel_name(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""
