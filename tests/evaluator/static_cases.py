"""The honest kernel that tests of the static stage change, and what changes it."""

from __future__ import annotations

import textwrap

from evaluator.task import load_task

STRICT = load_task("softmax")
MIXED = STRICT.model_copy(update={"op_policy": "mixed"})

HONEST = load_task("softmax").seed_source
assert HONEST is not None
LAUNCH = (
    "        softmax_kernel[grid](x, out, n_cols, x.stride(0), out.stride(0), BLOCK_SIZE=BLOCK_SIZE, num_warps=4)\n"
)
RETURN = "        return out\n"


def changed(old: str, new: str) -> str:
    assert old in HONEST, old
    return HONEST.replace(old, new)


def beside(text: str) -> str:
    """The honest kernel with module-level code before its class."""
    return changed("class ModelNew", f"{textwrap.dedent(text).strip()}\n\n\nclass ModelNew")


def inside(text: str) -> str:
    """The honest kernel with statements before forward's return."""
    return changed(RETURN, textwrap.indent(textwrap.dedent(text).strip(), " " * 8) + "\n" + RETURN)


def line_of(source: str, text: str) -> int:
    """The one line of `source` that holds `text`."""
    (number,) = [number for number, line in enumerate(source.splitlines(), 1) if text in line]
    return number
