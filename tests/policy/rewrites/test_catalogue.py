import json

import pytest

from policy.rewrites import RewriteContext, RewriteError, apply_steps, catalogue, json_schema, rewrite_named
from policy.types import RewriteStep
from tests.policy.rewrites import kernels

CONTEXT = RewriteContext()
HINT = RewriteStep(name="cache_hints", args={"kernel": "norm", "site": 0, "hint": ".cg"})


def test_names_in_the_catalogue_are_the_rewrites_own_in_order():
    assert [rewrite.name for rewrite in catalogue().values()] == list(catalogue())
    assert list(catalogue()) == sorted(catalogue())


def test_the_catalogue_handed_out_is_a_copy():
    catalogue().clear()
    assert catalogue()


@pytest.mark.parametrize("name", sorted(kernels.SEEDS))
def test_no_setting_is_listed_twice(name):
    source, _ = kernels.SEEDS[name]
    context = RewriteContext.of_task(kernels.TASKS[name])
    for rewrite in catalogue().values():
        settings = [args.model_dump_json() for args in rewrite.candidates(source, context)]
        assert len(settings) == len(set(settings)), rewrite.name


def test_steps_apply_in_order():
    steps = [HINT, RewriteStep(name="use_rsqrt", args={"kernel": "norm", "site": 0})]
    text = apply_steps(kernels.LAYER_NORM, steps, CONTEXT)
    assert 'cache_modifier=".cg"' in text
    assert "rsqrt" in text
    assert apply_steps(kernels.LAYER_NORM, [], CONTEXT) == kernels.LAYER_NORM


def test_a_step_that_does_not_apply_is_named_with_its_number():
    with pytest.raises(RewriteError, match=r"step 2 \(cache_hints\): .*as it is"):
        apply_steps(kernels.LAYER_NORM, [HINT, HINT], CONTEXT)


def test_an_unknown_rewrite_names_its_nearest():
    with pytest.raises(RewriteError, match="did you mean 'drop_mask'"):
        rewrite_named("drop_masks")


def test_unknown_and_wrong_arguments_are_errors():
    for args, field in (({**HINT.args, "extra": 1}, "extra"), ({"kernel": "norm", "hint": ".cg"}, "site")):
        with pytest.raises(RewriteError, match=field):
            apply_steps(kernels.LAYER_NORM, [RewriteStep(name="cache_hints", args=args)], CONTEXT)


def test_the_schema_lists_every_rewrite_with_its_arguments():
    schema = json_schema(max_steps=3)
    steps = schema["properties"]["steps"]
    kinds = {item["properties"]["name"]["const"]: item["properties"]["args"] for item in steps["items"]["oneOf"]}
    assert list(kinds) == list(catalogue())
    assert steps["maxItems"] == 3
    assert set(kinds["drop_mask"]["required"]) == {"kernel", "size", "block"}
    assert all(args["additionalProperties"] is False for args in kinds.values())
    json.dumps(schema)


def test_the_schema_can_be_limited_to_what_applies():
    items = json_schema(["use_rsqrt"])["properties"]["steps"]["items"]["oneOf"]
    assert [item["properties"]["name"]["const"] for item in items] == ["use_rsqrt"]


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_rewrite_refuses_a_source_without_kernels(name):
    rewrite = rewrite_named(name)
    plain = "class ModelNew:\n    pass\n"
    assert rewrite.candidates(plain, CONTEXT) == []
    some = next(
        (
            args
            for source, _ in (*kernels.ALL.values(), *kernels.SEEDS.values())
            for args in rewrite.candidates(source, CONTEXT)
        ),
        None,
    )
    if some is not None:
        with pytest.raises(RewriteError):
            rewrite.apply(plain, some, CONTEXT)
