"""For references of suites that always have a GPU and seed themselves: device and randomness become the judge's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _Placed(TorchFunctionMode):
    """Tensors are made where torch makes them by default, with its own generator."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {name: value for name, value in (kwargs or {}).items() if name != "generator"}
        if _on_gpu(kwargs.get("device")):
            del kwargs["device"]
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to:
            args = (args[0], *[value for value in args[1:] if not _on_gpu(value)])
            if len(args) == 1 and not kwargs:
                return args[0]
        return func(*args, **kwargs)


def _on_gpu(value: Any) -> bool:
    return isinstance(value, str | torch.device) and str(value).startswith("cuda")


_GENERATOR = torch.Generator


def _generator(device: Any = None) -> torch.Generator:
    """A generator for `_Placed` to take away again; only a real one gets as far as that."""
    return _GENERATOR()


@contextmanager
def placed() -> Iterator[None]:
    """Inside, `device="cuda"`, generators and seeds mean nothing. One thread at a time."""
    changed: list[tuple[Any, str, Any]] = [
        (torch, "Generator", _generator),
        (torch, "manual_seed", lambda seed: None),
        (torch.cuda, "manual_seed", lambda seed: None),
        (torch.cuda, "manual_seed_all", lambda seed: None),
        (torch.cuda, "synchronize", lambda device=None: None),
    ]
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in changed]
    try:
        for owner, name, value in changed:
            setattr(owner, name, value)
        with _Placed():
            yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


def call(function: Callable[..., Any], *inputs: Any) -> Any:
    """`function(*inputs)`; without a GPU, inside `placed`."""
    if torch.cuda.is_available():
        return function(*inputs)
    with placed():
        return function(*inputs)


def recorded(names: Mapping[str, Any], entry: str, tests: str) -> list[list[Any]]:
    """The arguments of every call of `names[entry]` that `tests` makes, defaults included, in the order of its
    signature."""
    found: list[list[Any]] = []
    wanted = inspect.signature(names[entry])

    def record(*args: Any, **kwargs: Any) -> Any:
        bound = wanted.bind(*args, **kwargs)
        bound.apply_defaults()
        found.append(list(bound.arguments.values()))
        return call(names[entry], *found[-1])

    with placed():
        exec(compile(tests, "<tests>", "exec"), {**names, entry: record, "__name__": "tests"})
    return found


def modules(sources: Mapping[str, str], wanted: str) -> dict[str, Any]:
    """What the module `wanted` defines, run beside others of these names that it may import."""
    import sys
    import types

    before = {name: sys.modules.get(name) for name in sources}
    try:
        for name, source in sources.items():
            made = types.ModuleType(name)
            sys.modules[name] = made
            exec(compile(source, f"{name}.py", "exec"), made.__dict__)
        return dict(sys.modules[wanted].__dict__)
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def drawn(function: Callable[..., Any], arguments: Mapping[str, Any], seeded: Sequence[str] = ("seed",)) -> list[Any]:
    """`function(**arguments)` as a list, with seeds that the judge draws in place of published ones."""
    given = dict(arguments)
    for name in seeded:
        if name in given:
            given[name] = int(torch.randint(0, 2**31 - 1, (), device="cpu"))
    with placed():
        data = function(**given)
    return list(data) if isinstance(data, tuple | list) else [data]
