"""A first correct kernel from torch.compile: Inductor's Triton code as one plain file that a person could have written.

Inductor writes code for the GPU it is told of and needs none itself (`inductor_child`). What becomes of its code: plain
`@triton.jit` kernels with block sizes as named constants, plain launches, weights by their names, library calls as
torch calls. Sizes that differ between a task's shapes stay arguments, since a kernel is checked at all of them.
"""

from __future__ import annotations

import ast
import json
from typing import Any

from evaluator import child, hardware, syntax
from evaluator.errors import TaskError
from evaluator.seeds.inductor_kernels import Kernel, UnreadableError, kernels_of
from evaluator.seeds.inductor_wrapper import forward_of
from evaluator.types import Task

_DROPPED = ("get_inputs", "get_init_inputs")
_HEAD = '''"""{description}

Written from the code of torch {version}'s Inductor.
"""

import torch
import triton
import triton.language as tl
'''
_HELPERS = "from torch._inductor.runtime import triton_helpers\n"
_LIBDEVICE = "from torch._inductor.runtime.triton_helpers import libdevice\n"


def seed(task: Task, target: str = "h200") -> str:
    """The source of `ModelNew`. Raises `TaskError` with the reason where Inductor's code cannot be made one."""
    return readable(task, ask(task, target))


def ask(task: Task, target: str = "h200") -> dict[str, Any]:
    """What `inductor_child` answers: code, version, and what its arguments are. Raises `TaskError`."""
    given = {"task": task.model_dump_json(), "gpu": _described(hardware.get(target))}
    said = child.run(["-m", "evaluator.seeds.inductor_child"], json.dumps(given).encode(), task.origin)
    answer: dict[str, Any] = json.loads(said)
    if "refused" in answer:
        raise _refused(task, str(answer["refused"]))
    return answer


def readable(task: Task, answer: dict[str, Any]) -> str:
    """Inductor's code (what `inductor_child` answers) as a source. Raises `TaskError`."""
    try:
        module = syntax.parse(str(answer["code"]))
        kernels = kernels_of(module)
        if not kernels:
            raise UnreadableError("Inductor calls libraries only, and writes no Triton kernel")
        forward = forward_of(module, kernels, answer)
    except UnreadableError as error:
        raise _refused(task, str(error)) from None
    model = _model(task.reference_source, forward)
    parts = [_head(task, str(answer["version"]), kernels), *_kept(task.reference_source, model)]
    parts += [constant for kernel in kernels.values() for constant in kernel.constants]
    text = "\n".join(parts) + "\n"
    for kernel in kernels.values():
        text += f"\n\n{kernel.source}\n"
    return f"{text}\n\n{model}\n"


def _head(task: Task, version: str, kernels: dict[str, Kernel]) -> str:
    text = _HEAD.format(
        description=(task.description.splitlines() or [task.name])[0].replace('"""', ""), version=version
    )
    body = "".join(kernel.source for kernel in kernels.values())
    return text + (_HELPERS if "triton_helpers." in body else "") + (_LIBDEVICE if "libdevice." in body else "")


def _kept(reference: str, model: str) -> list[str]:
    """What the reference defines beside its model and inputs, where the new model needs it."""
    kept: list[str] = []
    for node in reversed(syntax.parse(reference).body):
        needed = {
            name.id for text in (model, *kept) for name in ast.walk(syntax.parse(text)) if isinstance(name, ast.Name)
        }
        if not needed & _given(node):
            continue
        named = isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in ("Model", *_DROPPED)
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not named and not text and ast.unparse(node) not in ("import torch", "from __future__ import annotations"):
            kept.append(ast.unparse(node))
    return kept[::-1]


def _given(node: ast.stmt) -> set[str]:
    """The names that a statement gives a meaning."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}


def _model(reference: str, forward: str) -> str:
    """The reference's class with another `forward`."""
    (model,) = [
        node for node in syntax.parse(reference).body if isinstance(node, ast.ClassDef) and node.name == "Model"
    ]
    for node in ast.walk(model):
        if isinstance(node, ast.Name) and node.id == "Model":
            node.id = "ModelNew"
    model.name = "ModelNew"
    model.body = [node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    model.body += syntax.parse(forward).body
    return ast.unparse(ast.fix_missing_locations(model))


def _described(gpu: hardware.Hardware) -> dict[str, int]:
    """What Inductor asks of a GPU."""
    return {
        "major": gpu.arch // 10,
        "minor": gpu.arch % 10,
        "multi_processor_count": gpu.sms,
        "max_threads_per_multi_processor": gpu.max_warps_per_sm * 32,
        "max_threads_per_block": 1024,
        "regs_per_multiprocessor": gpu.registers_per_sm,
        "warp_size": 32,
        "total_memory": 80 << 30,
        "L2_cache_size": gpu.l2_bytes,
        "shared_memory_per_block_optin": gpu.shared_bytes_per_block,
        "shared_memory_per_multiprocessor": gpu.shared_bytes_per_sm,
    }


def _refused(task: Task, reason: str) -> TaskError:
    return TaskError(
        f"{task.origin}: no first kernel from Inductor: {reason}", "write one, and name it as first_kernel"
    )
