"""What the interpreter accepts must compile too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from policy.rewrites import RewriteContext, catalogue
from tests.policy.rewrites import kernels
from tests.policy.rewrites.test_chains import SOURCES, chain

SOURCES_PER_REWRITE = 4
WORKER = Path(__file__).with_name("compile_worker.py")


@pytest.fixture(scope="module")
def errors_of(tmp_path_factory):
    """A function from (source, setup) to the compiler's error or None, over one process."""
    folder = tmp_path_factory.mktemp("compile")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "cache"), "TRITON_DEFAULT_FP_FUSION": "1"}
    environment.pop("TRITON_INTERPRET", None)
    process = subprocess.Popen(
        [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    count = 0

    def ask(source, setup):
        nonlocal count
        count += 1
        paths = {"source": folder / f"source_{count}.py", "setup": folder / f"setup_{count}.py"}
        paths["source"].write_text(source)
        paths["setup"].write_text(setup)
        process.stdin.write(json.dumps({name: str(path) for name, path in paths.items()}) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())["error"]

    yield ask
    process.stdin.close()
    process.wait(timeout=30)


def context_of(name):
    task = name.removesuffix(" seed")
    loose = RewriteContext(input_precisions=("ieee", "tf32", "tf32x3"))
    return kernels.CONTEXTS[task] if name.endswith("seed") else loose


@pytest.mark.parametrize("rewrite", sorted(catalogue()))
def test_what_a_rewrite_returns_compiles(errors_of, rewrite):
    """One setting on each of a few sources; both values of the flag where one is introduced."""
    found = {
        name: candidates
        for name, (source, _) in sorted(SOURCES.items())
        if (candidates := catalogue()[rewrite].candidates(source, context_of(name)))
    }
    for index, (name, candidates) in enumerate(list(found.items())[:SOURCES_PER_REWRITE]):
        source, setups = SOURCES[name]
        args = candidates[index * 7 % len(candidates)]
        text = catalogue()[rewrite].apply(source, args, context_of(name))
        for setup in {setups[0], setups[-1]} if rewrite == "drop_mask" else {setups[-1]}:
            assert errors_of(text, setup) is None, text


@pytest.mark.parametrize("name", ["softmax seed", "attention seed", "matmul", "layer_norm seed"])
def test_what_a_chain_of_rewrites_returns_compiles(errors_of, name):
    source, setups = SOURCES[name]
    rng = np.random.default_rng(17)
    for _ in range(3):
        text, _ = chain(source, context_of(name), rng)
        assert errors_of(text, setups[-1]) is None, text


def test_the_compiler_is_really_asked(errors_of):
    broken = kernels.LAYER_NORM.replace("mask=mask, other=0.0", 'mask=mask, other=0.0, eviction_policy="soon"')
    assert "soon" in errors_of(broken, kernels.LAYER_NORM_SETUPS[0])
