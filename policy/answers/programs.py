"""The program of an answer: which code it is, and whether it may be the child of its parent."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from evaluator.source_hash import ast_hash
from evaluator.static_checks import ENTRY, MAX_SOURCE_BYTES
from evaluator.syntax import parse
from policy.answers.errors import AnswerError
from policy.answers.text import Answer, Fence

TRIES = 4
"""Blocks of an answer that are parsed, best first."""
QUOTED = 160
KEEP_BEGIN, KEEP_END = "# kernevo: keep begin", "# kernevo: keep end"

# Languages that a file in Python may be labelled with; `text` and none at all are common.
_PYTHON = ("", "python", "py", "python3", "triton", "tl", "text", "txt", "plaintext", "code", "pytorch")
_OTHER_SIGN = re.compile(r"\s*+(?:#include\b|__global__|template\s*<|//|\{|\[)")
_MODEL = re.compile(rf"^class {ENTRY}\b", re.MULTILINE)
_JIT = re.compile(r"^[ \t]*+@(?:triton\.)?jit\b", re.MULTILINE)
_CODE = re.compile(r'(?:import \w|from [\w.]++ import |@\w|class \w++[^:\n]*+:|(?:async )?def \w++\(|""")')
_BLOCK_MARKS = re.compile(r"^\s*+(?:<{7}|>{7})", re.MULTILINE)
_IMPORTS = {"torch": "import torch", "triton": "import triton", "tl": "import triton.language as tl"}
_WHOLE = "answer with the whole file in one ```python fence"

PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)


def codes(answer: Answer, notes: list[str]) -> list[str]:
    """The blocks of an answer that may be a whole file, best first; with no fence, its lines of code.

    Best is one with ModelNew, with kernels, then (without ModelNew) the longest, then the last.
    """
    blocks = [fence for fence in answer.fences if _may_be_python(fence)]
    ranked = sorted(enumerate(blocks), key=lambda item: _rank(item[1], item[0]), reverse=True)
    found = [fence.text for _, fence in ranked[:TRIES]]
    if blocks and not any(parses(text) for text in found):
        # A fence line inside of a docstring looks like an end.
        whole = "".join(f"{line}\n" for line in answer.lines[blocks[0].first + 1 : answer.fences[-1].last])
        if len(answer.fences) > 1 and parses(whole):
            return [whole]
    if not answer.fences:
        found = list(_bare(answer.lines))
        notes += ["code without a fence"] if found else []
    return found


def _may_be_python(fence: Fence) -> bool:
    text = fence.text
    if _BLOCK_MARKS.search(text) or not text.strip():
        return False
    if fence.language in _PYTHON:
        return not _OTHER_SIGN.match(text) and any(_CODE.match(line.lstrip()) for line in fence.lines)
    return _MODEL.search(text) is not None


def _rank(fence: Fence, place: int) -> tuple[bool, bool, int, int]:
    text = fence.text
    model = _MODEL.search(text) is not None
    return model, _JIT.search(text) is not None, 0 if model else len(text), place


def _bare(lines: Sequence[str]) -> Iterator[str]:
    """From the first line of code to the last, if any."""
    first = first_code_line(lines)
    if first == len(lines) or _BLOCK_MARKS.search("\n".join(lines)):
        return
    last = max(index for index, line in enumerate(lines) if index == first or line.startswith((" ", "\t", ")", "]")))
    whole = "".join(f"{line}\n" for line in lines[first:])
    yield whole if parses(whole) else "".join(f"{line}\n" for line in lines[first : last + 1])


def first_code_line(lines: Sequence[str]) -> int:
    """Index of the first line that looks like the top level of a Python file; the number of lines if there is none."""
    return next((index for index, line in enumerate(lines) if _CODE.match(line)), len(lines))


def has_model(answer: Answer) -> bool:
    """Whether an answer defines ModelNew somewhere in the first column."""
    return _MODEL.search(answer.text) is not None


def other_languages(answer: Answer) -> list[str]:
    """Languages of the blocks that are no Python."""
    return sorted({fence.language for fence in answer.fences if fence.language and not _may_be_python(fence)})


def parses(text: str) -> bool:
    """Whether a text of bearable length is Python."""
    return _tree(text) is not None


@lru_cache(maxsize=8)
def _tree(text: str) -> ast.Module | None:
    if len(text) > MAX_SOURCE_BYTES:
        return None
    try:
        return parse(text)
    except PARSE_ERRORS:
        return None


def finished(source: str, parent: str, hint: str, notes: list[str]) -> str:
    """The source as it may become a child: parsed, with imports. Raises AnswerError, whose fix is `hint`."""
    tree = _tree(source)
    if tree is None and "\t" in source:
        spaced = re.sub(r"^[ \t]++", lambda lead: lead.group().expandtabs(4), source, flags=re.MULTILINE)
        tree = _tree(spaced)
        if tree is not None:
            source = spaced
            notes.append("tabs among spaces")
    if tree is None:
        raise _syntax(source, hint)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    if ENTRY not in classes:
        names = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)][:8]
        defines = f"; it defines {', '.join(names)}" if names else ""
        message = f"the file has no class {ENTRY} at its top level{defines}"
        raise AnswerError("no_entry_point", message, f"{_WHOLE}: kernels, {ENTRY} and imports")
    mended = _with_imports(source, tree, notes)
    if "\r\n" in parent:
        mended = mended.replace("\n", "\r\n")
    check_kept(mended, parent)
    check_changed(mended, parent)
    return mended


def _syntax(source: str, hint: str) -> AnswerError:
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        message = f"the file is {size >> 10} KiB long, more than {MAX_SOURCE_BYTES >> 10} KiB"
        return AnswerError("syntax", message, "write a shorter file")
    try:
        parse(source)
    except SyntaxError as error:
        line = (error.text or "").strip()[:QUOTED]
        hint = f"{hint}; write out what `...` stands for" if line.startswith(("...", "\u2026")) else hint
        return AnswerError("syntax", f"line {error.lineno} is no Python: {error.msg}: `{line}`", hint)
    except (ValueError, RecursionError, MemoryError) as error:
        return AnswerError("syntax", f"the file is no Python: {str(error) or type(error).__name__}", hint)
    raise AssertionError("the source parses")


def _with_imports(source: str, tree: ast.Module, notes: list[str]) -> str:
    """The source with those of the three usual imports that it uses but does not bind."""
    # Most answers have them: then the tree need not be walked.
    missing = [name for name in _IMPORTS if name not in _imported(tree.body)]
    if not missing:
        return source
    used, bound = _names(tree)
    wanted = [_IMPORTS[name] for name in missing if name in used - bound]
    if not wanted:
        return source
    place = _import_line(tree)
    lines = source.split("\n")
    mended = "\n".join([*lines[:place], *wanted, *lines[place:]])
    if not parses(mended):
        return source
    notes += [f"the missing `{line}`" for line in wanted]
    return mended


def _imported(body: Sequence[ast.stmt]) -> set[str]:
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return found


def _names(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Names that are read, and names that anything binds."""
    used: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import() | ast.ImportFrom():
                bound |= _imported([node])
    return used, bound


def _import_line(tree: ast.Module) -> int:
    """The number of lines that must stay above an import: the docstring and what comes from the future."""
    place = 0
    for index, node in enumerate(tree.body):
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            place = node.end_lineno or 0
    return place


def check_kept(source: str, parent: str) -> None:
    """Raises AnswerError when a region that the parent marks as kept is not as it was."""
    if KEEP_BEGIN not in parent and KEEP_BEGIN not in source:
        return
    before, after = _regions(parent), _regions(source)
    fix = f"leave the lines from `{KEEP_BEGIN}` to `{KEEP_END}` as they are, and add no such lines"
    for number, (line, text) in enumerate(before):
        if number >= len(after) or after[number][1] != text:
            raise AnswerError("outside_region", f"the answer changes the kept region of the parent's line {line}", fix)
    if len(after) > len(before):
        line = after[len(before)][0]
        raise AnswerError(
            "outside_region", f"line {line} of the child marks a kept region that the parent has not", fix
        )
    marks = {line for line, _ in after}
    for node in ast.walk(_tree(source) or ast.Module([], [])):
        if isinstance(node, ast.Constant | ast.JoinedStr) and isinstance(getattr(node, "value", ""), str):
            inside = marks.intersection(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            if inside and node.end_lineno != node.lineno:
                message = f"the answer turns the kept region in line {min(inside)} into text"
                raise AnswerError("outside_region", message, fix)


def _regions(source: str) -> list[tuple[int, str]]:
    """Line and text of each marked region, markers included; one that is not closed reaches to the end."""
    found: list[tuple[int, str]] = []
    start = -1
    lines = source.split("\n")
    for index, line in enumerate(lines):
        mark = line.strip()
        if start < 0 and mark == KEEP_BEGIN:
            start = index
        elif start >= 0 and mark == KEEP_END:
            found.append((start + 1, "\n".join(lines[start : index + 1])))
            start = -1
    if start >= 0:
        found.append((start + 1, "\n".join(lines[start:])))
    return found


def check_changed(source: str, parent: str) -> None:
    """Raises AnswerError when the two are one program: comments, docstrings and formatting do not count."""
    try:
        same = _same(source, parent)
    except RecursionError:
        raise AnswerError("syntax", "the file is nested too deeply to be judged", "write plainer expressions") from None
    if same:
        message = "the child is the same program as the parent (comments and formatting do not count)"
        raise AnswerError("unchanged", message, "change what the kernel does or how it is launched")


def _same(source: str, parent: str) -> bool:
    """Whether `ast_hash` is the same. It takes longer than all else here, so only statements whose text differs pay."""
    mine, theirs = _statements(source), _statements(parent)
    if mine is None or theirs is None:
        return ast_hash(source) == ast_hash(parent)
    if len(mine) != len(theirs):
        return False
    return all(old == new or ast_hash(old) == ast_hash(new) for old, new in zip(theirs, mine, strict=True))


@lru_cache(maxsize=64)
def _statements(source: str) -> tuple[str, ...] | None:
    """The text of each top-level statement but the docstring; None where lines do not tell them apart."""
    tree = _tree(source)
    if tree is None or "\r" in source:
        return None
    lines = source.split("\n")
    found: list[str] = []
    end = 0
    for node in tree.body[1 if ast.get_docstring(tree, clean=False) else 0 :]:
        marks = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) else []
        start = min([node.lineno, *(mark.lineno for mark in marks)])
        if start <= end:
            return None
        end = node.end_lineno or start
        found.append("\n".join(lines[start - 1 : end]))
    return tuple(found)
