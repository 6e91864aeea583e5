"""The tables of what candidates may name agree with the torch and triton that are installed."""

from __future__ import annotations

import importlib
import types

import pytest
import torch
import triton.language as tl

from evaluator import static_members as members
from evaluator import static_rules as rules


def resolved(path):
    """The object that a dotted path names; None where this version has none."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        parent, _, name = path.rpartition(".")
        return getattr(resolved(parent), name, None) if parent else None


@pytest.mark.parametrize("module", sorted(members.MEMBERS))
def test_no_member_is_a_module_of_its_own(module):
    holder = resolved(module)
    for name in members.MEMBERS[module]:
        assert not isinstance(getattr(holder, name, None), types.ModuleType), f"{module}.{name}"


@pytest.mark.parametrize("module", sorted(members.CAPITALISED))
def test_what_has_a_capital_letter_is_no_module(module):
    holder = resolved(module)
    capital = [name for name in dir(holder) if name[:1].isupper()]
    assert capital
    assert not any(isinstance(getattr(holder, name), types.ModuleType) for name in capital)


@pytest.mark.parametrize("module", sorted(members.HELD))
def test_what_a_module_of_device_functions_holds_beside_them_is_known(module):
    library = resolved(module)
    public = {name for name in dir(library) if not name.startswith("_")}
    modules = {name for name in public if isinstance(getattr(library, name), types.ModuleType)}
    assert modules <= members.HELD[module] | {name for name in public if f"{module}.{name}" in members.MEMBERS}


def test_no_member_is_forbidden_elsewhere():
    paths = {f"{module}.{name}" for module, names in members.MEMBERS.items() for name in names}
    assert not {path for path in paths for prefix in rules.FORBIDDEN_PATHS if f"{path}.".startswith(f"{prefix}.")}


def test_every_function_and_type_of_the_language_may_be_named():
    public = {name for name in dir(tl) if name[0] != "_" and not isinstance(getattr(tl, name), types.ModuleType)}
    assert public - members.MEMBERS["triton.language"] <= members.HELD["triton.language"]


def test_every_operator_of_nn_functional_may_be_named():
    functional = torch.nn.functional
    documented = {
        name
        for name in dir(functional)
        if isinstance(getattr(functional, name), types.FunctionType | types.BuiltinFunctionType)
        and name.islower()
        and not name.startswith("_")
        and "torch_function" not in name
    }
    assert documented - members.MEMBERS["torch.nn.functional"] <= {"assert_int_or_pair", "boolean_dispatch"}


def test_arithmetic_of_tensors_computes_and_views_do_not():
    methods = {name for name in dir(torch.Tensor) if not name.startswith("_")}
    assert len(rules.COMPUTING & methods) > 400
    assert {"add_", "aminmax", "exp", "logcumsumexp", "matmul", "softmax", "sum_to_size"} <= rules.COMPUTING
    assert not rules.COMPUTING & (rules.VIEWS | rules.DESCRIPTIONS)


def test_what_a_module_keeps_for_itself_is_known():
    kept = {name for name in dir(torch.nn.Module()) if name.startswith("_") and not name.startswith("__")}
    assert kept <= members.MODULE_PRIVATE
