import libcst as cst
import pytest

from policy.rewrites.cst_tools import code, find, parse
from policy.rewrites.dataflow import Flow, constant_range, ranks
from policy.rewrites.triton_tools import aliases, kernel_named
from tests.policy.rewrites import kernels


def flow_of(body, params="n, m"):
    module = parse(f"def f({params}):\n" + "".join(f"    {line}\n" for line in body.splitlines()))
    function = module.body[0]
    uses = [call for call in find(function, cst.Call) if code(call.func) == "use"]
    return Flow(function), uses


def value_at_use(body, name="x"):
    """The text of what certainly reaches `use(...)`; None when nothing is certain."""
    flow, uses = flow_of(body)
    origin = flow.origin(name, uses[0])
    if isinstance(origin, cst.For):
        return f"loop over {code(origin.iter)}"
    return None if origin is None else "parameter" if isinstance(origin, cst.Param) else code(origin)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = 1\nuse(x)", "1"),
        ("x = 1\nx = 2\nuse(x)", "2"),
        ("x = 1\nx += 1\nuse(x)", None),
        ("x, y = 1, 2\nuse(x)", None),
        ("x = 1\nif n:\n    x = 2\nuse(x)", None),
        ("x = 1\nif n:\n    use(x)\n    x = 2", "1"),
        ("x = 1\nif n:\n    pass\nelse:\n    use(x)", "1"),
        ("for x in range(n):\n    use(x)", "loop over range(n)"),
        ("for x in range(n):\n    use(x)\n    x = 2", None),
        ("x = 1\nfor i in range(n):\n    use(x)", "1"),
        ("x = 1\nfor i in range(n):\n    use(x)\n    x = 2", None),
        ("x = 1\nfor i in range(n):\n    x = 2\n    use(x)", "2"),
        # the branch of an if inside a loop does not hide what the loop carries
        ("x = 1\nfor i in range(n):\n    if n:\n        pass\n    else:\n        use(x)\n    x = 2", None),
        ("x = 1\nfor i in range(n):\n    x = 2\nuse(x)", None),
        ("use(x)", None),
    ],
)
def test_only_a_definition_that_certainly_reaches_the_use_counts(body, expected):
    assert value_at_use(body) == expected


def test_parameters_count_until_they_are_assigned():
    assert value_at_use("use(n)", "n") == "parameter"
    assert value_at_use("if m:\n    pass\nelse:\n    use(n)", "n") == "parameter"
    assert value_at_use("n = n + 1\nuse(n)", "n") == "n + 1"


def test_expansion_stops_where_a_name_was_bound_anew():
    flow, uses = flow_of("x = n + 1\nn = 5\nuse(x)")
    assert code(flow.expanded(uses[0].args[0].value, uses[0])) == "x"
    flow, uses = flow_of("y = n + 1\nx = y * 2\nuse(x)")
    assert code(flow.expanded(uses[0].args[0].value, uses[0])) == "(n + 1) * 2"


def test_expansion_can_be_limited_to_some_names():
    flow, uses = flow_of("y = n + 1\nx = y * 2\nuse(x)")
    assert code(flow.expanded(uses[0].args[0].value, uses[0], names={"x"})) == "y * 2"


@pytest.mark.parametrize(
    ("iterable", "expected"),
    [
        ("range(n)", (None, "n", "1")),
        ("range(1, n)", ("1", "n", "1")),
        ("tl.range(0, n, 4, num_stages=2)", ("0", "n", "4")),
        ("tl.range(0, n, step=4)", None),
        ("items", None),
    ],
)
def test_bounds_of_a_range(iterable, expected):
    loop = cst.parse_statement(f"for i in {iterable}:\n    pass\n")
    bounds = constant_range(loop)
    found = None if bounds is None else tuple(None if b is None else code(b) for b in bounds)
    assert found == expected


def test_ranks_of_a_matrix_product():
    module = parse(kernels.MATMUL)
    found = ranks(kernel_named(module, "matmul_kernel"), aliases(module))
    expected = {"M": 0, "pid_m": 0, "offs_m": 1, "ks": 1, "k": 0, "acc": 2, "a": 2, "b": 2, "c_mask": 2}
    assert expected.items() <= found.items()


def test_ranks_of_rows():
    module = parse(kernels.SOFTMAX)
    found = ranks(kernel_named(module, "softmax_kernel"), aliases(module))
    assert {"peak": 1, "row_max": 0, "total": 1, "denominator": 0, "x": 1, "y": 1}.items() <= found.items()


def test_a_name_with_two_ranks_has_none():
    source = kernels.SOFTMAX.replace(
        "    row_max = tl.max(peak, axis=0)", "    row_max = peak\n    row_max = tl.max(peak, axis=0)"
    )
    module = parse(source)
    assert "row_max" not in ranks(kernel_named(module, "softmax_kernel"), aliases(module))
