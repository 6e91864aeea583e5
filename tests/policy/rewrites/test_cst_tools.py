import libcst as cst
import pytest

from policy.rewrites import cst_tools as tools
from policy.rewrites import triton_tools as triton
from policy.rewrites.base import RewriteError
from tests.policy.rewrites import kernels


@pytest.mark.parametrize("name", sorted(kernels.ALL))
def test_parsing_and_emitting_gives_back_the_same_text(name):
    source = kernels.ALL[name][0]
    assert tools.parse(source).code == source


def test_a_source_that_is_not_python_is_a_rewrite_error_with_a_line():
    with pytest.raises(RewriteError, match="line 2"):
        tools.parse("x = 1\ndef (:\n")


def test_an_unchanged_source_is_an_error_not_a_result():
    with pytest.raises(RewriteError, match="as it is"):
        tools.emit(tools.parse("x = 1\n"), "x = 1\n")


@pytest.mark.parametrize(
    ("header", "call"),
    [
        ("import triton\nimport triton.language as tl", "tl.load"),
        ("import triton\nfrom triton import language as lang", "lang.load"),
        ("import triton\nimport triton.language", "triton.language.load"),
        ("import triton\nfrom triton.language import load as ld", "ld"),
        ("import triton as t\nimport triton.language as tl", "tl.load"),
    ],
)
def test_loads_are_found_under_every_import_alias(header, call):
    jit = "t.jit" if "as t\n" in header else "triton.jit"
    source = f"{header}\n\n@{jit}\ndef k(p):\n    x = {call}(p)\n\ndef host(p):\n    return {call}(p)\n"
    sites = triton.call_sites(tools.parse(source), {"load"})
    assert [(site.kernel, site.index, site.op) for site in sites] == [("k", 0, "load")]


def test_kernels_are_found_under_called_and_imported_decorators():
    source = (
        "import triton\nfrom triton import jit\n"
        "@jit\ndef a(): pass\n@triton.jit\ndef b(): pass\n"
        "@triton.autotune([], key=[])\n@triton.jit(debug=True)\ndef c(): pass\n"
        "@other.jit\ndef d(): pass\ndef e(): pass\n"
    )
    assert [node.name.value for node in triton.kernels(tools.parse(source))] == ["a", "b", "c"]


def test_sites_are_numbered_per_kernel_in_source_order():
    sites = triton.call_sites(tools.parse(kernels.TWO_ELEMENTWISE), {"load"})
    assert [(site.kernel, site.index) for site in sites] == [
        ("add_kernel", 0),
        ("add_kernel", 1),
        ("silu_kernel", 0),
    ]


def test_launch_arguments_bind_by_position_and_by_keyword():
    module = tools.parse(kernels.LAYER_NORM)
    (launch,) = triton.launches(module)
    kernel = triton.kernel_named(module, "norm")
    assert launch.function is not None
    assert launch.function.name.value == "forward"
    assert tools.code(triton.launch_argument(launch, kernel, "n").value) == "n"
    assert tools.code(triton.launch_argument(launch, kernel, "BLOCK").value) == "t.next_power_of_2(n)"
    assert triton.launch_argument(launch, kernel, "missing") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(k=2)"),
        ("f(a)", "f(a, k=2)"),
        ("f(a, k=1)", "f(a, k=2)"),
        ("f(k=1, b=3)", "f(k=2, b=3)"),
        ("f(\n    a,\n    b,\n)", "f(\n    a,\n    b,\n    k=2)"),
    ],
)
def test_a_keyword_is_added_or_replaced(before, after):
    call = tools.expression(before)
    changed = tools.code(tools.with_keyword(call, "k", "2"))
    compact = str.maketrans("", "", " \n,")
    assert changed.translate(compact) == after.translate(compact)
    cst.parse_expression(changed)


@pytest.mark.parametrize("name", sorted(kernels.ALL))
def test_adding_a_launch_keyword_keeps_the_file_valid_and_all_else_equal(name):
    source = kernels.ALL[name][0]
    module = tools.parse(source)
    edits = {launch.call: tools.with_keyword(launch.call, "num_ctas", "1") for launch in triton.launches(module)}
    text = tools.replace(module, edits).code
    compile(text, "changed", "exec")
    assert text.count("num_ctas=1") == len(edits) > 0
    assert text.replace(", num_ctas=1", "").replace("num_ctas=1", "").split() != text.split()


def test_a_keyword_is_removed_with_its_comma():
    assert tools.code(tools.without_keyword(tools.expression("f(a, k=1)"), "k")) == "f(a)"
    assert tools.code(tools.without_keyword(tools.expression("f(k=1, b=2)"), "k")) == "f(b=2)"


@pytest.mark.parametrize("name", sorted(kernels.ALL))
def test_a_parameter_is_added_to_every_kernel(name):
    module = tools.parse(kernels.ALL[name][0])
    edits = {kernel: tools.with_parameter(kernel, "EVEN", "tl.constexpr") for kernel in triton.kernels(module)}
    changed = tools.replace(module, edits)
    compile(changed.code, "changed", "exec")
    assert all("EVEN" in triton.parameter_names(kernel) for kernel in triton.kernels(changed))


def test_a_plain_parameter_cannot_follow_a_default():
    function = tools.statement("def f(a, b=1): pass")
    with pytest.raises(RewriteError, match="default"):
        tools.with_parameter(function, "c")


def test_statements_go_after_the_docstring():
    function = tools.statement('def f(a):\n    """Doc."""\n    return a\n')
    changed = tools.insert_at_start(function, tools.statements("b = a\n"))
    assert tools.code(changed) == 'def f(a):\n    """Doc."""\n    b = a\n    return a\n'


def test_renaming_leaves_attributes_and_keyword_names_alone():
    node = tools.expression("f(n=n, m=x.n + n)")
    assert tools.code(tools.substitute(node, {"n": cst.Name("k")})) == "f(n=k, m=x.n + k)"


def test_substitution_keeps_precedence():
    node = tools.expression("a * b")
    assert tools.code(tools.substitute(node, {"b": tools.expression("c + d")})) == "a * (c + d)"


def test_names_bound_by_loops_and_tuples_are_seen():
    node = tools.statement("for i, (j, k) in x:\n    a = b = 1\n    c += 1\n")
    assert tools.assigned_names(node) == {"i", "j", "k", "a", "b", "c"}


def test_a_fresh_name_avoids_every_name_of_the_module():
    module = tools.parse("EVEN = 1\ndef f(EVEN_2): pass\n")
    assert tools.fresh_name(module, "EVEN") == "EVEN_3"


def test_comments_stay_where_they_are_when_statements_are_inserted():
    module = tools.parse("# head\nx = 1  # tail\ny = 2\n")
    target = module.body[1]
    text = tools.replace(module, {target: cst.FlattenSentinel([*tools.statements("z = 3\n"), target])}).code
    assert text == "# head\nx = 1  # tail\nz = 3\ny = 2\n"
