"""Any composition of rewrites keeps the meaning of a kernel."""

import numpy as np
import pytest

from evaluator.static_checks import check
from policy.rewrites import RewriteContext, catalogue
from tests.policy.rewrites import kernels
from tests.policy.rewrites.harness import assert_same_meaning

CHAINS = 5
LENGTH = 4
SOURCES = {**kernels.ALL, **{f"{name} seed": pair for name, pair in kernels.SEEDS.items()}}


def chain(source, context, rng, length=LENGTH):
    """Up to `length` rewrites drawn uniformly among those that apply, and the source after them."""
    steps = []
    for _ in range(length):
        options = {name: found for name, r in catalogue().items() if (found := r.candidates(source, context))}
        if not options:
            break
        name = list(options)[rng.integers(len(options))]
        args = options[name][rng.integers(len(options[name]))]
        source = catalogue()[name].apply(source, args, context)
        steps.append((name, args.model_dump()))
    return source, steps


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_random_chains_of_rewrites_keep_the_meaning_and_pass_the_static_checks(interpreter, name):
    source, setups = SOURCES[name]
    task = name.removesuffix(" seed")
    context = kernels.CONTEXTS.get(task, RewriteContext()) if name.endswith("seed") else RewriteContext()
    rtol, atol = kernels.tolerance_of(task) if name.endswith("seed") else (1e-4, 1e-5)
    rng = np.random.default_rng(sorted(SOURCES).index(name))
    for number in range(CHAINS):
        rewritten, steps = chain(source, context, rng, length=1 + number % LENGTH)
        assert steps
        some = [setups[number % len(setups)], setups[-1]]
        if name.endswith("seed"):
            assert check(rewritten, kernels.TASKS[task]).status is None, rewritten
        assert_same_meaning(interpreter, source, rewritten, some, exact=False, rtol=rtol, atol=atol)
