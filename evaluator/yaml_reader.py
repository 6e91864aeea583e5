"""YAML with positions and without PyYAML's surprises.

`1e-5` is a float; only `true` and `false` are booleans, so `on`, `off`, `yes` and `no` stay text; `010` is ten;
`1:30` is text; a key given twice is an error that names both lines. Mapping keys are always text. Every value
remembers where it stands, for messages of the form file:line:column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from evaluator.errors import UsageError

Loc = tuple[str | int, ...]
_Pairs = dict[str, tuple[yaml.Node, yaml.Node]]
_MAX_DEPTH = 50
_MAX_ITEMS = 100_000
_TAG = "tag:yaml.org,2002:"


@dataclass
class Document:
    """Plain data (dict, list, str, int, float, bool, None) and the position of every key and value in it."""

    label: str
    data: Any
    keys: dict[Loc, str] = field(default_factory=dict)
    values: dict[Loc, str] = field(default_factory=dict)

    def key_position(self, loc: Loc) -> str:
        """Where the key (or list item) at `loc` stands; its nearest enclosing section when it is not there."""
        return self._nearest(self.keys, loc)

    def value_position(self, loc: Loc) -> str:
        """Where the value at `loc` stands; its nearest enclosing section when it is not there."""
        return self._nearest(self.values, loc)

    def _nearest(self, positions: dict[Loc, str], loc: Loc) -> str:
        if loc in positions:
            return positions[loc]
        for length in range(len(loc) - 1, -1, -1):
            if loc[:length] in self.values:
                return self.values[loc[:length]]
        return f"{self.label}:1:1"


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's core scalars instead of 1.1's."""

    def decimal(self, node: yaml.ScalarNode) -> int:
        return int(self.construct_scalar(node), 10)

    def floating(self, node: yaml.ScalarNode) -> float:
        text = self.construct_scalar(node).lower()
        return float(text.replace(".inf", "inf").replace(".nan", "nan") if text.endswith(("inf", "nan")) else text)

    def boolean(self, node: yaml.ScalarNode) -> bool:
        text = self.construct_scalar(node).lower()
        if text not in ("true", "false"):
            raise ValueError("not true or false")
        return text == "true"


_Loader.yaml_implicit_resolvers = {}  # of its own, so that SafeLoader keeps YAML 1.1


def _resolve(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(_TAG + tag, re.compile(pattern), list(first))


_resolve("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF")
_resolve("int", r"^[-+]?[0-9]+$", "-+0123456789")
_resolve(
    "float",
    r"^[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))$"
    r"|^\.(?:nan|NaN|NAN)$",
    "-+0123456789.",
)
_resolve("null", r"^(?:~|null|Null|NULL|)$", "~nN")
_Loader.add_implicit_resolver(_TAG + "null", re.compile(r"^$"), [""])
_resolve("merge", r"^<<$", "<")
_Loader.add_constructor(_TAG + "int", _Loader.decimal)
_Loader.add_constructor(_TAG + "float", _Loader.floating)
_Loader.add_constructor(_TAG + "bool", _Loader.boolean)


def parse(text: str, label: str) -> Document:
    """Parse one YAML document. `label` names it in messages, as the file part of file:line:column.

    An empty document has `data` None. Raises UsageError, with the position, for anything that is not one YAML
    document of plain values.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        document = Document(label, None)
        if node is not None:
            _check_duplicate_keys(node, label)
            document.data = _Converter(loader, document).convert(node)
        return document
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error, label) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        raise UsageError(
            f"{label}:{line}:{column}: not YAML: character {_code_point(error.character)} is not allowed",
            "save the file as UTF-8 text without control characters",
        ) from None
    except RecursionError:
        raise UsageError(f"{label}:1:1: nested more than {_MAX_DEPTH} levels deep", _PLAIN) from None


_PLAIN = "write plain keys and values; docs/config.md shows every key"


def _code_point(character: int | str | bytes) -> str:
    return f"U+{(character if isinstance(character, int) else ord(character)):04X}"


def _not_yaml(error: yaml.MarkedYAMLError, label: str) -> UsageError:
    mark = error.problem_mark or error.context_mark
    where = f"{label}:{mark.line + 1}:{mark.column + 1}" if mark else f"{label}:1:1"
    said = " ".join(str(part) for part in (error.context, error.problem) if part).replace("\n", " ")
    hint = "indent with spaces, not tabs" if "'\\t'" in said else "write `key: value` lines, indented with spaces"
    if "but found another document" in said:
        hint = "keep one campaign per file: remove the `---` line and what follows it"
    return UsageError(f"{where}: not YAML: {said}", hint)


def _walk(root: yaml.Node) -> Iterator[yaml.Node]:
    """Every node once, aliases not followed twice."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.MappingNode):
            waiting.extend(child for pair in node.value for child in pair)
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)


def _check_duplicate_keys(root: yaml.Node, label: str) -> None:
    # On the nodes as written: an override of a merged value is no duplicate.
    for mapping in _walk(root):
        if not isinstance(mapping, yaml.MappingNode):
            continue
        first: dict[str, yaml.Node] = {}
        for key, _ in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                raise UsageError(f"{_position(label, key)}: a key must be a plain word", _PLAIN)
            if key.value in first:
                raise UsageError(
                    f"{_position(label, key)}: {key.value}: the key is given twice,"
                    f" first on line {first[key.value].start_mark.line + 1}",
                    "remove one of the two",
                )
            first[key.value] = key


def _position(label: str, node: yaml.Node) -> str:
    return f"{label}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


class _Converter:
    """Turns nodes into plain data and notes positions; bounded, so that an alias bomb ends in an error."""

    def __init__(self, loader: _Loader, document: Document) -> None:
        self._loader = loader
        self._document = document
        self._items = 0
        self._resolved: dict[int, _Pairs] = {}

    def convert(self, node: yaml.Node, loc: Loc = ()) -> Any:
        self._items += 1
        where = _position(self._document.label, node)
        if len(loc) > _MAX_DEPTH:
            raise UsageError(f"{where}: nested more than {_MAX_DEPTH} levels deep", _PLAIN)
        if self._items > _MAX_ITEMS:
            raise UsageError(f"{where}: more than {_MAX_ITEMS} values", _PLAIN)
        self._document.values[loc] = where
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self._item(child, (*loc, index)) for index, child in enumerate(node.value)]
        return self._scalar(node, where)

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in self._pairs(node).values():
            self._document.keys[(*loc, key.value)] = _position(self._document.label, key)
            result[key.value] = self.convert(value, (*loc, key.value))
        return result

    def _pairs(self, node: yaml.MappingNode, depth: int = 0) -> _Pairs:
        """Key and value nodes with merge keys (`<<`) resolved: own keys win, then earlier mappings over later ones.

        PyYAML's own flattening loses an override when the overriding mapping is merged a second time.
        """
        if id(node) in self._resolved:
            return self._resolved[id(node)]
        if depth > _MAX_DEPTH:
            where = _position(self._document.label, node)
            raise UsageError(f"{where}: nested more than {_MAX_DEPTH} levels deep", _PLAIN)
        own: _Pairs = {}
        merged: _Pairs = {}
        for key, value in node.value:
            if key.tag != f"{_TAG}merge":
                own[key.value] = (key, value)
                continue
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    at = _position(self._document.label, source)
                    raise UsageError(f"{at}: `<<` merges sections of keys only", _PLAIN)
                for name, pair in self._pairs(source, depth + 1).items():
                    merged.setdefault(name, pair)
        self._resolved[id(node)] = {**merged, **own}
        return self._resolved[id(node)]

    def _item(self, node: yaml.Node, loc: Loc) -> Any:
        self._document.keys[loc] = _position(self._document.label, node)
        return self.convert(node, loc)

    def _scalar(self, node: yaml.Node, where: str) -> Any:
        try:
            value = self._loader.construct_object(node)
        except ValueError:
            raise UsageError(f"{where}: {_shorten(str(node.value))} is not a {_tag_name(node)}", _PLAIN) from None
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{where}: {node.value} is not a finite number", "write a finite number")
        if isinstance(value, str) and not _encodable(value):
            raise UsageError(f"{where}: the text holds half of a surrogate pair", "write the character itself")
        if value is not None and not isinstance(value, str | int | float | bool):
            raise UsageError(f"{where}: YAML tag {node.tag} is not supported here", _PLAIN)
        return value


def _tag_name(node: yaml.Node) -> str:
    return {"int": "whole number", "float": "number", "bool": "truth value"}.get(
        node.tag.removeprefix(_TAG), f"valid {node.tag}"
    )


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shorten(text: str, width: int = 40) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
